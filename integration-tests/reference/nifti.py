"""Values of small real NIfTI files as nibabel reads them, and the affines that it makes of qforms, for the
tests of connectors/formats.

Made with Python 3.11, nibabel 5.4.2, numpy 2.4.6.
Usage: python -P integration-tests/reference/nifti.py [folder of the real data, default ../shared/data]
"""

import json
import sys
import zlib
from pathlib import Path

import nibabel
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared" / "data"
FILES = {
    "examples/data/ds003_sub-01_mc.nii.gz": ROOT,
    "fmri/small/nibabel_example4d.nii.gz": DATA,
    "fmri/small/nibabel_functional.nii": DATA,
    "fmri/small/nitime_fmri1.nii.gz": DATA,
    "fmri/haxby2001/sub001/BOLD/task001_run001/bold_25mm.nii.gz": DATA,
    "atlas/AICHAmc.nii.gz": DATA,
    "atlas/MNI152_T1_3mm_brain_mask.nii.gz": DATA,
    "dwi/dib2019_brain_mask.nii.gz": DATA,
    "fmri/studyforrest/sub-02_task-visloc_bold.nii.gz": DATA,
}
SECONDS = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6, "unknown": 1.0}


def describe(path: Path) -> dict:
    image = nibabel.load(path)
    header = image.header
    values = np.asarray(image.dataobj, dtype=np.float64).astype(np.float32)
    volumes = values.shape[3] if values.ndim > 3 else 1
    flat = values.reshape(-1, order="F")
    doubles = flat.astype(np.float64)
    picks = np.unique(np.linspace(0, flat.size - 1, 12).astype(np.int64))
    t_r = float(header["pixdim"][4]) * SECONDS.get(header.get_xyzt_units()[1], 1.0)
    return {
        "shape": list(values.shape[:3]),
        "volumes": volumes,
        "datatype": header.get_data_dtype().name,
        "affine": image.affine.tolist(),
        "pixdim4_seconds": t_r,
        "mean": float(doubles.mean()),
        "std": float(doubles.std()),
        "values": [[int(n), float(flat[n])] for n in picks],
        "crc32_float32_le": zlib.crc32(flat.astype("<f4").tobytes()),
    }


def qforms() -> list:
    """Random unit quaternions, one in three of (nearly) half a turn, with voxel sizes of both handednesses."""
    random = np.random.default_rng(3)
    cases = []
    for n in range(30):
        quaternion = random.normal(size=4)
        if n % 3 == 0:
            quaternion[0] = (0.0, 1e-6, 1e-3, 1e-2)[n % 4]
        quaternion /= np.linalg.norm(quaternion)
        header = nibabel.Nifti1Header()
        header.set_data_shape((5, 6, 7))
        header["qform_code"] = 1
        b, c, d = quaternion[1:] if quaternion[0] >= 0 else -quaternion[1:]
        header["quatern_b"], header["quatern_c"], header["quatern_d"] = b, c, d
        header["pixdim"][:4] = [(-1, 1)[n % 2], *random.uniform(0.5, 4.0, size=3)]
        offset = random.uniform(-120, 120, size=3)
        header["qoffset_x"], header["qoffset_y"], header["qoffset_z"] = offset
        cases.append({
            "quatern": [float(header[f"quatern_{axis}"]) for axis in "bcd"],
            "pixdim": [float(value) for value in header["pixdim"][:4]],
            "qoffset": [float(header[f"qoffset_{axis}"]) for axis in "xyz"],
            "affine": header.get_best_affine().tolist(),
        })
    return cases


def main() -> None:
    expected = {name: describe(root / name) for name, root in FILES.items()}
    out = ROOT / "connectors/formats/tests/fixtures/nifti.json"
    fixture = {"nibabel": nibabel.__version__, "numpy": np.__version__, "files": expected, "qforms": qforms()}
    out.write_text(json.dumps(fixture) + "\n")


if __name__ == "__main__":
    main()
