from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.replay.built import graph_of, steps_us
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.spared_work import WithoutRecomputation
from traceadvisor.replay.what_if import Scenario


@pytest.mark.parametrize(("scenario", "step_us"), [(Scenario.LOW, 28), (Scenario.EXPECTED, 19), (Scenario.HIGH, 18)])
def test_kernels_of_the_blocks_go_with_a_share_of_their_host_work(
    scenario: Scenario, step_us: float, tmp_path: Path
) -> None:
    # 20 us of host work to recompute, then the launch of a kernel of 2 us; 6 us of other work, a kernel of 10 us.
    builder = TraceBuilder().step(0, 0, 28).launch(20, 21, kernel=(22, 24)).launch(27, 28, kernel=(29, 39))
    graph = graph_of(builder, tmp_path)
    assert steps_us(graph) == [39]
    edit = WithoutRecomputation(graph.device.row[[0]], SpanSet.of((0, 20_000)))
    assert steps_us(edit.applied(graph, scenario)) == [step_us]
