"""Trains with work that is known beforehand: one copy of known size and some large matrix products per step.

python known.py --device cuda
"""

from __future__ import annotations

import argparse

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.gpu.training import StepTruth

PRODUCTS = 20


class Rows(Dataset[torch.Tensor]):
    """The same rows again and again."""

    def __init__(self, steps: int, rows: int, width: int) -> None:
        self.steps, self.rows = steps, torch.randn(rows, width)

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Train with work that is known beforehand.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    rows, width = (4096, 8192) if on_gpu else (64, 128)
    weight = torch.nn.Parameter(torch.eye(width, device=options.device))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    weight.grad = torch.zeros_like(weight)
    truth = StepTruth(options.device)
    loader = DataLoader(Rows(options.steps, rows, width), batch_size=None, pin_memory=on_gpu)
    truth.begin()
    for batch in loader:
        truth.loaded()
        inputs = batch.to(options.device, non_blocking=True)
        truth.copied()
        with torch.no_grad():
            for _ in range(PRODUCTS):
                inputs = inputs @ weight
        optimizer.step()
        truth.end()
        truth.begin()
    truth.drop_last()
    truth.write(copy_bytes=rows * width * 4, products=PRODUCTS)


if __name__ == "__main__":
    main()
