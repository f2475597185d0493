"""How fast series reach minibatches: ours, pyarrow and the row iterator of PySpark, on one core of one machine.

    cargo build --release -p voxelflow --example feed
    python integration-tests/bench/feed.py target/release/examples/feed

Series of 284 points lie in one Parquet file in the page cache, as a fixed-size list, plain and not compressed (`--zstd`
compresses them). First pass: from the file to the last minibatch, with all that a training does before its first step.
Later passes: shuffled minibatches from what the first pass left behind, for pyarrow one array in memory. PySpark gets
fewer rows, for it is slow; all numbers are series a second.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TIME_POINTS = 284
MINIBATCH = 1_600


def write(path, series, compression):
    import numpy
    import pyarrow
    import pyarrow.parquet

    random = numpy.random.default_rng(0)
    values = random.standard_normal(series * TIME_POINTS, dtype=numpy.float32)
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values), TIME_POINTS)
    voxels = pyarrow.array(numpy.arange(series, dtype=numpy.uint32))
    table = pyarrow.table({"voxel": voxels, "series": lists})
    pyarrow.parquet.write_table(
        table, path, row_group_size=32_768, compression=compression, use_dictionary=False, write_statistics=False
    )


def with_pyarrow(path, epochs):
    """Seconds of each pass."""
    import numpy
    import pyarrow.parquet

    seconds = []
    start = time.perf_counter()
    parts = []
    for batch in pyarrow.parquet.ParquetFile(path).iter_batches(65_536, columns=["series"], use_threads=False):
        parts.append(batch.column(0).flatten().to_numpy(zero_copy_only=True).reshape(-1, TIME_POINTS))
    rows = sum(map(len, parts))
    seconds.append(time.perf_counter() - start)
    held = numpy.concatenate(parts)
    del parts
    random = numpy.random.default_rng(1)
    minibatch = numpy.empty((MINIBATCH, TIME_POINTS), numpy.float32)
    for _ in range(epochs - 1):
        start = time.perf_counter()
        order = random.permutation(rows)
        for first in range(0, rows, MINIBATCH):
            chosen = order[first : first + MINIBATCH]
            numpy.take(held, chosen, axis=0, out=minibatch[: len(chosen)])
        seconds.append(time.perf_counter() - start)
    return rows, seconds


def with_pyspark(path, rows):
    """Seconds of one pass over `rows` rows through the row iterator, as a Python queue would be fed."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.read.parquet(str(path)).select("series").limit(rows)
    count = lambda partition: [sum(1 for row in partition if len(row.series) == TIME_POINTS)]
    frame.limit(1).rdd.mapPartitions(count).collect()
    start = time.perf_counter()
    counted = sum(frame.rdd.mapPartitions(count).collect())
    seconds = time.perf_counter() - start
    spark.stop()
    return counted, [seconds]


def on_one_core(command):
    """The last line that `command` prints on core 0, as JSON."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKIO_WORKER_THREADS": "1"}
    done = subprocess.run(["taskset", "-c", "0", *map(str, command)], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it failed")
    return json.loads(done.stdout.strip().splitlines()[-1])


def show(name, series, first, later=()):
    line = f"{name:34} first pass {series / first:12,.0f}/s"
    if later:
        line += f"   later passes {series / statistics.median(later):12,.0f}/s"
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("feed", nargs="?", help="the example `feed`, built")
    parser.add_argument("--series", type=int, default=200_000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--runs", type=int, default=3, help="runs of each, in turn; the median is shown")
    parser.add_argument("--zstd", action="store_true")
    parser.add_argument("--peer", nargs=3, metavar=("NAME", "PARQUET", "N"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        name, path, n = arguments.peer
        rows, seconds = (with_pyarrow if name == "pyarrow" else with_pyspark)(path, int(n))
        print(json.dumps({"series": rows, "first": seconds[0], "later": seconds[1:]}))
        return
    if not arguments.feed:
        parser.error("name the built example `feed`")

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "series.parquet"
        write(path, arguments.series, "zstd" if arguments.zstd else "none")
        peer = [sys.executable, __file__, "--peer"]
        commands = {
            "voxelflow": [arguments.feed, path, MINIBATCH, arguments.epochs],
            "pyarrow, fixed-size list": [*peer, "pyarrow", path, arguments.epochs],
        }
        measured = {name: [] for name in commands}
        path.read_bytes()
        for _ in range(arguments.runs):
            for name, command in commands.items():
                measured[name].append(on_one_core(command))
        for name, runs in measured.items():
            later = [seconds for run in runs for seconds in run["later"]]
            show(name, runs[0]["series"], statistics.median(run["first"] for run in runs), later)
        try:
            spark = on_one_core([*peer, "pyspark", path, min(arguments.series, 20_000)])
            show("PySpark, row iterator", spark["series"], spark["first"])
        except RuntimeError as e:
            print(f"{'PySpark, row iterator':34} {'not installed' if 'No module' in str(e) else e}")


if __name__ == "__main__":
    main()
