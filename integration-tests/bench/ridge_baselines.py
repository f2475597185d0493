"""The paper's baselines kept runnable: ridge by scikit-learn with threads, MOR and B-MOR under dask, beside ours.

    cargo build --workspace --bins --examples
    python integration-tests/bench/ridge_baselines.py target/debug --shape threads
    python integration-tests/bench/ridge_baselines.py target/debug --shape ranks

One process of scikit-learn and ours with 1, 2, … threads (the paper's Fig. 6 and 7); MOR (`MultiOutputRegressor`: a
decomposition a target) and B-MOR (a `RidgeCV` for each batch of targets, as many batches as ranks) on 1, 2, … ranks of
1, 2, … threads, by joblib's dask backend over processes of a `LocalCluster` (Fig. 9 and 10), beside the statement
`TRAIN MODEL … USING ridge_cv` on as many executors, as it is and with `baseline => 'b_mor'` and `'mor'`. Every line has
the time (of a statement: that of its slowest rank), the processors' time,
the speed-up against one thread of scikit-learn in one process, and against scikit-learn's fastest single process, and the
share of the rank that did least: what B-MOR repeats shows there. Leave-one-out over the paper's penalties, 64-bit floats.

`measure_baseline(folder, sizes, tool, ranks, threads)` is one line, for programs that set other runs beside it. Needs
scikit-learn 1.9.1, dask and distributed 2026.8.0. `--samples`, `--features`, `--targets` and `--mor-targets` change the
sizes; MOR is run on few targets and told for so many.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import ridge_ranks
from ridge import ALPHAS, make


def threads_environment(threads):
    names = ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"]
    return {**os.environ, **{name: str(threads) for name in names}}


def load(folder, samples, features, targets):
    import numpy as np

    x = np.fromfile(folder / "x.bin", np.float64).reshape(samples, features)
    y = np.fromfile(folder / "y.bin", np.float64).reshape(-1, samples).T[:, :targets]
    return x, np.ascontiguousarray(y)


def child(folder, sizes, tool, ranks, threads):
    """One run, in a process of its own: {"seconds", "cpu_seconds"} on the last line."""
    import time

    import joblib
    import numpy as np
    from sklearn.linear_model import RidgeCV
    from sklearn.multioutput import MultiOutputRegressor

    x, y = load(folder, *sizes)
    if tool == "scikit-learn":
        clock, spent = time.perf_counter(), time.process_time()
        RidgeCV(alphas=ALPHAS).fit(x, y)
        print(json.dumps({"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - spent}))
        return
    from dask.distributed import Client, LocalCluster

    def batch(x, y):
        start = time.process_time()
        coefficients = RidgeCV(alphas=ALPHAS).fit(x, y).coef_
        return coefficients, time.process_time() - start

    # Workers inherit how many threads their BLAS may have.
    cluster = LocalCluster(n_workers=ranks, threads_per_worker=1, processes=True, dashboard_address=None)
    with cluster, Client(cluster) as client, joblib.parallel_config(backend="dask"):
        client.wait_for_workers(ranks)

        def spent():
            # joblib runs a single batch in the driver's own process.
            return time.process_time() + sum(client.run(time.process_time).values())

        # A first task imports what the others need, which is not counted.
        client.run(lambda: __import__("sklearn.linear_model"))
        before, clock = spent(), time.perf_counter()
        if tool == "mor":
            MultiOutputRegressor(RidgeCV(alphas=ALPHAS), n_jobs=-1).fit(x, y)
        else:
            parts = np.array_split(np.arange(y.shape[1]), ranks)
            joblib.Parallel(n_jobs=ranks)(joblib.delayed(batch)(x, y[:, part]) for part in parts)
        seconds = time.perf_counter() - clock
        print(json.dumps({"seconds": seconds, "cpu_seconds": spent() - before}))


def measure_baseline(folder, sizes, tool, ranks, threads):
    """`tool`: "scikit-learn" (one process), "mor" or "b-mor", on files that `ridge.make` wrote into `folder`."""
    command = [sys.executable, __file__, "child", str(folder), *map(str, sizes), tool, str(ranks), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, env=threads_environment(threads))
    if done.returncode:
        sys.exit(f"{command}: {done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure_ours(program, folder, sizes, threads):
    """One process of `ridge_speed`."""
    before = os.times()
    command = [program, str(folder), *map(str, sizes), "f64", "loo"]
    done = subprocess.run(command, capture_output=True, text=True, env=threads_environment(threads))
    if done.returncode:
        sys.exit(f"{command}: {done.stderr}")
    after = os.times()
    lines = dict(line.split(" ", 1) for line in done.stdout.strip().splitlines())
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": float(lines["seconds"].split()[0]), "cpu_seconds": cpu}


def measure_stage(program, folder, ranks, threads, baseline, targets):
    """The statement on `ranks` executors, over the same numbers in 32 bits, products in 64."""
    options = ", precision => 'f64'" + (f", baseline => '{baseline}'" if baseline else "")
    name = f"{baseline}-{ranks}-{threads}"
    environment = threads_environment(threads)
    _, report = ridge_ranks.fit(program, folder, name, ranks, "'loo'", options, targets, environment)
    cpu = [rank["cpu_seconds"] for rank in report["ranks"]]
    seconds = max(rank["seconds"] for rank in report["ranks"])
    return {"seconds": seconds, "cpu_seconds": sum(cpu), "least": min(cpu) / sum(cpu)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries", type=Path, help="the folder of voxelflow and examples/ridge_speed")
    parser.add_argument("--shape", choices=["threads", "ranks"], default="ranks")
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--targets", type=int, default=4000)
    parser.add_argument("--mor-targets", type=int, default=8)
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--threads", default="1,2")
    arguments = parser.parse_args()
    sizes = [arguments.samples, arguments.features, arguments.targets]
    ranks = [int(r) for r in arguments.ranks.split(",")]
    threads = [int(t) for t in arguments.threads.split(",")]
    print(
        f"{sizes[0]} x {sizes[1]}, {sizes[2]} targets, {len(ALPHAS)} penalties, leave-one-out, f64, "
        f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        import numpy as np

        make(folder, *sizes, np.float64)
        if arguments.shape == "ranks":
            x, y = load(folder, *sizes)
            blocks = np.array_split(y.astype(np.float32), max(1, sizes[2] // 1000), axis=1)
            ridge_ranks.write(folder, x.astype(np.float32), blocks)
        one = {}
        for t in threads:
            one[t] = measure_baseline(folder, sizes, "scikit-learn", 1, t)
        fastest = min(found["seconds"] for found in one.values())
        first = one[threads[0]]["seconds"]

        def ratio(than, found):
            times = than / found["seconds"]
            return f"{times:6.2f}" if times >= 0.1 else f"{times:6.4f}"

        def line(tool, ranks, threads, found, note=""):
            print(
                f"  {tool:<16} {ranks} ranks x {threads} threads {found['seconds']:9.2f} s, processors "
                f"{found['cpu_seconds']:9.2f} s; {ratio(first, found)} times one thread, "
                f"{ratio(fastest, found)} times the fastest single process{note}",
                flush=True,
            )

        for t in threads:
            line("scikit-learn", 1, t, one[t])
        for t in threads:
            line("voxelflow", 1, t, measure_ours(arguments.binaries / "examples" / "ridge_speed", folder, sizes, t))
        if arguments.shape == "ranks":
            few = arguments.mor_targets
            stage = lambda r, t, baseline, targets=None: measure_stage(
                arguments.binaries / "voxelflow", folder, r, t, baseline, targets
            )
            shared = lambda found: f", each rank at least {100 * found['least']:.0f} % of it"
            scaled = lambda found: {key: found[key] * sizes[2] / few for key in ("seconds", "cpu_seconds")}
            told = lambda found: f" (from {few} targets in {found['seconds']:.2f} s)"
            for r in ranks:
                for t in threads:
                    found = stage(r, t, None)
                    line("voxelflow", r, t, found, shared(found))
                    found = stage(r, t, "b_mor")
                    line("voxelflow, B-MOR", r, t, found, shared(found))
                    line("B-MOR", r, t, measure_baseline(folder, sizes, "b-mor", r, t))
            for r in ranks:
                for t in threads:
                    found = stage(r, t, "mor", few)
                    line("voxelflow, MOR", r, t, scaled(found), told(found))
                    found = measure_baseline(folder, [*sizes[:2], few], "mor", r, t)
                    line("MOR", r, t, scaled(found), told(found))
        print(f"load afterwards {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(Path(sys.argv[2]), [int(n) for n in sys.argv[3:6]], sys.argv[6], int(sys.argv[7]), int(sys.argv[8]))
    else:
        main()
