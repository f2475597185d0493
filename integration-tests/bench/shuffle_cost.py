"""What encryption and sessions of our own cost a cluster: two builds of `shuffle_cost`, run in turn on two executors.

    python integration-tests/bench/shuffle_cost.py VOXELFLOW AFTER BEFORE [RUNS] [ROWS] [TASKS]

VOXELFLOW makes the tables; AFTER and BEFORE are two builds of `integration-tests/programs/shuffle_cost.rs`, for example of
this commit and of 1221b4c, the last whose executors spoke in clear text (the program needs an entry in its Cargo.toml there).
Every shuffle of the join passes a socket. Both builds must give the same rows. Times are those of the job alone.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from group_by_join import make


def run(program, *arguments):
    """Seconds of the job, and the checksum of its rows."""
    with tempfile.TemporaryDirectory() as out:
        environment = os.environ | {"VOXELFLOW_EXECUTORS": "2", "VOXELFLOW_OUT": out}
        done = subprocess.run(
            [program, *map(str, arguments)], env=environment, check=True, capture_output=True, text=True
        )
    seconds, checksum = done.stdout.split()
    return float(seconds), checksum


def compare(title, after, before, runs, *arguments):
    """Both in turn; the first pair is not counted."""
    assert run(after, *arguments)[1] == run(before, *arguments)[1], "the builds give different rows"
    pairs = [(run(after, *arguments)[0], run(before, *arguments)[0]) for _ in range(runs)]
    a, b = zip(*pairs)
    ratio = statistics.median(p / q for p, q in pairs)
    show = lambda v: f"{statistics.median(v):.2f} [{min(v):.2f} … {max(v):.2f}] s"
    print(f"{title} ({runs} pairs, median [least … most]): after {show(a)}, before {show(b)}, ratio {ratio:.3f}", flush=True)


def main():
    binary, after, before = sys.argv[1:4]
    runs, rows, tasks = (int(v) for v in (sys.argv[4:] + ["5", "20000000", "5000"][len(sys.argv) - 4 :]))
    with tempfile.TemporaryDirectory() as folder:
        facts, names = make(binary, Path(folder), rows)
        compare(f"join of {rows:,} rows", after, before, runs, "join", facts, names)
    compare(f"a stage of {tasks:,} tasks", after, before, runs, "tasks", tasks)


if __name__ == "__main__":
    main()
