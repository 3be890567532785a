from pathlib import Path

import pytest

from tests.build import Generation, TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, twice
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.rules.h2d.h2d005_many_small_copies import ManySmallCopies

STACK = ("torch/_tensor.py(40): to", "train.py(27): train", "train.py(80): main")


def _step(
    count: int = 10, *, byte_count: int = 1024, end: int = 200, generation: Generation = Generation.CURRENT
) -> TraceBuilder:
    """Build an operator of 8 us every 10 us, which copies in its last 2 us. Then a kernel runs until the end."""
    builder = TraceBuilder(generation).step(0, 0, end)
    for start in range(0, 10 * count, 10):
        builder.op("aten::copy_", start, start + 8, stack=STACK)
        builder.copy(start + 1, start + 5, on_device=(start + 6, start + 8), pinned=True, byte_count=byte_count)
    return builder.op("aten::mm", 100, 108).launch(101, 105, kernel=(110, 200))


def test_many_small_copies_are_found(tmp_path: Path) -> None:
    found = finding(ManySmallCopies(), _step(), tmp_path)
    assert evidence(found, "small copies") == 10
    assert evidence(found, "exposed time of these copies") == 20_000
    assert evidence(found, "CPU time in their calls") == 40_000


def test_the_fix_removes_all_copies_but_one(tmp_path: Path) -> None:
    fix = finding(ManySmallCopies(), _step(), tmp_path).fix.what_if
    assert isinstance(fix, SparedWork)
    assert fix.rows.size == 9


def test_few_copies_are_clear(tmp_path: Path) -> None:
    assert clear(ManySmallCopies(), _step(9), tmp_path).value == 9


def test_large_copies_are_clear(tmp_path: Path) -> None:
    assert clear(ManySmallCopies(), _step(byte_count=100_000), tmp_path).value == 0


def test_small_copies_in_a_long_step_are_clear(tmp_path: Path) -> None:
    assert clear(ManySmallCopies(), _step(end=20_000), tmp_path).value < 0.01


@pytest.mark.parametrize("generation", Generation)
def test_the_location_is_in_user_code_not_in_torch(generation: Generation, tmp_path: Path) -> None:
    (location,) = finding(ManySmallCopies(), _step(generation=generation), tmp_path).locations
    assert (location.file, location.line) == ("train.py", 27)


@pytest.mark.parametrize(("step_us", "found"), [(8001, False), (8000, True)])
def test_copies_count_from_one_percent_of_the_step(step_us: int, tmp_path: Path, *, found: bool) -> None:
    # In each of ten operators, the GPU waits or copies for 8 us.
    assert is_found(ManySmallCopies(), _step(end=step_us), tmp_path) is found


@pytest.mark.parametrize(("byte_count", "found"), [(65_537, False), (65_536, True)])
def test_a_copy_is_small_up_to_64_kibibytes(byte_count: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(ManySmallCopies(), _step(byte_count=byte_count), tmp_path) is found


def test_copies_outside_the_steps_do_not_count(tmp_path: Path) -> None:
    # The first five of ten small copies run before the step.
    builder = _step()
    builder.events[0]["ts"], builder.events[0]["dur"] = 50, 150
    assert clear(ManySmallCopies(), builder, tmp_path).value == 5


def test_figures_are_per_step_and_the_fix_keeps_one_copy_per_step(tmp_path: Path) -> None:
    found = finding(ManySmallCopies(), twice(_step(), 200), tmp_path)
    assert (evidence(found, "small copies"), evidence(found, "median size")) == (10, 1024)
    fix = found.fix.what_if
    assert isinstance(fix, SparedWork)
    assert fix.rows.size == 18


def test_copies_of_unknown_size_are_not_small(tmp_path: Path) -> None:
    builder = _step()
    for event in builder.events:
        event["args"].pop("bytes", None)
    assert clear(ManySmallCopies(), builder, tmp_path).value == 0
