"""Trains a deep network of narrow layers: the optimizer updates many small tensors."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.set_num_threads(1)
    layers: list[nn.Module] = [part for _ in range(80) for part in (nn.Linear(24, 24), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(24, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = TensorDataset(torch.randn(4096, 24), torch.randn(4096, 1))
    for _ in range(50):
        for inputs, targets in DataLoader(data, batch_size=8, shuffle=True):
            loss = (model(inputs) - targets).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
