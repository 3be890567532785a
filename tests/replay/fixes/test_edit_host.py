"""Edits of host work that several what-ifs share, worked out by eye."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.replay.built import graph_of, with_work_us
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import fetches, is_loading, scaled, slowed, work_inside
from traceadvisor.replay.step_graph import StepGraph
from traceadvisor.replay.what_if import Scenario


def _graph(folder: Path) -> StepGraph:
    """Two steps of 100 us: 30 us in the loader, 40 us of work, a launch of 2 us."""
    builder = TraceBuilder()
    for at in builder.steps(2, 100):
        builder.loader(at, at + 30, kind="_SingleProcessDataLoaderIter")
        builder.op("aten::mm", at + 30, at + 72).launch(at + 70, at + 72, kernel=(at + 73, at + 90))
    return graph_of(builder, folder)


def test_each_fetch_ends_with_a_task_and_takes_the_hosts_time_in_it(tmp_path: Path) -> None:
    graph = _graph(tmp_path)
    ends, spent_ns = fetches(graph.host)
    assert spent_ns.tolist() == [30_000, 30_000]
    assert is_loading(graph.host)[ends].all()
    assert graph.host.work_ns[ends + 1].tolist() == [40_000, 40_000]


def test_work_and_calls_are_slowed_alike(tmp_path: Path) -> None:
    host = _graph(tmp_path).host
    twice = slowed(host, 2.0)
    assert twice.work_ns.tolist() == (2 * host.work_ns).tolist()
    assert twice.call_ns.tolist() == (2 * host.call_ns).tolist()


def test_work_inside_some_instants_is_no_more_than_is_left_of_it(tmp_path: Path) -> None:
    graph = _graph(tmp_path)
    spans = SpanSet.of((50_000, 200_000))
    (task, _) = np.flatnonzero(graph.host.work_ns == 40_000).tolist()
    assert work_inside(graph, spans, Scenario.EXPECTED)[task] == 20_000
    assert work_inside(with_work_us(graph, task, 5), spans, Scenario.EXPECTED)[task] == 5_000


@pytest.mark.parametrize(("events_us", "expected"), [((), 12_000), ((45,), 20_000), ((45, 55), 12_000), ((55,), 4_000)])
def test_the_profilers_time_in_removed_work_is_expected_where_its_events_are(
    events_us: tuple[int, ...], expected: int, tmp_path: Path
) -> None:
    """Half of 40 us of work lies in the spans, and 16 us of it are the profiler's."""
    graph = _graph(tmp_path)
    (task, _) = np.flatnonzero(graph.host.work_ns == 40_000).tolist()
    begin_ns = int(graph.recorded_ns[task]) - 40_000
    spans = SpanSet.of((begin_ns + 20_000, begin_ns + 40_000))
    events_ns = np.array([begin_ns + 1000 * (us - 30) for us in events_us], dtype=np.int64)
    left = replace(with_work_us(graph, task, 24), events_ns=events_ns)
    left = replace(left, host=replace(left.host, unprofiled_work_ns=left.host.work_ns))
    low, high = (work_inside(left, spans, scenario)[task] for scenario in (Scenario.LOW, Scenario.HIGH))
    assert (low, work_inside(left, spans, Scenario.EXPECTED)[task], high) == (4_000, expected, 20_000)


def test_durations_are_scaled_to_whole_nanoseconds() -> None:
    assert scaled(np.array([3, 10]), 0.5).tolist() == [2, 5]
    assert scaled(np.array([3, 10]), np.array([2.0, 0.1])).tolist() == [6, 1]
