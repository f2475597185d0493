"""Convolution, pooling, unpooling and up-sampling of images in PyTorch 2.15.0 (CPU, float64), with all gradients.

usage: python integration-tests/reference/image_operations.py > ml/nn/tests/fixtures/image_operations.json

Inputs come from the generator of `dist_dca.py`, with which the Rust test draws the same; only results are stored.
"""
import json

import torch
import torch.nn.functional as F

from dist_dca import draw, generator


def double(random, shape):
    return draw(random, shape, 1.0).double().requires_grad_()


def rounded(tensor):
    return [float(f"{v:.12g}") for v in tensor.detach().flatten().tolist()]


def zeros_around(padding, kernel):
    most = kernel - 1
    return {"same": (most // 2, kernel // 2), "valid": (0, 0), "full": (most, most)}[padding]


def convolution(n, channels, filters, size, kernel, stride, padding, relu):
    random = generator(3)
    x, w = double(random, (n, channels, *size)), double(random, (filters, channels, *kernel))
    b = double(random, (filters,))
    (above, below), (left, right) = (zeros_around(padding, k) for k in kernel)
    y = F.conv2d(F.pad(x, (left, right, above, below)), w, b, stride=stride)
    y = F.relu(y) if relu else y
    dy = double(random, tuple(y.shape)).detach()
    y.backward(dy)
    return dict(
        n=n, channels=channels, filters=filters, size=size, kernel=kernel, stride=stride, padding=padding, relu=relu,
        y=rounded(y), dx=rounded(x.grad), dw=rounded(w.grad), db=rounded(b.grad),
    )


def pooling(n, channels, size, window, stride):
    """Maxima, what unpooling makes of other values by their switches, and means; with the gradients of all three."""
    random = generator(4)
    x = double(random, (n, channels, *size))
    y, indices = F.max_pool2d(x, window, stride, ceil_mode=True, return_indices=True)
    dy = double(random, tuple(y.shape)).detach()
    y.backward(dy)
    means = F.avg_pool2d(x.detach().clone().requires_grad_(), window, stride, ceil_mode=True, count_include_pad=False)
    x2 = x.detach().clone().requires_grad_()
    F.avg_pool2d(x2, window, stride, ceil_mode=True, count_include_pad=False).backward(dy)
    found = dict(n=n, channels=channels, size=size, window=window, stride=stride, y=rounded(y), dx=rounded(x.grad),
                 means=rounded(means), means_dx=rounded(x2.grad))
    if list(window) == list(stride):
        z = double(random, tuple(y.shape))
        up = F.max_unpool2d(z, indices, window, stride, output_size=size)
        du = double(random, tuple(up.shape)).detach()
        up.backward(du)
        found |= dict(unpooled=rounded(up), unpooled_dx=rounded(z.grad))
    return found


def upsampling(n, channels, size, window):
    random = generator(5)
    x = double(random, (n, channels, *size))
    y = F.interpolate(x, scale_factor=tuple(map(float, window)), mode="nearest")
    dy = double(random, tuple(y.shape)).detach()
    y.backward(dy)
    return dict(n=n, channels=channels, size=size, window=window, y=rounded(y), dx=rounded(x.grad))


if __name__ == "__main__":
    convolutions = []
    for padding in ("same", "valid", "full"):
        convolutions += [
            convolution(2, 3, 5, (6, 7), (3, 3), (1, 1), padding, True),
            convolution(2, 2, 4, (7, 6), (3, 2), (2, 2), padding, False),
            convolution(1, 4, 3, (9, 5), (4, 5), (2, 1), padding, True),
        ]
    convolutions += [
        convolution(2, 34, 3, (4, 5), (1, 1), (1, 1), "same", True),
        convolution(1, 3, 35, (5, 4), (3, 3), (1, 1), "same", False),
        convolution(2, 3, 2, (7, 8), (1, 1), (2, 3), "valid", False),
        convolution(2, 2, 2, (5, 5), (2, 2), (3, 3), "valid", False),
    ]
    poolings = [
        pooling(2, 3, (6, 8), (2, 2), (2, 2)),
        pooling(2, 2, (7, 5), (2, 2), (2, 2)),
        pooling(1, 2, (7, 8), (3, 2), (3, 2)),
        pooling(2, 2, (9, 7), (3, 3), (2, 2)),
        pooling(1, 1, (5, 6), (1, 3), (1, 1)),
        pooling(1, 2, (8, 7), (2, 2), (3, 3)),
    ]
    upsamplings = [upsampling(2, 2, (3, 4), (2, 2)), upsampling(1, 3, (2, 3), (3, 1))]
    print(json.dumps(dict(torch=torch.__version__, convolutions=convolutions, poolings=poolings, upsamplings=upsamplings)))
