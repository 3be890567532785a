"""Trains a network whose forward and backward passes are replayed as CUDA graphs.

python graphs.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, WIDTH = 64, 1024


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Train with CUDA graphs.")
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    torch.manual_seed(1)
    samples = TensorDataset(torch.randn(options.steps * BATCH, WIDTH), torch.randn(options.steps * BATCH, WIDTH))
    layers = [layer for _ in range(32) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*layers).cuda()
    example = torch.randn(BATCH, WIDTH, device="cuda")
    graphed: Callable[[torch.Tensor], torch.Tensor] = torch.cuda.make_graphed_callables(model, (example,))  # type: ignore[assignment]  # a module for a module
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for inputs, targets in DataLoader(samples, batch_size=BATCH, pin_memory=True):
        optimizer.zero_grad(set_to_none=False)
        predicted = graphed(inputs.cuda(non_blocking=True))
        loss = nn.functional.mse_loss(predicted, targets.cuda(non_blocking=True))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
