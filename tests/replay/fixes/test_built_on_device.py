from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.replay.built import graph_of, steps_us
from traceadvisor.model.events import Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import BuiltOnDevice
from traceadvisor.replay.step_graph import Action, StepGraph
from traceadvisor.replay.what_if import Scenario


def _graph(folder: Path) -> StepGraph:
    """The host makes a tensor for 40 us and waits for its copy of 20 us; then it launches a kernel of 10 us."""
    builder = TraceBuilder().step(0, 0, 80).op("aten::zeros", 0, 40).op("aten::to", 40, 64)
    builder.copy(41, 63, on_device=(42, 62)).op("aten::mm", 64, 68).launch(65, 66, kernel=(68, 78))
    return graph_of(builder, folder)


def _built(graph: StepGraph) -> BuiltOnDevice:
    calls = graph.host.row[graph.host.action == Action.LAUNCH_AND_WAIT]
    copies = graph.device.row[graph.device.kind == Kind.COPY_H2D]
    return BuiltOnDevice(SpanSet.of((0, 40_000)), copies, frozenset(calls.tolist()))


@pytest.mark.parametrize(("scenario", "less_us"), [(Scenario.LOW, 20), (Scenario.HIGH, 40)])
def test_the_hosts_work_goes_and_the_wait_for_the_copy(scenario: Scenario, less_us: float, tmp_path: Path) -> None:
    graph = _graph(tmp_path)
    edited = _built(graph).applied(graph, scenario)
    assert steps_us(edited)[0] <= steps_us(graph)[0] - less_us - 15
    assert Action.LAUNCH_AND_WAIT not in edited.host.action.tolist()


def test_the_copy_becomes_a_short_kernel(tmp_path: Path) -> None:
    graph = _graph(tmp_path)
    edited = _built(graph).applied(graph, Scenario.EXPECTED)
    assert edited.device.duration_ns.tolist() == [5_000, 10_000]
