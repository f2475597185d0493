"""Operations of convolutional networks on the CPU beside PyTorch's, and beside what this machine can do at all.
With --device cuda those on images on a card instead: operations_card.py says what is compared.

    cargo build --release -p voxelflow-cuda --example image_speed
    python integration-tests/bench/operations.py --device cuda [--precisions bf16,tf32,f32] [--passes forward,training]
        [--rounds 3] [--seconds 0.1] [--only vgg] [--no-compile]

    cargo build -p voxelflow-nn --example operation_speed
    python integration-tests/bench/operations.py [--threads 2] [--rounds 3] [--seconds 0.4] [--only vgg,adam]
        [--processor] [--binary …] [--json operations.json]

Needs torch (2.15.0 here). Both are processes of their own on the same cores, with as many threads, and take turns; of
all calls of an operation the shortest counts. Each row says what the operation's definition needs: floating-point
operations, and bytes if every tensor is read or written once. Beside them stand the ceilings of this machine measured in
the same run: a product of 1200 x 1200 matrices by the faster of `gemm` (Rust) and
PyTorch, and a triad a = b + 3c over 3 x 64 MiB. The share is
that of the ceiling that bounds the operation: the larger of the two shortest times that the ceilings allow, over ours.

`forward` is the convolution with bias and ReLU; `training` is forward and all gradients (of a network's first layer those
of weights and bias alone). With --processor the mean processor time of a call counts instead, on one thread.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import operations_card

ROOT = Path(__file__).resolve().parents[2]


def conv2d(name, n, channels, filters, side, kernel, stride=1, first=False):
    shape = dict(operation="conv2d", n=n, channels=channels, filters=filters, size=[side, side],
                 kernel=[kernel, kernel], stride=[stride, stride], input_gradient=not first)
    return [(f"{name} {channels}→{filters} {kernel}×{kernel} on {side}, n {n}", dict(shape, **{"pass": p}))
            for p in ("forward", "training")]


def conv1d(name, n, channels, filters, length, kernel, first=False):
    shape = dict(operation="conv1d", n=n, channels=channels, filters=filters, size=[1, length], kernel=[1, kernel],
                 stride=[1, 1], input_gradient=not first)
    return [(f"{name} {channels}→{filters} {kernel} on {length}, n {n}", dict(shape, **{"pass": p}))
            for p in ("forward", "training")]


def pooling(operation, n, channels, side, window):
    shape = dict(operation=operation, n=n, channels=channels, size=[side, side], kernel=[window] * 2,
                 stride=[window] * 2)
    return [(f"{operation} {window}×{window} of {channels} × {side}, n {n}", dict(shape, **{"pass": p}))
            for p in ("forward", "training")]


def flat(operation):
    return [(f"{operation}, 6,020,381 parameters", dict(operation=operation, n=6_020_381, **{"pass": "step"}))]


OPERATIONS = [
    *conv1d("autoencoder encoder.0", 64, 1, 32, 284, 21, first=True),
    *conv1d("autoencoder encoder.1", 64, 32, 64, 142, 9),
    *conv1d("autoencoder encoder.2", 64, 64, 128, 71, 9),
    *conv1d("autoencoder encoder.3", 64, 128, 256, 36, 9),
    *conv1d("autoencoder decoder.3", 64, 32, 1, 284, 21),
    *conv2d("vgg 1.1", 2, 3, 64, 224, 3, first=True),
    *conv2d("vgg 1.2", 2, 64, 64, 224, 3),
    *conv2d("vgg 2.2", 2, 128, 128, 112, 3),
    *conv2d("vgg 3.2", 2, 256, 256, 56, 3),
    *conv2d("vgg 4.2", 2, 512, 512, 28, 3),
    *conv2d("vgg 5.1", 2, 512, 512, 14, 3),
    *conv2d("cifar 1", 128, 3, 64, 24, 5, first=True),
    *conv2d("cifar 2", 128, 64, 64, 12, 5),
    *conv2d("mnist 1", 64, 1, 32, 28, 3, first=True),
    *conv2d("mnist 2", 64, 32, 64, 26, 3),
    *conv2d("points", 8, 64, 256, 56, 1),
    *conv2d("points", 8, 256, 64, 56, 1),
    *conv2d("strided", 8, 64, 128, 56, 3, stride=2),
    *pooling("max_pool2d", 4, 64, 224, 2),
    *pooling("unpool2d", 4, 64, 224, 2),
    *pooling("upsample2d", 4, 64, 112, 2),
    *flat("adagrad"), *flat("sgd"), *flat("adam"),
]
CEILINGS = [dict(operation="gemm", n=1200), dict(operation="triad", n=1 << 24)]


def needs(asked):
    """Floating-point operations and bytes of the definition."""
    n, operation, training = asked["n"], asked["operation"], asked.get("pass") == "training"
    if operation == "gemm":
        return 2 * n**3, 12 * n * n
    if operation in ("triad", "adagrad", "sgd", "adam"):
        arrays = {"triad": 3, "adagrad": 5, "sgd": 3, "adam": 7}[operation]
        return 0, 4 * arrays * n
    (h, w), (kh, kw), c = asked["size"], asked["kernel"], asked["channels"]
    if operation.startswith("conv"):
        o, (sh, sw) = asked["filters"], asked["stride"]
        outputs = n * o * -(-h // sh) * -(-w // sw)
        one, x, y, weights = 2 * outputs * c * kh * kw, 4 * n * c * h * w, 4 * outputs, 4 * o * c * kh * kw
        if not training:
            return one, x + y + weights
        gradients = 2 if asked["input_gradient"] else 1
        return one * (1 + gradients), (x + y + weights) + (x + 2 * y + weights) + (x if gradients == 2 else 0) + weights
    small, large = (n * c * h * w, n * c * h * w * kh * kw) if operation == "upsample2d" else (
        n * c * -(-h // kh) * -(-w // kw), n * c * h * w)
    switches = 0 if operation == "upsample2d" else small
    return 0, (4 * (small + large) + switches) * (2 if training else 1)


def torch_server(threads):
    """Answers each line with the shortest time of a call, as `operation_speed` does."""
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    torch.manual_seed(0)

    def call(asked):
        n, operation, training = asked["n"], asked["operation"], asked.get("pass") == "training"
        if operation in ("adagrad", "sgd", "adam"):
            w = torch.randn(n, requires_grad=True)
            w.grad = torch.randn(n)
            kind = {"adagrad": torch.optim.Adagrad, "sgd": torch.optim.SGD, "adam": torch.optim.Adam}[operation]
            return kind([w], lr=1e-3, fused=True).step
        if operation == "gemm":
            a, b = torch.randn(n, n), torch.randn(n, n)
            return lambda: torch.mm(a, b)
        size, kernel, c = asked["size"], asked["kernel"], asked["channels"]
        if operation.startswith("conv"):
            one = operation == "conv1d"
            size, kernel, stride = (size[1:], kernel[1:], [1]) if one else (size, kernel, asked["stride"])
            x, w, b = torch.randn(n, c, *size), torch.randn(asked["filters"], c, *kernel), torch.randn(asked["filters"])
            function = F.conv1d if one else F.conv2d
            forward = lambda: F.relu(function(x, w, b, stride=stride, padding=[k // 2 for k in kernel]), inplace=True)
            wanted = [w, b] + ([x] if asked["input_gradient"] else [])
        elif operation == "max_pool2d":
            x = torch.randn(n, c, *size)
            forward, wanted = (lambda: F.max_pool2d(x, kernel, ceil_mode=True, return_indices=True)[0]), [x]
        elif operation == "unpool2d":
            x, indices = F.max_pool2d(torch.randn(n, c, *size), kernel, ceil_mode=True, return_indices=True)
            forward, wanted = (lambda: F.max_unpool2d(x, indices, kernel, output_size=size)), [x]
        else:
            x = torch.randn(n, c, *size)
            forward, wanted = (lambda: F.interpolate(x, scale_factor=tuple(map(float, kernel)), mode="nearest")), [x]
        if not training:
            def alone():
                with torch.no_grad():
                    forward()
            return alone
        for tensor in wanted:
            tensor.requires_grad_()
        dy = torch.randn_like(forward().detach())
        return lambda: torch.autograd.grad(forward(), wanted, dy)

    for line in sys.stdin:
        asked = json.loads(line)
        run = call(asked)
        run()
        if asked["processor"]:
            start, calls = time.process_time(), 0
            while calls == 0 or time.process_time() - start < asked["seconds"]:
                run()
                calls += 1
            print((time.process_time() - start) / calls, flush=True)
            continue
        best, start = float("inf"), time.perf_counter()
        while time.perf_counter() - start < asked["seconds"]:
            clock = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - clock)
        print(best, flush=True)


class Contestant:
    def __init__(self, command, environment, processor):
        self.processor = processor
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def time(self, asked, seconds):
        self.process.stdin.write(json.dumps(dict(asked, seconds=seconds, processor=self.processor)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{asked['operation']}: the process ended (see above)")
        return float(answer)


def flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    debug = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.4, help="of an operation's turn")
    parser.add_argument("--processor", action="store_true", help="count processor time, with one thread: for a busy machine")
    parser.add_argument("--only", type=lambda text: text.split(","), help="rows whose name contains one of these")
    parser.add_argument("--binary", type=Path, default=debug / "examples" / "operation_speed")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precisions", type=lambda text: text.split(","), default=operations_card.PRECISIONS)
    parser.add_argument("--passes", type=lambda text: text.split(","), help="of operations on a card")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True, help="torch.compile too, on a card")
    options = parser.parse_args()
    if options.device == "cuda" and options.binary == debug / "examples" / "operation_speed":
        options.binary = debug.parent / "release" / "examples" / "image_speed"
    return options


def main():
    options = flags()
    if options.device == "cuda":
        return operations_card.compare(options)
    cores = sorted(os.sched_getaffinity(0))[: options.threads]
    if options.processor and options.threads != 1:
        raise SystemExit("--processor needs --threads 1: threads that wait for each other use up processor time too")
    if len(cores) < options.threads:
        raise SystemExit(f"--threads {options.threads}: this machine lends {len(cores)} cores")
    if not options.processor:
        os.sched_setaffinity(0, cores)
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
    environment = {**os.environ, **{name: str(options.threads) for name in names}}
    ours = Contestant([options.binary], environment, options.processor)
    peer = Contestant([sys.executable, __file__, "--serve", options.threads], environment, options.processor)
    rows = [(n, a) for n, a in OPERATIONS if not options.only or any(word in n for word in options.only)]
    best = {(name, asked["pass"]): [float("inf")] * 2 for name, asked in rows}
    ceiling = [float("inf")] * 2
    for turn in range(options.rounds):
        for i, asked in enumerate(CEILINGS):
            contestants = [ours, peer] if asked["operation"] == "gemm" else [ours]
            ceiling[i] = min(ceiling[i], *(c.time(asked, options.seconds) for c in contestants))
        for name, asked in rows:
            order = [(0, ours), (1, peer)]
            for side, contestant in order if turn % 2 == 0 else order[::-1]:
                key = (name, asked["pass"])
                best[key][side] = min(best[key][side], contestant.time(asked, options.seconds))
    flops, copied = needs(CEILINGS[0])[0] / ceiling[0], needs(CEILINGS[1])[1] / ceiling[1]
    print(f"cores {','.join(map(str, cores))}, {options.threads} threads each; ceilings: matrix product {flops / 1e9:.0f} GFLOP/s, "
          f"triad {copied / 1e9:.1f} GB/s")
    width = max(len(name) for name, _ in rows)
    print(f"{'':{width}} {'pass':9} {'ours ms':>9} {'GFLOP/s':>8} {'GB/s':>6} {'share':>6} {'PyTorch ms':>11} {'PyTorch/ours':>13}")
    table = []
    for name, asked in rows:
        (mine, theirs), (operations, moved) = best[name, asked["pass"]], needs(asked)
        share = max(operations / flops, moved / copied) / mine
        table.append(dict(asked, name=name, ours=mine, torch=theirs, flop=operations, bytes=moved, share=share))
        print(f"{name:{width}} {asked['pass']:9} {1e3 * mine:9.3f} {operations / mine / 1e9:8.0f} {moved / mine / 1e9:6.1f} "
              f"{100 * share:5.0f}% {1e3 * theirs:11.3f} {theirs / mine:13.2f}")
    if options.json:
        options.json.write_text(json.dumps(dict(gemm=flops, triad=copied, rows=table), indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        torch_server(int(sys.argv[2]))
    else:
        main()
