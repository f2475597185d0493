"""Reference values of ml/ridge for targets that are constant, or nearly so, in some folds: scikit-learn 1.9.1, numpy 2.4.6.

    python integration-tests/reference/ridge_folds.py

writes ml/ridge/tests/fixtures/folds.json. A fold in which a target has no variance beside that of the whole target leaves the
mean of that target's R² and r. scikit-learn's `r2_score` gives 0 for a constant target under every penalty, so that the penalty
of `GridSearchCV` does not depend on it; where a target is nearly constant, it is set to its mean there first.
"""

import json
from pathlib import Path

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.metrics import make_scorer, mean_squared_error, r2_score
from sklearn.model_selection import GridSearchCV, KFold

OUT = Path(__file__).resolve().parents[2] / "ml/ridge/tests/fixtures/folds.json"
ALPHAS = [0.1, 1.0, 10.0, 100.0, 1000.0]
FOLDS, SAMPLES, FEATURES = 4, 48, 6
BANDS, GAMMAS = [2, 4], [[0.5, 0.5], [0.9, 0.1], [0.1, 0.9]]

rng = np.random.default_rng(16)
x = rng.normal(size=(SAMPLES, FEATURES)) @ rng.normal(size=(FEATURES, FEATURES)) + 3
x = x.astype(np.float32).astype(float)
names = ["lively", "dead", "flat", "faint", "far", "steps", "late", "pairs"]
y = x @ rng.normal(size=(FEATURES, len(names))) + rng.uniform(0.5, 8, size=len(names)) * rng.normal(size=(SAMPLES, len(names)))
first, second = slice(0, 12), slice(12, 24)
y[second, 1] = 0  # constant in one fold
y[first, 2] = 1e-17 * rng.normal(size=12)  # what filters leave of a constant
y[second, 3] = 1e-6 * rng.normal(size=12)  # varies by a millionth of the others
y[:, 4] += 4090
y[first, 4] = 4096  # constant, far from zero
y[:, 5] = np.repeat([1.0, -2.0, 5.0, 0.5], 12)  # constant in every fold, not as a whole
y[:36, 6] = 0  # lives in one fold only: the fit of all others is a constant
y[:24, 7] = 2  # constant in two
y = y.astype(np.float32).astype(float)

parts = list(KFold(FOLDS).split(x))


def flat(values, whole):
    return np.std(values) <= 1e-5 * np.std(whole)


def snapped(held, target):
    return np.full(len(held), np.mean(y[held, target])) if flat(y[held, target], y[:, target]) else y[held, target]


def scores(features):
    """By score, of every fold, penalty and target; NaN where a target can have none."""
    found = {name: np.full((FOLDS, len(ALPHAS), len(names)), np.nan) for name in ("r2", "pearson", "neg_mean_squared_error")}
    for fold, (train, held) in enumerate(parts):
        for a, alpha in enumerate(ALPHAS):
            p = Ridge(alpha=alpha).fit(features[train], y[train]).predict(features[held])
            for t in range(len(names)):
                found["neg_mean_squared_error"][fold, a, t] = -mean_squared_error(y[held, t], p[:, t])
                if flat(y[held, t], y[:, t]):
                    continue
                found["r2"][fold, a, t] = r2_score(y[held, t], p[:, t])
                if not flat(y[train, t], y[:, t]):
                    found["pearson"][fold, a, t] = np.corrcoef(y[held, t], p[:, t])[0, 1]
    return found


def mean(of_folds):
    count = np.isfinite(of_folds).sum(axis=0)
    return np.where(count > 0, np.nansum(of_folds, axis=0) / np.maximum(count, 1), np.nan)


def shared_alpha(score):
    """The penalty of a search over all targets, which are set to their mean where they are nearly constant."""
    if score == "pearson":
        return ALPHAS[int(np.argmax(np.nanmean(scores(x)[score], axis=(0, 2))))]
    if score == "neg_mean_squared_error":
        return GridSearchCV(Ridge(), {"alpha": ALPHAS}, scoring=score, cv=parts).fit(x, y).best_params_["alpha"]
    places = {y[held].tobytes(): held for _, held in parts}

    def r2(actual, predicted):
        held = places[np.ascontiguousarray(actual).tobytes()]
        return np.mean([r2_score(snapped(held, t), predicted[:, t]) for t in range(len(names))])

    return GridSearchCV(Ridge(), {"alpha": ALPHAS}, scoring=make_scorer(r2), cv=parts).fit(x, y).best_params_["alpha"]


def numbers(values):
    """NaN as null."""
    return [numbers(v) for v in values] if np.ndim(values) else (float(values) if np.isfinite(values) else None)


whole, cases = scores(x), {}
for score in whole:
    means = mean(whole[score])
    cases[score] = {
        "scores": numbers(means.T),
        "alpha": shared_alpha(score),
        "mean_scores": numbers(np.nanmean(whole[score], axis=(0, 2))),
    }

# Bands: of every target the best of all weights and penalties. A weight scales its features by its root.
banded = {}
for score in ("r2", "pearson"):
    each = np.stack([mean(scores(x * np.sqrt(np.repeat(gamma, BANDS)))[score]) for gamma in GAMMAS])
    best = []
    for t in range(len(names)):
        if np.isfinite(each[:, :, t]).any():
            gamma, alpha = np.unravel_index(np.nanargmax(each[:, :, t]), each.shape[:2])
            best.append({"gamma": int(gamma), "alpha": ALPHAS[alpha], "score": float(each[gamma, alpha, t])})
        else:
            best.append({"gamma": 0, "alpha": None, "score": None})
    banded[score] = best

OUT.write_text(json.dumps({
    "names": names, "x": x.tolist(), "y": y.tolist(), "alphas": ALPHAS, "folds": FOLDS, "scores": cases,
    "bands": BANDS, "gammas": GAMMAS, "banded": banded,
}) + "\n")
