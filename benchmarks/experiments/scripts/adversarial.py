"""Trains a generator against a discriminator, each with an optimizer of its own, on pictures from slow storage."""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, NOISE, WIDTH, LAYERS = 8, 16, 48, 12
READ_S = 0.001


class Pictures(Dataset[torch.Tensor]):
    def __init__(self, count: int) -> None:
        self.pictures = torch.rand(count, SIDE * SIDE)

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(READ_S)
        return self.pictures[index]


def network(inputs: int, outputs: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(inputs, WIDTH), nn.LeakyReLU(0.2)]
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, outputs))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    generator, discriminator = network(NOISE, SIDE * SIDE), network(SIDE * SIDE, 1)
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judged = nn.functional.binary_cross_entropy_with_logits
    for real in DataLoader(Pictures(16 * options.steps), batch_size=16, shuffle=True):
        made = generator(torch.randn(len(real), NOISE))
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        of_discriminator.zero_grad()
        loss = judged(discriminator(real), ones) + judged(discriminator(made.detach()), zeros)
        loss.backward()  # type: ignore[no-untyped-call]
        of_discriminator.step()
        of_generator.zero_grad()
        judged(discriminator(made), ones).backward()  # type: ignore[no-untyped-call]
        of_generator.step()


if __name__ == "__main__":
    main()
