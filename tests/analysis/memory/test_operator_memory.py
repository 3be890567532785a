"""Device memory by the operator that allocates it."""

from pathlib import Path

from tests.analysis.analysing import facts_of
from tests.build import TraceBuilder
from traceadvisor.analysis.memory.device_memory import MOST_OPERATORS, OTHERS, OUTSIDE, memory_by_operator
from traceadvisor.model.memory_figures import OperatorMemory


def _steps() -> TraceBuilder:
    """Two steps of 100 us with a kernel each; the first operator starts before the first step."""
    builder = TraceBuilder().step(0, 0, 100).step(1, 100, 200)
    return builder.launch(0, 2, kernel=(2, 90)).launch(100, 102, kernel=(102, 190))


def _found(builder: TraceBuilder, folder: Path) -> tuple[OperatorMemory, ...]:
    facts = facts_of(builder, folder)
    return memory_by_operator(facts.trace, facts.tree, 0, facts.steps.steps)


def test_a_change_counts_for_the_innermost_operator_on_its_thread(tmp_path: Path) -> None:
    builder = _steps().op("aten::linear", 10, 40).op("aten::mm", 20, 30).op("aten::other", 10, 40, thread=9)
    builder.memory(25, 600, total_allocated=600).memory(35, 200, total_allocated=800)
    builder.memory(38, -600, total_allocated=200).memory(60, -100, total_allocated=100)
    assert _found(builder, tmp_path) == (
        OperatorMemory("aten::mm", 0.5, 300.0, 300.0),
        OperatorMemory("aten::linear", 0.5, 100.0, -200.0),
        OperatorMemory(OUTSIDE, 0.0, 0.0, -50.0),
    )


def test_changes_outside_the_steps_and_on_other_devices_do_not_count(tmp_path: Path) -> None:
    builder = _steps().op("aten::mm", 110, 130).memory(250, 600, total_allocated=600)
    builder.memory(120, 600, total_allocated=600, device=1)
    assert _found(builder, tmp_path) == ()


def test_a_thread_without_timed_events_has_no_operators(tmp_path: Path) -> None:
    builder = _steps().op("aten::mm", 110, 130).memory(120, 600, total_allocated=600, thread=77)
    assert _found(builder, tmp_path) == (OperatorMemory(OUTSIDE, 0.5, 300.0, 300.0),)


def test_the_last_row_has_all_other_operators(tmp_path: Path) -> None:
    builder = _steps()
    for place in range(MOST_OPERATORS + 3):
        builder.op(f"aten::op{place:02}", 5 + place, 6 + place)
        builder.memory(5.5 + place, 1000 - place, total_allocated=1)
    *rows, last = _found(builder, tmp_path)
    assert [row.operator for row in rows] == [f"aten::op{place:02}" for place in range(MOST_OPERATORS)]
    assert last == OperatorMemory(OTHERS, 1.5, (980 + 979 + 978) / 2, (980 + 979 + 978) / 2)
