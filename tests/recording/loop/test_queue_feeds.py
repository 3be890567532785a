"""Trainings whose batches another thread takes from the loader and puts into a queue."""

import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from traceadvisor.bundle.layout import Schedule
from traceadvisor.bundle.settings import decode_settings
from traceadvisor.bundle.steps import read_steps
from traceadvisor.model.run import TimedStep
from traceadvisor.recording.capture import Capture
from traceadvisor.recording.options import CaptureOptions

NEVER = Schedule(skip_first=10**6, wait=0, warmup=1, active=8, repeat=1)
SLEEP_MS = 20


class Slow(Dataset[Any]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(SLEEP_MS / 2000)
        return torch.ones(4) * index


class BackgroundGenerator(threading.Thread):
    """Iterates a loader in a thread."""

    def __init__(self, source: DataLoader[Any]) -> None:
        super().__init__(daemon=True)
        self.queue: queue.Queue[Any] = queue.Queue(2)
        self.source = source
        self.start()

    def run(self) -> None:
        for batch in self.source:
            self.queue.put(batch)
        self.queue.put(None)

    def __iter__(self) -> Iterator[Any]:
        while (batch := self.queue.get()) is not None:
            yield batch


class Background(DataLoader[Any]):
    """A loader that iterates itself in a thread."""

    def __iter__(self) -> Any:
        waiting: queue.Queue[Any] = queue.Queue(2)

        def fill() -> None:
            for batch in super(Background, self).__iter__():
                waiting.put(batch)
            waiting.put(None)

        threading.Thread(target=fill, daemon=True).start()
        while (batch := waiting.get()) is not None:
            yield batch


def trained(folder: Path, make: Any) -> list[TimedStep]:
    """Train in a capture on what ``make`` returns, and return the steps."""
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with Capture(CaptureOptions(NEVER, folder=folder / "bundle")):
        for batch in make():
            (parameter * batch.sum()).backward()
            optimizer.step()
    return list(read_steps(folder / "bundle" / "steps.0.csv")[0])


@pytest.mark.slow
@pytest.mark.parametrize("is_loader", [False, True])
def test_the_wait_for_the_queue_is_time_in_the_loader(tmp_path: Path, *, is_loader: bool) -> None:
    loader = Background if is_loader else DataLoader
    steps = trained(tmp_path, lambda: (iter if is_loader else BackgroundGenerator)(loader(Slow(), batch_size=2)))
    trains = [step for step in steps if step.fetches]
    assert len(trains) in {11, 12}  # the loop may ask for the first batch before the thread has put one
    assert sum(step.loader_ns for step in trains) > 0.5 * 12 * SLEEP_MS * 1e6
    settings = decode_settings((tmp_path / "bundle" / "settings.0.json").read_bytes())
    assert settings.loader
    assert (settings.loader.worker_count, settings.loader.batch_size) == (0, 2)


@pytest.mark.nightly("traceadvisor/recording")
def test_queues_are_as_before_after_a_capture(tmp_path: Path) -> None:
    before = queue.Queue.put, queue.Queue.get
    trained(tmp_path, lambda: BackgroundGenerator(DataLoader(Slow(), batch_size=2)))
    assert (queue.Queue.put, queue.Queue.get) == before


@pytest.mark.slow
def test_a_queue_that_no_loader_fills_is_no_feed(tmp_path: Path) -> None:
    other: queue.Queue[int] = queue.Queue()

    def make() -> Iterator[Any]:
        for batch in BackgroundGenerator(DataLoader(Slow(), batch_size=2)):
            other.put(1)
            time.sleep(0.001)
            other.get()
            yield batch

    assert len([step for step in trained(tmp_path, make) if step.fetches]) in {11, 12}
