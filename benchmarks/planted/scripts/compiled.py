"""Trains a compiled network on sequences whose length changes.

python compiled.py
"""

from __future__ import annotations

import argparse

import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--fixed", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = 1000
    model = nn.Sequential(nn.Conv1d(16, 64, 3, padding=1), nn.GELU(), nn.Conv1d(64, 16, 3, padding=1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    forward = torch.compile(model, backend="aot_eager", dynamic=False)
    for step in range(options.steps):
        length = 256 if options.fixed else 200 + 8 * step
        inputs = torch.randn(8, 16, length)
        optimizer.zero_grad()
        nn.functional.mse_loss(forward(inputs), inputs).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


if __name__ == "__main__":
    main()
