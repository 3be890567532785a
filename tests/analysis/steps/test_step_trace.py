from pathlib import Path

import pytest

from tests.analysis.analysing import facts_of
from tests.build import AUTOGRAD, TraceBuilder
from traceadvisor.analysis.steps import timeline as module
from traceadvisor.analysis.steps.timeline import step_trace
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE
from traceadvisor.model.timeline import PARTS, Activity, StepTrace


def trace_of(builder: TraceBuilder, folder: Path) -> StepTrace:
    facts = facts_of(builder, folder)
    threads = (facts.observation.thread, *({0, 1} - {facts.observation.thread}))
    (step,) = facts.steps.steps
    found = step_trace(facts.observation, threads, (step.start_ns, step.end_ns))
    assert found is not None
    return found


def rows_of(trace: StepTrace, lane: int) -> list[tuple[str, int, int, int, Category | Activity]]:
    one = trace.lanes[lane]
    columns = (one.name, one.start_ns, one.duration_ns, one.depth, one.kind)
    return [
        (trace.names[name], start // 1000, length // 1000, depth, trace.kinds[kind])
        for name, start, length, depth, kind in zip(*(column.tolist() for column in columns), strict=True)
    ]


def test_events_of_a_thread_have_names_times_and_depths(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::linear", 10, 50).op("aten::mm", 20, 40)
    trace = trace_of(builder.launch(25, 30, kernel=(60, 90), name="gemm"), tmp_path)
    assert [lane.title for lane in trace.lanes] == ["training thread", "stream 7"]
    assert [(name, start, length, depth) for name, start, length, depth, _ in rows_of(trace, 0)] == [
        ("aten::linear", 10, 40, 0),
        ("aten::mm", 20, 20, 1),
        ("cudaLaunchKernel", 25, 5, 2),
    ]
    assert rows_of(trace, 1) == [("gemm", 60, 30, 0, Category.KERNEL)]


def test_kinds_tell_loading_launching_and_the_optimizer(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 30).op("a", 30, 40).launch(40, 45, kernel=(46, 60))
    trace = trace_of(builder.optimizer(70, 90), tmp_path)
    assert {kind for *_, kind in rows_of(trace, 0)} == {
        Activity.LOADING,
        Activity.OPERATOR,
        Activity.RUNTIME_CALL,
        Activity.OPTIMIZER,
    }


def test_other_threads_have_lanes_of_their_own(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("forward", 0, 40).op("MmBackward0", 50, 80, thread=AUTOGRAD)
    trace = trace_of(builder, tmp_path)
    assert [rows_of(trace, lane)[0][0] for lane in (0, 1)] == ["forward", "MmBackward0"]


def test_the_step_mark_is_no_event(tmp_path: Path) -> None:
    trace = trace_of(TraceBuilder().step(0, 0, 100).op("a", 0, 10), tmp_path)
    assert trace.names == ("a",)


def test_the_shortest_events_are_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_HOST_EVENTS", 2)
    builder = TraceBuilder().step(0, 0, 100).op("long", 0, 30).op("short", 40, 45).op("middle", 50, 70)
    trace = trace_of(builder, tmp_path)
    assert [name for name, *_ in rows_of(trace, 0)] == ["long", "middle"]
    assert {place: many for place, many in enumerate(trace.lanes[0].left_out.tolist()) if many} == {
        PARTS * 40 // 100: 1
    }


def test_short_kernels_are_counted_on_their_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_DEVICE_EVENTS", 1)
    builder = TraceBuilder().step(0, 0, 100).op("outer", 0, 50).launch(10, 12, kernel=(20, 30), name="long")
    trace = trace_of(builder.launch(14, 16, kernel=(31, 33), name="short"), tmp_path)
    assert [name for name, *_ in rows_of(trace, 1)] == ["long"]
    assert trace.lanes[1].left_out.sum() == 1


def test_a_kernel_knows_the_call_that_launched_it(tmp_path: Path) -> None:
    trace = trace_of(TraceBuilder().step(0, 0, 100).launch(10, 12, kernel=(20, 30)).op("a", 40, 50), tmp_path)
    host, stream = trace.lanes
    assert [trace.names[name] for name, row in zip(host.name, host.row, strict=True) if row == stream.launch[0]] == [
        "cudaLaunchKernel"
    ]
    assert host.launch.tolist() == [NONE, NONE]
