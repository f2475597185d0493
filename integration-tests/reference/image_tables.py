"""Reference values of tables of images: nilearn 0.14.1, scipy 1.17.1, numpy 2.4.6, nibabel 5.4.2.

    python integration-tests/reference/image_tables.py

writes connectors/tables/tests/fixtures/volumes: a mask, atlases and a grid, and of every case what nilearn's masker makes
of examples/data/ds003_sub-01_mc.nii.gz (OpenfMRI ds003, PDDL), before and after cleaning, for some of the rows. The image
is given to nilearn as float64, so that what is compared is not the rounding of its own steps. Voxels are numbered with
the first axis running fastest.
"""

import json
import warnings
from pathlib import Path

import nibabel
import numpy as np
from nilearn.image import resample_img, smooth_img
from nilearn.maskers import NiftiLabelsMasker, NiftiMapsMasker, NiftiMasker

warnings.filterwarnings("ignore")
ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "connectors/tables/tests/fixtures/volumes"
CLEAN = {"detrend": True, "high_pass": 0.02, "t_r": 2.0, "standardize": "zscore_sample"}
PLAIN = {"standardize": None}
ROWS = 40
HOLES = [[5, 8, 4, 3], [6, 8, 4, 3], [6, 8, 4, 7], [0, 0, 0, 19]]


def save_image(name, data, affine):
    image = nibabel.Nifti1Image(data, affine)
    nibabel.save(image, OUT / f"{name}.nii.gz")
    return image


def voxels(masker, images):
    """Numbers of the voxels of a masker, ascending, and a function that puts its series into that order."""
    mask = masker.fit(images).mask_img_.get_fdata() != 0
    numbers = np.arange(mask.size).reshape(mask.shape, order="F")[mask]
    order = np.argsort(numbers)
    return numbers[order], lambda series: series.T[order]


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    file = nibabel.load(ROOT / "examples/data/ds003_sub-01_mc.nii.gz")
    data, affine = file.get_fdata(), file.affine
    run = nibabel.Nifti1Image(data, affine)
    with_holes = data.copy()
    for i, j, k, t in HOLES:
        with_holes[i, j, k, t] = np.nan
    with_holes = nibabel.Nifti1Image(with_holes, affine)

    i, j, k = np.indices(data.shape[:3])
    mask = save_image("mask", (data[..., 0] > data[..., 0].mean()).astype("u1"), affine)
    labels = save_image("labels", np.choose((i // 4 + 2 * (j // 6)) % 4, [0, 3, 200, 255]).astype("u1"), affine)
    centres = [(5, 6, 3), (10, 9, 5), (7, 11, 6)]
    maps = np.stack([np.exp(-((i - a) ** 2 + (j - b) ** 2 + (k - c) ** 2) / 12) for a, b, c in centres], axis=-1)
    maps = save_image("maps", np.where(maps < 0.05, 0, maps).astype("f4"), affine)
    fine = affine @ np.diag([0.8, 0.9, 0.7, 1.0])
    fine[:3, 3] += [-9.0, 7.0, 5.0]
    a, b, c = np.indices((17, 16, 11))
    target = save_image("fine_labels", ((a // 5 + 4 * (b // 5)) % 7).astype("i2"), fine)

    cases, raw, cleaned = [], [], []

    def case(name, options, new, image=run, parcels=None):
        if parcels is None:
            numbers, order = voxels(new({}), image)
        else:
            numbers, order = np.array(parcels), lambda series: series.T
        before, after = (order(new(settings).fit_transform(image)) for settings in (PLAIN, CLEAN))
        assert before.shape == (len(numbers), data.shape[3]), (name, before.shape, len(numbers))
        some = np.unique(np.linspace(0, len(numbers) - 1, ROWS).round().astype(int))
        raw.append(before[some])
        cleaned.append(after[some])
        cases.append({"name": name, "options": options, "holes": image is with_holes, "of": len(numbers),
                      "rows": [int(n) for n in numbers[some]], "parcels": parcels is not None})

    def voxel(**options):
        return lambda settings: NiftiMasker(**options, **settings)

    case("smoothed", {"mask": "mask", "smoothing_fwhm": 25}, voxel(mask_img=mask, smoothing_fwhm=25))
    case("holes", {"mask": "mask", "smoothing_fwhm": 25}, voxel(mask_img=mask, smoothing_fwhm=25), image=with_holes)
    # With 9 or 11 mm scipy's rounding puts the border's voxels outside of the image, which makes a slice of zeros.
    # NiftiMasker crops images to the mask before it smooths what it has resampled, so that the brain's border is smoothed
    # by its mirror image. The right thing is what nilearn's functions do one after the other.
    size = np.diag([10.0] * 3)
    case("voxel size", {"mask": "mask", "target": 10, "smoothing_fwhm": 25},
         voxel(mask_img=resample_img(mask, target_affine=size, interpolation="nearest")),
         image=smooth_img(resample_img(run, target_affine=size), 25))
    case("automatic mask", {"target": "fine_labels"},
         voxel(mask_strategy="epi", target_affine=target.affine, target_shape=target.shape))
    case("smoothed, automatic mask", {"smoothing_fwhm": 25}, voxel(mask_strategy="epi", smoothing_fwhm=25))

    def label(image, **options):
        return lambda settings: NiftiLabelsMasker(image, **options, **settings)

    def some_maps(**options):
        return lambda settings: NiftiMapsMasker(maps, **options, **settings)

    case("labels", {"atlas": "labels", "smoothing_fwhm": 25}, label(labels, smoothing_fwhm=25, resampling_target=None),
         parcels=[3, 200, 255])
    case("labels in a mask", {"atlas": "labels", "mask": "mask", "strategy": "sum"},
         label(labels, mask_img=mask, strategy="sum", resampling_target=None), parcels=[3, 200, 255])
    case("labels of another grid", {"atlas": "fine_labels", "target": "fine_labels", "strategy": "standard_deviation"},
         label(target, strategy="standard_deviation", resampling_target="labels"), parcels=[1, 2, 3, 4, 5, 6])
    case("maps", {"atlas": "maps", "smoothing_fwhm": 25}, some_maps(smoothing_fwhm=25, resampling_target=None),
         parcels=[0, 1, 2])
    np.save(OUT / "raw.npy", np.concatenate(raw).astype("<f8"))
    np.save(OUT / "cleaned.npy", np.concatenate(cleaned).astype("<f8"))
    index = {"clean": CLEAN, "holes": HOLES, "cases": cases}
    (OUT / "index.json").write_text(json.dumps(index, separators=(",", ":")) + "\n")


main()
