"""Reference values of the stage `ridge_cv`: scikit-learn 1.9.1, numpy 2.4.6, in 64-bit floats.

    python integration-tests/reference/ridge_stage.py

writes ml/operators/tests/fixtures/ridge_stage.json: features of three runs to fit and one held out, series of voxels,
and what scikit-learn's RidgeCV makes of them run-wise and leave-one-out. Delays are made by hand.
"""

import json
from pathlib import Path

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.model_selection import LeaveOneGroupOut

OUT = Path(__file__).resolve().parents[2] / "ml/operators/tests/fixtures/ridge_stage.json"
ALPHAS = [0.1, 1.0, 10.0, 100.0, 1000.0]
RUNS, SAMPLES, FEATURES, VOXELS, DELAYS = 4, 24, 3, 7, [1, 2]


def delayed(x):
    """Of one run: features that precede, zero before it begins."""
    columns = []
    for delay in DELAYS:
        shifted = np.zeros_like(x)
        shifted[delay:] = x[:-delay]
        columns.append(shifted)
    return np.hstack(columns)


rng = np.random.default_rng(20)
# Eighths: 32-bit floats hold them.
features = np.round(rng.normal(size=(RUNS, SAMPLES, FEATURES)) * 8) / 8
weights = rng.normal(size=(FEATURES * len(DELAYS), VOXELS))
noise = rng.normal(size=(RUNS, SAMPLES, VOXELS)) * np.linspace(0.2, 6, VOXELS)
series = np.array([delayed(x) for x in features]) @ weights + noise + np.linspace(-40, 900, VOXELS)
series = np.round(series * 8) / 8

x, y = np.vstack([delayed(run) for run in features[:3]]), np.vstack(series[:3])
groups = np.repeat(np.arange(3), SAMPLES)
held_x, held_y = delayed(features[3]), series[3]


def case(**options):
    fit = RidgeCV(alphas=ALPHAS, **options).fit(x, y)
    predicted = fit.predict(held_x)
    r = [np.corrcoef(held_y[:, v], predicted[:, v])[0, 1] for v in range(VOXELS)]
    return {
        "alphas": np.broadcast_to(fit.alpha_, VOXELS).tolist(),
        "coefficients": fit.coef_.tolist(),
        "intercepts": fit.intercept_.tolist(),
        "r": r,
        "r2": r2_score(held_y, predicted, multioutput="raw_values").tolist(),
    }


splits = list(LeaveOneGroupOut().split(x, y, groups))
found = {
    "alphas": ALPHAS,
    "delays": DELAYS,
    "features": features.tolist(),
    "series": series.transpose(0, 2, 1).tolist(),
    "run": case(cv=splits, scoring="r2"),
    "loo": case(cv=None, scoring="r2"),
    "loo_per_target": case(cv=None, scoring="r2", alpha_per_target=True),
}
OUT.parent.mkdir(exist_ok=True)
OUT.write_text(json.dumps(found) + "\n")
print({name: found[name]["alphas"] for name in ["run", "loo", "loo_per_target"]})
