from pathlib import Path

from tests.build import TraceBuilder
from traceadvisor.analysis.operators.launches import Launches, link_launches
from traceadvisor.model.events import NONE
from traceadvisor.model.trace import Trace


def linked_us(trace: Trace, launches: Launches) -> list[tuple[float, float | None]]:
    """Start of each device operation and of the call that launched it."""
    start_us = trace.events.start_ns / 1000
    return [
        (float(start_us[work]), None if call == NONE else float(start_us[call]))
        for work, call in zip(launches.work_rows, launches.call_rows, strict=True)
    ]


def test_device_work_belongs_to_the_call_with_its_correlation_id(tmp_path: Path) -> None:
    trace = TraceBuilder().launch(0, 1, kernel=(30, 40)).copy(2, 3, on_device=(10, 20)).trace(tmp_path)
    assert linked_us(trace, link_launches(trace.events)) == [(10, 2), (30, 0)]


def test_device_work_without_a_recorded_call_is_kept(tmp_path: Path) -> None:
    trace = TraceBuilder().launch(0, 1, kernel=(30, 40)).kernel(5, 6).trace(tmp_path)
    assert linked_us(trace, link_launches(trace.events)) == [(5, None), (30, 0)]


def test_the_first_of_several_calls_with_one_id_counts(tmp_path: Path) -> None:
    trace = (
        TraceBuilder()
        .launch(10, 11, kernel=(30, 40), correlation=5)
        .launch(0, 1, correlation=5)
        .launch(20, 21, correlation=5)
        .trace(tmp_path)
    )
    assert linked_us(trace, link_launches(trace.events)) == [(30, 0)]


def test_one_call_may_launch_many_kernels(tmp_path: Path) -> None:
    trace = (
        TraceBuilder()
        .launch(0, 1, kernel=(10, 20), call="cudaGraphLaunch", correlation=5)
        .kernel(20, 30, correlation=5)
        .trace(tmp_path)
    )
    assert linked_us(trace, link_launches(trace.events)) == [(10, 0), (20, 0)]


def test_operations_that_start_together_are_sorted_by_launch(tmp_path: Path) -> None:
    trace = (
        TraceBuilder()
        .kernel(30, 30, stream=9)
        .launch(5, 6, kernel=(30, 40))
        .launch(0, 1, kernel=(30, 35), stream=8)
        .trace(tmp_path)
    )
    assert linked_us(trace, link_launches(trace.events)) == [(30, 0), (30, 5), (30, None)]


def test_mirrored_annotations_and_waits_on_the_device_are_no_work(tmp_path: Path) -> None:
    trace = TraceBuilder().op("a", 0, 1).device_annotation("ProfilerStep#0", 0, 9).device_wait(0, 5).trace(tmp_path)
    assert linked_us(trace, link_launches(trace.events)) == []


def test_each_device_has_its_own_launches(tmp_path: Path) -> None:
    trace = TraceBuilder().launch(0, 1, kernel=(10, 20)).launch(2, 3, kernel=(12, 22), device=1).trace(tmp_path)
    assert linked_us(trace, link_launches(trace.events).of_device(trace.events, 1)) == [(12, 2)]
