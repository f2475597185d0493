"""Throughput of training against the number of ranks: real compute, each rank in an executor process of its own
with one thread, all of them on this machine. Needs nothing but Python and the program.

    python integration-tests/bench/scaling.py [VOXELFLOW_BINARY] [--ranks 1,2,4,8,13] [--minibatch 64] [--rounds 20]
                                              [--local-steps 1,8] [--cores-per-executor 1,2,4]

For every number of ranks R and of local steps H: series/s over all ranks (median round, the first ones left out),
speed-up against R = 1 of the same run, efficiency, where a round's time goes on rank 0, and the loss on held-out
series after equal numbers of samples. Ranks beyond the machine's cores are refused. The second table (Fig. 7 of the
paper) keeps R = 2 and gives each executor more threads.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

TRAIN = """
TRAIN MODEL dca USING dist_dca ()
  ON (SELECT * FROM '{series}' WHERE voxel % 16 <> 0)
  VALIDATE ON (SELECT * FROM '{series}' WHERE voxel % 16 = 0 AND voxel < 4096)
  WITH (ranks => {ranks}, minibatch => {minibatch}, epochs => 1000, max_steps => {steps}, local_steps => {local_steps},
        codec => 'bf16', subject_overlap => 'allow', checkpoint_every => 0, seed => 1);
"""


def synthesise(binary, folder, voxels):
    subprocess.run(
        [binary, "synth", "hcp", "--subjects", "2", "--voxels", str(voxels), "--out", folder / "series"],
        check=True, stdout=subprocess.DEVNULL,
    )
    return folder / "series"


def train(binary, folder, series, ranks, minibatch, steps, local_steps, threads):
    """One training in R executor processes; gives its history and the wall-clock seconds of the whole command."""
    out = folder / f"out-{ranks}-{local_steps}-{threads}"
    text = TRAIN.format(series=series, ranks=ranks, minibatch=minibatch, steps=steps, local_steps=local_steps)
    file = folder / "train.vf"
    file.write_text(text)
    environment = dict(os.environ, RAYON_NUM_THREADS=str(threads))
    started = time.perf_counter()
    done = subprocess.run(
        [binary, "run", file, "--executors", str(ranks), "--out", out, "--fresh"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        raise SystemExit(f"training with {ranks} ranks failed")
    history = json.loads((out / "models" / "dca" / "history.json").read_text())
    return history, time.perf_counter() - started


def summary(history, local_steps):
    """Series/s over all ranks, and shares of a round's time: feed, compute, agreeing."""
    steps = history["steps"]
    # Rounds in blocks of H: all but the last of a block need no agreement. The first block warms up.
    blocks = [steps[i:i + local_steps] for i in range(0, len(steps), local_steps)][1:]
    seconds = lambda s: s["feed_seconds"] + s["compute_seconds"] + s["sync_seconds"]
    per_block = [sum(map(seconds, block)) for block in blocks]
    return {
        "block_seconds": statistics.median(per_block),
        "feed": sum(s["feed_seconds"] for b in blocks for s in b) / sum(per_block),
        "compute": sum(s["compute_seconds"] for b in blocks for s in b) / sum(per_block),
        "sync": sum(s["sync_seconds"] for b in blocks for s in b) / sum(per_block),
        "loss": history["epochs"][-1]["validation_loss"],
        "samples": sum(history["samples_per_rank"]),
        "sent": history["bytes_sent_per_rank"],
    }


def row(label, ranks, local_steps, minibatch, s, base):
    rate = ranks * minibatch * local_steps / s["block_seconds"]
    base = base or rate
    print(
        f"  {label:>3}  H {local_steps:>2}  {rate:9.1f} series/s  speed-up {rate / base:5.2f}  efficiency "
        f"{rate / base / ranks:5.2f}  feed {s['feed']:4.0%}  compute {s['compute']:4.0%}  agree {s['sync']:4.0%}  "
        f"held-out loss {s['loss']:.4f} after {s['samples']} samples  "
        f"sent {max(s['sent']) / 2**20:.0f} MiB by the busiest rank",
        flush=True,
    )
    return rate


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", nargs="?", default=ROOT / "target/debug/voxelflow", type=Path)
    numbers = lambda text: [int(n) for n in text.split(",")]
    parser.add_argument("--ranks", type=numbers, default=[1, 2, 4, 8, 13])
    parser.add_argument("--local-steps", type=numbers, default=[1, 8])
    parser.add_argument("--cores-per-executor", type=numbers, default=[1, 2, 4])
    parser.add_argument("--minibatch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=20, help="rounds of the largest gang; smaller ones get as many samples")
    parser.add_argument("--voxels", type=int, default=40_000)
    options = parser.parse_args()
    binary, cores = options.binary.resolve(), os.cpu_count() or 1
    ranks = [r for r in options.ranks if r <= cores]
    for r in options.ranks:
        if r > cores:
            print(f"  {r} ranks: not run, the machine has {cores} cores")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        series = synthesise(binary, folder, options.voxels)
        print(f"\nRanks with one thread each, minibatch {options.minibatch} a rank, {cores} cores", flush=True)
        for h in options.local_steps:
            base, samples = None, max(ranks) * options.rounds
            for r in ranks:
                steps = max(-(-samples // r) // h * h, 3 * h)
                history, _ = train(binary, folder, series, r, options.minibatch, steps, h, 1)
                rate = row(f"R {r}", r, h, options.minibatch, summary(history, h), base)
                base = base or rate
        print("\nTwo ranks, more threads for each executor", flush=True)
        base = None
        for threads in options.cores_per_executor:
            if 2 * threads > cores:
                print(f"  {threads} threads: not run, the machine has {cores} cores")
                continue
            history, _ = train(binary, folder, series, 2, options.minibatch, 6, 1, threads)
            rate = row(f"T {threads}", 2, 1, options.minibatch, summary(history, 1), base)
            base = base or rate


if __name__ == "__main__":
    main()
