"""Reference values for volumes that are dropped: nilearn 0.14.1, scikit-learn 1.9.1, numpy 2.5.5, pandas 3.1.1.

    python integration-tests/reference/sample_masks.py

writes integration-tests/reference/sample_masks.json: three runs of one subject (values of 4 voxels, confounds as fMRIPrep
writes them, events, features), and what becomes of them with the sample masks of `load_confounds`: series cleaned by
`signal.clean`, designs of `FirstLevelModel`, Pearson's r of series and regressors, and a ridge regression whose features
are delayed before volumes are dropped. Events lie before the kept volumes, in dropped ones and behind them.
"""

import io
import json
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from nibabel import Nifti1Image
from nilearn.glm.first_level import FirstLevelModel
from nilearn.interfaces.fmriprep import load_confounds
from nilearn.signal import clean
from sklearn.linear_model import Ridge

warnings.filterwarnings("ignore")
OUT = Path(__file__).with_suffix(".json")
T_R, VOXELS = 2.0, 4
VOLUMES = [48, 48, 52]
UNSTEADY = 3
# Volumes of high motion: a gap, the last volume, and a segment of three volumes that is dropped with its ends.
MOVED = [[20, 21], [25, 29, 47], []]
MOTION = ["trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z"]
MODELS = [
    {"hrf_model": "glover + derivative", "drift_model": "cosine", "high_pass": 0.02},
    {"hrf_model": "fir", "fir_delays": [0, 2, 3], "drift_model": "polynomial", "drift_order": 2},
]


def confounds(generator, volumes, moved):
    table = {"framewise_displacement": np.r_[np.nan, generator.uniform(0.05, 0.2, volumes - 1)],
             "std_dvars": np.r_[np.nan, generator.uniform(0.8, 1.2, volumes - 1)]}
    table["framewise_displacement"][moved] = 0.9
    table |= {name: np.cumsum(generator.normal(0, 0.02, volumes)) for name in MOTION}
    table |= {f"non_steady_state_outlier{k:02}": np.eye(volumes, dtype=int)[k] for k in range(UNSTEADY)}
    return pd.DataFrame(table).to_csv(sep="\t", na_rep="n/a", index=False, float_format="%.6f")


def events(generator, volumes):
    onsets = np.r_[-3.0, 0.5, 3.0, np.sort(generator.uniform(6, volumes * T_R - 4, 9)).round(2)]
    names = ["face", "house", "face"] + ["face", "house", "word"] * 3
    table = pd.DataFrame({"onset": onsets, "duration": [1, 2, 0, 2, 4, 0, 1, 2, 2, 3, 1, 0], "trial_type": names})
    return table.to_csv(sep="\t", index=False)


def masks(text, keep_unsteady, strategy, folder):
    """Confounds and sample mask as `load_confounds` gives them."""
    table = pd.read_csv(io.StringIO(text), sep="\t", na_values="n/a")
    if keep_unsteady:
        table = table[[c for c in table if "non_steady" not in c]]
    table.to_csv(folder / "sub-1_task-x_desc-confounds_timeseries.tsv", sep="\t", na_rep="n/a", index=False)
    (folder / "sub-1_task-x_desc-confounds_timeseries.json").write_text("{}")
    image = str(folder / "sub-1_task-x_space-MNI152NLin2009cAsym_desc-preproc_bold.nii.gz")
    taken, mask = load_confounds(image, strategy=strategy, motion="basic")
    return taken.to_numpy(), np.arange(len(table)) if mask is None else mask


def delayed(features, delays):
    shifted = [np.r_[np.zeros((d, features.shape[1])), features[: len(features) - d]] for d in delays]
    return np.hstack(shifted)


def main():
    generator = np.random.default_rng(12)
    runs = []
    for volumes, moved in zip(VOLUMES, MOVED):
        values = (1000 + 20 * np.cumsum(generator.normal(0, 0.3, (VOXELS, volumes)), axis=1)).round(2)
        features = generator.normal(0, 1, (volumes, 3)).round(4)
        runs.append({"values": values.astype(np.float32), "features": features,
                     "confounds": confounds(generator, volumes, moved), "events": events(generator, volumes)})
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for name, strategy, keep in [("scrubbed", ["motion", "scrub"], False), ("steady", ["motion"], False),
                                     ("all", ["motion"], True)]:
            found = []
            for run in runs:
                taken, mask = masks(run["confounds"], keep, strategy, Path(folder))
                series = clean(run["values"].T.astype(float), detrend=True, standardize="zscore_sample", confounds=taken,
                               sample_mask=mask).T
                image = Nifti1Image(run["values"].reshape(2, 2, 1, -1, order="F"), np.diag([3.0, 3, 3, 1]))
                ones = Nifti1Image(np.ones((2, 2, 1), np.uint8), image.affine)
                designs = []
                for model in MODELS:
                    table = pd.read_csv(io.StringIO(run["events"]), sep="\t")
                    model = FirstLevelModel(t_r=T_R, mask_img=ones, minimize_memory=False, **model)
                    design = model.fit(image, events=table, sample_masks=mask).design_matrices_[0]
                    designs.append({"names": list(design.columns), "values": design.to_numpy().T})
                r = np.array([[np.corrcoef(own, column)[0, 1] if column.std() > 0 else np.nan for column in
                               designs[0]["values"]] for own in series])
                found.append({"kept": mask, "series": series, "designs": designs, "r": r})
            x = [delayed(run["features"], [0, 1, 3])[own["kept"]] for run, own in zip(runs, found)]
            y = [own["series"].T for own in found]
            ridge = Ridge(alpha=10.0).fit(np.vstack(x[:2]), np.vstack(y[:2]))
            predicted = ridge.predict(x[2])
            r = [np.corrcoef(predicted[:, v], y[2][:, v])[0, 1] for v in range(VOXELS)]
            cases.append({"name": name, "strategy": strategy, "keep": keep, "runs": found,
                          "ridge": {"intercept": ridge.intercept_, "r": r}})

    def rounded(value):
        match value:
            case dict():
                return {key: rounded(own) for key, own in value.items()}
            case np.ndarray() if value.dtype.kind == "i":
                return value.tolist()
            case np.ndarray():
                return rounded(value.astype(float).tolist())
            case list():
                return [rounded(own) for own in value]
            case float():
                return None if np.isnan(value) else float(f"{value:.6g}")
        return value

    OUT.write_text(json.dumps(rounded({"models": MODELS, "runs": runs, "cases": cases}), separators=(",", ":")) + "\n")


main()
