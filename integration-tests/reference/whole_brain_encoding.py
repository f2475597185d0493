"""Reference values of the whole-brain encoding model: nilearn 0.14, nibabel 5.4, scikit-learn 1.9.1, numpy 2.4.6.

    VOXELFLOW_DATA=<folder> python integration-tests/reference/whole_brain_encoding.py

writes integration-tests/reference/whole_brain_encoding.json: Pearson's r of voxels in the second half of the run, which
categories of things predict, fitted to the first half. All voxels choose one penalty together, over five folds.
"""

import json
import os
import pathlib

import nibabel
import numpy as np
import pandas
from nilearn.glm.first_level import make_first_level_design_matrix
from nilearn.masking import compute_epi_mask
from nilearn.signal import clean
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("VOXELFLOW_DATA", ROOT / "../shared/data")) / "fmri/studyforrest"
T_R, ALPHAS = 2.0, [0.1, 1.0, 10.0, 100.0, 1000.0]

image = nibabel.load(DATA / "sub-02_task-visloc_bold.nii.gz")
mask = compute_epi_mask(image).get_fdata().ravel(order="F") > 0
voxels = np.flatnonzero(mask)
values = image.get_fdata(dtype=np.float64)
values = values.reshape(-1, values.shape[3], order="F")[voxels].T
volumes, half = len(values), len(values) // 2
series = clean(values, detrend=True, high_pass=0.01, filter="butterworth", t_r=T_R, standardize="zscore_sample")

events = pandas.read_csv(DATA / "sub-02_task-visloc_events.tsv", sep="\t")[["onset", "duration", "trial_type"]]
design = make_first_level_design_matrix(
    np.arange(volumes) * T_R, events, hrf_model="glover", drift_model=None
).drop(columns="constant").to_numpy()

search = GridSearchCV(Ridge(), {"alpha": ALPHAS}, cv=KFold(5), scoring="r2").fit(design[:half], series[:half])
predicted, actual = search.predict(design[half:]), series[half:]
unit = lambda m: (m - m.mean(0)) / np.linalg.norm(m - m.mean(0), axis=0)
r = (unit(predicted) * unit(actual)).sum(0)

chosen = np.unique(np.concatenate([np.arange(0, len(voxels), 400), np.argsort(-r)[:20]]))
found = {
    "mask_voxels": len(voxels),
    "alpha": search.best_params_["alpha"],
    "over_0_5": int((r > 0.5).sum()),
    "voxels": voxels[chosen].tolist(),
    "r": [round(float(value), 9) for value in r[chosen]],
}
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(found) + "\n")
print({name: found[name] for name in ["mask_voxels", "alpha", "over_0_5"]}, r.max())
