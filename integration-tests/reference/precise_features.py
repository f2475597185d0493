"""Reference values of features that 32 bits do not hold, or leave too few digits: scikit-learn 1.9.1, numpy 2.4.6.

    python integration-tests/reference/precise_features.py

writes ml/operators/tests/fixtures/precise_features.json: a time stamp and features far from zero, with delays and without, three
runs to fit and one held out, and scores by leave-one-out under one penalty; z-scored features that are alike, with delays, at the default penalties. All in 64-bit floats.
"""

import json
from pathlib import Path

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, LeaveOneOut, PredefinedSplit, cross_val_predict

OUT = Path(__file__).resolve().parents[2] / "ml/operators/tests/fixtures/precise_features.json"
RUNS, SAMPLES, VOXELS = 4, 40, 4
rng = np.random.default_rng(47)


def delayed(x, delays):
    """Of one run: features that precede, zero before it begins."""
    if not delays:
        return x
    columns = []
    for delay in delays:
        shifted = np.zeros_like(x)
        shifted[delay:] = x[: len(x) - delay]
        columns.append(shifted)
    return np.hstack(columns)


def case(features, delays, alphas, noise=1.0):
    x = [delayed(run, delays) for run in features]
    about = [run - np.mean(np.vstack(x), axis=0) for run in x]
    weights = rng.normal(size=(x[0].shape[1], VOXELS)) / np.std(np.vstack(x), axis=0)[:, None]
    signal = [run @ weights for run in about]
    series = [s + noise * np.std(np.vstack(signal)) * rng.normal(size=s.shape) + 100 for s in signal]
    series = [s.astype(np.float32).astype(float) for s in series]
    split = PredefinedSplit(np.repeat(np.arange(3), [len(run) for run in x[:3]]))
    fit_x, fit_y = np.vstack(x[:3]), np.vstack(series[:3])
    search = GridSearchCV(Ridge(), {"alpha": alphas}, scoring="r2", cv=split).fit(fit_x, fit_y)
    fit = search.best_estimator_
    scores = np.zeros(VOXELS)
    for train, held in split.split():
        part = Ridge(alpha=fit.alpha).fit(fit_x[train], fit_y[train])
        scores += r2_score(fit_y[held], part.predict(fit_x[held]), multioutput="raw_values") / 3
    predicted = fit.predict(x[3])
    return {
        "features": [run.tolist() for run in features],
        "series": [s.T.tolist() for s in series],
        "delays": delays,
        "alphas": alphas,
        "alpha": fit.alpha,
        "score": scores.tolist(),
        "coefficients": fit.coef_.tolist(),
        "intercepts": fit.intercept_.tolist(),
        "r": [np.corrcoef(series[3][:, v], predicted[:, v])[0, 1] for v in range(VOXELS)],
        "r2": r2_score(series[3], predicted, multioutput="raw_values").tolist(),
        "predicted": predicted.T.tolist(),
    }


def alone(case):
    """The penalty that all targets share by R² of samples that are predicted one by one, and each target's scores under it."""
    x = np.vstack([np.array(run) for run in case["features"][:3]])
    y = np.hstack([np.array(run) for run in case["series"][:3]]).T
    predicted = [cross_val_predict(Ridge(alpha=alpha), x, y, cv=LeaveOneOut()) for alpha in case["alphas"]]
    r2 = [r2_score(y, p, multioutput="raw_values") for p in predicted]
    best = int(np.argmax(np.mean(r2, axis=1)))
    return {
        "alpha": case["alphas"][best],
        "r2": r2[best].tolist(),
        "neg_mean_squared_error": (-np.mean((y - predicted[best]) ** 2, axis=0)).tolist(),
    }


def stamps():
    """Seconds since 1970, and a number about zero."""
    runs = []
    for _ in range(RUNS):
        seconds = 1.7e9 + np.cumsum(rng.uniform(0.2, 3, size=SAMPLES))
        runs.append(np.column_stack([seconds, rng.normal(size=SAMPLES)]))
    return runs


def far():
    return [1e5 + rng.normal(size=(SAMPLES, 2)) for _ in range(RUNS)]


def embeddings(width=24):
    """Z-scored columns that are mixtures of a few, as those of a language model are."""
    mix = rng.normal(size=(4, width))
    runs = [np.cumsum(rng.normal(size=(SAMPLES, 4)), axis=0) @ mix + 0.02 * rng.normal(size=(SAMPLES, width)) for _ in range(RUNS)]
    all_runs = np.vstack(runs)
    return [((run - all_runs.mean(axis=0)) / all_runs.std(axis=0)).astype(np.float32).astype(float) for run in runs]


DEFAULT = [0.1, 1, 100, 200, 300, 400, 600, 800, 900, 1000, 1200]
cases = {
    "stamps": case(stamps(), [], [0.1, 1.0, 10.0, 100.0]),
    "far": case(far(), [0, 1], [0.1, 1.0, 10.0, 100.0]),
    "embeddings": case(embeddings(), [1, 2], DEFAULT, noise=0.3),
}
x = np.vstack([delayed(run, [1, 2]) for run in cases["embeddings"]["features"][:3]])
values = np.linalg.eigvalsh((x - x.mean(axis=0)).T @ (x - x.mean(axis=0)))
cases["embeddings"]["condition"] = (values[-1] + 0.1) / (values[0] + 0.1)
cases["stamps"]["loo"] = alone(cases["stamps"])
OUT.write_text(json.dumps(cases) + "\n")
