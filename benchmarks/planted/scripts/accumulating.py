"""Trains a network whose optimizer steps after several small batches.

python accumulating.py --fetch-ms 1
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FEATURES = 128


class Rows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, count: int, fetch_ms: float) -> None:
        self.values = torch.randn(count, FEATURES)
        self.fetch_ms = fetch_ms

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.fetch_ms:
            time.sleep(self.fetch_ms / 1000)  # a row of a remote table
        row = self.values[index]
        return row, row.sum()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--fetch-ms", type=float, default=0)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    width = options.width
    model = nn.Sequential(
        nn.Linear(FEATURES, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1), nn.Flatten(0)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    rows = Rows(options.steps * options.micro_batches * options.batch, options.fetch_ms)
    loader = DataLoader(rows, batch_size=options.batch)
    optimizer.zero_grad()
    for number, (inputs, targets) in enumerate(loader, start=1):
        loss = nn.functional.mse_loss(model(inputs), targets) / options.micro_batches
        loss.backward()
        if number % options.micro_batches == 0:
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
