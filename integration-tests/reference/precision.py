"""Reference values of images whose numbers single precision cannot hold: nilearn 0.14.1, nibabel 5.4.2, numpy 2.5.5.

    python integration-tests/reference/precision.py

writes connectors/tables/tests/fixtures/precision: series of 4 voxels, mean 1e6 and standard deviation 1, as float64,
as int16 beside an intercept of 1e6, as int32, as float32 beside an intercept, as GIFTI, MGH and npy, and what nilearn's
`signal.clean` (detrend, z-score) makes of each. Single precision rounds such values by 0.03.
"""

import json
from pathlib import Path

import nibabel
import numpy as np
from nilearn.signal import clean

OUT = Path(__file__).resolve().parents[2] / "connectors/tables/tests/fixtures/precision"
OUT.mkdir(parents=True, exist_ok=True)
AFFINE = np.diag([2.0, 2.0, 2.0, 1.0])
VOLUMES = 30


def stored(name, numbers, slope, intercept):
    """An image of these stored numbers and this scaling, which nibabel would choose by itself."""
    image = nibabel.Nifti1Image(numbers, AFFINE)
    image.header["pixdim"][4] = 2.0
    image.header.set_xyzt_units("mm", "sec")
    image.header.set_slope_inter(slope, intercept)
    nibabel.save(image, OUT / name)
    # nibabel resets the scaling of arrays: it is written into the bytes.
    raw = bytearray((OUT / name).read_bytes())
    raw[112:120] = np.array([slope, intercept], "<f4").tobytes()
    (OUT / name).write_bytes(raw)


def main():
    rng = np.random.default_rng(7)
    noise = rng.standard_normal((2, 2, 1, VOLUMES))
    values = 1e6 + noise
    stored("float64.nii", values, 1, 0)
    stored("int16.nii", np.round(noise * 100).astype(np.int16), 0.01, 1e6)
    stored("int32.nii", np.round(values * 100).astype(np.int32), 0.01, 0)
    stored("float32.nii", noise.astype(np.float32), 1, 1e6)
    stored("ordinary.nii", np.round(1000 + noise * 100).astype(np.int16), 0.5, 0)
    flat = values.reshape(4, VOLUMES, order="F")
    np.save(OUT / "float64.npy", flat)
    arrays = [
        nibabel.gifti.GiftiDataArray(flat[:, t].copy(), intent="NIFTI_INTENT_TIME_SERIES", datatype="NIFTI_TYPE_FLOAT64")
        for t in range(VOLUMES)
    ]
    nibabel.gifti.GiftiImage(darrays=arrays).to_filename(OUT / "float64.func.gii", mode="force")
    counts = np.round(values * 100).astype(np.int32).reshape(4, 1, 1, VOLUMES, order="F")
    nibabel.save(nibabel.MGHImage(counts, np.eye(4)), OUT / "lh.int32.mgh")

    expected = {}
    for path in sorted(OUT.glob("*.nii")):
        data = nibabel.load(path).get_fdata().reshape(4, VOLUMES, order="F")
        expected[path.name] = clean(data.T, detrend=True, standardize="zscore_sample").T.tolist()
    of = lambda data: clean(data.T, detrend=True, standardize="zscore_sample").T.tolist()
    expected["float64.npy"] = of(flat)
    expected["float64.func.gii"] = of(flat)
    expected["lh.int32.mgh"] = of(counts.reshape(4, VOLUMES).astype(float))
    (OUT / "cleaned.json").write_text(json.dumps(expected) + "\n")


main()
