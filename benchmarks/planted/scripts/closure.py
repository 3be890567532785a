"""Fits a curve with L-BFGS, whose closure computes a penalty in plain Python.

python closure.py --penalty
"""

from __future__ import annotations

import argparse

import torch
from torch import nn


def smoothness(values: list[float]) -> float:
    """The sum of squared second differences."""
    total = 0.0
    for place in range(1, len(values) - 1):
        total += (values[place - 1] - 2 * values[place] + values[place + 1]) ** 2
    return total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--penalty", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    points = torch.linspace(-3, 3, 2000).unsqueeze(1)
    target = torch.sin(3 * points) + 0.1 * torch.randn_like(points)
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2, history_size=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        guessed = model(points)
        loss = nn.functional.mse_loss(guessed, target)
        if options.penalty:
            for _ in range(6):
                loss = loss + 1e-6 * smoothness(guessed.flatten().tolist())
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    for _ in range(options.steps):
        optimizer.step(closure)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
