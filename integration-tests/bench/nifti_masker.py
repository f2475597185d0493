"""A whole-brain run as a lab cleans it (6 mm smoothing, 24 confounds, high-pass, z-score): voxelflow, from a folder of
BIDS derivatives to Parquet, beside nilearn's NiftiMasker, to an array, with as many threads.

    python integration-tests/bench/nifti_masker.py [VOXELFLOW_BINARY] [PAIRS] [THREADS]

The run is that of whole_brain_clean.py, with a mask and confounds beside it as fMRIPrep writes them. Prints time, peak
memory and their ratios, and the largest difference |ours - nilearn| / max(1, |nilearn|).
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nibabel
import numpy as np
import pyarrow.parquet
from nilearn.masking import compute_epi_mask

from measure import compare

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("VOXELFLOW_DATA", ROOT / "../shared/data")).resolve()
BOLD = DATA / "fmri/studyforrest/sub-02_task-visloc_bold.nii.gz"
STEM = "sub-02_task-visloc"
MOTION = ["trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z"]
ENDS = ["", "_derivative1", "_power2", "_derivative1_power2"]

NILEARN = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np, pandas
from nilearn.maskers import NiftiMasker
bold, mask, confounds, out = sys.argv[1:]
confounds = pandas.read_table(confounds).bfill().to_numpy()
masker = NiftiMasker(mask, smoothing_fwhm=6, detrend=True, high_pass=0.01, t_r=2.0, standardize="zscore_sample")
series = masker.fit_transform(bold, confounds=confounds)
if out:
    np.save(out, series)
print(series.shape)
"""

PIPELINE = """
CREATE EXTERNAL TABLE bold STORED AS BIDS LOCATION '{folder}' OPTIONS (space 'T1w', smoothing_fwhm 6);
CREATE TABLE series AS SELECT * FROM clean(bold, confounds => 'motion', motion => 'full', demean => false,
  detrend => true, high_pass => 0.01, standardize => 'zscore_sample');
"""


def derivatives(folder):
    """The run as fMRIPrep names it; derivatives of motion have no first row."""
    func = folder / "sub-02/func"
    func.mkdir(parents=True)
    bold, mask = func / f"{STEM}_space-T1w_desc-preproc_bold.nii.gz", func / f"{STEM}_space-T1w_desc-brain_mask.nii.gz"
    bold.symlink_to(BOLD)
    image = nibabel.load(BOLD)
    nibabel.save(compute_epi_mask(image), mask)
    (folder / "task-visloc_bold.json").write_text('{"RepetitionTime": 2.0}')
    motion = np.cumsum(np.random.default_rng(1).standard_normal((image.shape[3], 6)), axis=0) * 0.02
    columns = {}
    for name, x in zip(MOTION, motion.T):
        derivative = np.concatenate([[np.nan], np.diff(x)])
        columns |= dict(zip((name + end for end in ENDS), (x, derivative, x**2, derivative**2)))
    rows = [["n/a" if np.isnan(x) else repr(float(x)) for x in row] for row in zip(*columns.values())]
    confounds = func / f"{STEM}_desc-confounds_timeseries.tsv"
    confounds.write_text("\n".join("\t".join(row) for row in [list(columns), *rows]) + "\n")
    return bold, mask, confounds


def largest_difference(out, theirs, mask):
    """Rows of nilearn are ordered with the last axis running fastest, ours with the first."""
    mask = nibabel.load(mask).get_fdata() != 0
    order = np.argsort(np.arange(mask.size).reshape(mask.shape, order="F")[mask])
    theirs = np.load(theirs).T[order]
    table = pyarrow.parquet.ParquetDataset(next(iter((out / "tables/series").glob("**/*.parquet"))).parent).read()
    series = table["series"].combine_chunks()
    ours = np.asarray(series.flatten()).reshape(len(series), -1)[np.argsort(np.asarray(table["voxel"]))]
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    return (np.abs(ours - theirs) / np.maximum(1, np.abs(theirs))).max(), ours.shape


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else "target/debug/voxelflow"
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    threads = sys.argv[3] if len(sys.argv) > 3 else str(len(os.sched_getaffinity(0)))
    for name in ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = threads
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        bold, mask, confounds = derivatives(folder / "fmriprep")
        pipeline, out, theirs = folder / "masker.vf", folder / "out", folder / "theirs.npy"
        pipeline.write_text(PIPELINE.format(folder=folder / "fmriprep"))
        ours = [binary, "run", pipeline, "--out", out, "--fresh"]
        peer = [sys.executable, "-c", NILEARN, bold, mask, confounds]
        compare(f"whole-brain run, 6 mm, 24 confounds, high-pass, z-score, {threads} threads", ours, [*peer, ""], pairs)
        subprocess.run([*peer, theirs], check=True, stdout=subprocess.DEVNULL)
        difference, shape = largest_difference(out, theirs, mask)
        print(f"  largest difference of {shape[0]} series of {shape[1]} points: {difference:.1e}")


if __name__ == "__main__":
    main()
