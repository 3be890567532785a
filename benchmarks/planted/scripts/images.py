"""Trains a small convolutional network on pictures that a data set fetches, decodes, or both.

python images.py --fetch-ms 2 --workers 2
"""

from __future__ import annotations

import argparse
import random
import time
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 32
BATCH = 8


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        chance = random.Random(1)
        self.files = [zlib.compress(chance.randbytes(3 * SIDE * SIDE)) for _ in range(64)]

    def __len__(self) -> int:
        return int(self.options.steps_per_epoch) * BATCH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.fetch(index)
        return self.decode(self.files[index % len(self.files)]), index % 10

    def fetch(self, index: int) -> None:
        """Stands for a request to remote storage."""
        wait_ms = self.options.fetch_ms
        if self.options.slow_every and index % (self.options.slow_every * BATCH) == BATCH - 1:
            wait_ms += self.options.slow_ms
        if wait_ms:
            time.sleep(wait_ms / 1000)

    def decode(self, file: bytes) -> torch.Tensor:
        """Unpack a picture; each pass stands for another layer of an expensive format."""
        for _ in range(self.options.decode_passes):
            file = zlib.compress(zlib.decompress(file), 9)
        return torch.frombuffer(bytearray(zlib.decompress(file)), dtype=torch.uint8).reshape(3, SIDE, SIDE) / 255


class Network(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.third = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.classes = nn.Linear(2 * width, 10)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.second(torch.relu(self.first(pictures))))
        result: torch.Tensor = self.classes(torch.relu(self.third(hidden)).mean((2, 3)))
        return result


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--steps-per-epoch", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--fetch-ms", type=float, default=0, help="wait for each sample")
    parser.add_argument("--slow-every", type=int, default=0, help="batches from one slow sample to the next")
    parser.add_argument("--slow-ms", type=float, default=0)
    parser.add_argument("--decode-passes", type=int, default=1)
    parser.add_argument("--width", type=int, default=32)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Pictures(options), batch_size=BATCH, num_workers=options.workers)
    model = Network(options.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    done = 0
    while done < options.steps:
        for pictures, classes in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pictures), classes)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            done += 1
            if done == options.steps:
                break


if __name__ == "__main__":
    main()
