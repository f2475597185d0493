"""The training step of the published autoencoder (284 points, 6,020,381 parameters, Adagrad) beside PyTorch's.

    cargo build -p voxelflow-nn --example step_speed
    python integration-tests/bench/step_speed.py [--threads 2] [--minibatches 64,256] [--unpool switches,repetition]
        [--rounds 9] [--seconds 2] [--peers eager,compiled] [--binary …] [--json step_speed.json]

Needs torch (2.15.0 here); `compiled` is torch.compile and needs a C++ compiler too. Each contestant is a process of its
own that is pinned to the same cores, with as many threads. They take turns for --seconds each, the order moves on by one
every round, so drift of the machine meets all. Printed: the median of series/s of every turn, the ratio of medians of
ours to the best peer with the range of the paired ratios, and peak memory; then where our step goes, and every
operation's GFLOP/s beside what a large matrix product reaches here.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from torch_dca import network

TIME_POINTS, LAMBDA = 284, 0.006
ROOT = Path(__file__).resolve().parents[2]


def torch_server(kind, minibatch, unpool, threads):
    """Steps as many times as a line says; answers with seconds and peak MiB."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = network(unpool == "switches")
    optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-3)
    forward = torch.compile(model) if kind == "compiled" else model
    x = torch.randn(minibatch, 1, TIME_POINTS)

    def step():
        optimizer.zero_grad(set_to_none=True)
        y, z, decoded = forward(x)
        loss = ((y - x) ** 2).sum() * (0.5 / minibatch) + ((z - decoded) ** 2).sum() * (0.5 * LAMBDA / minibatch)
        loss.backward()
        optimizer.step()

    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            step()
        seconds = time.perf_counter() - start
        print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, flush=True)


class Contestant:
    def __init__(self, name, command, minibatch, environment):
        self.name, self.minibatch, self.speeds, self.memory, self.steps = name, minibatch, [], 0.0, 1
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, steps):
        """Seconds a step, or none if the process has failed."""
        try:
            self.process.stdin.write(f"{steps}\n")
            self.process.stdin.flush()
            seconds, self.memory = map(float, self.process.stdout.readline().split())
        except (BrokenPipeError, ValueError):
            return None
        return seconds / steps

    def warm(self, seconds):
        """Compiles, fills caches, and chooses how many steps a turn is."""
        first = self.run(2)
        step = self.run(2) if first is not None else None
        if step is None:
            return False
        self.steps = max(1, round(seconds / step))
        return True

    def turn(self):
        self.speeds.append(self.minibatch / self.run(self.steps))

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def contest(options, minibatch, unpool, environment):
    own = [options.binary, "serve", minibatch, unpool]
    commands = {"ours": own}
    for peer in options.peers:
        commands[peer] = [sys.executable, __file__, "--serve", peer, minibatch, unpool, options.threads]
    contestants = [Contestant(name, command, minibatch, environment) for name, command in commands.items()]
    running = [c for c in contestants if c.warm(options.seconds)]
    for missing in (c for c in contestants if c not in running):
        print(f"  {missing.name}: not measured, its process failed (see above)")
    for turn in range(options.rounds):
        at = turn % len(running)
        for contestant in running[at:] + running[:at]:
            contestant.turn()
    for contestant in contestants:
        contestant.close()
    if running[:1] != contestants[:1] or len(running) < 2:
        raise SystemExit("nothing to compare: ours or every peer failed")
    return running


def report(minibatch, unpool, contestants):
    print(f"\nminibatch {minibatch}, unpooling by {unpool}: series/s, median [min … max] of {len(contestants[0].speeds)} turns")
    for c in contestants:
        spread = f"[{min(c.speeds):.0f} … {max(c.speeds):.0f}]"
        print(f"  {c.name:9} {statistics.median(c.speeds):8.0f} {spread:18} peak memory {c.memory:6.0f} MiB")
    ours, *peers = contestants
    best = max(peers, key=lambda c: statistics.median(c.speeds))
    ratio = statistics.median(ours.speeds) / statistics.median(best.speeds)
    paired = [a / b for a, b in zip(ours.speeds, best.speeds)]
    print(f"  ours / {best.name}: {ratio:.2f} (paired: median {statistics.median(paired):.2f}, "
          f"from {min(paired):.2f} to {max(paired):.2f})")
    return {
        "minibatch": minibatch, "unpool": unpool, "best_peer": best.name, "ratio_of_medians": ratio, "paired": paired,
        "series_per_second": {c.name: c.speeds for c in contestants},
        "peak_mib": {c.name: c.memory for c in contestants},
    }


def flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: [word for word in text.split(",") if word]
    debug = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minibatches", type=lambda text: [int(n) for n in words(text)], default=[64, 256])
    parser.add_argument("--unpool", type=words, default=["switches", "repetition"])
    parser.add_argument("--peers", type=words, default=["eager", "compiled"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2, help="of a turn")
    parser.add_argument("--binary", type=Path, default=debug / "examples" / "step_speed")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main():
    options = flags()
    cores = sorted(os.sched_getaffinity(0))[: options.threads]
    if len(cores) < options.threads:
        raise SystemExit(f"--threads {options.threads}: this machine lends {len(cores)} cores")
    os.sched_setaffinity(0, cores)
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
    environment = {**os.environ, **{name: str(options.threads) for name in names}}
    print(f"cores {','.join(map(str, cores))}, {options.threads} threads each", flush=True)
    rows = []
    for minibatch in options.minibatches:
        for unpool in options.unpool:
            rows.append(report(minibatch, unpool, contest(options, minibatch, unpool, environment)))
            sys.stdout.flush()
    for what in (["phases", options.minibatches[0]], ["operations"]):
        print(flush=True)
        subprocess.run(list(map(str, [options.binary, *what])), env=environment, check=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        kind, minibatch, unpool, threads = sys.argv[2:]
        torch_server(kind, int(minibatch), unpool, int(threads))
    else:
        main()
