"""Trains a small network to classify ten patterns, on images that it decodes from compressed bytes.

By default it makes four mistakes. Without a GPU, only the first one costs time. An option fixes each:

    batches are loaded in the training process         --workers N
    they are copied to the device from pageable memory --pin-memory
    the loss is fetched from the device in each step   --log-every N
    everything is computed in float32                  --mixed-precision

    python train.py --workers 4 --pin-memory --log-every 10 --mixed-precision
"""

from __future__ import annotations

import argparse
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 10
INPUT = 64  # side of the network's input, in pixels
SHRINK = 3
CROP = INPUT * SHRINK  # side of the crop from a stored image
SIDE = CROP + 48


def encode(pixels: np.ndarray) -> bytes:
    """Compress an image as PNG does: the difference of each row from the row above, with zlib."""
    return zlib.compress(np.diff(pixels, axis=0, prepend=np.zeros_like(pixels[:1])).tobytes(), 6)


def decode(data: bytes) -> np.ndarray:
    """Decompress an image."""
    rows = np.frombuffer(zlib.decompress(data), dtype=np.uint8).reshape(SIDE, SIDE, 3)
    pixels: np.ndarray = np.cumsum(rows, axis=0, dtype=np.uint8)
    return pixels


def shrink(pixels: np.ndarray) -> np.ndarray:
    """Average over squares of pixels."""
    rows = pixels.reshape(INPUT, SHRINK, CROP, 3).sum(axis=1, dtype=np.float32)
    squares: np.ndarray = rows.reshape(INPUT, INPUT, SHRINK, 3).sum(axis=2)
    return squares / SHRINK**2


def generate(label: int, noise: np.random.Generator) -> bytes:
    """Generate an image of stripes whose direction is the class."""
    rows, columns = np.mgrid[:SIDE, :SIDE]
    angle = np.pi * label / CLASSES
    wave = np.sin(0.15 * (rows * np.sin(angle) + columns * np.cos(angle)) + noise.uniform(0, 2 * np.pi))
    colour = noise.uniform(40, 110, size=3)
    grain = noise.normal(0, 6, size=(SIDE, SIDE, 3))
    return encode(np.clip(128 + wave[..., None] * colour + grain, 0, 255).astype(np.uint8))


class Stripes(Dataset[tuple[torch.Tensor, int]]):
    """Compressed images; each access decodes, crops, rotates, recolours and shrinks one."""

    def __init__(self, length: int, distinct: int = 40) -> None:
        noise = np.random.default_rng(1)
        self.length = length
        self.images = [generate(index % CLASSES, noise) for index in range(distinct)]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        index %= len(self.images)
        pixels = decode(self.images[index])
        top, left, turned, *light = torch.rand(6).tolist()  # torch seeds its generator differently in each worker
        top, left = int(top * (SIDE - CROP)), int(left * (SIDE - CROP))
        pixels = pixels[top : top + CROP, left : left + CROP]
        if turned < 0.5:
            pixels = pixels[::-1, ::-1]  # half a turn keeps the direction of the stripes
        image = shrink(pixels)
        image *= np.array(light, dtype=np.float32) * 0.6 + 0.7
        return torch.from_numpy(image.transpose(2, 0, 1) / 64 - 2), index % CLASSES


class Block(nn.Module):
    """Two convolutions with a residual connection."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.around = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(y)) + self.around(x))


def network(width: int) -> nn.Module:
    """A small residual network."""
    return nn.Sequential(
        Block(3, width, 2),
        Block(width, 2 * width, 2),
        Block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, CLASSES),
    )


def train(options: argparse.Namespace) -> None:
    device = torch.device(options.device)
    loader = DataLoader(
        Stripes(options.steps * options.batch_size),
        batch_size=options.batch_size,
        shuffle=True,
        num_workers=options.workers,
        pin_memory=options.pin_memory and device.type == "cuda",
    )
    width = options.width or (256 if device.type == "cuda" else 24)
    model = network(width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    mixed = options.mixed_precision and has_fast_bfloat16(device)
    total = torch.zeros((), device=device)
    for step, batch in enumerate(loader, start=1):
        images, labels = (part.to(device, non_blocking=options.pin_memory) for part in batch)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=mixed):
            loss = loss_of(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % options.log_every == 0:
            mean = total.item() / step
            if step % 10 == 0:
                print(f"step {step} of {options.steps}: loss {mean:.3f} on average", flush=True)


def has_fast_bfloat16(device: torch.device) -> bool:
    """Few CPUs benefit from bfloat16, and GPUs before Ampere emulate it slowly."""
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network on generated images.")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--width", type=int, help="channels of the first block; 24 on a CPU, 256 on a GPU")
    parser.add_argument("--workers", type=int, default=0, help="processes that load batches")
    parser.add_argument("--pin-memory", action="store_true", help="copy batches from pinned memory, without waiting")
    parser.add_argument("--log-every", type=int, default=1, help="steps between reads of the loss")
    parser.add_argument("--mixed-precision", action="store_true", help="compute in bfloat16 where safe (GPU only)")
    options = parser.parse_args()
    if options.device == "auto":
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no GPU")
    torch.manual_seed(1)
    if options.device == "cpu":
        torch.set_num_threads(1)  # leaves the other cores to the workers
    train(options)


if __name__ == "__main__":
    main()
