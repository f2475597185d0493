"""Reference values of `predict`: scikit-learn 1.9.1, numpy 2.4.6, in 64-bit floats.

    python integration-tests/reference/predict_stage.py

reads the data of ridge_stage.json and the weights of banded_stage.json, and writes
ml/operators/tests/fixtures/predict_stage.json: what scikit-learn's Ridge, fitted to three runs, predicts of each of the four,
`[run][voxel][sample]`. Banded ridge is ridge of features that are scaled by the square roots of their weights.
"""

import json
from pathlib import Path

import numpy as np
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import LeaveOneGroupOut

FIXTURES = Path(__file__).resolve().parents[2] / "ml/operators/tests/fixtures"
data = json.loads((FIXTURES / "ridge_stage.json").read_text())
banded = json.loads((FIXTURES / "banded_stage.json").read_text())
features, series = np.array(data["features"]), np.array(data["series"]).transpose(0, 2, 1)
RUNS, SAMPLES, FEATURES = features.shape
BANDS = np.array([0, 1, 1])
y = np.vstack(series[:3])
groups = np.repeat(np.arange(3), SAMPLES)


def delayed(x, delays):
    """Of one run: features that precede, zero before it begins."""
    return np.hstack([np.vstack([np.zeros((delay, FEATURES)), x[: SAMPLES - delay]]) for delay in delays])


def predicted(fit, runs):
    return [np.round(fit.predict(run).T, 6).tolist() for run in runs]


def ridge(delays):
    runs = [delayed(run, delays) for run in features]
    x = np.vstack(runs[:3])
    splits = list(LeaveOneGroupOut().split(x, y, groups))
    alpha = RidgeCV(alphas=data["alphas"], cv=splits, scoring="r2").fit(x, y).alpha_
    return predicted(Ridge(alpha=alpha).fit(x, y), runs)


def banded_ridge(chosen):
    runs = np.array([delayed(run, data["delays"]) for run in features])
    bands = np.tile(BANDS, len(data["delays"]))
    voxels = []
    for voxel, (gamma, alpha) in enumerate(zip(chosen["gamma"], chosen["alpha"])):
        scaled = runs * np.sqrt(np.array(banded["gammas"])[gamma][bands])
        fit = Ridge(alpha=alpha).fit(np.vstack(scaled[:3]), y[:, [voxel]])
        voxels.append([fit.predict(run).ravel() for run in scaled])
    return np.round(np.array(voxels).transpose(1, 0, 2), 6).tolist()


found = {
    "own_sample": ridge([0]),
    "delays": ridge(data["delays"]),
    "banded": banded_ridge(banded["per_target"]),
}
(FIXTURES / "predict_stage.json").write_text(json.dumps(found) + "\n")
print({name: np.array(values).shape for name, values in found.items()})
