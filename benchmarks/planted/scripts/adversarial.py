"""Trains a generator against a discriminator, with two optimizers, and writes pictures of the result.

python adversarial.py --pictures-every 1
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

SIDE = 16
NOISE = 32


def networks(width: int) -> tuple[nn.Module, nn.Module]:
    generator = nn.Sequential(nn.Linear(NOISE, width), nn.ReLU(), nn.Linear(width, SIDE * SIDE), nn.Tanh())
    discriminator = nn.Sequential(nn.Linear(SIDE * SIDE, width), nn.LeakyReLU(0.2), nn.Linear(width, 1))
    return generator, discriminator


def write_pictures(pictures: torch.Tensor, path: Path) -> None:
    """A sheet of grey pictures in the text form of PGM."""
    with path.open("w", encoding="ascii") as file:
        file.write(f"P2 {SIDE} {SIDE * len(pictures)} 255\n")
        file.write("\n".join([f"{127.5 * (value + 1):.0f}" for value in pictures.flatten().tolist()]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--pictures-every", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    generator, discriminator = networks(options.width)
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    judged = nn.functional.binary_cross_entropy_with_logits
    real = torch.rand(64, SIDE * SIDE)
    ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)
    for step in range(options.steps):
        made = generator(torch.randn(64, NOISE))
        of_discriminator.zero_grad()
        loss = judged(discriminator(real), ones) + judged(discriminator(made.detach()), zeros)
        loss.backward()  # type: ignore[no-untyped-call]
        of_discriminator.step()
        of_generator.zero_grad()
        judged(discriminator(made), ones).backward()  # type: ignore[no-untyped-call]
        of_generator.step()
        if step % options.pictures_every == 0:
            write_pictures(made.detach(), Path("pictures.pgm"))


if __name__ == "__main__":
    main()
