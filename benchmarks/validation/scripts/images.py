"""Trains a small convolutional network to count blobs, on JPEGs that it decodes, crops and makes smaller.

python images.py --workers 2
"""

from __future__ import annotations

import argparse
import io
import random

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

MOST_BLOBS = 8
INPUT = 64  # side of what the network sees, in pixels


def picture(side: int, blobs: int, chance: random.Random) -> bytes:
    """A JPEG with some ellipses on a grainy ground."""
    grain = np.random.default_rng(chance.getrandbits(32)).normal(128, 24, (side, side, 3))
    image = Image.fromarray(np.clip(grain, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(blobs):
        x, y, radius = chance.random() * side, chance.random() * side, side * (0.03 + 0.05 * chance.random())
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=(chance.randrange(256), 40, 40))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90)
    return file.getvalue()


class Blobs(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, length: int, side: int, distinct: int = 64) -> None:
        chance = random.Random(1)
        self.length = length
        self.counts = [index % MOST_BLOBS for index in range(distinct)]
        self.files = [picture(side, count, chance) for count in self.counts]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        index %= len(self.files)
        with Image.open(io.BytesIO(self.files[index])) as file:
            image = file.convert("RGB")
        left, top = (torch.rand(2) * image.width / 10).tolist()
        image = image.crop((int(left), int(top), int(left + image.width * 0.9), int(top + image.height * 0.9)))
        pixels = np.array(image.resize((INPUT, INPUT), Image.Resampling.BILINEAR), dtype=np.float32)
        return torch.from_numpy(pixels.transpose(2, 0, 1) / 128 - 1), self.counts[index]


def network(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2 * width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, MOST_BLOBS),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network to count blobs.")
    parser.add_argument("--steps-per-epoch", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--stored-side", type=int, default=256, help="side of the stored pictures, in pixels")
    parser.add_argument("--workers", type=int, default=0, help="processes that load batches")
    parser.add_argument("--persistent", action="store_true", help="keep them between epochs")
    options = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(1)  # leaves the other cores to the workers
    loader = DataLoader(
        Blobs(options.steps_per_epoch * options.batch_size, options.stored_side),
        batch_size=options.batch_size,
        shuffle=True,
        num_workers=options.workers,
        persistent_workers=options.persistent,
    )
    model = network(24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    for epoch in range(options.epochs):
        total = 0.0
        for images, counts in loader:
            optimizer.zero_grad()
            loss = loss_of(model(images), counts)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total / options.steps_per_epoch:.3f}")


if __name__ == "__main__":
    main()
