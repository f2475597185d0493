"""One epoch over a training set of the paper's size, 9,658,464 series of 284 points (11 GB), from Parquet to a trained
model: the time of each part, series/s, and the share of the epoch that the step waits for data.

    python integration-tests/bench/paper_epoch.py VOXELFLOW_BINARY [--series 9658464] [--device cuda:0 cuda:0,1]
        [--precision bf16] [--minibatch 1600 3200] [--ranks 1] [--local-steps 1] [--folder DIR] [--json FILE]

The series are made by `voxelflow synth hcp` (planted responses, noise, drift) in the folder, which needs room for them
twice: Parquet, and the cleaned rows that training reads in random order. Files that are there already are used again.
Every minibatch is trained with on every device, and set beside the first of them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# The paper's number of series is 96 times 100,609.
SUBJECTS = 96
FEWEST_VOXELS = 200

TRAIN = """
CREATE EXTERNAL TABLE raw STORED AS PARQUET LOCATION '{series}';
TRAIN MODEL dca USING dist_dca ()
  ON (SELECT * FROM clean(raw, detrend => true, standardize => 'zscore_sample'))
  WITH ({settings}, epochs => 1, checkpoint_every => 0, seed => 1);
"""


def command(words):
    """Wall-clock seconds and peak resident MiB of a command that must succeed."""
    begun = time.perf_counter()
    process = subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = process.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.stderr.write(output)
        raise SystemExit(f"failed: {' '.join(map(str, words))}")
    return time.perf_counter() - begun, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--series", type=int, default=9_658_464)
    parser.add_argument("--device", nargs="+", default=["cpu"])
    parser.add_argument("--precision")
    parser.add_argument("--minibatch", type=int, nargs="+", default=[1600])
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--local-steps", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.binary = args.binary.resolve()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        data = series(args, folder)
        results = []
        for minibatch in args.minibatch:
            first = None
            for device in args.device:
                result = measure(args, folder, data, device, minibatch)
                first = first or result
                if result is not first:
                    times = result["series_per_second"] / first["series_per_second"]
                    print(f"{times:.2f} times the series/s of {first['device']}", flush=True)
                results.append(result)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


def series(args, folder):
    """The folder of the series, made if it is not there."""
    subjects = max(1, min(SUBJECTS, args.series // FEWEST_VOXELS))
    voxels = args.series // subjects
    data = folder / f"hcp-{subjects}-{voxels}"
    if not data.exists():
        words = ["synth", "hcp", "--subjects", subjects, "--voxels", voxels, "--out", data]
        seconds, _ = command([args.binary, *words])
        print(f"made {subjects * voxels:,} series in {seconds:.1f} s", flush=True)
    return data


def measure(args, folder, data, device, minibatch):
    """One epoch from Parquet to a trained model."""
    settings = {"device": device, "minibatch": minibatch, "ranks": args.ranks, "local_steps": args.local_steps}
    if args.precision:
        settings["precision"] = args.precision
    text = ", ".join(f"{k} => {v!r}" for k, v in settings.items())
    if args.ranks > 1:
        text += ", subject_overlap => 'allow'"
    file = folder / "train.vf"
    file.write_text(TRAIN.format(series=data / "series", settings=text))
    out = folder / "out"
    whole, peak = command([args.binary, "run", file, "--out", out, "--fresh"])
    history = json.loads((out / "models" / "dca" / "history.json").read_text())
    steps, epoch = history["steps"], history["epochs"][-1]
    feed, compute, sync = (sum(s[f"{part}_seconds"] for s in steps) for part in ("feed", "compute", "sync"))
    result = {
        "series": epoch["samples"],
        "device": device,
        "precision": args.precision,
        "minibatch": minibatch,
        "ranks": args.ranks,
        "whole_command_seconds": whole,
        "epoch_seconds": epoch["seconds"],
        "series_per_second": epoch["samples"] / epoch["seconds"],
        "waiting_share": feed / (feed + compute + sync),
        "compute_share": compute / (feed + compute + sync),
        "sync_share": sync / (feed + compute + sync),
        "peak_mib": peak,
        "loss": epoch["loss"],
    }
    print(
        f"{result['series']:,} series on {device} ({args.precision or 'default'}), minibatch {minibatch}, "
        f"{args.ranks} ranks: epoch {result['epoch_seconds']:.1f} s, {result['series_per_second']:,.0f} series/s, "
        f"waiting for data {result['waiting_share']:.1%}, computing {result['compute_share']:.1%}, "
        f"agreeing {result['sync_share']:.1%}; whole command {whole:.1f} s, peak {peak:.0f} MiB, loss {epoch['loss']:.4f}",
        flush=True,
    )
    return result


if __name__ == "__main__":
    main()
