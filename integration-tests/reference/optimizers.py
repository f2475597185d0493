"""Update rules of torch.optim on fixed gradients: reference for ml/sync/src/optimizer.rs.

Made with torch 2.15.0. Writes ml/sync/tests/fixtures/optimizers.json.
Run: python integration-tests/reference/optimizers.py
"""

import json
from pathlib import Path

import torch

N, STEPS = 7, 20
KINDS = {
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, eps=1e-10),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.9, 0.999), eps=1e-10),
}

torch.manual_seed(0)
start = torch.randn(N)
gradients = torch.randn(STEPS, N)
out = {
    "torch": torch.__version__.split("+")[0],
    "learning_rate": 0.05,
    "epsilon": 1e-10,
    "start": start.tolist(),
    "gradients": gradients.tolist(),
    "parameters": {},
}
for name, make in KINDS.items():
    w = torch.nn.Parameter(start.clone())
    optimizer = make([w])
    trace = []
    for g in gradients:
        w.grad = g.clone()
        optimizer.step()
        trace.append(w.detach().tolist())
    out["parameters"][name] = trace

path = Path(__file__).parents[2] / "ml/sync/tests/fixtures/optimizers.json"
path.parent.mkdir(parents=True, exist_ok=True)
path.write_text(json.dumps(out) + "\n")
