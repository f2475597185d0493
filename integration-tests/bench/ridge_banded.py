"""Banded ridge by random search beside himalaya's GroupRidgeCV on the CPU, one after the other, at the same weights.

    cargo build --workspace --example ridge_speed
    python integration-tests/bench/ridge_banded.py target/debug/examples/ridge_speed [SAMPLES FEATURES TARGETS GAMMAS]

3000, 600, 4000 and 10 without sizes: three bands, the paper's 11 penalties, 5 folds, R², 32-bit floats. Prints times,
peaks of memory, their ratios, and how far the scores and the coefficients lie apart. Needs himalaya 0.4.6 and
scikit-learn.
"""

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from ridge import ALPHAS, NEEDS, PLANNED, make, print_plan, read


def peer(folder, samples, features, targets):
    """Runs in a process of its own."""
    import numpy as np
    from himalaya.ridge import GroupRidgeCV
    from himalaya.scoring import r2_score
    from sklearn.model_selection import KFold

    clock = time.perf_counter()
    x = np.fromfile(folder / "x.bin", np.float32).reshape(samples, features)
    y = np.fromfile(folder / "y.bin", np.float32).reshape(targets, samples).T
    gammas = np.loadtxt(folder / "gammas.txt", ndmin=2)
    groups = np.repeat(np.arange(gammas.shape[1]), np.loadtxt(folder / "bands.txt", int))
    params = dict(
        n_iter=gammas, alphas=np.array(ALPHAS), score_func=r2_score, n_targets_batch=1000, progress_bar=False, warn=False
    )
    fit = GroupRidgeCV(groups=groups, fit_intercept=True, cv=KFold(5), solver_params=params).fit(x, y)
    np.ascontiguousarray(fit.coef_.T, dtype=np.float32).tofile(folder / "peer.bin")
    print(f"score {fit.cv_scores_.max(0).mean()}")
    print(f"seconds {time.perf_counter() - clock:.2f}")
    print(f"peak_mib {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}")


def main(program, sizes):
    import numpy as np

    samples, features, targets, count = sizes
    with tempfile.TemporaryDirectory() as name:
        folder, numbers = Path(name), [str(n) for n in sizes[:3]]
        make(folder, *sizes[:3], np.float32)
        bands = [features // 2, features // 3, features - features // 2 - features // 3]
        gammas = np.random.default_rng(1).dirichlet([1.0] * 3, count)
        gammas[0] = 1 / 3
        np.savetxt(folder / "gammas.txt", gammas)
        (folder / "bands.txt").write_text("\n".join(map(str, bands)))
        load = os.getloadavg()[0]
        keys = ("score", *NEEDS)
        mine = read([program, name, *numbers, "f32", "banded"], (*keys, *PLANNED))
        theirs = read([sys.executable, __file__, "peer", name, *numbers], keys)
        a, b = (np.fromfile(folder / f, np.float32).reshape(targets, features) for f in ("weights.bin", "peer.bin"))
        same = (np.abs(a - b).max(1) <= 1e-3 * np.abs(b).max()).mean()
    print(
        f"{samples} x {features} in bands of {bands}, {targets} targets, {count} weights, {len(ALPHAS)} penalties, f32, "
        f"5 folds, {len(os.sched_getaffinity(0))} cores, load {load:.1f}"
    )
    for tool, found in (("voxelflow", mine), ("himalaya", theirs)):
        print(f"  {tool:<10} score {found['score']:.6f} {found['seconds']:8.2f} s {found['peak_mib']:8.0f} MiB")
    print(
        f"  himalaya / voxelflow: time {theirs['seconds'] / mine['seconds']:.2f}, memory "
        f"{theirs['peak_mib'] / mine['peak_mib']:.2f}; coefficients of {same:.1%} of the targets agree to 0.1 %"
    )
    print_plan(mine)


if __name__ == "__main__":
    if sys.argv[1] == "peer":
        peer(Path(sys.argv[2]), *map(int, sys.argv[3:6]))
    else:
        main(sys.argv[1], [int(n) for n in sys.argv[2:6]] or [3000, 600, 4000, 10])
