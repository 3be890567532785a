"""What calls for memory cost the step, worked out by eye."""

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.replay.built import graph_of, steps_us
from traceadvisor.analysis.operators.runtime_calls import allocator_rows
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import CachedMemory
from traceadvisor.replay.what_if import Scenario


@pytest.mark.parametrize(("scenario", "step_us"), [(Scenario.LOW, 80), (Scenario.HIGH, 60)])
def test_a_call_for_memory_goes(scenario: Scenario, step_us: float, tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).allocate(10, 50).launch(50, 52, kernel=(53, 100))
    trace = builder.trace(tmp_path)
    fix = CachedMemory(SpanSet.of((10_000, 50_000)), frozenset(allocator_rows(trace).tolist()))
    assert steps_us(fix.applied(graph_of(builder, tmp_path), scenario)) == [step_us]


def test_freeing_no_longer_waits_for_the_device(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 2, kernel=(3, 63))
    builder.allocate(10, 70, name="cudaFree").launch(70, 72, kernel=(73, 100))
    trace = builder.trace(tmp_path)
    fix = CachedMemory(SpanSet.of((10_000, 70_000)), frozenset(allocator_rows(trace).tolist()))
    # The second kernel is launched by 12 and follows the first, after a gap of 1.
    assert steps_us(fix.applied(graph_of(builder, tmp_path), Scenario.HIGH)) == [91]
    assert fix.changes_device


@pytest.mark.parametrize(("scenario", "step_us"), [(Scenario.LOW, 63.5), (Scenario.HIGH, 37)])
def test_of_freeing_without_a_wait_its_own_time_stays_in_part(
    scenario: Scenario, step_us: float, tmp_path: Path
) -> None:
    """53 us of its own after what any wait costs, beside 37 of a launch and host work."""
    builder = TraceBuilder().step(0, 0, 100).launch(0, 2, kernel=(3, 13)).allocate(10, 73, name="cudaFree")
    fix = CachedMemory(SpanSet.of((10_000, 73_000)), frozenset(allocator_rows(builder.trace(tmp_path)).tolist()))
    assert steps_us(fix.applied(graph_of(builder, tmp_path), scenario)) == [step_us]
