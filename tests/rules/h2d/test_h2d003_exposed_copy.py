from pathlib import Path

import pytest

from tests.build import Generation, TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, twice
from traceadvisor.rules.h2d.h2d003_exposed_copy import ExposedCopy

STACK = ("torch/_tensor.py(40): to", "train.py(27): train", "train.py(80): main")


def _step(
    copy_end: int = 40, kernel_start: int = 40, generation: Generation = Generation.CURRENT, *, pinned: bool = True
) -> TraceBuilder:
    """Build a copy of 4 kB that starts at 10, and a kernel that ends at 100."""
    builder = TraceBuilder(generation).step(0, 0, 100).op("aten::to", 0, 8, stack=STACK)
    builder.copy(2, 6, on_device=(10, copy_end), pinned=pinned, byte_count=4096)
    return builder.op("aten::mm", 8, 12).launch(9, 11, kernel=(kernel_start, 100), stream=8)


def test_exposed_copies_are_found(tmp_path: Path) -> None:
    found = finding(ExposedCopy(), _step(), tmp_path)
    assert found.claims.total_ns == 30_000
    assert evidence(found, "exposed time of these copies") == 30_000
    assert evidence(found, "bytes copied") == 4096


@pytest.mark.parametrize("pinned", [True, False])
def test_what_is_copied_from_pageable_memory_is_pinned_to_overlap_kernels(tmp_path: Path, *, pinned: bool) -> None:
    change = finding(ExposedCopy(), _step(pinned=pinned), tmp_path).fix.change
    assert change
    assert (".pin_memory()" in change) != pinned


def test_only_the_exposed_part_of_a_copy_counts(tmp_path: Path) -> None:
    found = finding(ExposedCopy(), _step(kernel_start=30), tmp_path)
    assert evidence(found, "exposed time of these copies") == 20_000
    assert evidence(found, "total time of the copies") == 30_000


def test_a_copy_that_starts_before_the_window_counts(tmp_path: Path) -> None:
    builder = TraceBuilder().kernel(0, 100).step(0, 10, 20).copy(11, 12, on_device=(50, 200), byte_count=4096)
    found = finding(ExposedCopy(), builder, tmp_path)
    assert evidence(found, "exposed time of these copies") == 100_000
    assert evidence(found, "bytes copied") == 4096


def test_overlapped_copies_are_clear(tmp_path: Path) -> None:
    assert clear(ExposedCopy(), _step(kernel_start=12), tmp_path).value == pytest.approx(0.02)


@pytest.mark.parametrize("generation", Generation)
def test_the_location_is_in_user_code_not_in_torch(generation: Generation, tmp_path: Path) -> None:
    (location,) = finding(ExposedCopy(), _step(generation=generation), tmp_path).locations
    assert (location.file, location.line) == ("train.py", 27)


@pytest.mark.parametrize(("exposed_us", "found"), [(499, False), (500, True)])
def test_copies_count_from_five_percent_of_the_step(exposed_us: int, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().step(0, 0, 10_000).copy(0, 2, on_device=(5, 5 + exposed_us), pinned=True)
    builder.op("aten::mm", 2, 5).launch(3, 4, kernel=(5 + exposed_us, 10_000))
    assert is_found(ExposedCopy(), builder, tmp_path) is found


def test_figures_are_per_step(tmp_path: Path) -> None:
    found = finding(ExposedCopy(), twice(_step(), 100), tmp_path)
    assert (evidence(found, "copies to the GPU"), evidence(found, "bytes copied")) == (1, 4096)
    assert evidence(found, "total time of the copies") == 30_000
