"""Reference values of ml/signal for confounds and scrubbing: nilearn 0.14.1, scipy 1.17.1, numpy 2.4.6, pandas 3.1.1.

    python integration-tests/reference/confounds.py

writes ml/signal/tests/fixtures/confounds: tables as fMRIPrep writes them (synthetic values under real names), what
`load_confounds` takes from them, and series cleaned with confounds and sample masks.

nilearn 0.14.1 fills censored volumes with `volumes[~sample_mask]`, where `sample_mask` holds indices: `~i` is the
index n − 1 − i, so a censored volume stays unfilled where its mirror image is censored as well, and a censored edge
is cut only by luck. `by_scipy` does it by its definition. On masks without such pairs both agree, which is checked
here; where they do not, the expected values are those of `by_scipy`, and the case says so.
"""

import json
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.signal
from nilearn.interfaces.fmriprep import load_confounds, load_confounds_strategy
from nilearn.signal import clean, create_cosine_drift
from scipy.interpolate import CubicSpline
from scipy.linalg import qr

warnings.filterwarnings("ignore")
OUT = Path(__file__).resolve().parents[2] / "ml/signal/tests/fixtures/confounds"
T = 40


def expansions(name, values):
    derivative = np.r_[np.nan, np.diff(values)]
    return {name: values, f"{name}_derivative1": derivative, f"{name}_power2": values**2,
            f"{name}_derivative1_power2": derivative**2}


def walk(generator, size, base=0.0):
    return base + size * np.cumsum(generator.standard_normal(T))


def tables(generator):
    """A table in the layout of fMRIPrep 20 (CompCor in one numbering) and one in that of fMRIPrep 23."""
    old = {}
    for name, base in [("global_signal", 480.0), ("csf", 900.0), ("white_matter", 410.0)]:
        old |= expansions(name, walk(generator, 2.0, base))
    fd = np.abs(generator.normal(0.15, 0.05, T))
    dvars = np.abs(generator.normal(1.0, 0.1, T))
    fd[[4, 12, 16, 30]] = [0.7, 9.0, 0.51, 1.2]
    dvars[[22, 30]] = [1.8, 1.6]
    fd[0] = dvars[0] = np.nan
    motion = {"std_dvars": dvars, "framewise_displacement": fd}
    old |= motion
    sidecar = {}
    for prefix, masks in [("t", [None] * 4), ("a", ["combined"] * 4 + ["CSF"] * 3 + ["WM"] * 3)]:
        for number, mask in enumerate(masks):
            name = f"{prefix}_comp_cor_{number:02}"
            old[name] = generator.standard_normal(T) / np.sqrt(T)
            sidecar[name] = {"Method": f"{prefix}CompCor", "Retained": True} | ({"Mask": mask} if mask else {})
    sidecar["dropped_0"] = {"Method": "aCompCor", "Mask": "combined", "Retained": False}
    drifts = create_cosine_drift(0.03, np.arange(T) * 2.0)[:, :-1]
    cosines = {f"cosine{k:02}": drifts[:, k] for k in range(drifts.shape[1])}
    steady = {f"non_steady_state_outlier{k:02}": np.eye(T, dtype=int)[k] for k in range(2)}
    old |= cosines | steady | {f"motion_outlier{k:02}": np.eye(T, dtype=int)[v] for k, v in enumerate([12, 30])}
    for name in ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z"):
        old |= expansions(name, walk(generator, 0.02 if name.startswith("trans") else 0.0005))
    old |= {f"aroma_motion_{k:02}": generator.standard_normal(T) for k in (1, 4, 11)}

    new, new_sidecar = dict(motion) | cosines, {}
    for prefix, mask, count in [("a", "combined", 3), ("c", "CSF", 2), ("w", "WM", 4)]:
        for number in range(count):
            new[f"{prefix}_comp_cor_{number:02}"] = generator.standard_normal(T)
            new_sidecar[f"{prefix}_comp_cor_{number:02}"] = {"Method": "aCompCor", "Mask": mask}
    return {"old": (pd.DataFrame(old), sidecar), "new": (pd.DataFrame(new), new_sidecar)}


STRATEGIES = [
    ("old", {}),
    *[("old", {"strategy": [c], c: e}) for c in ("motion", "wm_csf", "global_signal")
      for e in ("basic", "power2", "derivatives", "full")],
    ("old", {"strategy": ["motion"], "motion": "full", "demean": False}),
    *[("old", {"strategy": ["high_pass", "compcor"], "compcor": k, "n_compcor": n})
      for k, n in [("anat_combined", "all"), ("anat_separated", "all"), ("anat_separated", 2), ("temporal", 3),
                   ("temporal_anat_combined", "all"), ("temporal_anat_separated", 2)]],
    ("new", {"strategy": ["high_pass", "compcor"], "compcor": "anat_separated", "n_compcor": "all"}),
    ("new", {"strategy": ["high_pass", "compcor"], "compcor": "anat_separated", "n_compcor": 2}),
    ("new", {"strategy": ["high_pass", "compcor"], "compcor": "anat_combined", "n_compcor": "all"}),
    ("old", {"strategy": ["ica_aroma"], "ica_aroma": "basic"}),
    ("old", {"strategy": ["motion", "scrub"], "motion": "basic"}),
    ("old", {"strategy": ["motion", "scrub"], "motion": "basic", "scrub": 0}),
    ("old", {"strategy": ["motion", "scrub"], "motion": "basic", "scrub": 8, "fd_threshold": 0.6,
             "std_dvars_threshold": 1.7}),
    ("new", {"strategy": ["high_pass", "scrub"], "scrub": 5, "fd_threshold": 50, "std_dvars_threshold": 50}),
    *[("old", {"preset": name}) for name in ("simple", "scrubbing", "compcor", "ica_aroma")],
]


def strategies(generator):
    cases, values = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, (table, sidecar) in tables(generator).items():
            text = table.to_csv(sep="\t", na_rep="n/a", index=False, float_format="%.10g")
            (OUT / f"{name}.tsv").write_text(text)
            (OUT / f"{name}.json").write_text(json.dumps(sidecar, indent=0) + "\n")
            Path(folder, f"sub-{name}_task-rest_desc-confounds_timeseries.tsv").write_text(text)
            Path(folder, f"sub-{name}_task-rest_desc-confounds_timeseries.json").write_text(json.dumps(sidecar))
        for table, settings in STRATEGIES:
            desc = "smoothAROMAnonaggr" if settings.get("preset") == "ica_aroma" else "preproc"
            image = f"{folder}/sub-{table}_task-rest_space-MNI152NLin2009cAsym_desc-{desc}_bold.nii.gz"
            if "preset" in settings:
                confounds, mask = load_confounds_strategy(image, settings["preset"])
            else:
                confounds, mask = load_confounds(image, **settings)
            cases.append({"table": table, "settings": settings, "names": list(confounds.columns),
                          "kept": list(range(T)) if mask is None else mask.tolist()})
            values.append(confounds.to_numpy(dtype="<f8").ravel())
    np.save(OUT / "strategies.npy", np.concatenate(values))
    return cases


def by_scipy(series, confounds, kept, t_r, high, low, detrend, standardize):
    """Fill, detrend, filter, censor, regress, standardise: `series` [T, n] and `confounds` [T, K] by definition."""
    n = len(series)
    span = np.arange(kept[0], kept[-1] + 1)
    missing = np.setdiff1d(span, kept)

    def prepare(x):
        x = x.copy()
        x[missing] = CubicSpline(kept * t_r, x[kept])(missing * t_r)
        x = x[span]
        mean = x.mean(axis=0)
        x = scipy.signal.detrend(x, axis=0) if detrend else x
        kind, cut = ("band", [high, low]) if high and low else ("high", high) if high else ("low", low)
        sos = scipy.signal.butter(5, cut, kind, output="sos", fs=1 / t_r)
        return scipy.signal.sosfiltfilt(sos, x, axis=0)[kept - kept[0]], mean

    series, mean = prepare(series)
    confounds, _ = prepare(confounds)
    confounds = (confounds - confounds.mean(axis=0)) / confounds.std(axis=0, ddof=1)
    q, _, _ = qr(confounds, mode="economic", pivoting=True)
    series = series - q @ (q.T @ series)
    if standardize == "psc":
        series = series + mean
        return 100 * (series - series.mean(axis=0)) / np.abs(series.mean(axis=0))
    if standardize:
        series = (series - series.mean(axis=0)) / series.std(axis=0, ddof=1)
    return series


def masks(n):
    mirrored = np.setdiff1d(np.arange(n), [0, 1, 30, 31, 32, 50, n - 1 - 50, n - 1 - 31, n - 2, n - 1])
    return {
        "all": None,
        "head": np.arange(4, n),
        "tail": np.arange(0, n - 5),
        "gaps": np.setdiff1d(np.arange(n), [0, 1, 20, 21, 22, 23, 70, 90, 92]),
        "mirrored": mirrored,
    }


def cleaning(generator):
    n, t_r = 120, 2.0
    confounds = np.cumsum(generator.standard_normal((n, 5)), axis=0)
    confounds[:, 3] = generator.standard_normal(n)
    noise = scipy.signal.lfilter([1], [1, -0.6], generator.standard_normal((n, 6)), axis=0)
    drift = 15 * np.sin(np.arange(n) / n * 5)[:, None]
    series = generator.uniform(300, 2000, (1, 6)) + drift + 10 * noise
    series = (series + confounds @ generator.standard_normal((5, 6)) * 4).astype("<f4")
    np.save(OUT / "series.npy", np.ascontiguousarray(series.T))
    np.save(OUT / "regressors.npy", np.ascontiguousarray(confounds.T).astype("<f8"))

    filters = [{}, {"filter": "butterworth", "high_pass": 0.01}, {"filter": "butterworth", "low_pass": 0.1},
               {"filter": "butterworth", "high_pass": 0.01, "low_pass": 0.1}, {"filter": "cosine", "high_pass": 0.01}]
    cases, expected = [], []
    for name, kept in masks(n).items():
        for filter_ in filters:
            for detrend, standardize in [(True, "zscore_sample"), (True, "psc"), (False, None)]:
                theirs = clean(series.astype(float), detrend=detrend, standardize=standardize, confounds=confounds,
                               sample_mask=None if kept is None else kept.copy(), t_r=t_r, **filter_)
                who = "nilearn"
                if kept is not None and filter_.get("filter") == "butterworth":
                    ours = by_scipy(series.astype(float), confounds, kept, t_r, filter_.get("high_pass"),
                                    filter_.get("low_pass"), detrend, standardize)
                    agree = ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=1e-7, atol=1e-7)
                    assert agree == (name != "mirrored"), (name, filter_)
                    if not agree:
                        theirs, who = ours, "scipy"
                cases.append({"mask": name, "kept": list(range(n)) if kept is None else kept.tolist(), "who": who,
                              "settings": {"detrend": detrend, "standardize": standardize or False, **filter_}})
                expected.append(theirs.T.astype("<f4").ravel())
    np.save(OUT / "cleaned.npy", np.concatenate(expected))
    return {"t_r": t_r, "cases": cases}


def splines(generator):
    cases = []
    for n, kept in [(10, [2, 3, 4, 5, 6, 7, 8, 9]), (10, [0, 1, 5, 9]), (9, [1, 3, 7]), (6, [1, 4]),
                    (30, sorted(generator.choice(30, 17, replace=False).tolist())), (12, [0, 1, 2, 3, 7, 8, 10, 11])]:
        values = generator.standard_normal(n)
        span = np.arange(kept[0], kept[-1] + 1)
        cases.append({"volumes": n, "kept": kept, "values": values.tolist(),
                      "filled": CubicSpline(kept, values[kept])(span).tolist()})
    return cases


def main():
    generator = np.random.default_rng(20241105)
    OUT.mkdir(parents=True, exist_ok=True)
    index = {"strategies": strategies(generator), "cleaning": cleaning(generator), "splines": splines(generator)}
    (OUT / "index.json").write_text(json.dumps(index, indent=None, separators=(",", ":")) + "\n")


main()
