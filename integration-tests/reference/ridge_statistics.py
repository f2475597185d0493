"""Reference values of ml/ridge's banded fits, splits, further penalties and scores, noise ceilings and false discoveries.

    python integration-tests/reference/ridge_statistics.py

writes ml/ridge/tests/fixtures/statistics.json with himalaya 0.4.6, scikit-learn 1.9.1, voxelwise_tutorials 0.2.3
(--no-deps is enough), scipy 1.17.1 and numpy 2.4.6, in 64-bit floats. CC_max and Spearman-Brown are their formulas.
"""

import importlib.util
import json
import warnings
from pathlib import Path

import numpy as np
import scipy.stats
from himalaya.kernel_ridge import generate_dirichlet_samples
from himalaya.ridge import GroupRidgeCV
from himalaya.scoring import correlation_score_split, r2_score, r2_score_split
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneGroupOut, LeaveOneOut

warnings.filterwarnings("ignore")
OUT = Path(__file__).resolve().parents[2] / "ml/ridge/tests/fixtures/statistics.json"
# The package itself imports plotting libraries; this function needs none of them.
utils = Path(importlib.util.find_spec("voxelwise_tutorials").origin).parent / "utils.py"
source = utils.read_text()
scope = {"np": np, "scipy": scipy}
start = source.index("def explainable_variance")
exec(source[start : source.index("\ndef ", start + 1)], scope)
explainable_variance = scope["explainable_variance"]


def banded(seed, samples, bands, targets, alpha_per_target, score=None):
    rng = np.random.default_rng(seed)
    p = sum(bands)
    x = np.round(rng.normal(size=(samples + 20, p)) @ (np.eye(p) + 0.2 * rng.normal(size=(p, p))), 6)
    weights = rng.normal(size=(p, targets))
    start = 0
    for size in bands:
        weights[start : start + size] *= rng.uniform(0, 2, size=targets)
        start += size
    y = np.round(x @ weights + rng.uniform(1, 6, size=targets) * rng.normal(size=(samples + 20, targets)), 6)
    x_test, y_test = x[samples:], y[samples:]
    x, y = x[:samples], y[:samples]
    # What splits are defined for.
    x_test, y_test = x_test - x_test.mean(0), y_test - y_test.mean(0)
    gammas = np.asarray(generate_dirichlet_samples(9, len(bands), [0.1, 1.0], random_state=seed))
    gammas[0] = 1 / len(bands)
    alphas = np.array([0.1, 1.0, 10.0, 100.0])
    params = dict(n_iter=gammas, alphas=alphas, local_alpha=alpha_per_target, progress_bar=False, warn=False)
    if score:
        params["score_func"] = score
    groups = np.repeat(np.arange(len(bands)), bands)
    fit = GroupRidgeCV(groups=groups, solver_params=params, fit_intercept=True, cv=KFold(4)).fit(x, y)
    # As its own `predict(split=True)`, which refuses an intercept.
    parts = np.stack([x_test[:, groups == band] @ fit.coef_[groups == band] for band in range(len(bands))])
    return {
        "x": x.tolist(), "y": y.tolist(), "bands": bands, "gammas": gammas.tolist(), "alphas": alphas.tolist(),
        "alpha_per_target": alpha_per_target, "score": "r2" if score else "mse",
        "deltas": fit.deltas_.tolist(), "coefficients": fit.coef_.tolist(), "intercepts": fit.intercept_.tolist(),
        "best": fit.cv_scores_.max(0).tolist(), "mean_scores": fit.cv_scores_.mean(1).tolist(),
        "x_test": x_test.tolist(), "y_test": y_test.tolist(),
        "r2_split": r2_score_split(y_test, parts).tolist(),
        "pearson_split": correlation_score_split(y_test, parts).tolist(),
        "r2": r2_score(y_test, parts.sum(0)).tolist(),
    }


def pearson(model, x, y):
    # Without the intercept, beside which predictions of a huge penalty are lost.
    p, y = x @ model.coef_.T, np.asarray(y)
    return float(np.mean([np.corrcoef(p[:, t], y[:, t])[0, 1] for t in range(y.shape[1])]))


def further(seed, samples, features, targets, alphas, integers=False):
    """What `ridge.json` has not: whole numbers, many penalties, LeaveOneGroupOut, searches by r, a penalty a target."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, features)) * 3 + 1
    y = x @ rng.normal(size=(features, targets)) + rng.uniform(1, 30, size=targets) * rng.normal(size=(samples, targets))
    x, y = np.round(x, 0 if integers else 6), np.round(y, 0 if integers else 6)
    runs = np.arange(samples) * 4 // samples

    def fitted(model):
        best = getattr(model, "best_estimator_", model)
        alpha = getattr(best, "alpha_", getattr(best, "alpha", None))
        return {
            "alphas": np.broadcast_to(alpha, targets).tolist(), "coefficients": best.coef_.T.tolist(),
            "intercepts": best.intercept_.tolist(),
        }

    def search(cv, scoring, groups=None):
        model = GridSearchCV(Ridge(), {"alpha": alphas}, cv=cv, scoring=scoring).fit(x, y, groups=groups)
        return {**fitted(model), "mean_scores": model.cv_results_["mean_test_score"].tolist()}

    def each(cv, groups=None):
        """A penalty for each target: a search for each."""
        parts = [GridSearchCV(Ridge(), {"alpha": alphas}, cv=cv, scoring="r2").fit(x, y[:, t], groups=groups) for t in range(targets)]
        return {
            "alphas": [m.best_params_["alpha"] for m in parts],
            "coefficients": np.array([m.best_estimator_.coef_ for m in parts]).T.tolist(),
            "intercepts": [float(m.best_estimator_.intercept_) for m in parts],
        }

    data = x.astype(int) if integers else x
    return {
        "x": x.tolist(), "y": y.tolist(), "alphas": list(alphas), "runs": runs.tolist(),
        "loo": fitted(RidgeCV(alphas=alphas).fit(data, y)),
        "loo_per_target": fitted(RidgeCV(alphas=alphas, alpha_per_target=True).fit(data, y)),
        "loo_search": search(LeaveOneOut(), "neg_mean_squared_error"),
        "folds_r2": search(KFold(5), "r2"),
        "folds_pearson": search(KFold(5), pearson),
        "folds_per_target": each(KFold(5)),
        "runs_r2": search(LeaveOneGroupOut(), "r2", runs),
        "runs_pearson": search(LeaveOneGroupOut(), pearson, runs),
        "runs_per_target": each(LeaveOneGroupOut(), runs),
    }


def ceiling(seed, repeats, samples, targets):
    rng = np.random.default_rng(seed)
    signal = rng.normal(size=(samples, targets)) * np.linspace(0, 2, targets)
    data = np.round(signal + rng.normal(size=(repeats, samples, targets)) + 5, 6)
    own = data.var(1, ddof=1)
    total = data.sum(0).var(0, ddof=1)
    power = (total - own.sum(0)) / (repeats * (repeats - 1))
    mean = data.mean(0)
    odd, even = data[0::2].mean(0), data[1::2].mean(0)
    r = np.array([np.corrcoef(odd[:, t], even[:, t])[0, 1] for t in range(targets)])
    predicted = np.round(signal + 0.5 * rng.normal(size=signal.shape), 6)
    covariance = np.array([np.cov(predicted[:, t], mean[:, t])[0, 1] for t in range(targets)])
    with np.errstate(invalid="ignore"):
        norm = covariance / np.sqrt(predicted.var(0, ddof=1) * power)
    return {
        "data": data.tolist(), "signal_power": power.tolist(),
        "cc_max": np.where(power > 0, np.sqrt(np.maximum(power, 0) / mean.var(0, ddof=1)), 0).tolist(),
        "explainable_variance": explainable_variance(data).tolist(),
        "split_half": (2 * r / (1 + r)).tolist(),
        "predicted": predicted.tolist(), "cc_norm": [None if np.isnan(v) else v for v in norm.tolist()],
    }


def discoveries():
    rng = np.random.default_rng(3)
    p = np.concatenate([rng.uniform(size=40), rng.uniform(size=20) * 0.01, [0.5, 0.5, 1.0, 0.001, 0.001]])
    return {"p": p.tolist(), "q": scipy.stats.false_discovery_control(p).tolist()}


OUT.write_text(json.dumps({
    "banded": {
        "tall": banded(1, 60, [6, 4, 3], 6, True),
        "tall_r2": banded(2, 50, [5, 7], 5, True, r2_score),
        "tall_shared": banded(3, 40, [4, 4, 4], 4, False),
        "wide": banded(4, 28, [20, 15, 10], 5, True),
        "wide_shared": banded(5, 32, [30, 12], 4, False, r2_score),
    },
    "further": {
        "whole_numbers": further(6, 60, 7, 5, [0.1, 1.0, 10.0, 100.0], integers=True),
        "twenty_penalties": further(7, 56, 12, 4, np.logspace(1, 20, 20).tolist()),
        "wide": further(8, 24, 40, 4, [0.5, 5.0, 50.0, 500.0]),
    },
    "ceiling": {"two": ceiling(9, 2, 40, 5), "five": ceiling(10, 5, 30, 4)},
    "false_discovery": discoveries(),
}))
