"""Loss against samples of the ways in which ranks agree: sync, ssp(3), async and 8 local steps, the same dist-DCA on the
same generated series, several seeds.

    python integration-tests/bench/loss_by_mode.py [VOXELFLOW_BINARY] [SEEDS] [RANKS]

Each number is the mean loss per held-out series after so many training samples (all ranks together), over the seeds,
with the sample standard deviation. The seeds draw weights and orders; the series are the same for all. What the table
can show: the noise that a mode adds at equal samples. What it cannot: time, for the ranks share this machine, so ranks of
async and ssp drift apart only as far as its scheduler lets them. Learning rates are the same for all modes and were
not tuned for any; local steps have the gang's Adagrad inside and average outside. Needs nothing but Python's library.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MODES = {
    "sync": "",
    "ssp(3)": "consistency => 'ssp(3)', ",
    "async": "consistency => 'async', ",
    "local_steps 8": "local_steps => 8, ",
}
EPOCHS = 8

PIPELINE = """
CREATE EXTERNAL TABLE raw STORED AS PARQUET LOCATION '{data}';
CREATE TABLE series AS SELECT * FROM clean(raw, detrend => true, standardize => 'zscore_sample');
TRAIN MODEL dca USING dist_dca (hidden => 16, filters => [8, 16], kernels => [7, 5], pools => 2, switches => false)
  ON (SELECT * FROM series WHERE voxel % 5 < 4) VALIDATE ON (SELECT * FROM series WHERE voxel % 5 = 4)
  WITH ({mode}ranks => {ranks}, minibatch => 8, epochs => {epochs}, seed => {seed}, learning_rate => 0.005,
        subject_overlap => 'allow', checkpoint_every => 0);
"""


def command(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"failed: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")


def losses(binary, folder, data, mode, ranks, seed):
    """Held-out loss by epoch, and the samples of an epoch."""
    pipeline = folder / "train.vf"
    pipeline.write_text(PIPELINE.format(data=data, mode=mode, ranks=ranks, epochs=EPOCHS, seed=seed))
    command(binary, "run", pipeline, "--out", folder / "out", "--fresh")
    history = json.loads((folder / "out/models/dca/history.json").read_text())
    epochs = history["epochs"]
    assert len(epochs) == EPOCHS and len({e["samples"] for e in epochs}) == 1, epochs
    return [e["validation_loss"] for e in epochs], epochs[0]["samples"]


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else "target/debug/voxelflow"
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    ranks = int(sys.argv[3]) if len(sys.argv) > 3 else 4
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        data = folder / "series"
        command(binary, "synth", "hcp", "--subjects", 2, "--voxels", 1200, "--time-points", 107, "--out", data.parent)
        shown = [1, 2, 4, EPOCHS]
        print(f"{ranks} ranks x 8 series, {seeds} seeds; held-out loss per series, mean ± sd")
        for row, (name, mode) in enumerate(MODES.items()):
            runs = [losses(binary, folder, data, mode, ranks, seed) for seed in range(seeds)]
            samples = runs[0][1]
            if row == 0:
                heads = "".join(f"{epoch * samples:>18,}" for epoch in shown)
                print(f"| {'samples':14} {heads}", flush=True)
            cells = []
            for epoch in shown:
                column = [loss[epoch - 1] for loss, _ in runs]
                sd = statistics.stdev(column) if seeds > 1 else 0.0
                cells.append(f"{statistics.mean(column):9.3f} ± {sd:6.3f}")
            print(f"| {name:14} {''.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
