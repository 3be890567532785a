from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import facts_of
from traceadvisor.analysis.memory.step_memory import MOST_INSTANTS, memory_over_time
from traceadvisor.judging.recording import recording_of
from traceadvisor.model.step_memory import MemoryOverTime


def _steps(*levels: tuple[float, int], device: int = 0) -> TraceBuilder:
    """Two steps of 100 us, with a kernel; levels of memory by instant."""
    builder = TraceBuilder().step(0, 0, 100).step(1, 100, 200).op("aten::mm", 0, 105)
    builder.launch(0, 2, kernel=(2, 90)).launch(100, 102, kernel=(102, 190))
    for at, held in levels:
        builder.memory(at, 1, total_allocated=held, device=device)
    return builder


def _memory(builder: TraceBuilder, folder: Path) -> MemoryOverTime | None:
    return recording_of(facts_of(builder, folder)).memory_over_time


def test_memory_is_shown_over_all_recorded_steps(tmp_path: Path) -> None:
    memory = _memory(_steps((10, 100), (120, 300), (190, 200)), tmp_path)
    assert memory is not None
    assert memory.time_ns.tolist() == [10_000, 120_000, 190_000]
    assert memory.in_use_bytes.tolist() == [100, 300, 200]
    assert memory.reserved_bytes is None


def test_reserved_memory_is_included_if_recorded(tmp_path: Path) -> None:
    builder = _steps((10, 100), (120, 300))
    for event in builder.events:
        if event["name"] == "[memory]":
            event["args"]["Total Reserved"] = 1024
    memory = _memory(builder, tmp_path)
    assert memory is not None
    assert memory.reserved_bytes is not None
    assert memory.reserved_bytes.tolist() == [1024, 1024]


def test_many_instants_are_thinned_out_but_the_peak_stays(tmp_path: Path) -> None:
    levels = [(10 + 0.01 * place, 5000 if place == 4321 else 100 + place % 7) for place in range(9000)]
    memory = _memory(_steps(*levels), tmp_path)
    assert memory is not None
    assert memory.time_ns.size <= MOST_INSTANTS + 2
    assert memory.in_use_bytes.max() == 5000
    assert memory.time_ns[[0, -1]].tolist() == pytest.approx([10_000, 99_990], abs=10)


@pytest.mark.parametrize("levels", [(), ((10, 100),), ((250, 100), (260, 200))])
def test_fewer_than_two_instants_give_no_memory_line(levels: tuple[tuple[float, int], ...], tmp_path: Path) -> None:
    assert _memory(_steps(*levels), tmp_path) is None


def test_memory_of_another_device_is_left_out(tmp_path: Path) -> None:
    assert _memory(_steps((10, 100), (120, 300), device=1), tmp_path) is None


def test_without_a_device_there_is_no_memory_line(tmp_path: Path) -> None:
    facts = facts_of(_steps((10, 100), (120, 300)), tmp_path)
    assert memory_over_time(facts.trace, None, facts.steps.steps) is None


@pytest.mark.parametrize(("instants", "kept"), [(400, 400), (401, 201)])
def test_instants_are_left_out_from_four_hundred_and_one_on(instants: int, kept: int, tmp_path: Path) -> None:
    # All hold the same, so that one of each of 200 slots is kept, and the last.
    memory = _memory(_steps(*((10 + 0.1 * place, 100) for place in range(instants))), tmp_path)
    assert memory is not None
    assert memory.time_ns.size == kept
