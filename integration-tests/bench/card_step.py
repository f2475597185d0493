"""The training step of the published autoencoder (284 points, 6,020,381 parameters, Adagrad) on an NVIDIA card, beside
PyTorch's on the same card.

    cargo build --release -p voxelflow-cuda --examples
    python integration-tests/bench/card_step.py speed     [--minibatches 256,1600,6400] [--seconds 2] [--json FILE]
    python integration-tests/bench/card_step.py gradients
    python integration-tests/bench/card_step.py curves    [--steps 300] [--minibatch 256] [--learning-rate 1e-4]

`speed`: series/s of training steps, ours with their feed from this machine's memory, PyTorch's on one minibatch that
stays on the card; median of five turns, with the range. `compiled` is torch.compile. `gradients`: loss and every gradient
of the first minibatch against PyTorch in float64. `curves`: the loss of every step from the same parameters on the same
minibatches; the reference is PyTorch in float64, and PyTorch's own float32 shows how far rounding alone drifts.
Needs torch (2.11 here) and the two programs of ml/cuda/examples (--binaries: their folder).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from torch_dca import PARAMETERS, network

LAMBDA = 0.006
ROOT = Path(__file__).resolve().parents[2]


def layers(model):
    return [*model.encoder, model.to_hidden, model.from_hidden, *model.decoder]


def load(model, flat, dtype):
    """Parameters in the order of declaration; fully connected layers are [inputs, outputs]."""
    import torch

    at = 0
    take = lambda n: torch.from_numpy(flat[at : at + n].copy()).to("cuda", dtype)
    with torch.no_grad():
        for layer in layers(model):
            w, b = layer.weight, layer.bias
            values = take(w.numel())
            w.copy_(values.view(w.shape) if w.dim() == 3 else values.view(w.shape[1], w.shape[0]).t())
            at += w.numel()
            b.copy_(take(b.numel()))
            at += b.numel()
    assert at == len(flat) == PARAMETERS


def loss_of(forward, x, bf16):
    import torch

    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=bf16):
        y, z, decoded = forward(x)
    signal, features = y.to(x.dtype) - x, z.to(x.dtype) - decoded.to(x.dtype)
    return signal.square().sum() * 0.5 + features.square().sum() * (0.5 * LAMBDA)


def prepare(mode):
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = mode not in ("f32", "f64")
    return torch.float64 if mode == "f64" else torch.float32


def torch_speed(mode, switches, minibatch, seconds):
    import torch

    prepare(mode)
    model = network(switches).cuda()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-3, eps=1e-10, foreach=True)
    forward = torch.compile(model) if "compiled" in mode else model
    x = torch.randn(minibatch, 1, 284, device="cuda")

    def run(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            (loss_of(forward, x, "bf16" in mode) / minibatch).backward()
            optimizer.step()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    run(8)
    steps = max(2, round(seconds / run(5)))
    speeds = sorted(steps * minibatch / run(steps) for _ in range(5))
    row = {"series_per_second": speeds[2], "least": speeds[0], "most": speeds[4]}
    print(json.dumps({**row, "mib": torch.cuda.max_memory_reserved() >> 20}))


def torch_curve(mode, parameters, series, minibatch, steps, rate):
    import numpy as np
    import torch

    dtype = prepare(mode)
    model = network(True).cuda().to(dtype)
    load(model, np.fromfile(parameters, np.float32), dtype)
    x = torch.from_numpy(np.fromfile(series, np.float32)).to("cuda", dtype).view(-1, 1, 284)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=rate, eps=1e-10)
    for step in range(steps):
        at = step % (len(x) // minibatch) * minibatch
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model, x[at : at + minibatch], "bf16" in mode) / minibatch
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.9e}")


def torch_gradient(switches, parameters, series, found):
    """The largest relative difference of a layer's gradient, in the norm of the layer."""
    import numpy as np
    import torch

    dtype = prepare("f64")
    model = network(switches).cuda().to(dtype)
    load(model, np.fromfile(parameters, np.float32), dtype)
    x = torch.from_numpy(np.fromfile(series, np.float32)).to("cuda", dtype).view(-1, 1, 284)
    loss = loss_of(model, x, False)
    loss.backward()
    found, at, worst = np.fromfile(found, np.float32).astype(np.float64), 0, (0.0, "")
    for name, layer in zip(["e0", "e1", "e2", "e3", "to_hidden", "from_hidden", "d0", "d1", "d2", "d3"], layers(model)):
        for kind in ("weight", "bias"):
            g = getattr(layer, kind).grad
            g = (g.t() if kind == "weight" and g.dim() == 2 else g).contiguous().flatten().cpu().numpy()
            own = found[at : at + g.size]
            at += g.size
            worst = max(worst, (float(np.linalg.norm(own - g) / np.linalg.norm(g)), f"{name}.{kind}"))
    print(json.dumps({"loss": loss.item(), "worst": worst[0], "where": worst[1]}))


def run(command, timeout=120):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")
    return done.stdout.strip()


def own(*arguments):
    return [sys.executable, __file__, "--serve", *arguments]


def speed(options):
    rows = []
    for minibatch in options.minibatches:
        print(f"\nminibatch {minibatch}: series/s, median [least … most] of 5 turns, memory of the card")
        commands = {}
        for mode in ("f32", "tf32", "bf16"):
            commands[f"ours {mode}"] = [options.binaries / "card_speed", "steps", mode, "switches", minibatch, options.seconds]
        commands["ours bf16, repetition"] = [options.binaries / "card_speed", "steps", "bf16", "repetition", minibatch, options.seconds]
        for mode in options.peers:
            commands[f"torch {mode}"] = own("speed", mode, "switches", minibatch, options.seconds)
        found = {}
        for name, command in commands.items():
            try:
                found[name] = json.loads(run(command).splitlines()[-1])
            except (SystemExit, subprocess.TimeoutExpired, ValueError) as error:
                print(f"  {name}: not measured ({str(error)[-300:]})", flush=True)
                continue
            r = found[name]
            print(f"  {name:24} {r['series_per_second']:9.0f} [{r['least']:.0f} … {r['most']:.0f}] {r['mib']:6} MiB", flush=True)
        peers = {name: r for name, r in found.items() if name.startswith("torch")}
        if peers:
            best = max(peers, key=lambda name: peers[name]["series_per_second"])
            ratio = found["ours bf16"]["series_per_second"] / peers[best]["series_per_second"]
            print(f"  ours bf16 / best peer ({best}): {ratio:.2f}")
            for mode in ("f32", "tf32"):
                if f"torch {mode}" in peers:
                    own_speed = found[f"ours {mode}"]["series_per_second"]
                    print(f"  ours {mode} / torch {mode}: {own_speed / peers[f'torch {mode}']['series_per_second']:.2f}")
        rows.append({"minibatch": minibatch, "found": found})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def gradients(options, folder):
    check = options.binaries / "card_check"
    run([check, "data", folder / "x", 256])
    run([check, "initial", folder / "p"])
    for unpool in ("switches", "repetition"):
        for mode in ("f32", "tf32", "bf16"):
            loss = float(run([check, "gradient", mode, unpool, folder / "p", folder / "x", folder / "g"]).split()[-1])
            peer = json.loads(run(own("gradient", unpool, folder / "p", folder / "x", folder / "g")).splitlines()[-1])
            apart = abs(loss - peer["loss"]) / peer["loss"]
            print(f"  {unpool:10} {mode:4} loss apart by {apart:.1e}, gradient by {peer['worst']:.1e} at most ({peer['where']})", flush=True)


def curves(options, folder):
    check = options.binaries / "card_check"
    run([check, "data", folder / "x", 16 * options.minibatch])
    run([check, "initial", folder / "p"])
    tail = [folder / "p", folder / "x", options.minibatch, options.steps, options.learning_rate]
    numbers = lambda text: [float(line) for line in text.split()]
    found = {f"torch {m}": numbers(run(own("curve", m, *tail))) for m in ("f64", "f32", "bf16")}
    for mode in ("f32", "tf32", "bf16"):
        found[f"ours {mode}"] = numbers(run([check, "curve", mode, "switches", *tail]))
    reference = found["torch f64"]
    print(f"loss a sample, minibatch {options.minibatch}, Adagrad {options.learning_rate}")
    at = [i for i in (0, 1, 4, 9, 24, 49, 99, 149, 199, 249, 299) if i < options.steps]
    print("  step        " + "".join(f"{i + 1:10}" for i in at) + "   apart from torch f64, at most")
    for name, losses in found.items():
        apart = max(abs(a - b) / b for a, b in zip(losses, reference))
        print(f"  {name:12}" + "".join(f"{losses[i]:10.4f}" for i in at) + f"   {apart:.1e}")
    if options.json:
        options.json.write_text(json.dumps(found))


def serve(what, *a):
    if what == "speed":
        torch_speed(a[0], a[1] == "switches", int(a[2]), float(a[3]))
    elif what == "curve":
        torch_curve(a[0], a[1], a[2], int(a[3]), int(a[4]), float(a[5]))
    else:
        torch_gradient(a[0] == "switches", *a[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: [word for word in text.split(",") if word]
    release = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "examples"
    parser.add_argument("what", choices=["speed", "gradients", "curves"])
    parser.add_argument("--binaries", type=Path, default=release)
    parser.add_argument("--minibatches", type=lambda text: [int(n) for n in words(text)], default=[256, 1600, 6400])
    parser.add_argument("--peers", type=words, default=["f32", "tf32", "bf16", "compiled-tf32", "compiled-bf16"])
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--minibatch", type=int, default=256)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.binaries = options.binaries.resolve()
    with tempfile.TemporaryDirectory() as folder:
        match options.what:
            case "speed":
                speed(options)
            case "gradients":
                gradients(options, Path(folder))
            case "curves":
                curves(options, Path(folder))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    else:
        main()
