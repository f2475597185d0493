"""Runs commands in turn as whole processes and prints medians and ratios of time and peak memory.

A child's peak is never under what its parent held when it was forked, so a small process starts each command: this file,
run as a program.
"""

import os
import statistics
import subprocess
import sys
import time


def run(command):
    """Wall-clock seconds and peak resident MiB of one process; its output goes to stderr on failure."""
    # A forced OpenBLAS kernel would slow the peers: they choose their own.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    starter = [sys.executable, "-I", "-S", __file__, *map(str, command)]
    done = subprocess.run(starter, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    if done.returncode != 0:
        sys.stderr.write(done.stdout.decode(errors="replace"))
        raise SystemExit(f"failed: {' '.join(map(str, command))}")
    seconds, peak = done.stderr.decode().split()
    return float(seconds), float(peak)


def start(command):
    """Runs `command`; seconds and MiB go to stderr, what it says to stdout."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.STDOUT)
    _, status, usage = os.wait4(process.pid, 0)
    print(time.perf_counter() - begun, usage.ru_maxrss / 1024, file=sys.stderr)
    return 0 if status == 0 else 1


def compare(title, ours, peer, runs=5):
    """A B A B …, so that drift of the machine meets both; the first pair warms the page cache and is not counted."""
    run(ours), run(peer)
    a, b = [], []
    for _ in range(runs):
        a.append(run(ours))
        b.append(run(peer))
    print(f"\n{title} ({runs} pairs, median [min … max])")
    for name, column, unit in (("time", 0, "s"), ("peak memory", 1, "MiB")):
        x, y = [m[column] for m in a], [m[column] for m in b]
        ratio = statistics.median(p / q for p, q in zip(x, y))
        show = lambda v: f"{statistics.median(v):8.2f} [{min(v):.2f} … {max(v):.2f}] {unit}"
        print(f"  {name:12} ours {show(x)}   peer {show(y)}   ratio ours/peer {ratio:.3f}")


if __name__ == "__main__":
    raise SystemExit(start(sys.argv[1:]))
