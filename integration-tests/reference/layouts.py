"""Files as other programs lay them out: nilearn 0.14.1, nibabel 5.4.2, numpy 2.5.5.

    python integration-tests/reference/layouts.py

writes connectors/tables/tests/fixtures/layouts: data on a surface in one array of [vertices, time points], as nilearn
writes them; NIfTI-1 with more vertices than `dim` can count, as FreeSurfer does (-1, and the factors of fsaverage7); and
what nibabel reads of them.
"""

import json
from pathlib import Path

import nibabel
import numpy as np
from nilearn.surface import PolyData

OUT = Path(__file__).resolve().parents[2] / "connectors/tables/tests/fixtures/layouts"


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(5)
    both = PolyData(left=rng.standard_normal((5, 7)).astype("f4"), right=rng.standard_normal((4, 7)).astype("f4"))
    for side in "LR":
        both.to_filename(OUT / f"nilearn_hemi-{side}.gii")
    expected = {}
    for side in "LR":
        name = f"nilearn_hemi-{side}.gii"
        arrays = nibabel.load(OUT / name).darrays
        assert len(arrays) == 1
        expected[name] = arrays[0].data.tolist()
    for name, vertices, volumes in [("lh.many.nii.gz", 40962, 3), ("rh.fsaverage7.nii.gz", 163842, 1)]:
        vertex = np.arange(vertices)[:, None]
        data = ((vertex % 11) * 10 + np.arange(volumes)).astype("i2").reshape(vertices, 1, 1, volumes)
        nibabel.save(nibabel.Nifti1Image(data, np.eye(4)), OUT / name)
        read = nibabel.load(OUT / name)
        raw = np.frombuffer(nibabel.openers.Opener(OUT / name).read(48), "<i2")
        expected[name] = {"shape": list(read.shape), "stored": raw[20:24].tolist(), "last": read.get_fdata()[-1, 0, 0].ravel().tolist()}
    (OUT / "expected.json").write_text(json.dumps(expected) + "\n")


main()
