from pathlib import Path

import pytest

from tests.build import Generation, TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found
from traceadvisor.rules.h2d.h2d002_blocking_copy import BlockingCopy

STACK = ("torch/_tensor.py(40): to", "train.py(27): train", "train.py(80): main")


def _step(*, waits: bool = True, pinned: bool = True, generation: Generation = Generation.CURRENT) -> TraceBuilder:
    """Build a copy from 10 to 30 that the CPU waits for until 32. Then it launches a kernel that starts at 40."""
    builder = TraceBuilder(generation).step(0, 0, 100).op("aten::copy_", 0, 33, stack=STACK)
    builder.copy(2, 6, on_device=(10, 30), pinned=pinned)
    if waits:
        builder.sync(6, 32)
    return builder.op("aten::mm", 33, 39).launch(34, 38, kernel=(40, 100))


def test_waiting_for_a_pinned_copy_is_found(tmp_path: Path) -> None:
    found = finding(BlockingCopy(), _step(), tmp_path)
    assert evidence(found, "blocking copies") == 1
    assert evidence(found, "CPU time in the waits") == 26_000
    assert evidence(found, "GPU idle time after the waits") == 10_000  # from 30 to 40
    assert evidence(found, "exposed time of the copies") == 20_000
    assert found.claims.total_ns == 30_000


@pytest.mark.parametrize("generation", Generation)
def test_the_location_is_in_user_code_not_in_torch(generation: Generation, tmp_path: Path) -> None:
    (location,) = finding(BlockingCopy(), _step(generation=generation), tmp_path).locations
    assert (location.file, location.line) == ("train.py", 27)


def test_a_copy_without_a_wait_is_clear(tmp_path: Path) -> None:
    assert clear(BlockingCopy(), _step(waits=False), tmp_path).value == 0


def test_pageable_copies_do_not_count(tmp_path: Path) -> None:
    assert clear(BlockingCopy(), _step(pinned=False), tmp_path).value == 0


def test_waits_outside_copies_do_not_count(tmp_path: Path) -> None:
    builder = _step(waits=False).op("aten::item", 40, 60).sync(41, 59)
    assert clear(BlockingCopy(), builder, tmp_path).value == 0


@pytest.mark.parametrize(("kernel_start", "found"), [(109, False), (110, True)])
def test_waits_count_from_one_percent_of_the_step(kernel_start: int, tmp_path: Path, *, found: bool) -> None:
    # The copy and the idle time after it last from 10 to the kernel's start.
    builder = TraceBuilder().step(0, 0, 10_000).op("aten::copy_", 0, 33)
    builder.copy(2, 6, on_device=(10, 30), pinned=True).sync(6, 32)
    builder.op("aten::mm", 33, 39).launch(34, 38, kernel=(kernel_start, 10_000))
    assert is_found(BlockingCopy(), builder, tmp_path) is found


def test_copies_outside_the_steps_do_not_count(tmp_path: Path) -> None:
    builder = _step(waits=False).op("aten::copy_", 200, 233).copy(202, 206, on_device=(210, 230), pinned=True)
    builder.sync(206, 232).step(1, 300, 400).op("aten::mm", 300, 305).launch(301, 302, kernel=(303, 400))
    builder.events[:] = [event for event in builder.events if event["name"] != "ProfilerStep#0"]
    assert clear(BlockingCopy(), builder, tmp_path).value == 0
