"""Trains a network and copies the next batch on a stream of its own while another stream computes statistics.

python streams.py
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, WIDTH = 4096, 2048


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Train on several streams.")
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    torch.manual_seed(1)
    samples = TensorDataset(torch.randn(8 * BATCH, WIDTH))
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(12)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    copying, aside = (torch.cuda.Stream() for _ in range(2))  # type: ignore[no-untyped-call]
    main_stream = torch.cuda.current_stream()
    statistics = torch.zeros(WIDTH, device="cuda")
    done = 0
    while done < options.steps:
        for (batch,) in DataLoader(samples, batch_size=BATCH, pin_memory=True):
            with torch.cuda.stream(copying):
                inputs = batch.cuda(non_blocking=True)
            main_stream.wait_stream(copying)
            aside.wait_stream(copying)
            inputs.record_stream(main_stream)
            inputs.record_stream(aside)
            with torch.cuda.stream(aside):
                statistics.add_(inputs.std(dim=0))
            optimizer.zero_grad()
            loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()
            done += 1
            if done == options.steps:
                break
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
