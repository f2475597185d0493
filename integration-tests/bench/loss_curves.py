"""Losses of 300 Adagrad steps of the published autoencoder, ours beside PyTorch's: same first parameters, same data.

    cargo build -p voxelflow-nn --example loss_curve
    python integration-tests/bench/loss_curves.py [--ours "…/loss_curve --device cpu"] [--device cpu|cuda]
        [--precision f32|tf32|bf16|f64] [--size paper|small] [--unpool switches,repetition] [--steps 300]
        [--minibatch 64] [--rate 0.0005] [--gain 1.7] [--folder DIR] [--tolerance 1e-3] [--json loss_curves.json]

Needs torch (2.15.0 here). A folder is written that anything can train from: `series.f32` `[n_series, time_points]` and
`parameters.f32` (flat, in the order of the network's declaration, matrices `[in, out]`), both little-endian 32-bit
floats, and `curve.json`, the network's options and those of the steps. Ours is run with that folder as last argument and
prints the mean loss of every step's minibatch, one a line. Step s takes the series from `s * minibatch % n_series` on.

Printed: the largest relative deviation over all steps with its step, and the loss of some steps. The exit status is 1 if
it is above --tolerance; for a precision other than f32 that is a matter of the precision too: PyTorch's own deviation
from its 32-bit run is printed beside it.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "integration-tests" / "reference"))
from dist_dca import EPSILON, LAMBDA, DistDca, generator  # noqa: E402
from loss_curves import GAIN, PAPER, SMALL, flat_parameters, losses, structured_series  # noqa: E402


def write_folder(folder, options, shape, switches, model, series):
    folder.mkdir(parents=True, exist_ok=True)
    series.numpy().astype("<f4").tofile(folder / "series.f32")
    flat_parameters(model).numpy().astype("<f4").tofile(folder / "parameters.f32")
    network = {
        "hidden": shape["hidden"], "filters": shape["filters"], "kernels": shape["kernels"], "pools": shape["pools"],
        "pool_window": shape["window"], "switches": switches, "lambda": LAMBDA, "activation": "relu",
    }
    curve = {
        "network": network, "time_points": shape["time_points"], "steps": options.steps,
        "minibatch": options.minibatch, "learning_rate": options.rate, "epsilon": EPSILON,
    }
    (folder / "curve.json").write_text(json.dumps(curve, indent=1))


def torch_curve(options, precision, model, series):
    """The losses of PyTorch on its device in a precision; the model is left as it was."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    kind = torch.float64 if precision == "f64" else torch.float32
    shape = dict(model.shape)
    copy = DistDca(**shape)
    copy.load_state_dict(model.state_dict())
    copy.to(options.device, kind)
    with torch.autocast(options.device, torch.bfloat16, enabled=precision == "bf16"):
        return losses(copy, series.to(options.device, kind), options.steps, options.minibatch, options.rate)


def deviation(found, expected):
    """The largest relative one, and its step."""
    return max((abs(a - b) / abs(b), step) for step, (a, b) in enumerate(zip(found, expected)))


def contest(options, unpool, folder):
    shape, switches = {"paper": PAPER, "small": SMALL}[options.size], unpool == "switches"
    model = DistDca(**shape, switches=switches)
    model.shape = dict(**shape, switches=switches)
    model.initialise(generator(1), options.gain)
    rows = structured_series(options.series, shape["time_points"])
    series = torch.tensor(rows, dtype=torch.float64).float()
    write_folder(folder, options, shape, switches, model, series)
    print(f"\n{options.size} network, unpooling by {unpool}, minibatch {options.minibatch}, {options.steps} steps")
    expected = torch_curve(options, "f32", model, series)
    row = {"size": options.size, "unpool": unpool, "device": options.device, "torch_f32": expected}
    if options.precision != "f32":
        row[f"torch_{options.precision}"] = peer = torch_curve(options, options.precision, model, series)
        worst, step = deviation(peer, expected)
        print(f"  PyTorch {options.precision} from PyTorch f32: at most {worst:.1e} (step {step})")
    command = shlex.split(options.ours) + [str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    row["ours"] = found = [float(line) for line in done.stdout.split()]
    if len(found) != options.steps:
        raise SystemExit(f"{command[0]} printed {len(found)} losses for {options.steps} steps")
    worst, step = deviation(found, expected)
    row["worst"], row["worst_step"] = worst, step
    print(f"  ours from PyTorch f32: at most {worst:.1e} relative (step {step})")
    for step in sorted({0, options.steps // 3, 2 * options.steps // 3, options.steps - 1}):
        print(f"  step {step:4}: PyTorch {expected[step]:.6f}, ours {found[step]:.6f}")
    return row


def flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    debug = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
    parser.add_argument("--ours", default=str(debug / "examples" / "loss_curve"))
    parser.add_argument("--device", default="cpu", help="of PyTorch")
    parser.add_argument("--precision", choices=["f32", "tf32", "bf16", "f64"], default="f32", help="a second PyTorch run")
    parser.add_argument("--size", choices=["paper", "small"], default="paper")
    parser.add_argument("--unpool", type=lambda text: text.split(","), default=["switches", "repetition"])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--minibatch", type=int, default=64)
    parser.add_argument("--series", type=int, default=512)
    parser.add_argument("--rate", type=float, default=0.0005)
    parser.add_argument("--gain", type=float, default=GAIN, help="of the first weights, times 1/sqrt(inputs)")
    parser.add_argument("--folder", type=Path, help="kept there; a temporary one otherwise")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.series % options.minibatch:
        parser.error(f"--series {options.series} is no multiple of --minibatch {options.minibatch}")
    return options


def main():
    options = flags()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for unpool in options.unpool:
            rows.append(contest(options, unpool, (options.folder or Path(temporary)) / unpool))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    sys.exit(any(row["worst"] > options.tolerance for row in rows))


if __name__ == "__main__":
    main()
