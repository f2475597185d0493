"""How fast series reach minibatches: ours, pyarrow and the row iterator of PySpark, on one core of one machine.

    cargo build --release -p voxelflow --example feed
    python integration-tests/bench/feed.py target/release/examples/feed

Series of 284 points lie in one Parquet file in the page cache, as a fixed-size list, plain and not compressed (`--zstd`
compresses them). First pass: from the file to the last minibatch, with all that a training does before its first step.
Later passes: shuffled minibatches from what the first pass left behind, for pyarrow one array in memory. PySpark
(4.0) is measured if it is installed, with fewer rows, for it is slow. All numbers are medians, in series a second: by
the clock, and of the processor's time, which tells what a core can do that is shared with others.
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
CORE = 0


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


def now():
    return time.perf_counter(), time.process_time()


def since(start):
    return [after - before for before, after in zip(start, now())]


def with_pyarrow(path, epochs):
    """Seconds of each pass, by the clock and of the processor."""
    import numpy
    import pyarrow.parquet

    seconds = []
    start = now()
    parts = []
    for batch in pyarrow.parquet.ParquetFile(path).iter_batches(65_536, columns=["series"], use_threads=False):
        parts.append(batch.column(0).flatten().to_numpy(zero_copy_only=True).reshape(-1, TIME_POINTS))
    rows = sum(map(len, parts))
    seconds.append(since(start))
    held = numpy.concatenate(parts)
    del parts
    random = numpy.random.default_rng(1)
    minibatch = numpy.empty((MINIBATCH, TIME_POINTS), numpy.float32)
    for _ in range(epochs - 1):
        start = now()
        order = random.permutation(rows)
        for first in range(0, rows, MINIBATCH):
            chosen = order[first : first + MINIBATCH]
            numpy.take(held, chosen, axis=0, out=minibatch[: len(chosen)])
        seconds.append(since(start))
    return rows, *zip(*seconds)


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
    return counted, [seconds], []


def on_one_core(command):
    """The last line that `command` prints on one core, as JSON."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKIO_WORKER_THREADS": "1"}
    done = subprocess.run(["taskset", "-c", str(CORE), *map(str, command)], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it failed")
    return json.loads(done.stdout.strip().splitlines()[-1])


def show(name, runs):
    """Medians over `runs`."""
    series = runs[0]["series"]

    def rates(firsts, laters):
        texts = [f"{series / statistics.median(firsts):12,.0f}/s"]
        texts += [f"{series / statistics.median(laters):12,.0f}/s"] if laters else []
        return texts

    clock = rates([run["first"] for run in runs], [second for run in runs for second in run["later"]])
    print(f"{name:34}", *(f"{pass_} {rate}" for pass_, rate in zip(("first pass", "  later passes"), clock)), flush=True)
    used = [run["processor"] for run in runs if any(run["processor"])]
    if used:
        processor = rates([passes[0] for passes in used], [second for passes in used for second in passes[1:]])
        print(f"{'    of the processor':34}", *(f"{'':{n}} {rate}" for n, rate in zip((10, 14), processor)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("feed", nargs="?", help="the example `feed`, built")
    parser.add_argument("--series", type=int, default=500_000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--runs", type=int, default=3, help="runs of each, in turn; the median is shown")
    parser.add_argument("--zstd", action="store_true")
    parser.add_argument("--peer", nargs=3, metavar=("NAME", "PARQUET", "N"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        name, path, n = arguments.peer
        rows, clock, processor = (with_pyarrow if name == "pyarrow" else with_pyspark)(path, int(n))
        print(json.dumps({"series": rows, "first": clock[0], "later": clock[1:], "processor": processor}))
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
        print(f"{arguments.series:,} series, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
        for _ in range(arguments.runs):
            for name, command in commands.items():
                measured[name].append(on_one_core(command))
        for name, runs in measured.items():
            show(name, runs)
        try:
            show("PySpark, row iterator", [on_one_core([*peer, "pyspark", path, min(arguments.series, 20_000)])])
        except RuntimeError as e:
            print(f"{'PySpark, row iterator':34} {'not installed' if 'No module' in str(e) else e}")


if __name__ == "__main__":
    main()
