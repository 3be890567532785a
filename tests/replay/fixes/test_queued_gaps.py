from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.replay.built import graph_of, steps_us
from traceadvisor.replay.fixes.launches import CloserKernels
from traceadvisor.replay.what_if import Scenario


@pytest.mark.parametrize(
    ("scenario", "step_us"), [(Scenario.LOW, 208), (Scenario.EXPECTED, 205.5), (Scenario.HIGH, 201)]
)
def test_the_gap_shrinks_as_far_as_is_assumed(scenario: Scenario, step_us: float, tmp_path: Path) -> None:
    # Three kernels of 49, 49 and 100 us, from 2 on, 5 us apart.
    builder = TraceBuilder().step(0, 0, 20).launch(0, 1, kernel=(2, 51)).launch(1, 2, kernel=(56, 105))
    builder.launch(2, 3, kernel=(110, 210))
    graph = graph_of(builder, tmp_path)
    assert steps_us(graph) == [210]
    assert steps_us(CloserKernels().applied(graph, scenario)) == [step_us]


def test_a_kernel_by_itself_stays(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 20).launch(0, 1, kernel=(2, 51))
    assert steps_us(CloserKernels().applied(graph_of(builder, tmp_path), Scenario.HIGH)) == [51]
