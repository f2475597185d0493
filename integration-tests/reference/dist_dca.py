"""Reference values of the dist-DCA in PyTorch 2.15.0 (CPU, float32): forward outputs and the losses of Adagrad steps.

usage: python integration-tests/reference/dist_dca.py > ml/nn/tests/fixtures/dist_dca.json

Weights and series come from a 64-bit linear congruential generator that the Rust test repeats, so that none of
them need be stored: `state = state * 6364136223846793005 + 1442695040888963407 (mod 2^64)`, value
`(state >> 40) / 2^23 - 1` in [-1, 1). Weights are drawn in the order and layout of the Rust module (matrices
[in, out]) and multiplied by 1/sqrt(fan-in); series by sqrt(3), for unit variance.
"""
import json
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

LAMBDA, EPSILON = 0.006, 1e-10


def generator(seed):
    state = seed
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield (state >> 40) / 2**23 - 1


def draw(random, shape, scale):
    count = math.prod(shape)
    return torch.tensor([next(random) * scale for _ in range(count)], dtype=torch.float64).float().view(shape)


class DistDca(nn.Module):
    def __init__(self, time_points, hidden, filters, kernels, pools, window, switches):
        super().__init__()
        self.pools, self.window, self.switches = pools, window, switches
        channels = [1, *filters]
        self.lengths = [time_points]
        for layer in range(len(filters)):
            last = self.lengths[-1]
            self.lengths.append(-(-last // window) if layer < pools else last)
        self.top = (filters[-1], self.lengths[-1])
        conv = lambda i, o, k: nn.Conv1d(i, o, k, padding="same")
        self.encoder = nn.ModuleList(conv(i, o, k) for i, o, k in zip(channels, filters, kernels))
        self.to_hidden = nn.Linear(math.prod(self.top), hidden)
        self.from_hidden = nn.Linear(hidden, math.prod(self.top))
        mirrored = list(zip(channels, filters, kernels))[::-1]
        self.decoder = nn.ModuleList(conv(o, i, k) for i, o, k in mirrored)

    def initialise(self, random, gain=1.0):
        with torch.no_grad():
            for layer in [*self.encoder, self.to_hidden, self.from_hidden, *self.decoder]:
                if isinstance(layer, nn.Linear):
                    shape, fan_in = (layer.in_features, layer.out_features), layer.in_features
                    layer.weight.copy_(draw(random, shape, gain / math.sqrt(fan_in)).T)
                else:
                    fan_in = layer.weight.shape[1] * layer.weight.shape[2]
                    layer.weight.copy_(draw(random, tuple(layer.weight.shape), gain / math.sqrt(fan_in)))
                layer.bias.copy_(draw(random, tuple(layer.bias.shape), gain / math.sqrt(fan_in)))

    def forward(self, x):
        z, kept = x.unsqueeze(1), []
        for layer, conv in enumerate(self.encoder):
            z = F.relu(conv(z))
            if layer < self.pools:
                z, indices = F.max_pool1d(z, self.window, self.window, ceil_mode=True, return_indices=True)
                kept.append(indices)
        hidden = self.to_hidden(z.flatten(1))
        top = self.from_hidden(hidden).view(-1, *self.top)
        return hidden, z, top, self.decode(top, kept if self.switches else None)

    def decode(self, top, kept):
        y, last = top, len(self.decoder) - 1
        for j, conv in enumerate(self.decoder):
            mirrored = last - j
            if mirrored < self.pools:
                length = self.lengths[mirrored]
                if kept is None:
                    y = y.repeat_interleave(self.window, 2)[..., :length]
                else:
                    y = F.max_unpool1d(y, kept[mirrored], self.window, self.window, output_size=[length])
            y = conv(y)
            if j < last:
                y = F.relu(y)
        return y.squeeze(1)

    def loss(self, x):
        _, z, top, y = self(x)
        return 0.5 * ((x - y) ** 2).sum() + 0.5 * LAMBDA * ((z - top) ** 2).sum()


def case(name, minibatch, series, steps, rate, **shape):
    model = DistDca(**shape)
    model.initialise(generator(1))
    x = draw(generator(2), (series, shape["time_points"]), math.sqrt(3))
    with torch.no_grad():
        hidden, z, top, y = model(x[:2])
        plain = model.decode(top, None)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=rate, eps=EPSILON)
    losses = []
    for step in range(steps):
        start = step * minibatch % series
        batch = x[start : start + minibatch]
        optimizer.zero_grad()
        loss = model.loss(batch)
        (loss / len(batch)).backward()
        optimizer.step()
        losses.append(loss.item() / len(batch))
    rounded = lambda t: [float(f"{v:.7g}") for v in t.flatten().tolist()]
    return dict(
        name=name, rate=rate, minibatch=minibatch, series=series, losses=losses,
        parameters=sum(p.numel() for p in model.parameters()),
        encode=rounded(hidden), reconstruct=rounded(y), reconstruct_plain=rounded(plain), **shape,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    small = dict(time_points=37, hidden=16, filters=[4, 6, 8, 10], kernels=[7, 5, 5, 4], pools=3, window=2)
    paper = dict(time_points=284, hidden=284, filters=[32, 64, 128, 256], kernels=[21, 9, 9, 9], pools=3, window=2)
    cases = [
        case("small with switches", 8, 64, 50, 0.01, switches=True, **small),
        case("small without switches", 8, 64, 50, 0.01, switches=False, **small),
        case("every layer pooled, window 3", 8, 64, 50, 0.01, switches=True, **(small | dict(pools=4, window=3, time_points=101))),
        case("paper with switches", 4, 8, 6, 0.001, switches=True, **paper),
        case("paper without switches", 4, 8, 6, 0.001, switches=False, **paper),
    ]
    print(json.dumps(dict(torch=torch.__version__, epsilon=EPSILON, cases=cases)))
