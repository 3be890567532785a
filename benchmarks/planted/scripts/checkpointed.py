"""Trains blocks of a vision transformer, each of them checkpointed.

python checkpointed.py
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.heads, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, length, width = x.shape
        heads = self.heads(self.before(x)).view(count, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(heads[0], heads[1], heads[2])
        x = x + self.joined(attended.transpose(1, 2).reshape(count, length, width))
        result: torch.Tensor = x + self.wide(self.between(x))
        return result


class Transformer(nn.Module):
    def __init__(self, width: int, depth: int, *, keep: bool) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.classes = nn.Linear(width, 10)
        self.keep = keep

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x) if self.keep else checkpoint(block, x, use_reentrant=False)
        result: torch.Tensor = self.classes(x.mean(1))
        return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="activations instead of recomputing them")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Transformer(options.width, options.depth, keep=options.keep)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    count = options.steps * options.batch
    data = TensorDataset(torch.rand(count, 3, 32, 32), torch.randint(10, (count,)))
    for images, classes in DataLoader(data, options.batch, num_workers=1):
        loss = nn.functional.cross_entropy(model(images), classes)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


if __name__ == "__main__":
    main()
