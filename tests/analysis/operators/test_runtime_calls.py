from pathlib import Path

from tests.analysis.analysing import facts_of
from tests.build import TraceBuilder
from traceadvisor.analysis.operators.runtime_calls import (
    allocator_rows,
    blocking_rows,
    copy_call_rows,
    enqueue_rows,
    kernel_launch_rows,
    profiler_stop_rows,
)
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import Kind
from traceadvisor.model.trace import Trace


def _names(trace: Trace, rows: Int64) -> list[str]:
    return [trace.names[name] for name in trace.events.name_id[rows].tolist()]


def _stops(builder: TraceBuilder, folder: Path) -> list[str]:
    trace = builder.trace(folder)
    return _names(trace, profiler_stop_rows(trace))


def test_a_synchronise_behind_all_that_concerns_the_device_is_the_profilers(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).sync(5, 8, name="cudaDeviceSynchronize").launch(10, 12, kernel=(13, 50))
    assert _stops(builder.sync(60, 90, name="cudaDeviceSynchronize"), tmp_path) == ["cudaDeviceSynchronize"]


def test_a_synchronise_with_a_launch_behind_it_is_the_runs(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).sync(5, 8, name="cudaDeviceSynchronize").launch(10, 12, kernel=(13, 50))
    assert _stops(builder, tmp_path) == []


def test_a_synchronise_of_a_stream_is_not_the_profilers(tmp_path: Path) -> None:
    assert _stops(TraceBuilder().step(0, 0, 100).launch(10, 12, kernel=(13, 50)).sync(60, 90), tmp_path) == []


def test_where_every_step_ends_with_one_the_last_is_the_runs_too(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in builder.steps(2, 100):
        builder.launch(at + 10, at + 12, kernel=(at + 13, at + 50))
        builder.sync(at + 60, at + 90, name="cudaDeviceSynchronize")
    assert _stops(builder, tmp_path) == []
    assert _stops(builder.sync(200, 210, name="cudaDeviceSynchronize"), tmp_path) == ["cudaDeviceSynchronize"]


def test_names_separate_kinds_of_calls(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 200).launch(0, 5, kernel=(5, 10)).allocate(10, 15).sync(20, 25)
    builder.copy(30, 35, on_device=(35, 40)).copy(40, 42, on_device=(42, 44), pinned=True)
    builder.copy(50, 55, on_device=(52, 54), direction="d2h", pinned=True, call="cudaMemcpy")
    builder.runtime("cudaLaunchHostFunc", 60, 61).runtime("cudaFree", 70, 71).memset(80, 81, on_device=(82, 83))
    facts = facts_of(builder.launch(90, 91, kernel=(92, 93)), tmp_path)
    trace, launches, starts_ns = facts.trace, facts.launches, facts.trace.events.start_ns
    assert _names(trace, kernel_launch_rows(trace)) == ["cudaLaunchKernel"] * 2
    assert _names(trace, allocator_rows(trace)) == ["cudaMalloc", "cudaFree"]
    assert starts_ns[blocking_rows(trace, launches)].tolist() == [20_000, 30_000, 50_000]
    assert starts_ns[copy_call_rows(launches, trace.events.kind, Kind.COPY_H2D)].tolist() == [
        30_000,
        40_000,
    ]
    assert starts_ns[enqueue_rows(trace)].tolist() == [0, 30_000, 40_000, 50_000, 60_000, 80_000, 90_000]
