"""A small training script for several ranks on the CPU, with unequal parts of the dataset."""

from __future__ import annotations

import argparse

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset

BATCH = 8
FEATURES = 256
WIDTH = 2048


def train(steps: int) -> None:
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    samples = TensorDataset(torch.randn(1009, FEATURES), torch.randn(1009, 1))
    mine = Subset(samples, range(rank, len(samples), ranks))  # the first rank has one sample more
    layers = (nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _, (inputs, targets) in zip(range(steps), DataLoader(mine, batch_size=BATCH), strict=False):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    train(options.steps)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
