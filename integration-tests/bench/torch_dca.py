"""The autoencoder of the paper in PyTorch, as a peer: length 284, poolings that keep a rest, and a decoder by switches or
by repetition."""

PARAMETERS = 6_020_381


def network(switches):
    import torch.nn as nn
    import torch.nn.functional as F

    class Dca(nn.Module):
        def __init__(self):
            super().__init__()
            conv = lambda i, o, k: nn.Conv1d(i, o, k, padding=k // 2)
            self.encoder = nn.ModuleList([conv(1, 32, 21), conv(32, 64, 9), conv(64, 128, 9), conv(128, 256, 9)])
            self.to_hidden, self.from_hidden = nn.Linear(256 * 36, 284), nn.Linear(284, 256 * 36)
            self.decoder = nn.ModuleList([conv(256, 128, 9), conv(128, 64, 9), conv(64, 32, 9), conv(32, 1, 21)])

        def forward(self, x):
            z, pools = x, []
            for layer, convolution in enumerate(self.encoder):
                z = F.relu(convolution(z))
                if layer < 3:
                    length = z.shape[2]
                    z, places = F.max_pool1d(z, 2, 2, ceil_mode=True, return_indices=True)
                    pools.append((places, length))
            decoded = self.from_hidden(self.to_hidden(z.flatten(1))).view(-1, 256, 36)
            y = decoded
            for layer, convolution in enumerate(self.decoder):
                y = convolution(y)
                if layer < 3:
                    y = F.relu(y)
                    places, length = pools[2 - layer]
                    if switches:
                        y = F.max_unpool1d(y, places, 2, 2, output_size=[length])
                    else:
                        y = y.repeat_interleave(2, 2)[..., :length]
            return y, z, decoded

    model = Dca()
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS
    return model
