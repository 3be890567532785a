"""A small training script on the CPU; its options add performance problems."""

from __future__ import annotations

import argparse
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 32
FEATURES = 256
WIDTH = 2048


class Samples(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Random samples with a fixed loading time; some take longer, like when a new file is opened."""

    def __init__(self, batches: int, sample_ms: float, pause_every: int, pause_ms: float) -> None:
        self.batches, self.sample_ms = batches, sample_ms
        self.pause_every, self.pause_ms = pause_every, pause_ms

    def __len__(self) -> int:
        return self.batches * BATCH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.pause_every and index % (self.pause_every * BATCH) == BATCH:
            time.sleep(self.pause_ms / 1000)
        ready = time.thread_time() + self.sample_ms / 1000
        while time.thread_time() < ready:
            pass
        return torch.randn(FEATURES), torch.randn(1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--steps-per-epoch", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--sample-ms", type=float, default=0.05)
    parser.add_argument("--pause-every", type=int, default=0, help="batches from one long sample to the next")
    parser.add_argument("--pause-ms", type=float, default=0)
    parser.add_argument("--one-core", action="store_true", help="use a single core")
    parser.add_argument("--detect-anomaly", action="store_true")
    return parser.parse_args()


def train(options: argparse.Namespace) -> None:
    samples = Samples(options.steps_per_epoch, options.sample_ms, options.pause_every, options.pause_ms)
    loader = DataLoader(samples, batch_size=BATCH, num_workers=options.workers)
    model = nn.Sequential(
        nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    left = options.steps
    while left:
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            left -= 1
            if not left:
                break


def main() -> None:
    options = arguments()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.autograd.set_detect_anomaly(options.detect_anomaly)
    if options.one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    train(options)


if __name__ == "__main__":
    main()
