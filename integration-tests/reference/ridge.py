"""Reference values of ml/ridge: scikit-learn 1.9.1, himalaya 0.4.6, numpy 2.4.6, in 64-bit floats.

    python integration-tests/reference/ridge.py

writes ml/ridge/tests/fixtures/ridge.json. Leave-one-run-out with a gap is made by hand of scikit-learn's Ridge.
"""

import json
import warnings
from pathlib import Path

import numpy as np
from himalaya.ridge import RidgeCV as HimalayaRidgeCV
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import KFold

warnings.filterwarnings("ignore")
OUT = Path(__file__).resolve().parents[2] / "ml/ridge/tests/fixtures/ridge.json"
ALPHAS = [0.1, 1.0, 10.0, 100.0, 1000.0]


def data(seed, samples, features, targets):
    """Features that are correlated and lie off zero, targets of unlike scale and noise."""
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(features, features))
    x = rng.normal(size=(samples, features)) @ mix + rng.normal(size=features) * 3
    w = rng.normal(size=(features, targets))
    noise = rng.uniform(0.1, 20, size=targets)
    y = x @ w + noise * rng.normal(size=(samples, targets)) + rng.normal(size=targets) * 10
    return np.round(x, 6), np.round(y * rng.uniform(0.1, 3, size=targets), 6)



def sklearn_case(x, y, **options):
    fit = RidgeCV(alphas=ALPHAS, **options).fit(x, y)
    return {
        "alphas": np.broadcast_to(fit.alpha_, y.shape[1]).tolist(),
        "coefficients": fit.coef_.T.tolist(),
        "intercepts": fit.intercept_.tolist(),
        "best_score": np.asarray(fit.best_score_).tolist(),
    }


def himalaya_case(x, y, **params):
    fit = HimalayaRidgeCV(alphas=ALPHAS, fit_intercept=True, cv=KFold(5), solver_params=dict(**params)).fit(x, y)
    return {
        "alphas": fit.best_alphas_.tolist(),
        "coefficients": fit.coef_.tolist(),
        "intercepts": fit.intercept_.tolist(),
    }


def runs(x, y):
    """Pearson's r of leave-one-run-out, 2 samples beside the run left out of the fit too."""
    run = np.repeat([0, 1, 2], [len(x) // 3, len(x) // 3, len(x) - 2 * (len(x) // 3)])
    scores = np.zeros((len(ALPHAS), y.shape[1]))
    for r in range(3):
        held = np.flatnonzero(run == r)
        near = np.unique(np.concatenate([held + d for d in range(-2, 3)]))
        train = np.setdiff1d(np.arange(len(x)), near)
        for a, alpha in enumerate(ALPHAS):
            p = Ridge(alpha=alpha).fit(x[train], y[train]).predict(x[held])
            scores[a] += [np.corrcoef(p[:, t], y[held, t])[0, 1] / 3 for t in range(y.shape[1])]
    return {"runs": run.tolist(), "scores": scores.tolist()}


cases = []
for name, shape in {"tall": (60, 7, 5), "wide": (18, 30, 4), "square": (25, 24, 3)}.items():
    x, y = data(len(name), *shape)
    cases.append({
        "name": name, "x": x.tolist(), "y": y.tolist(), "alphas": ALPHAS,
        "loo": sklearn_case(x, y),
        "loo_per_target": sklearn_case(x, y, alpha_per_target=True),
        "loo_r2": sklearn_case(x, y, scoring="r2"),
        "folds": sklearn_case(x, y, cv=KFold(5)),
        "himalaya": himalaya_case(x, y),
        "himalaya_shared": himalaya_case(x, y, local_alpha=False),
        "runs": runs(x, y),
    })
OUT.write_text(json.dumps(cases))
