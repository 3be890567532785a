"""What is left of launches, worked out by eye."""

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.replay.built import graph_of, steps_us
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.launches import AmortisedLaunches, FusedOptimizer
from traceadvisor.replay.what_if import Scenario


@pytest.mark.parametrize(
    ("scenario", "step_us", "with_python_us"),
    [(Scenario.LOW, 92, 101), (Scenario.EXPECTED, 72, 99), (Scenario.HIGH, 9, 92.7)],
)
def test_operators_and_launches_shrink_and_python_between_them_stays(
    scenario: Scenario, step_us: float, with_python_us: float, tmp_path: Path
) -> None:
    # 90 us of work and 10 of launching; the kernel starts at once and takes 2 us.
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 100).launch(90, 100, kernel=(100, 102))
    graph = graph_of(builder, tmp_path)
    assert steps_us(AmortisedLaunches(SpanSet.of((0, 100_000))).applied(graph, scenario)) == [step_us]
    assert steps_us(AmortisedLaunches(SpanSet.empty()).applied(graph, scenario)) == [with_python_us]


@pytest.mark.parametrize(("scenario", "step_us"), [(Scenario.LOW, 100), (Scenario.EXPECTED, 20), (Scenario.HIGH, 6)])
def test_the_optimizer_shrinks_and_its_kernels_become_one(scenario: Scenario, step_us: float, tmp_path: Path) -> None:
    # 200 us of launching two kernels of 1 us, which run as one once the first of them is launched.
    builder = TraceBuilder().step(0, 0, 200).optimizer(0, 200).launch(0, 100, kernel=(100, 101))
    builder.launch(100, 200, kernel=(200, 201))
    assert steps_us(FusedOptimizer().applied(graph_of(builder, tmp_path), scenario)) == [step_us]
