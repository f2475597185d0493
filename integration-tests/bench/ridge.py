"""Ridge with cross-validated penalty beside scikit-learn (leave-one-out) and himalaya (5 folds), one after the other.

    cargo build --workspace --example ridge_speed
    python integration-tests/bench/ridge.py target/debug/examples/ridge_speed [SAMPLES FEATURES TARGETS]

8000, 2048 and 20000 without sizes. Every program reads the same files, uses all cores that this process may use, and ends with the
coefficients of all targets. Prints times, peaks of memory, their ratios, and how far the coefficients lie apart.
Needs scikit-learn 1.9.1 and himalaya 0.4.6 (with packaging).
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ALPHAS = [0.1, 1, 100, 200, 300, 400, 600, 800, 900, 1000, 1200]


def make(folder, samples, features, targets, dtype):
    import numpy as np

    rng = np.random.default_rng(7)
    x = rng.standard_normal((samples, features)).astype(dtype)
    x.tofile(folder / "x.bin")
    with open(folder / "y.bin", "wb") as file:
        for start in range(0, targets, 1000):
            count = min(1000, targets - start)
            weights = rng.standard_normal((features, count)) * 0.1
            y = x @ weights + rng.standard_normal((samples, count)) * 2
            file.write(np.ascontiguousarray(y.T, dtype=dtype).tobytes())


def peer(folder, samples, features, targets, which):
    """Runs in a process of its own."""
    import numpy as np
    from himalaya.ridge import RidgeCV as HimalayaRidgeCV
    from himalaya.scoring import r2_score
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import KFold

    # What it takes to import them is not counted.
    clock = time.perf_counter()
    dtype = np.float64 if which == "scikit-learn" else np.float32
    x = np.fromfile(folder / "x.bin", dtype).reshape(samples, features)
    y = np.fromfile(folder / "y.bin", dtype).reshape(targets, samples).T
    if which == "scikit-learn":
        fit = RidgeCV(alphas=ALPHAS).fit(x, y)
        alpha, weights = fit.alpha_, fit.coef_
    else:
        params = {"local_alpha": False, "score_func": r2_score, "n_targets_batch": 1000, "warn": False}
        fit = HimalayaRidgeCV(alphas=ALPHAS, fit_intercept=True, cv=KFold(5), solver_params=params).fit(x, y)
        alpha, weights = float(fit.best_alphas_[0]), fit.coef_.T
    np.ascontiguousarray(weights, dtype=dtype).tofile(folder / "peer.bin")
    print(f"alpha {alpha}")
    print(f"seconds {time.perf_counter() - clock:.2f}")
    print(f"peak_mib {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}")


NEEDS = ("seconds", "peak_mib")
PLANNED = ("planned_seconds", "planned_mib")


def read(command, keys=("alpha", *NEEDS)):
    """The numbers that a command printed under these names."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command}: {done.stderr}")
    lines = dict(line.split(" ", 1) for line in done.stdout.strip().splitlines())
    return {key: float(lines[key].split()[0]) for key in keys}


def print_plan(found):
    seconds, memory = (found[planned] / found[measured] for planned, measured in zip(PLANNED, NEEDS))
    print(f"  voxelflow's plan / what it took: time {seconds:.2f}, memory {memory:.2f}")


def compare(ours, sizes, which, precision, cv):
    import numpy as np

    with tempfile.TemporaryDirectory() as name:
        folder, numbers = Path(name), [str(n) for n in sizes]
        make(folder, *sizes, np.float64 if precision == "f64" else np.float32)
        mine = read([ours, name, *numbers, precision, cv], ("alpha", *NEEDS, *PLANNED))
        theirs = read([sys.executable, __file__, "peer", name, *numbers, which])
        dtype = np.float64 if precision == "f64" else np.float32
        a, b = (np.fromfile(folder / f, dtype) for f in ("weights.bin", "peer.bin"))
        apart = np.abs(a - b).max() / np.abs(b).max()
    print(f"{sizes[0]} x {sizes[1]}, {sizes[2]} targets, {len(ALPHAS)} penalties, {precision}, {cv}, {len(os.sched_getaffinity(0))} cores")
    for tool, found in (("voxelflow", mine), (which, theirs)):
        print(f"  {tool:<13} alpha {found['alpha']:<8g} {found['seconds']:8.2f} s {found['peak_mib']:8.0f} MiB")
    print(
        f"  {which} / voxelflow: time {theirs['seconds'] / mine['seconds']:.2f}, memory "
        f"{theirs['peak_mib'] / mine['peak_mib']:.2f}; coefficients {apart:.1e} of the largest apart"
    )
    print_plan(mine)


if __name__ == "__main__":
    if sys.argv[1] == "peer":
        peer(Path(sys.argv[2]), *map(int, sys.argv[3:6]), sys.argv[6])
    else:
        sizes = [int(n) for n in sys.argv[2:5]] or [8000, 2048, 20000]
        compare(sys.argv[1], sizes, "scikit-learn", "f64", "loo")
        compare(sys.argv[1], sizes, "himalaya", "f32", "5")
