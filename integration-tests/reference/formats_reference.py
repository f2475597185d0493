"""Small files of FreeSurfer, GIFTI, CIFTI-2, numpy and FSL kind as nibabel and numpy write them, with the values
that they read from them, and what numpy reads from real text files, for the tests of connectors/formats.

Made with Python 3.11, nibabel 5.4.2, numpy 2.4.6.
Usage: python -P integration-tests/reference/formats_reference.py [folder of the real data, default ../shared/data]
"""

import base64
import gzip
import json
import sys
import zlib
from pathlib import Path
from xml.etree import ElementTree

import nibabel
import numpy as np
from nibabel import cifti2, gifti

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared" / "data"
OUT = ROOT / "connectors/formats/tests/fixtures"
RANDOM = np.random.default_rng(7)


def flat(values) -> list:
    """Values in single precision, as JSON numbers, in C order."""
    return [float(value) for value in np.asarray(values, dtype=np.float32).reshape(-1)]


def bits(values) -> list:
    """Values in double precision, as the bits of each, in C order: decimals of JSON are read to the last bit by few."""
    return [int(value) for value in np.asarray(values, dtype=np.float64).reshape(-1).view(np.uint64)]


def numbers(shape, dtype) -> np.ndarray:
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return RANDOM.normal(size=shape).astype(dtype)
    info = np.iinfo(dtype)
    values = RANDOM.integers(max(info.min, -(2**50)), min(info.max, 2**50), size=shape, endpoint=True).astype(dtype)
    values.reshape(-1)[:2] = [info.min, info.max]
    return values


def mgh() -> dict:
    folder = OUT / "mgh"
    folder.mkdir(parents=True, exist_ok=True)
    cases = {}
    affine = np.array([[-1.9, 0.1, 0.2, 30.0], [0.1, 0.2, 2.9, -20.0], [0.3, -1.4, 0.1, 10.0], [0, 0, 0, 1.0]])
    files = [
        ("volume_u1.mgz", (3, 4, 5, 2), "u1", 2000.0),
        ("volume_i2.mgh", (3, 4, 5, 2), "i2", 800.1),
        ("volume_i4.mgz", (3, 4, 5), "i4", None),
        ("volume_u2.mgz", (2, 2, 2), "u2", None),
        ("surface_f4.mgz", (42, 1, 1, 6), "f4", 2500.0),
    ]
    for name, shape, dtype, t_r in files:
        image = nibabel.MGHImage(numbers(shape, dtype), affine)
        if t_r is not None:
            image.header["tr"] = t_r
        nibabel.save(image, folder / name)
        read = nibabel.load(folder / name)
        frames = np.asarray(read.dataobj).reshape(shape[:3] + (-1,), order="F")
        cases[name] = {
            "shape": list(shape[:3]),
            "dtype": np.dtype(dtype).name,
            "t_r": None if t_r is None else t_r / 1000.0,
            "affine": read.affine.tolist(),
            "frames": [flat(frames[..., n].reshape(-1, order="F")) for n in range(frames.shape[3])],
        }
    # As FreeSurfer writes what has no place.
    image = nibabel.MGHImage(numbers((2, 3, 4), "f4"), None)
    raw = bytearray(image.to_bytes())
    raw[28:30] = b"\0\0"
    (folder / "no_place.mgh").write_bytes(bytes(raw))
    return cases


GIFTI_TYPES = ["uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
GIFTI_ENCODINGS = {"ASCII": "ascii", "Base64Binary": "base64", "GZipBase64Binary": "gzip"}


def write_gifti(path: Path, arrays: list, metadata: dict, labels=None) -> None:
    image = gifti.GiftiImage(meta=gifti.GiftiMetaData(metadata), darrays=arrays)
    if labels is not None:
        image.labeltable = labels
    path.write_bytes(image.to_xml(mode="force"))


def make_big_endian(path: Path) -> None:
    """nibabel writes the machine's byte order only: swaps the bytes of every array of a written file."""
    text = path.read_text()
    head = text[: text.index("<GIFTI")]
    root = ElementTree.fromstring(text)
    for element in root.findall("DataArray"):
        element.set("Endian", "BigEndian")
        data, encoding = element.find("Data"), element.get("Encoding")
        if encoding == "ASCII":
            continue
        raw = base64.b64decode(data.text)
        raw = zlib.decompress(raw) if encoding == "GZipBase64Binary" else raw
        dtype = nibabel.nifti1.data_type_codes.dtype[element.get("DataType")]
        raw = np.frombuffer(raw, dtype=dtype).byteswap().tobytes()
        data.text = base64.b64encode(zlib.compress(raw) if encoding == "GZipBase64Binary" else raw).decode()
    path.write_bytes(head.encode() + ElementTree.tostring(root))


def array(values, intent, encoding, meta=None, order="C") -> gifti.GiftiDataArray:
    codes = nibabel.nifti1.data_type_codes
    return gifti.GiftiDataArray(
        np.asarray(values),
        intent=intent,
        datatype=codes[np.asarray(values).dtype.type],
        encoding={"ASCII": "ASCII", "Base64Binary": "B64BIN", "GZipBase64Binary": "B64GZ"}[encoding],
        ordering=order,
        meta=gifti.GiftiMetaData(meta or {}),
    )


def gifti_files() -> dict:
    folder = OUT / "gifti"
    folder.mkdir(parents=True, exist_ok=True)
    cases = {}
    for encoding, short in GIFTI_ENCODINGS.items():
        for endian in ("little", "big"):
            name = f"series_{short}_{endian}.func.gii"
            meta = {"TimeStep": "800", "Name": "a <b> & \"c\""}
            arrays = [
                array(np.round(numbers((7,), "f4"), 4), "NIFTI_INTENT_TIME_SERIES", encoding, meta)
                for _ in range(3)
            ]
            write_gifti(folder / name, arrays, {"AnatomicalStructurePrimary": "CortexLeft"})
            if endian == "big":
                make_big_endian(folder / name)
    for endian in ("little", "big"):
        name = f"types_{endian}.gii"
        arrays = []
        for dtype in GIFTI_TYPES:
            values = numbers((2, 3), dtype)
            if dtype.endswith("64") and dtype != "float64":
                values.reshape(-1)[:2] = [0, 3]
            arrays.append(array(values, "NIFTI_INTENT_NONE", "Base64Binary"))
        write_gifti(folder / name, arrays, {})
        if endian == "big":
            make_big_endian(folder / name)
    column_major = array(numbers((4, 3), "f4"), "NIFTI_INTENT_NONE", "GZipBase64Binary", order="F")
    write_gifti(folder / "column_major.gii", [column_major], {})
    points = numbers((5, 3), "f4")
    triangles = np.array([[0, 1, 2], [0, 2, 3], [2, 4, 3], [1, 4, 2]], dtype="i4")
    surface = [
        array(points, "NIFTI_INTENT_POINTSET", "GZipBase64Binary", {"AnatomicalStructurePrimary": "CortexRight"}),
        array(triangles, "NIFTI_INTENT_TRIANGLE", "Base64Binary"),
    ]
    write_gifti(folder / "mesh.surf.gii", surface, {})
    table = gifti.GiftiLabelTable()
    for key, label, colour in [(0, "???", (0, 0, 0, 0)), (7, "V1 & V2", (1, 0.5, 0.25, 1))]:
        entry = gifti.GiftiLabel(key, *colour)
        entry.label = label
        table.labels.append(entry)
    labels = [array(np.array([0, 7, 7, 0], dtype="i4"), "NIFTI_INTENT_LABEL", "ASCII")]
    write_gifti(folder / "areas.label.gii", labels, {}, table)
    plain = (folder / "series_gzip_little.func.gii").read_bytes()
    (folder / "series_compressed.func.gii.gz").write_bytes(gzip.compress(plain, mtime=0))

    for path in sorted(folder.glob("*.gii")) + sorted(folder.glob("*.gii.gz")):
        image = nibabel.GiftiImage.from_bytes(gzip.decompress(path.read_bytes())) if path.suffix == ".gz" else nibabel.load(path)
        cases[path.name] = {
            "metadata": dict(image.meta),
            "labels": [[label.key, label.label, list(label.rgba)] for label in image.labeltable.labels],
            "arrays": [
                {
                    "intent": nibabel.nifti1.intent_codes.niistring[data.intent],
                    "dtype": np.dtype(nibabel.nifti1.data_type_codes.dtype[data.datatype]).name,
                    "dims": list(data.dims),
                    "metadata": dict(data.meta),
                    "values": flat(data.data),
                }
                for data in image.darrays
            ],
        }
    return cases


def cifti_files() -> dict:
    folder = OUT / "cifti"
    folder.mkdir(parents=True, exist_ok=True)
    left = cifti2.BrainModelAxis.from_surface([0, 2, 3, 9], 10, "CortexLeft")
    right = cifti2.BrainModelAxis.from_surface([1, 5], 10, "CortexRight")
    mask = np.zeros((3, 4, 5), dtype=bool)
    mask[1, 2, 3] = mask[0, 0, 0] = mask[2, 3, 4] = True
    affine = np.array([[-2.0, 0, 0, 90], [0, 2, 0, -126], [0, 0, 2, -72], [0, 0, 0, 1]])
    thalamus = cifti2.BrainModelAxis.from_mask(mask, "ThalamusLeft", affine)
    brain = left + right + thalamus
    axes = {
        "series.dtseries.nii": cifti2.SeriesAxis(0.5, 0.72, 5, "SECOND"),
        "maps.dscalar.nii": cifti2.ScalarAxis(["first", "second <&>"]),
        "surfaces.dtseries.nii": cifti2.SeriesAxis(0, 2, 3, "SECOND"),
    }
    cases = {}
    for name, axis in axes.items():
        model = left + right if name.startswith("surfaces") else brain
        values = numbers((len(axis), len(model)), "f4")
        nibabel.save(cifti2.Cifti2Image(values, (axis, model)), folder / name)
        read = nibabel.load(folder / name)
        first, second = read.header.get_axis(0), read.header.get_axis(1)
        case = {
            "values": [flat(row) for row in np.asarray(read.dataobj)],
            "structures": [
                [structure, part.start, len(second) if part.stop is None else part.stop]
                for structure, part, _ in second.iter_structures()
            ],
            "vertices": [int(vertex) for vertex in second.vertex],
            "voxels": second.voxel.tolist(),
            "affine": None if second.affine is None else second.affine.tolist(),
            "volume_shape": None if second.volume_shape is None else list(second.volume_shape),
        }
        if isinstance(first, cifti2.SeriesAxis):
            case["series"] = {"start": first.start, "step": first.step, "unit": first.unit, "size": first.size}
        else:
            case["names"] = list(first.name)
        cases[name] = case
    return cases


def npy_files() -> dict:
    folder = OUT / "npy"
    folder.mkdir(parents=True, exist_ok=True)
    cases = {}
    for dtype in ["u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]:
        for endian in "<>":
            values = numbers((3, 4), dtype).astype(endian + dtype)
            name = f"{dtype}_{'le' if endian == '<' else 'be'}.npy"
            np.save(folder / name, values)
            cases[name] = {"shape": [3, 4], "bits": bits(values)}
    column_major = np.asfortranarray(numbers((2, 3, 4), "f4"))
    scalar, empty, line = np.float64(2.5), np.zeros((0, 3), "f4"), numbers((5,), "f8")
    for name, values in [("fortran.npy", column_major), ("scalar.npy", scalar), ("empty.npy", empty), ("line.npy", line)]:
        np.save(folder / name, values)
        cases[name] = {"shape": list(np.shape(values)), "bits": bits(values)}
    for version in [(2, 0), (3, 0)]:
        name = f"version_{version[0]}.npy"
        with open(folder / name, "wb") as file:
            np.lib.format.write_array(file, line, version=version)
        cases[name] = {"shape": [5], "bits": bits(line)}
    return cases


def digest(values) -> dict:
    """Count, the sum of absolute values, and the last: misplaced or missing numbers change them."""
    values = np.asarray(values, dtype=np.float64)
    return {"shape": list(values.shape), "sum": float(np.abs(values).sum()), "last": float(values.reshape(-1)[-1])}


def real_tables() -> dict:
    events = (DATA / "fmri/studyforrest/sub-02_task-visloc_events.tsv").read_text().split("\n")
    rows = [line.split("\t") for line in events[1:] if line]
    conditions = [row[2] for row in rows]
    onsets = DATA / "fmri/haxby2001/sub001/model/model001/onsets"
    ev = {str(path.relative_to(DATA)): digest(np.loadtxt(path, ndmin=2)) for path in sorted(onsets.glob("*/*.txt"))}
    gradients = {}
    for name in ("25", "64D", "101D"):
        b_values = np.loadtxt(DATA / f"dwi/dipy_small_{name}.bval")
        directions = np.loadtxt(DATA / f"dwi/dipy_small_{name}.bvec")
        directions = directions if directions.shape[1] == 3 else directions.T
        gradients[name] = {"b_values": digest(b_values), "directions": digest(np.nan_to_num(directions))}
    return {
        "events": {
            "times": digest([[float(row[0]), float(row[1])] for row in rows]),
            "conditions": {name: conditions.count(name) for name in sorted(set(conditions))},
        },
        "ev": ev,
        "gradients": gradients,
    }


def main() -> None:
    expected = {
        "nibabel": nibabel.__version__,
        "numpy": np.__version__,
        "mgh": mgh(),
        "gifti": gifti_files(),
        "cifti": cifti_files(),
        "npy": npy_files(),
        "tables": real_tables(),
    }
    (OUT / "formats.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
