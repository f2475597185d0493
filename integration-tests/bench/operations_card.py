"""Operations on images on an NVIDIA card, beside PyTorch's on the same card: `operations.py --device cuda`.

Both are processes of their own that take turns; of a turn the least mean of five counts, of all turns the least. PyTorch's
tensors are channels_last, its parameters in the precision of the row; of eager and compiled the faster counts, and
cuDNN chooses its kernels by trying them (cudnn.benchmark). `forward` is the convolution with bias and ReLU; `training`
is forward and all gradients, ours with the weights laid for the kernels anew (of a network's first layer those of weights
and bias alone); the two gradients alone are of the convolution without ReLU. The ceilings are a product of 8192 x 8192 x
8192 by cuBLAS in the row's precision and a copy of 1 GiB, measured in the same run.
"""

import json
import subprocess
import sys

PASSES = ("forward", "input gradient", "weight gradient", "training")
PRECISIONS = ("bf16", "tf32", "f32")


def rows():
    def conv(name, channels, filters, side, kernel, stride=1, n=32):
        shape = dict(operation="conv2d", n=n, channels=channels, filters=filters, size=[side] * 2, kernel=[kernel] * 2,
                     stride=[stride] * 2, input_gradient=channels > 3)
        passes = [p for p in PASSES if channels > 3 or p != "input gradient"]
        return [(f"{name} {channels}→{filters} {kernel}×{kernel} on {side}, n {n}", dict(shape, **{"pass": p})) for p in passes]

    def pooling(operation, channels, side, n=32):
        shape = dict(operation=operation, n=n, channels=channels, size=[side] * 2, kernel=[2, 2], stride=[2, 2])
        return [(f"{operation} 2×2 of {channels} × {side}, n {n}", dict(shape, **{"pass": p})) for p in ("forward", "training")]

    return [
        *conv("vgg 1.1", 3, 64, 224, 3), *conv("vgg 1.2", 64, 64, 224, 3), *conv("vgg 2.2", 128, 128, 112, 3),
        *conv("vgg 3.2", 256, 256, 56, 3), *conv("vgg 4.2", 512, 512, 28, 3), *conv("vgg 5.1", 512, 512, 14, 3),
        *conv("cifar 2", 64, 64, 12, 5, n=512), *conv("points", 64, 256, 56, 1), *conv("strided", 64, 128, 56, 3, 2),
        *pooling("max_pool2d", 64, 224), *pooling("unpool2d", 64, 224), *pooling("upsample2d", 64, 112),
    ]


def needs(asked):
    """Floating-point operations and bytes of the definition."""
    n, c, (h, w), (kh, kw) = asked["n"], asked["channels"], asked["size"], asked["kernel"]
    element, kind = {"bf16": 2}.get(asked["precision"], 4), asked["pass"]
    if asked["operation"] != "conv2d":
        large, small = n * c * h * w, n * c * -(-h // kh) * -(-w // kw)
        if asked["operation"] == "upsample2d":
            large, small = large * kh * kw, large
        switches = 0 if asked["operation"] == "upsample2d" else small
        return 0, (element * (large + small) + switches) * (2 if kind == "training" else 1)
    o, (sh, sw) = asked["filters"], asked["stride"]
    x, y = element * n * c * h * w, element * n * o * -(-h // sh) * -(-w // sw)
    one = 2 * y // element * c * kh * kw
    if kind != "training":
        return one, x + y
    gradients = 2 if asked["input_gradient"] else 1
    # ReLU's gradient reads y and dy and writes dy; then each gradient reads dy.
    return one * (1 + gradients), (x + y) + 3 * y + (x + y) + (x + y if gradients == 2 else 0)


def torch_server():
    """Answers each line with the seconds of a call and how it was made."""
    import torch
    import torch.nn.functional as F

    import torch._dynamo

    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)

    def call(asked):
        n, c, size, kernel, operation = (asked[k] for k in ("n", "channels", "size", "kernel", "operation"))
        kind, training = asked["pass"], asked["pass"] == "training"
        dtype = torch.bfloat16 if asked["precision"] == "bf16" else torch.float32
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = asked["precision"] == "tf32"
        new = lambda *shape: torch.randn(*shape, device="cuda", dtype=dtype)
        image = lambda *shape: new(*shape).contiguous(memory_format=torch.channels_last)
        x = image(n, c, *size)
        if operation == "conv2d":
            w, b = image(asked["filters"], c, *kernel), new(asked["filters"])
            stride, padding = asked["stride"], [k // 2 for k in kernel]
            if kind.endswith("gradient"):
                y = F.conv2d(x, w, b, stride, padding)
                dy, mask = torch.randn_like(y), [kind.startswith("input"), kind.startswith("weight"), False]
                return (lambda: torch.ops.aten.convolution_backward(
                    dy, x, w, None, stride, padding, [1, 1], False, [0, 0], 1, mask)), None
            if any(k % 2 == 0 for k in kernel):
                raise SystemExit("even kernels are not compared")
            forward, inputs = (lambda x, w, b: F.relu(F.conv2d(x, w, b, stride, padding))), [x, w, b]
            wanted = [w, b] + ([x] if asked["input_gradient"] else [])
        elif operation == "max_pool2d":
            forward, inputs, wanted = (lambda x: F.max_pool2d(x, kernel, ceil_mode=True, return_indices=True)[0]), [x], [x]
        elif operation == "unpool2d":
            x, indices = F.max_pool2d(x, kernel, ceil_mode=True, return_indices=True)
            forward, inputs, wanted = (lambda x: F.max_unpool2d(x, indices, kernel, output_size=size)), [x], [x]
        else:
            forward = lambda x: F.interpolate(x, scale_factor=tuple(map(float, kernel)), mode="nearest")
            inputs, wanted = [x], [x]
        if not training:
            def alone(function):
                def run():
                    with torch.no_grad():
                        function(*inputs)
                return run
            return alone(forward), alone(torch.compile(forward))
        for tensor in wanted:
            tensor.requires_grad_()
        dy = torch.randn_like(forward(*inputs).detach())
        step = lambda function: lambda: torch.autograd.grad(function(*inputs), wanted, dy)
        return step(forward), step(torch.compile(forward))

    def mean(run, count):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / count

    def time(run, seconds):
        for _ in range(3):
            run()
        count = max(1, min(10_000, int(seconds / 5 / mean(run, 2))))
        return min(mean(run, count) for _ in range(5))

    calls = {}
    for line in sys.stdin:
        asked = json.loads(line)
        key = json.dumps(asked, sort_keys=True)
        if key not in calls:
            calls.clear()
            torch.cuda.empty_cache()
            torch._dynamo.reset()  # or it stops compiling after some functions
            calls[key] = call(asked)
        eager, compiled = calls[key]
        answer = dict(seconds=time(eager, asked["seconds"]), how="eager")
        if compiled is not None and asked["compile"]:
            try:
                seconds = time(compiled, asked["seconds"])
                answer = dict(seconds=seconds, how="compiled") if seconds < answer["seconds"] else answer
            except Exception as e:  # what cannot be compiled is compared as it is
                print(f"{asked['operation']}: {e}", file=sys.stderr)
        print(json.dumps(answer), flush=True)


class Contestant:
    def __init__(self, command):
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, asked):
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{asked['operation']}: the process ended (see above)")
        answer = json.loads(answer)
        return answer if isinstance(answer, dict) else dict(seconds=answer, how="")


def compare(options):
    ours = Contestant([options.binary])
    peer = Contestant([sys.executable, __file__])
    chosen = [(n, a) for n, a in rows() if not options.only or any(word in n for word in options.only)]
    if options.passes:
        chosen = [(n, a) for n, a in chosen if a["pass"] in options.passes]
    name = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True)
    print(name.stdout.strip())
    table = []
    for precision in options.precisions:
        rate = 2 * 8192**3 / ours.ask(dict(operation="gemm", precision=precision))["seconds"]
        copied = 2**31 / ours.ask(dict(operation="copy", precision=precision))["seconds"]
        print(f"{precision}; ceilings: product {rate / 1e12:.0f} TFLOP/s, copy {copied / 1e9:.0f} GB/s")
        width = max(len(name) for name, _ in chosen)
        print(f"{'':{width}} {'pass':15} {'ours ms':>8} {'TFLOP/s':>8} {'GB/s':>6} {'share':>6} {'PyTorch ms':>11} {'':8} {'PyTorch/ours':>12}")
        for name, asked in chosen:
            asked = dict(asked, precision=precision, seconds=options.seconds, compile=options.compile)
            best = [dict(seconds=float("inf"), how="")] * 2
            for turn in range(options.rounds):
                for side in (0, 1) if turn % 2 == 0 else (1, 0):
                    best[side] = min(best[side], (ours, peer)[side].ask(asked), key=lambda a: a["seconds"])
            (mine, theirs), (operations, moved) = (b["seconds"] for b in best), needs(asked)
            share = max(operations / rate, moved / copied) / mine
            table.append(dict(asked, name=name, ours=mine, torch=theirs, how=best[1]["how"], share=share))
            print(f"{name:{width}} {asked['pass']:15} {1e3 * mine:8.3f} {operations / mine / 1e12:8.0f} {moved / mine / 1e9:6.0f} "
                  f"{100 * share:5.0f}% {1e3 * theirs:11.3f} {best[1]['how']:8} {theirs / mine:12.2f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    torch_server()
