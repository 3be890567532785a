from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.replay.built import graph_of, steps_us
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import WithoutHostWork
from traceadvisor.replay.what_if import Scenario


def _logging() -> TraceBuilder:
    """A kernel from 13 to 23, then host work until the second is launched at 60; it ends at 73."""
    builder = TraceBuilder().step(0, 0, 80).op("aten::mm", 8, 12).launch(10, 12, kernel=(13, 23))
    return builder.op("aten::mm", 58, 62).launch(60, 62, kernel=(63, 73))


def _without(spans: SpanSet, scenario: Scenario, folder: Path) -> list[float]:
    return steps_us(WithoutHostWork(spans).applied(graph_of(_logging(), folder), scenario))


LOGGING = SpanSet.of((20_000, 50_000))


@pytest.mark.parametrize(("scenario", "step_us"), [(Scenario.LOW, 65), (Scenario.EXPECTED, 53), (Scenario.HIGH, 50)])
def test_work_in_the_spans_goes_as_far_as_is_assumed(scenario: Scenario, step_us: float, tmp_path: Path) -> None:
    assert _without(LOGGING, scenario, tmp_path) == [step_us]


def test_calls_in_the_spans_stay(tmp_path: Path) -> None:
    # Launched by 2 and by 4, the kernels run from 3 to 13 and, after a gap, from 14 to 24.
    assert _without(SpanSet.of((0, 80_000)), Scenario.HIGH, tmp_path) == [24]


def test_work_elsewhere_stays(tmp_path: Path) -> None:
    assert _without(SpanSet.of((90_000, 100_000)), Scenario.HIGH, tmp_path) == [80]


def test_what_the_device_does_meanwhile_comes_forward(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 8, 12).launch(10, 12, kernel=(13, 93)).sync(60, 95)
    graph = graph_of(builder, tmp_path)
    assert steps_us(graph) == [100]
    assert steps_us(WithoutHostWork(LOGGING).applied(graph, Scenario.HIGH)) == [100]


def test_a_thread_that_was_done_before_this_ones_last_wait_ended_hands_nothing_over(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 1100).op("aten::mm", 0, 8).launch(2, 4, kernel=(5, 1008)).sync(10, 1010)
    builder.launch(500, 505, kernel=(1009, 1011), thread=9, stream=9).launch(1020, 1024, kernel=(1030, 1040))
    host = graph_of(builder, tmp_path).host
    last = int(host.row.argmax())
    assert host.after[last] == host.thread[last] == 0
    assert host.work_ns[last] == 10_000
