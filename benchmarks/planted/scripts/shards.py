"""Trains on a stream of records from shards that loader workers read; the shards differ much in size.

python shards.py --workers 2
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

RECORD = 64


class Shards(IterableDataset[torch.Tensor]):
    """Each worker reads its own shards; the records of the first shard are much longer."""

    def __init__(self, batches: int, batch: int, uneven: bool) -> None:  # noqa: FBT001
        self.records = batches * batch
        self.uneven = uneven

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        shard = info.id if info else 0
        parts = 40 if self.uneven and shard == 0 else 1
        for _ in range(self.records):
            record = torch.zeros(RECORD)
            for part in range(parts):
                record += torch.fft.rfft(torch.randn(2 * RECORD - 2)).real / (part + 1)
            yield record


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--even", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    batch = 32
    loader = DataLoader(Shards(options.steps, batch, not options.even), batch_size=batch, num_workers=options.workers)
    model = nn.Sequential(nn.Linear(RECORD, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, RECORD))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    for step, records in enumerate(loader):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(records), records).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step + 1 == options.steps:
            break


if __name__ == "__main__":
    main()
