"""Trains a small network on batches whose loading waits, computes, or pauses at times.

python loading.py server --workers 2

At the end it prints the mean step by its own clock, in nanoseconds, without the steps in which the queue fills.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

BATCH = 8
SIDE = 32
WAIT_S = 0.005
PAUSE_S, PAUSE_EVERY = 0.25, 24
"""The first sample of every so many batches pauses the source."""

SETTLING = 12
"""First steps that are not timed."""


class Waiting(Dataset[torch.Tensor]):
    """A disk that answers after a while."""

    def __init__(self, batches: int) -> None:
        self.length = batches * BATCH

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(WAIT_S)
        return torch.full((3, SIDE, SIDE), index / self.length)


class Remote(Waiting):
    """A server on the network that answers after a while."""

    def __init__(self, batches: int, port: int) -> None:
        super().__init__(batches)
        self.port = port

    def __getitem__(self, index: int) -> torch.Tensor:
        with socket.create_connection(("127.0.0.1", self.port)) as connection, connection.makefile("rb") as answer:
            connection.sendall(b"%d\n" % index)
            pixels = np.frombuffer(answer.read(), dtype=np.float32)
        return torch.from_numpy(pixels.reshape(3, SIDE, SIDE).copy())


class Decoded(Waiting):
    """Pictures that are decoded for each batch."""

    def __init__(self, batches: int) -> None:
        super().__init__(batches)
        grain = np.random.default_rng(1).integers(0, 255, (256, 256, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(grain).save(file, "JPEG", quality=90)
        self.content = file.getvalue()

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(io.BytesIO(self.content)) as picture:
            small = picture.convert("RGB").resize((SIDE, SIDE))
        return torch.from_numpy(np.array(small, dtype=np.float32).transpose(2, 0, 1) / 255)


class Mixed(Decoded):
    """Pictures that first have to be read."""

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(WAIT_S)
        return super().__getitem__(index)


class Stream(IterableDataset[torch.Tensor]):
    """Records of a stream, which workers share."""

    def __init__(self, batches: int) -> None:
        self.length = batches * BATCH

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        workers = info.num_workers if info else 1
        for _ in range(self.length // workers + BATCH * workers):
            time.sleep(WAIT_S)
            yield torch.zeros(3, SIDE, SIDE)


class Pausing(Waiting):
    """A source that pauses at times."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % (PAUSE_EVERY * BATCH) == 0:
            time.sleep(PAUSE_S)
        return torch.zeros(3, SIDE, SIDE)


KINDS: dict[str, Callable[[int], Dataset[Any]]] = {
    "disk": Waiting,
    "decoding": Decoded,
    "mixed": Mixed,
    "stream": Stream,
    "pausing": Pausing,
}


def serve(port_sent: Any) -> None:
    """Answer each request after a while, any number at a time."""
    content = np.zeros((3, SIDE, SIDE), dtype=np.float32).tobytes()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        await asyncio.sleep(WAIT_S)
        writer.write(content)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port_sent.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def source(kind: str, batches: int) -> Dataset[Any]:
    if kind != "server":
        return KINDS[kind](batches)
    receiver, sender = multiprocessing.get_context("spawn").Pipe(duplex=False)
    multiprocessing.get_context("spawn").Process(target=serve, args=(sender,), daemon=True).start()
    return Remote(batches, receiver.recv())


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network.")
    parser.add_argument("kind", choices=[*KINDS, "server"])
    parser.add_argument("--workers", type=int, default=0, help="processes that load batches")
    parser.add_argument("--prefetch", type=int, help="batches that each of them prefetches")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--into", type=Path, help="file for the steps by the script's own clock")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 24, 3), nn.ReLU(), nn.Conv2d(24, 24, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
    )
    model(torch.zeros(1, 3, SIDE, SIDE))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(
        source(arguments.kind, arguments.steps + 1),
        batch_size=BATCH,
        num_workers=arguments.workers,
        prefetch_factor=arguments.prefetch,
    )
    ends_ns = []
    for _, batch in zip(range(arguments.steps), loader, strict=False):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        ends_ns.append(time.perf_counter_ns())
    step_ns = (ends_ns[-1] - ends_ns[SETTLING - 1]) / (len(ends_ns) - SETTLING)
    if arguments.into:
        arguments.into.write_text(json.dumps({"steps": len(ends_ns), "step_ns": step_ns}))
    print(f"{step_ns / 1e6:.1f} ms per step")


if __name__ == "__main__":
    main()
