"""What ranks cost: one encoding model fitted by one rank, then by four, each a process of its own on this machine.

    cargo build --workspace --bins
    python integration-tests/bench/ridge_ranks.py target/debug/voxelflow [SAMPLES FEATURES TARGETS [CV]]

8000, 2048 and 20000 samples, features and targets in four runs, and leave-one-out, without more. Prints the CPU time
of every rank while it fits (user and system, of its process), the ratio of the totals, and how far
the models lie apart. No product and no decomposition of the features alone is computed twice, so the total of four
ranks should be near that of one; the same model with `baseline => 'b_mor'`, where each rank decomposes the features for
its batch of targets, stands beside it. Needs numpy
and pyarrow. Ranks share the cores of the machine: one has as many threads as there are, each of four a part of them, or
RAYON_NUM_THREADS. CPU time is of programs and system together, so a part of it is memory that the system gives for the
first time, which each rank needs for itself, and which is slow on virtual machines.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ALPHAS = "[0.1, 1, 100, 200, 300, 400, 600, 800, 900, 1000, 1200]"
RUNS = 4
# Pairs of fits: machines are shared, and the median of their ratios is told.
TIMES = 3


def lists(values):
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def write(folder, x, blocks):
    """Features `[samples, features]` and blocks `[samples, targets]` as Parquet, in RUNS runs."""
    points = len(x) // RUNS
    runs = np.repeat([str(run) for run in range(RUNS)], points)
    trs = np.tile(np.arange(points), RUNS)
    pq.write_table(pa.table({"run": runs, "tr": trs, "x": lists(x[: points * RUNS])}), folder / "stimuli.parquet")
    (folder / "series").mkdir()
    first = 0
    for y in blocks:
        count = y.shape[1]
        voxels = np.arange(first, first + count, dtype=np.uint32)
        for run in range(RUNS):
            own = np.ascontiguousarray(y[run * points : (run + 1) * points].T)
            table = pa.table({"run": [str(run)] * count, "voxel": voxels, "series": lists(own)})
            pq.write_table(table, folder / "series" / f"{first}-{run}.parquet")
        first += count


def make(folder, samples, features, targets):
    rng = np.random.default_rng(7)
    x = rng.standard_normal((samples // RUNS * RUNS, features), dtype=np.float32)

    def block(count):
        y = x @ (rng.standard_normal((features, count), dtype=np.float32) * 0.1)
        return y + rng.standard_normal(y.shape, dtype=np.float32) * 2

    write(folder, x, (block(min(1000, targets - first)) for first in range(0, targets, 1000)))


def fit(program, folder, name, ranks, cv="'loo'", options="", targets=None, environment=None):
    """The statement on `ranks` executors: its wall time, and what its ranks say (`ridge.json`)."""
    where = f"WHERE voxel < {targets}" if targets else ""
    text = (
        f"TRAIN MODEL enc USING ridge_cv (alphas => {ALPHAS}, cv => {cv}{options}) "
        f"ON (SELECT * FROM '{folder}/series/' {where}) "
        f"FEATURES (SELECT * FROM '{folder}/stimuli.parquet') WITH (ranks => {ranks});"
    )
    (folder / "enc.vf").write_text(text)
    command = [program, "run", folder / "enc.vf", "--out", folder / name, "--executors", str(ranks), "--slots", "1"]
    clock = time.perf_counter()
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}")
    seconds = time.perf_counter() - clock
    return seconds, json.loads((folder / name / "models/enc/ridge.json").read_text())


def tell(title, found):
    """Prints a fit; gives the processors' time of all ranks."""
    seconds, report = found
    cpu = [rank["cpu_seconds"] for rank in report["ranks"]]
    print(f"{title}: alpha {report['alpha']}, statement {seconds:.1f} s")
    for rank in report["ranks"]:
        share = 100 * rank["cpu_seconds"] / max(sum(cpu), 1e-9)
        print(
            f"  rank {rank['rank']}: {rank['targets']} targets, {rank['decompositions']} decomposition(s), "
            f"CPU {rank['cpu_seconds']:.2f} s ({share:.1f} %), wall {rank['seconds']:.2f} s"
        )
    print(f"  CPU of all ranks {sum(cpu):.2f} s")
    return sum(cpu)


def coefficients(folder, name):
    data = (folder / name / "models/enc/model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    tensor = json.loads(data[8 : 8 + length])["coefficients"]
    begin, end = (8 + length + offset for offset in tensor["data_offsets"])
    return np.frombuffer(data[begin:end], np.float32).reshape(tensor["shape"])


def main():
    program, sizes = sys.argv[1], [int(size) for size in sys.argv[2:5]] or [8000, 2048, 20000]
    cv = sys.argv[5] if len(sys.argv) > 5 else "'loo'"
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make(folder, *sizes)
        print(f"samples, features, targets {sizes}, cv => {cv}")
        ratios = []
        for time_of in range(TIMES):
            one = tell("1 rank", fit(program, folder, f"one-{time_of}", 1, cv))
            four = tell("4 ranks", fit(program, folder, f"four-{time_of}", 4, cv))
            ratios.append(four / one)
        batches = tell("4 ranks, B-MOR", fit(program, folder, "batches", 4, cv, ", baseline => 'b_mor'"))
        a, b = coefficients(folder, "one-0"), coefficients(folder, "four-0")
        print(f"coefficients differ by at most {np.abs(a - b).max() / np.abs(a).max():.1e} of the largest")
        each = ", ".join(f"{ratio:.3f}" for ratio in ratios)
        print(f"CPU time of four ranks / of one: {statistics.median(ratios):.3f} (each time {each})")
        print(f"CPU time of B-MOR on four / of one: {batches / one:.3f}")


if __name__ == "__main__":
    main()
