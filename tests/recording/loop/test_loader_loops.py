"""Starts and ends of loops over data loaders, timed in trainings that really start workers."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from traceadvisor.bundle.layout import Schedule
from traceadvisor.bundle.settings import decode_settings
from traceadvisor.model.run import LoaderLoops
from traceadvisor.recording.capture import Capture
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.settings import thread_pools

NEVER = Schedule(skip_first=10**6, wait=0, warmup=1, active=8, repeat=1)
SLOW_S = 0.05


class Rows(Dataset[Any]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(4) * index


class SlowStart(Sampler[int]):
    """Takes long before its first index, as a permutation of very many samples does."""

    def __iter__(self) -> Iterator[int]:
        time.sleep(SLOW_S)
        yield from range(12)

    def __len__(self) -> int:
        return 12


class SlowStream(IterableDataset[Any]):
    """Takes long before its first row in each loop, as one that reads an index does."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        time.sleep(SLOW_S)
        yield from (torch.ones(4) * index for index in range(12))


def looped(
    folder: Path, *, rows: Dataset[Any] | None = None, validation: dict[str, Any] | None = None, **arguments: Any
) -> tuple[LoaderLoops, ...]:
    """Three epochs of training, each with a validation; the loops that the capture has timed."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Capture(CaptureOptions(NEVER, folder=folder / "bundle")):
        training = DataLoader(rows or Rows(), batch_size=4, **arguments)
        checks = DataLoader(Rows(), batch_size=4, **(validation or {}))
        for _ in range(3):
            for batch in training:
                model(batch).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            with torch.no_grad():
                for batch in checks:
                    model(batch)
    return decode_settings((folder / "bundle" / "settings.0.json").read_bytes()).loops or ()


@pytest.mark.nightly("traceadvisor/recording")
def test_a_slow_sampler_is_timed_apart_from_the_start_of_workers(tmp_path: Path) -> None:
    (loops,) = looped(tmp_path, num_workers=1, sampler=SlowStart())
    assert loops.trains
    assert loops.count == 2  # without the first
    assert loops.sampler_ns >= 2 * SLOW_S * 1e9
    assert 0 < loops.worker_start_ns <= loops.start_ns - 2 * SLOW_S * 1e9
    assert loops.worker_stop_ns > 0
    assert loops.batch_ns is not None
    assert loops.location
    assert loops.location.function == "looped"


@pytest.mark.nightly("traceadvisor/recording")
def test_what_an_iterable_data_set_does_first_takes_kept_workers_as_long(tmp_path: Path) -> None:
    (loops,) = looped(tmp_path, rows=SlowStream(), num_workers=1)
    assert loops.batch_ns is not None
    assert loops.batch_ns >= SLOW_S * 1e9
    assert loops.first_batch_ns >= 2 * SLOW_S * 1e9


@pytest.mark.nightly("traceadvisor/recording")
def test_kept_workers_start_once(tmp_path: Path) -> None:
    (loops,) = looped(tmp_path, num_workers=1, persistent_workers=True)
    assert loops.keeps_workers
    assert loops.worker_start_ns == loops.worker_stop_ns == 0


@pytest.mark.slow
def test_loops_over_the_validation_loader_are_timed_too(tmp_path: Path) -> None:
    kept: dict[str, Any] = {"num_workers": 1, "persistent_workers": True}
    training, validation = looped(tmp_path, validation={"num_workers": 1}, **kept)
    assert (training.trains, validation.trains) == (True, False)
    assert validation.worker_start_ns > 0
    assert validation.constructed
    assert validation.constructed.line == training.constructed.line + 1 if training.constructed else False


@pytest.mark.slow
@pytest.mark.parametrize("same", [True, False])
def test_loaders_that_are_made_for_each_loop_are_timed_together(tmp_path: Path, *, same: bool) -> None:
    model, rows = torch.nn.Linear(4, 1), Rows()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Capture(CaptureOptions(NEVER, folder=tmp_path / "bundle")):
        for _ in range(3):
            for batch in DataLoader(rows if same else Rows(), batch_size=4, num_workers=1):
                model(batch).sum().backward()
                optimizer.step()
    (loops,) = decode_settings((tmp_path / "bundle" / "settings.0.json").read_bytes()).loops or ()
    assert loops.trains
    assert (loops.loaders, loops.count, loops.same_data) == (3, 2, same)
    assert loops.worker_start_ns > 0
    assert loops.constructed


def test_a_loader_without_workers_starts_none(tmp_path: Path) -> None:
    assert looped(tmp_path) == ()


def test_mapped_files_show_the_libraries_with_threads(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    files = ("libscipy_openblas64_-ff651d7f.so", "tokenizers.abi3.so", "libc.so.6")
    maps.write_text("".join(f"7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/{file}\n" for file in files))
    assert thread_pools(maps) == ("OpenBLAS", "tokenizers")


def test_without_mapped_files_no_library_is_known(tmp_path: Path) -> None:
    assert thread_pools(tmp_path / "none") == ()
