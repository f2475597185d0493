"""Throughput of training against the number of ranks: real compute, each rank in an executor process of its own
with one thread, all of them on this machine. Needs nothing but Python and the program.

    python integration-tests/bench/scaling.py [VOXELFLOW_BINARY] [--ranks 1,2,4,8,13] [--local-steps 1,2] [--seconds 420]
                                              [--cores-per-executor 1,2,4] [--minibatch 64] [--json scaling.json]

1. Baseline: one process without executors, with one thread; its rate is the 1 of every speed-up. One process with all
   the machine's threads is shown beside it.
2. For every number of ranks R and of local steps H: series/s over all ranks (median round, the first left out), speed-up,
   efficiency, where rank 0's time goes, and the loss on held-out series after equal numbers of samples, against the
   baseline's. `communicate` is the fastest rounds' time of agreeing, what others take more is `wait`: rank 0 is not
   always the last to come, so its fastest rounds are those without waiting.
3. Figure 7 of the paper: two executors (--fixed-ranks) with 1, 2 and 4 threads each.

The number of samples, the same in all rows of the first table, is chosen so that all of it takes about --seconds. Rows
for which that is less than three rounds, and ranks beyond the machine's cores, are left out, and said to be.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PREPARE = """
CREATE EXTERNAL TABLE raw STORED AS PARQUET LOCATION '{raw}';
CREATE TABLE series AS SELECT * FROM clean(raw, detrend => true, standardize => 'zscore_sample');
"""

TRAIN = """
CREATE EXTERNAL TABLE series STORED AS PARQUET LOCATION '{series}';
TRAIN MODEL dca USING dist_dca ()
  ON (SELECT * FROM series WHERE voxel % 16 <> 0)
  VALIDATE ON (SELECT * FROM series WHERE voxel % 128 = 0)
  WITH (ranks => {ranks}, minibatch => {minibatch}, epochs => 1000, max_steps => {rounds}, local_steps => {local_steps},
        subject_overlap => 'allow', checkpoint_every => 0, seed => 1);
"""

# Starting and ending a run, and validation: seconds that no series are trained in.
START = 6.0


def command(words, **options):
    done = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        raise SystemExit(f"failed: {' '.join(map(str, words))}")


class Bench:
    def __init__(self, binary, folder, minibatch):
        self.binary, self.folder, self.minibatch = binary, folder, minibatch

    def prepare(self, voxels):
        """Two subjects' series, cleaned, once for all."""
        command([self.binary, "synth", "hcp", "--subjects", 2, "--voxels", voxels, "--out", self.folder])
        file = self.folder / "prepare.vf"
        file.write_text(PREPARE.format(raw=self.folder / "series"))
        command([self.binary, "run", file, "--out", self.folder / "prepared"])
        parts = list((self.folder / "prepared").rglob("*.parquet"))
        assert parts, "the cleaned series were not written"
        self.series = parts[0].parent

    def train(self, ranks, rounds, local_steps, threads, executors=True):
        """One training; a summary of its rounds."""
        out = self.folder / "out"
        file = self.folder / "train.vf"
        file.write_text(
            TRAIN.format(
                series=self.series, ranks=ranks, minibatch=self.minibatch, rounds=rounds, local_steps=local_steps
            )
        )
        # A slot for each executor: its rank has the process to itself.
        place = ["--executors", ranks, "--slots", 1] if executors else []
        started = time.perf_counter()
        environment = dict(os.environ, RAYON_NUM_THREADS=str(threads))
        command([self.binary, "run", file, *place, "--out", out, "--fresh"], env=environment)
        history = json.loads((out / "models" / "dca" / "history.json").read_text())
        return summary(history, ranks, local_steps, threads, time.perf_counter() - started)


def summary(history, ranks, local_steps, threads, seconds):
    """A record of the history is a round with all its local steps. The first warms up."""
    rounds = history["steps"][1:] or history["steps"]
    total = lambda r: r["feed_seconds"] + r["compute_seconds"] + r["sync_seconds"]
    # A round that the end of an epoch cut is shorter: rates are of whole samples by whole time, round by round.
    rates = [r["samples"] / total(r) for r in rounds]
    feed, compute = (sum(r[f"{part}_seconds"] for r in rounds) / len(rounds) for part in ("feed", "compute"))
    agree = [r["sync_seconds"] for r in rounds]
    communicate = min(agree)
    return {
        "ranks": ranks,
        "local_steps": local_steps,
        "threads_per_rank": threads,
        "rounds": len(history["steps"]),
        "series_per_second": statistics.median(rates),
        "round_seconds": {
            "feed": feed,
            "compute": compute,
            "communicate": communicate,
            "wait": statistics.mean(agree) - communicate,
        },
        "samples": sum(history["samples_per_rank"]),
        "loss": history["epochs"][-1]["validation_loss"],
        "bytes_sent_by_busiest_rank": max(history["bytes_sent_per_rank"]),
        "whole_command_seconds": seconds,
    }


def show(label, row, base, losses=True):
    row["label"] = label
    row["speed_up"] = row["series_per_second"] / base["series_per_second"]
    row["efficiency"] = row["speed_up"] / row["ranks"]
    row["loss_against_baseline"] = row["loss"] / base["loss"] - 1 if losses else None
    split = row["round_seconds"]
    whole = sum(split.values())
    parts = "  ".join(f"{name} {value / whole:4.0%}" for name, value in split.items())
    loss = f"loss {row['loss']:.4f} ({row['loss_against_baseline']:+.1%}) " if losses else ""
    print(
        f"  {label:22} H {row['local_steps']:>2}  {row['series_per_second']:9.1f} series/s  speed-up {row['speed_up']:5.2f}"
        f"  efficiency {row['efficiency']:4.2f}  {parts}  {loss}"
        f"after {row['samples']} samples  {row['bytes_sent_by_busiest_rank'] / 2**20:.0f} MiB sent",
        flush=True,
    )
    return row


def rounds_for(samples, ranks, minibatch, local_steps):
    """As many samples for everyone."""
    return round(samples / (ranks * minibatch * local_steps))


def plan(seconds, rate, ranks, local_steps, cores_per_executor, fixed):
    """Samples of every row, so that all rows and the starts of their programs take about `seconds`."""
    rows = 1 + sum(1 / r for r in ranks for _ in local_steps if r > 1)
    starts = START * (2 + len(ranks) * len(local_steps) + len(cores_per_executor))
    figure_7 = sum(1 / (fixed * threads) for threads in cores_per_executor) / 2
    # Memory is shared by the ranks, and all cores at work are slower than one: a third more.
    return max(0.0, seconds - starts) * rate / (1.33 * (rows + figure_7))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", nargs="?", default=ROOT / "target/debug/voxelflow", type=Path)
    numbers = lambda text: [int(n) for n in text.split(",") if n]
    parser.add_argument("--ranks", type=numbers, default=[1, 2, 4, 8, 13])
    parser.add_argument("--local-steps", type=numbers, default=[1, 2])
    parser.add_argument("--cores-per-executor", type=numbers, default=[1, 2, 4])
    parser.add_argument("--fixed-ranks", type=int, default=2, help="executors of the table by cores per executor")
    parser.add_argument("--minibatch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=420, help="what all of it may take")
    parser.add_argument("--voxels", type=int, default=20_000, help="of each of two subjects")
    parser.add_argument("--json", type=Path, default=Path("scaling.json"))
    options = parser.parse_args()
    binary, cores, began = options.binary.resolve(), len(os.sched_getaffinity(0)), time.perf_counter()
    ranks = [r for r in options.ranks if r <= cores]
    for r in set(options.ranks) - set(ranks):
        print(f"  {r} ranks: not run, the machine has {cores} cores")
    result = {"cores": cores, "machine": platform.processor() or platform.machine(), "minibatch": options.minibatch}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(binary, Path(folder), options.minibatch)
        bench.prepare(options.voxels)
        calibration = bench.train(1, 4, 1, 1, executors=False)
        left = options.seconds - (time.perf_counter() - began)
        samples = plan(
            left, calibration["series_per_second"], ranks, options.local_steps, options.cores_per_executor,
            options.fixed_ranks,
        )
        rounds = lambda r, h: rounds_for(samples, r, options.minibatch, h)

        print(f"\nRanks with one thread each, minibatch {options.minibatch} a rank and step, {cores} cores", flush=True)
        base = bench.train(1, max(3, rounds(1, 1)), 1, 1, executors=False)
        rows = [show("1 process", base, base)]
        whole = bench.train(1, max(4, rounds(1, 1) // cores), 1, cores, executors=False)
        result["one_process_with_all_threads"] = whole["series_per_second"]
        print(f"  (one process with {cores} threads: {whole['series_per_second']:.1f} series/s)", flush=True)
        # One rank has nobody to agree with: the process above stands for it.
        for r, h in ((r, h) for h in options.local_steps for r in ranks if r > 1):
            if rounds(r, h) < 3:
                print(f"  {r} executors, H {h}: not run, {samples:.0f} samples are no three rounds; more --seconds")
                continue
            rows.append(show(f"{r} executors", bench.train(r, rounds(r, h), h, 1), base))
        result["ranks"] = rows

        fixed = options.fixed_ranks
        print(f"\n{fixed} executors, more threads for each (speed-up against one process with one thread)", flush=True)
        result["cores_per_executor"] = []
        for threads in options.cores_per_executor:
            if fixed * threads > cores:
                print(f"  {threads} threads: not run, the machine has {cores} cores")
                continue
            row = bench.train(fixed, max(4, rounds(fixed * threads, 1) // 2), 1, threads)
            # Other numbers of samples: their losses have nothing to be compared with.
            result["cores_per_executor"].append(show(f"{fixed} x {threads} threads", row, base, losses=False))
    result["seconds"] = time.perf_counter() - began
    options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"\n{result['seconds']:.0f} s; {options.json}")


if __name__ == "__main__":
    main()
