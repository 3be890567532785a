from pathlib import Path

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.replay.built import graph_of, steps_us
from traceadvisor.model.events import Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.kernels import FasterKernels
from traceadvisor.replay.fixes.spared_work import ClaimedTimeGone, SparedWork
from traceadvisor.replay.step_graph import StepGraph
from traceadvisor.replay.what_if import Scenario


def _spared(graph: StepGraph, task: int, scenario: Scenario = Scenario.HIGH) -> list[float]:
    return steps_us(SparedWork(graph.device.row[[task]]).applied(graph, scenario))


@pytest.mark.parametrize(("scenario", "step_us"), [(Scenario.LOW, 33), (Scenario.EXPECTED, 23), (Scenario.HIGH, 13)])
def test_the_call_and_what_leads_up_to_it_go(scenario: Scenario, step_us: float, tmp_path: Path) -> None:
    # Before a fill 20 us of work, before a product of 10 us 1 us; a call takes 1 us, and a kernel begins 1 us after it.
    builder = TraceBuilder().step(0, 0, 24).launch(20, 21, kernel=(22, 24), name="fill")
    builder.launch(22, 23, kernel=(24, 34))
    assert steps_us(graph_of(builder, tmp_path)) == [35]
    assert _spared(graph_of(builder, tmp_path), 0, scenario) == [step_us]


def test_on_a_busy_device_its_time_and_the_gap_go(tmp_path: Path) -> None:
    # Kernels of 49, 50 and 100 us from 2 on, with gaps of 5 us.
    builder = TraceBuilder().step(0, 0, 20).launch(0, 1, kernel=(2, 51)).launch(1, 2, kernel=(56, 106))
    graph = graph_of(builder.launch(2, 3, kernel=(111, 211)), tmp_path)
    assert steps_us(graph) == [211]
    assert _spared(graph, 1) == [156]


def test_what_the_host_waits_for_stays_as_work_that_takes_no_time(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(2, 52))
    builder.item(2, 75, copy=(53, 73))
    graph = graph_of(builder, tmp_path)
    copy = int(np.flatnonzero(graph.device.kind == Kind.COPY_D2H)[0])
    assert _spared(graph, copy) == [steps_us(graph)[0] - 20]


def test_what_follows_still_waits_for_another_stream(tmp_path: Path) -> None:
    # A collective runs to 102. The conversion that waits for it goes; the product after it still waits.
    builder = TraceBuilder().step(0, 0, 10).collective(0, 1, kernel=(2, 102)).runtime("cudaStreamWaitEvent", 2, 3)
    builder.launch(3, 4, kernel=(103, 123), name="nchwToNhwcKernel").launch(5, 6, kernel=(124, 174))
    graph = graph_of(builder, tmp_path)
    assert steps_us(graph)[0] == pytest.approx(174, abs=2)
    assert _spared(graph, 1)[0] == pytest.approx(154, abs=2)


@pytest.mark.parametrize(
    ("operators", "claimed_us", "step_us"),
    [((), 12, 34), (((4, 21),), 12, 17), (((4, 21),), 10, 35), (((4, 18),), 12, 34)],
    ids=["none", "whole", "part", "outside"],
)
def test_what_is_claimed_as_a_whole_goes_with_its_launch_inside_operators(
    operators: tuple[tuple[int, int], ...], claimed_us: int, step_us: float, tmp_path: Path
) -> None:
    # 20 us of work, 16 of them in an operator that launches 12 us; then a product of 10 us.
    builder = TraceBuilder().step(0, 0, 34).launch(20, 21, kernel=(22, 34), name="fill")
    graph = graph_of(builder.launch(22, 23, kernel=(34, 44)), tmp_path)
    assert steps_us(graph) == [45]
    events, inside = builder.trace(tmp_path).events, SpanSet.of(*((1000 * a, 1000 * b) for a, b in operators))
    claims = SpanSet.of((22_000, 22_000 + 1000 * claimed_us))
    gone = ClaimedTimeGone(events, claims, SpanSet.empty(), inside)
    assert steps_us(gone.applied(graph, Scenario.HIGH)) == [step_us]


@pytest.mark.parametrize(("scenario", "step_us"), [(Scenario.LOW, 132), (Scenario.EXPECTED, 71), (Scenario.HIGH, 13)])
def test_a_kernel_that_becomes_part_of_another_is_not_launched(
    scenario: Scenario, step_us: float, tmp_path: Path
) -> None:
    # 20 us of work and a call of 1 us before 100 us; half of the work and of those stay.
    builder = TraceBuilder().step(0, 0, 24).launch(20, 21, kernel=(22, 122), name="fill")
    graph = graph_of(builder.launch(22, 23, kernel=(122, 132)), tmp_path)
    fill = graph.device.row[[0]]
    low, expected, high = (np.array([times]) for times in (1.0, 2.0, 1e9))
    fused = FasterKernels(fill, low, expected, high, fill)
    assert steps_us(fused.applied(graph, scenario)) == [step_us]
