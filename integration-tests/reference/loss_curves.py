"""Losses of 300 Adagrad steps of the dist-DCA in PyTorch 2.15.0 (CPU, float32): what every step here must come to.

usage: python integration-tests/reference/loss_curves.py > ml/nn/tests/fixtures/loss_curves.json

Series with structure, and first parameters, come from a generator that the Rust test repeats (`dist_dca.py`), so only
losses are stored. Every operation of it is one that IEEE 754 defines to the bit, in this order, in 64 bits: a block
design with an amplitude, a length and a shift of each series' own, on noise that remembers (0.7), brought to zero mean
and unit variance. First weights are 1.7 times those of `dist_dca.py`, so that learning starts at once.

Rates are low enough for the curve to say something of the arithmetic: where a maximum moves to another place of its
window the gradient jumps, and at a rate of 0.005 PyTorch's own 64-bit curve is 5 % from its 32-bit one after 300 steps.
At these rates it is within 2.1e-4. `integration-tests/bench/loss_curves.py` does the same for the paper's network.
"""
import json
import math

import torch

from dist_dca import EPSILON, DistDca, generator

STEPS, MINIBATCH, SERIES, GAIN = 300, 64, 512, 1.7
SMALL = dict(time_points=60, hidden=24, filters=[8, 12, 16, 24], kernels=[9, 5, 5, 5], pools=3, window=2)
PAPER = dict(time_points=284, hidden=284, filters=[32, 64, 128, 256], kernels=[21, 9, 9, 9], pools=3, window=2)


def structured_series(series, time_points):
    """`[series, time_points]` as rows of floats."""
    random = generator(2)
    rows = []
    for _ in range(series):
        amplitude, half, shift = 2 * next(random), 4 + int((next(random) + 1) * 8), int((next(random) + 1) * 16)
        noise, row = 0.0, []
        for t in range(time_points):
            noise = 0.7 * noise + next(random)
            block = 1.0 if (t + shift) // half % 2 == 0 else -1.0
            row.append(noise + amplitude * block)
        total = 0.0
        for value in row:
            total += value
        mean, squares = total / time_points, 0.0
        for value in row:
            squares += (value - mean) * (value - mean)
        deviation = math.sqrt(squares / time_points)
        rows.append([(value - mean) / deviation for value in row])
    return rows


def flat_parameters(model):
    """In the order and layout of the Rust module: matrices `[in, out]`."""
    layers = [*model.encoder, model.to_hidden, model.from_hidden, *model.decoder]
    weight = lambda layer: layer.weight.T if isinstance(layer, torch.nn.Linear) else layer.weight
    return torch.cat([t.detach().flatten() for layer in layers for t in (weight(layer), layer.bias)])


def losses(model, x, steps, minibatch, rate):
    """The mean loss of each step's minibatch before the step, as floats."""
    optimizer = torch.optim.Adagrad(model.parameters(), lr=rate, eps=EPSILON)
    found = []
    for step in range(steps):
        start = step * minibatch % len(x)
        batch = x[start : start + minibatch]
        optimizer.zero_grad(set_to_none=True)
        loss = model.loss(batch)
        (loss / len(batch)).backward()
        optimizer.step()
        found.append(loss.item() / len(batch))
    return found


def case(name, rate, switches, shape, steps=STEPS):
    model = DistDca(**shape, switches=switches)
    model.initialise(generator(1), GAIN)
    x = torch.tensor(structured_series(SERIES, shape["time_points"]), dtype=torch.float64).float()
    curve = losses(model, x, steps, MINIBATCH, rate)
    rounded = [float(f"{v:.9g}") for v in curve]
    return dict(name=name, rate=rate, minibatch=MINIBATCH, series=SERIES, losses=rounded, switches=switches, **shape)


if __name__ == "__main__":
    torch.set_num_threads(1)
    cases = [
        case("small with switches", 0.0005, True, SMALL),
        case("small without switches", 0.001, False, SMALL),
    ]
    print(json.dumps(dict(torch=torch.__version__, epsilon=EPSILON, gain=GAIN, cases=cases)))
