"""Trains a small network and reads the loss from the device in every step.

python waits.py --device cuda
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(device: str, steps: int) -> float:
    """Train and return the sum of losses."""
    width = 2048 if device == "cuda" else 64
    samples = TensorDataset(torch.randn(steps * 64, width), torch.randn(steps * 64, width))
    layers = [layer for _ in range(24) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    total = 0.0
    for inputs, targets in DataLoader(samples, batch_size=64, pin_memory=device == "cuda"):
        predicted = model(inputs.to(device, non_blocking=True))
        loss = nn.functional.mse_loss(predicted, targets.to(device, non_blocking=True))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
        optimizer.step()
    return total


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Train and read the loss in every step.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    torch.manual_seed(1)
    print(f"loss {train(options.device, options.steps) / options.steps:.3f}")


if __name__ == "__main__":
    main()
