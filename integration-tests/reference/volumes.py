"""Reference values of ml/signal for volumes: nilearn 0.14.1, scipy 1.17.1, numpy 2.4.6, nibabel 5.4.2.

    python integration-tests/reference/volumes.py DATA_FOLDER

writes ml/signal/tests/fixtures/volumes. DATA_FOLDER holds fmri/small/nipype_ds003_sub-01_mc.nii.gz (OpenfMRI ds003,
PDDL) and fmri/studyforrest/sub-02_task-visloc_bold.nii.gz (studyforrest, PDDL). Volumes are written with the first axis
running fastest.
"""

import json
import sys
import warnings
from pathlib import Path

import nibabel
import numpy as np
from nilearn.image import resample_img, smooth_img
from nilearn.maskers import NiftiLabelsMasker, NiftiMapsMasker, NiftiMasker
from nilearn.masking import compute_epi_mask
from nilearn.regions import img_to_signals_labels, img_to_signals_maps

warnings.filterwarnings("ignore")
DATA = Path(sys.argv[1])
OUT = Path(__file__).resolve().parents[2] / "ml/signal/tests/fixtures/volumes"
VOLUMES = 3
STRATEGIES = ["mean", "median", "sum", "minimum", "maximum", "variance", "standard_deviation"]


def save(name, volumes, dtype="<f4"):
    np.save(OUT / f"{name}.npy", np.stack([v.ravel(order="F") for v in volumes]).astype(dtype))


def frames(image):
    data = image.get_fdata(dtype=np.float32)
    return [data] if data.ndim == 3 else [data[..., t] for t in range(data.shape[3])]


def smoothing(run):
    cases, expected = [], []
    for fwhm in (6.0, 25.0, [30.0, 0.0, 48.0], 90.0):
        cases.append(fwhm if isinstance(fwhm, list) else [fwhm] * 3)
        expected += frames(smooth_img(run, fwhm))
    save("smoothed", expected)
    return cases


def rotation(degrees, axis):
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    matrix = np.eye(3)
    a, b = [x for x in range(3) if x != axis]
    matrix[a, a], matrix[a, b], matrix[b, a], matrix[b, b] = c, -s, s, c
    return matrix


def targets(affine):
    """Finer along the same axes; coarser, shifted and flipped; turned by 20 and 10 degrees."""
    size = np.sqrt((affine[:3, :3] ** 2).sum(axis=0))
    finer = affine @ np.diag([0.7, 0.8, 0.9, 1.0])
    flipped = affine @ np.diag([-1.3, 1.1, 1.2, 1.0])
    flipped[:3, 3] = affine[:3, :3] @ [14.6, -1.5, 0.3] + affine[:3, 3]
    turned = np.eye(4)
    turned[:3, :3] = rotation(20, 2) @ rotation(10, 0) @ (affine[:3, :3] / size) @ np.diag(size * 1.1)
    turned[:3, 3] = affine[:3, :3] @ [1.5, -1.0, 1.0] + affine[:3, 3]
    return [("finer", finer, (13, 12, 9)), ("flipped", flipped, (11, 13, 8)), ("turned", turned, (12, 12, 8))]


def resampling(volume):
    cases, expected = [], []
    holes = volume.get_fdata(dtype=np.float32).copy()
    holes[5:7, 8, 4] = np.nan
    holes[12:, :3, :2] = np.nan
    save("holes", [holes])
    for source, image in [("volume", volume), ("holes", nibabel.Nifti1Image(holes, volume.affine))]:
        for name, affine, shape in targets(volume.affine):
            for interpolation in ("nearest", "linear", "continuous"):
                out = resample_img(image, target_affine=affine, target_shape=shape, interpolation=interpolation,
                                   copy_header=True)
                cases.append({"source": source, "name": name, "affine": affine.tolist(), "shape": shape,
                              "interpolation": interpolation})
                expected.append(out.get_fdata(dtype=np.float32).ravel(order="F"))
    np.save(OUT / "resampled.npy", np.concatenate(expected).astype("<f4"))
    return cases


def parcels(run, generator):
    shape = run.shape[:3]
    i, j, k = np.indices(shape)
    # Labels over 127, over 255, negative, and one of a single voxel; 7 is the background.
    labels = np.choose((i // 4 + 2 * (j // 6)) % 6, [7, 1, 200, 1000, -3, 128]).astype("<i4")
    labels[0, 0, 0] = 40000
    np.save(OUT / "labels.npy", labels.ravel(order="F"))
    image = nibabel.Nifti1Image(labels, run.affine)
    signals, mask = {}, (i + j + k) % 5 > 0
    for strategy in STRATEGIES:
        signals[strategy], names, _ = img_to_signals_labels(run, image, background_label=7, strategy=strategy)
        signals[strategy] = signals[strategy].T.tolist()
    masked, masked_names, _ = img_to_signals_labels(
        run, image, background_label=7, mask_img=nibabel.Nifti1Image(mask.astype("u1"), run.affine))
    masker = NiftiLabelsMasker(image, background_label=7, standardize=None, resampling_target=None)
    assert np.allclose(masker.fit_transform(run).T, signals["mean"])

    centres = generator.uniform(2, 12, (4, 3)) * [1, 1, 0.6]
    maps = np.stack([np.exp(-((i - a) ** 2 + (j - b) ** 2 + (k - c) ** 2) / 20) for a, b, c in centres], axis=-1)
    maps[maps < 0.05] = 0
    maps = maps.astype(np.float32)
    save("maps", [maps[..., m] for m in range(4)])
    image = nibabel.Nifti1Image(maps, run.affine)
    map_signals, _ = img_to_signals_maps(run, image)
    assert np.allclose(NiftiMapsMasker(image, standardize=None).fit_transform(run), map_signals, rtol=1e-4)
    map_masked, _ = img_to_signals_maps(run, image, mask_img=nibabel.Nifti1Image(mask.astype("u1"), run.affine))
    return {"names": [int(n) for n in names], "signals": signals, "mask": "(i + j + k) % 5 > 0",
            "masked_names": [int(n) for n in masked_names], "masked": masked.T.tolist(),
            "maps": map_signals.T.tolist(), "maps_masked": map_masked.T.tolist()}


def whole_run(generator):
    """A whole-brain run as a lab cleans it: 6 mm smoothing, 24 confounds, high-pass, z-score."""
    image = nibabel.load(DATA / "fmri/studyforrest/sub-02_task-visloc_bold.nii.gz")
    mask = compute_epi_mask(image)
    voxels = np.sort(generator.choice(np.flatnonzero(mask.get_fdata().ravel(order="F")), 80, replace=False))
    confounds = np.cumsum(generator.standard_normal((image.shape[3], 24)), axis=0)
    masker = NiftiMasker(mask, smoothing_fwhm=6.0, detrend=True, high_pass=0.01, t_r=2.0, standardize="zscore_sample")
    cleaned = masker.inverse_transform(masker.fit_transform(image, confounds=confounds)).get_fdata()
    series = cleaned.reshape(-1, image.shape[3], order="F")[voxels]
    np.save(OUT / "whole_run.npy", series.astype("<f4"))
    np.save(OUT / "whole_run_confounds.npy", np.ascontiguousarray(confounds.T).astype("<f8"))
    return {"shape": image.shape[:3], "affine": image.affine.tolist(), "voxels": voxels.tolist(), "fwhm": 6.0,
            "settings": {"detrend": True, "high_pass": 0.01, "t_r": 2.0, "standardize": "zscore_sample"}}


def main():
    generator = np.random.default_rng(20241106)
    OUT.mkdir(parents=True, exist_ok=True)
    image = nibabel.load(DATA / "fmri/small/nipype_ds003_sub-01_mc.nii.gz")
    data = image.get_fdata(dtype=np.float32)[..., :VOLUMES]
    run = nibabel.Nifti1Image(data, image.affine)
    save("run", frames(run))
    index = {"shape": data.shape[:3], "affine": image.affine.tolist(), "smoothing": smoothing(run),
             "resampling": resampling(nibabel.Nifti1Image(data[..., 0], image.affine)),
             "parcels": parcels(run, generator), "whole_run": whole_run(generator)}
    (OUT / "index.json").write_text(json.dumps(index, separators=(",", ":")) + "\n")


main()
