"""Reference values of the stage `banded_ridge_cv`: himalaya 0.4.6, scikit-learn 1.9.1, numpy 2.4.6, in 64-bit floats.

    python integration-tests/reference/banded_stage.py

reads the data of ridge_stage.json (three runs to fit, one held out) and writes ml/operators/tests/fixtures/banded_stage.json:
what GroupRidgeCV's random search makes of them run-wise, with the same weights. Features are in two bands, and a feature's
delayed copies are of its band.
"""

import json
from pathlib import Path

import numpy as np
from himalaya.kernel_ridge import generate_dirichlet_samples
from himalaya.ridge import GroupRidgeCV
from himalaya.scoring import correlation_score_split, r2_score, r2_score_split
from sklearn.metrics import r2_score as whole_r2
from sklearn.model_selection import PredefinedSplit

FIXTURES = Path(__file__).resolve().parents[2] / "ml/operators/tests/fixtures"
data = json.loads((FIXTURES / "ridge_stage.json").read_text())
features, series = np.array(data["features"]), np.array(data["series"]).transpose(0, 2, 1)
RUNS, SAMPLES, FEATURES = features.shape
VOXELS = series.shape[2]
# Columns band by band: the first feature with its delays, then the two others with theirs.
BANDS = [[0], [1, 2]]


def delayed(x):
    """Of one run: features that precede, zero before it begins."""
    columns = []
    for band in BANDS:
        for delay in data["delays"]:
            shifted = np.zeros((SAMPLES, len(band)))
            shifted[delay:] = x[:-delay, band]
            columns.append(shifted)
    return np.hstack(columns)


groups = np.repeat(np.arange(len(BANDS)), [len(band) * len(data["delays"]) for band in BANDS])
x, y = np.vstack([delayed(run) for run in features[:3]]), np.vstack(series[:3])
runs = np.repeat(np.arange(3), SAMPLES)
held_x, held_y = delayed(features[3]), series[3]
gammas = np.asarray(generate_dirichlet_samples(10, len(BANDS), [0.1, 1.0], random_state=5))
gammas[0] = 1 / len(BANDS)


def case(alpha_per_target):
    params = dict(
        n_iter=gammas, alphas=np.array(data["alphas"]), local_alpha=alpha_per_target, score_func=r2_score,
        progress_bar=False, warn=False,
    )
    fit = GroupRidgeCV(groups=groups, solver_params=params, fit_intercept=True, cv=PredefinedSplit(runs)).fit(x, y)
    predicted = held_x @ fit.coef_ + fit.intercept_
    # Splits are defined for data of zero mean.
    centred = held_x - held_x.mean(0)
    parts = np.stack([centred[:, groups == band] @ fit.coef_[groups == band] for band in range(len(BANDS))])
    y_centred = held_y - held_y.mean(0)
    # deltas are ln(gamma / alpha): which of the pairs it was.
    deltas = np.exp(fit.deltas_)
    chosen = []
    for v in range(VOXELS):
        pairs = [(g, a) for g in range(len(gammas)) for a in data["alphas"]]
        errors = [np.abs(gammas[g] / a - deltas[:, v]).max() / deltas[:, v].max() for g, a in pairs]
        assert min(errors) < 1e-9
        chosen.append(pairs[int(np.argmin(errors))])
    return {
        "gamma": [g for g, _ in chosen],
        "alpha": [a for _, a in chosen],
        "coefficients": fit.coef_.T.tolist(),
        "intercept": fit.intercept_.tolist(),
        "score": fit.cv_scores_.max(0).tolist(),
        "r": [np.corrcoef(held_y[:, v], predicted[:, v])[0, 1] for v in range(VOXELS)],
        "r2": whole_r2(held_y, predicted, multioutput="raw_values").tolist(),
        "r_split": correlation_score_split(y_centred, parts).tolist(),
        "r2_split": r2_score_split(y_centred, parts).tolist(),
    }


found = {"gammas": gammas.tolist(), "per_target": case(True), "shared": case(False)}
(FIXTURES / "banded_stage.json").write_text(json.dumps(found) + "\n")
print({name: (found[name]["gamma"], found[name]["alpha"]) for name in ["per_target", "shared"]})
