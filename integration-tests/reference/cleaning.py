"""Reference values of ml/signal: nilearn 0.14.1, scipy 1.17.1, numpy 2.4.6, nibabel 5.4.2, scikit-learn 1.9.1.

    python integration-tests/reference/cleaning.py DATA_FOLDER

writes ml/signal/tests/fixtures. DATA_FOLDER holds fmri/small/nipype_ds003_sub-01_mc.nii.gz (OpenfMRI ds003,
PDDL) and fmri/studyforrest/sub-02_task-visloc_bold.nii.gz (studyforrest, PDDL).

Inputs are float32 and go to nilearn as float64. nilearn 0.14 has no 'zscore' any more: it is computed here by its
definition (divisor T) from what nilearn gives without standardisation.
"""

import json
import sys
import warnings
from pathlib import Path

import nibabel
import numpy as np
import scipy.signal
from nilearn.image import mean_img
from nilearn.masking import compute_epi_mask
from nilearn.signal import clean

warnings.filterwarnings("ignore")
DATA = Path(sys.argv[1])
OUT = Path(__file__).resolve().parents[2] / "ml/signal/tests/fixtures"
FILTERS = {
    "none": {},
    "high": {"filter": "butterworth", "high_pass": 0.01},
    "low": {"filter": "butterworth", "low_pass": 0.1},
    "band": {"filter": "butterworth", "high_pass": 0.01, "low_pass": 0.1},
    "cosine": {"filter": "cosine", "high_pass": 0.03},
}


def cleaned(series, detrend, standardize, filter_, t_r):
    """Series are rows here, columns in nilearn."""
    def run(standardize):
        return clean(series.T.astype(float), detrend=detrend, standardize=standardize, t_r=t_r, **filter_).T

    if standardize == "zscore":
        plain = run(None)
        plain = plain - plain.mean(axis=1, keepdims=True)
        return plain / plain.std(axis=1, ddof=0, keepdims=True)
    return run(standardize or None)


def write(name, series, t_r, combinations, index):
    np.save(OUT / f"{name}.npy", series.astype("<f4"))
    cases, expected = [], []
    for detrend, standardize, filter_ in combinations:
        if filter_ == "band" and series.shape[1] <= 33:
            continue  # shorter than scipy's padding
        settings = {"detrend": detrend, "standardize": standardize, **FILTERS[filter_]}
        cases.append(settings)
        expected.append(cleaned(series, detrend, standardize, FILTERS[filter_], t_r))
    np.save(OUT / f"{name}_expected.npy", np.stack(expected).astype("<f4"))
    index.append({"name": name, "t_r": t_r, "cases": cases})


def random_series(generator, n, t):
    """A drifting baseline of realistic height with autocorrelated noise."""
    noise = scipy.signal.lfilter([1], [1, -0.6], generator.standard_normal((n, t)), axis=1)
    base = generator.uniform(300, 2000, (n, 1))
    drift = generator.normal(0, 20, (n, 1)) * np.linspace(-1, 1, t) + 15 * np.sin(np.arange(t) / t * 5)
    return (base + drift + 10 * noise).astype(np.float32)


def filters(index):
    for t_r, high, low, order in [(2, 0.01, None, 5), (2, None, 0.1, 5), (2, 0.01, 0.1, 5), (0.72, 0.008, None, 5),
                                  (0.72, 0.008, 0.09, 5), (2, 0.001, 0.249, 5), (1, 0.2, 0.35, 4), (1, None, 0.45, 3)]:
        kind, cut = ("band", [high, low]) if high and low else ("high", high) if high else ("low", low)
        sos = scipy.signal.butter(order, cut, btype=kind, output="sos", fs=1 / t_r)
        index.append({"t_r": t_r, "high_pass": high, "low_pass": low, "order": order, "sos": sos.tolist(),
                      "zi": scipy.signal.sosfilt_zi(sos).tolist()})


def mask_of(image, name):
    mask = compute_epi_mask(image).get_fdata().astype(bool)
    np.save(OUT / f"{name}_mask.npy", np.packbits(mask.ravel(order="F")))
    return {"name": name, "shape": list(mask.shape), "voxels": int(mask.sum())}, mask


def main():
    generator = np.random.default_rng(20240607)
    OUT.mkdir(parents=True, exist_ok=True)
    every = [(d, s, f) for d in (True, False) for s in ("zscore_sample", "zscore", "psc", False) for f in FILTERS]
    without_zscore = [c for c in every if c[1] != "zscore"]
    usual = [(True, "zscore_sample", f) for f in FILTERS] + [(True, "psc", "band")]
    index = {"cleaning": [], "filters": [], "masks": []}

    for n, t in [(40, 20), (6, 156), (4, 284)]:
        series = random_series(generator, n, t)
        write(f"random_{t}", series, 2.0, every if t == 20 else without_zscore, index["cleaning"])
    filters(index["filters"])

    small = nibabel.load(DATA / "fmri/small/nipype_ds003_sub-01_mc.nii.gz")
    found, mask = mask_of(small, "ds003")
    index["masks"].append(found)
    np.save(OUT / "ds003_mean.npy", mean_img(small, copy_header=True).get_fdata().ravel(order="F").astype("<f4"))
    voxels = generator.choice(np.flatnonzero(mask), 32, replace=False)
    write("ds003", small.get_fdata(dtype=np.float32).reshape(-1, small.shape[3])[voxels], 2.0, without_zscore,
          index["cleaning"])

    run = nibabel.load(DATA / "fmri/studyforrest/sub-02_task-visloc_bold.nii.gz")
    found, mask = mask_of(run, "studyforrest")
    index["masks"].append(found)
    voxels = generator.choice(np.flatnonzero(mask), 60, replace=False)
    write("studyforrest", run.get_fdata(dtype=np.float32).reshape(-1, run.shape[3])[voxels], 2.0, usual,
          index["cleaning"])

    with open(OUT / "index.json", "w") as file:
        json.dump(index, file, indent=1)
        file.write("\n")


main()
