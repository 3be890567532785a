"""Trains embeddings of items that users chose, with sparse gradients, and copies the model after each step.

python embeddings.py --copy-model
"""

from __future__ import annotations

import argparse
import copy

import torch
from torch import nn

ITEMS = 50_000


class Choices(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.items = nn.EmbeddingBag(ITEMS, width, sparse=True)
        self.score = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 1), nn.Flatten(0))

    def forward(self, chosen: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.score(self.items(chosen))
        return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--copy-model", action="store_true", help="to go back to if the next loss is not finite")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Choices(options.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    last: nn.Module = model
    for _ in range(options.steps):
        chosen = torch.randint(ITEMS, (64, 20))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(chosen), (chosen % 7).float().mean(1))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if options.copy_model:
            last = copy.deepcopy(model)
    print(sum(parameter.numel() for parameter in last.parameters()))


if __name__ == "__main__":
    main()
