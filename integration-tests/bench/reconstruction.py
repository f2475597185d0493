"""Reconstruction of held-out voxels of a real run: dist-DCA with 16 and 64 hidden units, decoder switches off
and on, beside a PCA of the same size fitted to the same training series.

    python integration-tests/bench/reconstruction.py [VOXELFLOW_BINARY] [STEPS] [LEARNING_RATE]

Switches carry positions past the bottleneck, so the figures with switches do not measure 16 or 64 numbers alone.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy
import pyarrow.parquet
from sklearn.decomposition import PCA

from measure import run

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("VOXELFLOW_DATA", ROOT / "../shared/data")).resolve()
BOLD = DATA / "fmri/studyforrest/sub-02_task-visloc_bold.nii.gz"

HEAD = """
CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{bold}' OPTIONS (mask 'auto');
CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true, standardize => 'zscore_sample');
"""

# Pairs of slices are held out, so that most held-out voxels have no training voxel in their own slice.
BODY = """
TRAIN MODEL dca_{hidden}_{switches} USING dist_dca (hidden => {hidden}, switches => {switches})
  ON (SELECT * FROM series WHERE k % 10 < 8)
  WITH (ranks => 2, minibatch => 16, epochs => 100, max_steps => {steps}, learning_rate => {rate}, checkpoint_every => 0);
CREATE TABLE held_out_{hidden}_{switches} AS
  SELECT voxel, i, j, k, pearson_r(series, reconstruct(dca_{hidden}_{switches}, series)) AS r
  FROM series WHERE k % 10 >= 8;
EXPORT MAPS FROM held_out_{hidden}_{switches} TO 'maps/{hidden}_{switches}_{{column}}.nii.gz';
"""


def series(folder):
    table = pyarrow.parquet.read_table(folder, columns=["k", "series"])
    values = numpy.stack(table["series"].to_numpy())
    return values, table["k"].to_numpy()


def correlation(a, b):
    a = a - a.mean(1, keepdims=True)
    b = b - b.mean(1, keepdims=True)
    return (a * b).sum(1) / numpy.sqrt((a**2).sum(1) * (b**2).sum(1))


def row(name, r, seconds=None, peak=None):
    r = r[numpy.isfinite(r)]
    cost = "" if seconds is None else f"   {seconds:7.1f} s {peak:7.0f} MiB peak"
    print(f"  {name:34} mean r {r.mean():.3f}   median {numpy.median(r):.3f}   "
          f"10 % {numpy.quantile(r, 0.1):.3f}{cost}", flush=True)


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else "target/debug/voxelflow"
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    rate = float(sys.argv[3]) if len(sys.argv) > 3 else 0.002
    print(f"{steps} steps of 2 x 16 series, learning rate {rate}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        pipeline = folder / "bench.vf"
        for hidden in (16, 64):
            print(f"\nhidden size {hidden}", flush=True)
            for switches in ("false", "true"):
                body = BODY.format(hidden=hidden, switches=switches, steps=steps, rate=rate)
                pipeline.write_text(HEAD.format(bold=BOLD) + body)
                seconds, peak = run([binary, "run", pipeline, "--out", folder / "out"])
                (table,) = (folder / f"out/tables/held_out_{hidden}_{switches}").glob("*/")
                r = pyarrow.parquet.read_table(table)["r"].to_numpy()
                row(f"dist_dca, switches {switches}", r, seconds, peak)
            (table,) = (folder / "out/tables/series").glob("*/")
            values, k = series(table)
            held_out = k % 10 >= 8
            pca = PCA(hidden, svd_solver="covariance_eigh").fit(values[~held_out])
            again = pca.inverse_transform(pca.transform(values[held_out]))
            row("PCA", correlation(values[held_out], again))


if __name__ == "__main__":
    main()
