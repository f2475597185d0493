"""Masks and values of real runs, for connectors/tables/tests/fixtures/real_runs.json.

Run: VOXELFLOW_DATA=<folder> python integration-tests/reference/real_runs.py
(nilearn 0.14, nibabel 5.4, numpy, blake3)
"""

import json
import os
import pathlib

import blake3
import nibabel
import nilearn
import numpy as np
from nilearn.masking import compute_epi_mask

RUNS = ["fmri/studyforrest/sub-02_task-visloc_bold.nii.gz", "fmri/small/nitime_fmri1.nii.gz"]

root = pathlib.Path(__file__).resolve().parents[2]
data = pathlib.Path(os.environ.get("VOXELFLOW_DATA", root / "../shared/data"))
rng = np.random.default_rng(0)
runs = {}
for name in RUNS:
    image = nibabel.load(data / name)
    values = image.get_fdata(dtype=np.float32)
    mask = compute_epi_mask(image).get_fdata().ravel(order="F") > 0
    voxels = np.flatnonzero(mask).astype("<u4")
    flat = values.reshape(-1, values.shape[3], order="F")
    samples = []
    for _ in range(60):
        row, t = int(rng.integers(len(voxels))), int(rng.integers(flat.shape[1]))
        samples.append({"row": row, "t": t, "value": float(flat[voxels[row], t])})
    middle = int(voxels[len(voxels) // 2])
    runs[name] = {
        "mask_voxels": len(voxels),
        "mask_blake3": blake3.blake3(voxels.tobytes()).hexdigest(),
        "mean_sample": {"voxel": middle, "value": float(flat[middle].mean(dtype=np.float64))},
        "samples": samples,
    }
out = root / "connectors/tables/tests/fixtures/real_runs.json"
versions = {"nilearn": nilearn.__version__, "nibabel": nibabel.__version__}
out.write_text(json.dumps({**versions, "runs": runs}, indent=1) + "\n")
