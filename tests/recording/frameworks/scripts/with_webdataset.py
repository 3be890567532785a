"""Trains from shards that it writes. python with_webdataset.py VARIANT"""

from __future__ import annotations

import random
import sys
import warnings
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")

import torch
import webdataset
from own_clock import clock_of_script, say
from torch import nn

SHARDS, SAMPLES, EPOCHS = 4, 40, 2
VARIANT = sys.argv[1]


def write_shards() -> str:
    Path("shards").mkdir()
    for shard in range(SHARDS):
        with webdataset.TarWriter(f"shards/{shard}.tar") as writer:
            for number in range(SAMPLES):
                writer.write({"__key__": f"{shard}-{number}", "row.pth": torch.randn(8)})
    return f"shards/{{0..{SHARDS - 1}}}.tar"


def batches(shards: str) -> Any:
    pipeline = webdataset.WebDataset(shards, shardshuffle=False).decode().to_tuple("row.pth")
    match VARIANT:
        case "loader":
            return webdataset.WebLoader(pipeline.batched(4), batch_size=None, num_workers=2)
        case "rebatching":  # each batch of a worker makes four of the loop
            loader = webdataset.WebLoader(pipeline.batched(20), batch_size=None, num_workers=2)
            return loader.unbatched().shuffle(20, rng=random.Random(1)).batched(5)
        case "direct":
            return pipeline.batched(4)
        case "endless":
            return pipeline.repeat().batched(4).with_epoch(40)
    raise ValueError(VARIANT)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    feed = batches(write_shards())
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    clock = clock_of_script()
    losses = []
    for _ in range(EPOCHS):
        for (inputs,) in feed:
            clock.begin()
            clock.pause()
            loss = nn.functional.mse_loss(model(inputs), inputs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.end()
            losses.append(loss.item())
    say(losses)


if __name__ == "__main__":
    main()
