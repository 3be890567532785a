"""A training whose best settings are known: ``python known.py KIND``.

sleeping    a batch takes LOAD seconds of sleep to load and STEP seconds to train on
busy        loading keeps both cores busy, and so does the step: workers cannot help
peak        throughput is highest at a batch size of 64
planted     CHUNK=0 is a tenth faster than CHUNK=1; UNUSED does nothing
computing   as planted, with computing in place of sleep
"""

from __future__ import annotations

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KIND = sys.argv[1]
LOAD, STEP = (float(word) for word in (sys.argv[2:4] or (0.0, 0.02)))
BATCH = 16
CHUNK, UNUSED = 1, 0
REPEATS = 20
SLOWED = REPEATS + 2  # a tenth more


class Samples(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 64 * BATCH

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        if KIND == "sleeping":
            time.sleep(LOAD)
        elif KIND == "busy":
            burn(2 * BATCH)
        return [torch.ones(8) for _ in indices]


def burn(repeats: int) -> None:
    values = torch.ones(192, 192)
    for _ in range(repeats):
        values = values @ values * 1e-3


def step_work(samples: int) -> None:
    match KIND:
        case "sleeping":
            time.sleep(STEP)
        case "busy":
            burn(2 * BATCH)
        case "peak":
            time.sleep(0.008 + 0.0001 * samples + 0.0003 * max(samples - 64, 0))
        case "planted":
            time.sleep(STEP * (1.0 if CHUNK else 1 / 1.1))
        case "computing":
            burn(SLOWED if CHUNK else REPEATS)


def main() -> None:
    if KIND != "busy":
        torch.set_num_threads(1)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for _ in range(1000):
        for inputs in DataLoader(Samples(), batch_size=BATCH, shuffle=True):
            step_work(len(inputs))
            loss = model(inputs).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
