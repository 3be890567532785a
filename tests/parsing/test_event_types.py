"""Members of the wrong type cost themselves, not their event, and never a nanosecond of another."""

import time
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.few import few
from traceadvisor.analysis.operators.launches import link_launches
from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.health import HealthStatus
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.columns.events import Columns
from traceadvisor.parsing.input_bytes import open_bytes
from traceadvisor.parsing.json.chunks import ChunkReader
from traceadvisor.parsing.trace_file import read_trace

LONG_AGO = 1_623_142_623_460_111
"""Microseconds: with three decimals behind them, more than a double holds."""


def kernel(**args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 5, "dur": 10, "args": args}


def test_a_start_written_as_text_is_a_start(tmp_path: Path) -> None:
    trace = TraceBuilder().op("first", 0, 1).event(**kernel() | {"ts": "5.25", "dur": "10"}).trace(tmp_path)
    assert (trace.events.start_ns[1], trace.events.duration_ns[1]) == (5_250, 10_000)
    assert trace.health.status is HealthStatus.OK


def test_a_whole_recording_of_the_wrong_types_is_read_in_time(tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.events += [kernel(stream=7, correlation=number) | {"name": 5} for number in range(50_000)]
    path = builder.write(tmp_path / "w.1.pt.trace.json")
    started = time.process_time()
    trace = read_trace(Origin(path, run="", worker="w", span="1"))
    assert len(trace.events) == 50_000
    assert time.process_time() - started < 6


@pytest.mark.parametrize("start", [None, "soon", True, [], {}, 10**30])
def test_an_event_without_a_usable_start_is_dropped_and_counted(start: object, tmp_path: Path) -> None:
    trace = TraceBuilder().op("first", 0, 1).event(**kernel() | {"ts": start}).trace(tmp_path)
    assert (trace.health.events_read, trace.health.events_dropped) == (1, 1)


def test_an_event_that_ends_before_it_starts_is_dropped_and_counted(tmp_path: Path) -> None:
    trace = TraceBuilder().op("first", 0, 1).event(**kernel() | {"dur": -1}).trace(tmp_path)
    assert (trace.health.events_read, trace.health.events_dropped) == (1, 1)


@pytest.mark.parametrize("written", ["NaN", "Infinity", "-Infinity", "nan", "N/A", '"nan"', '"N/A"', "null", "1e999"])
@pytest.mark.parametrize(
    ("sound", "kernel_us"), [(b'"ts":10,', {0}), (b'"dur":30,', {0, 50}), (b'"bytes":12345}', {30})]
)
def test_a_value_that_is_not_a_number_does_not_change_sums(
    sound: bytes, kernel_us: set[int], written: str, tmp_path: Path
) -> None:
    """A duration without end is cut where the next work of its stream begins."""
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 90).launch(1, 2, kernel=(10, 40))
    builder.copy(50, 51, on_device=(60, 70), byte_count=12345)
    path = tmp_path / "w.1.pt.trace.json"
    key, _, number = sound.partition(b":")
    assert builder.text().count(sound) == 1
    path.write_bytes(builder.text().replace(sound, key + b":" + written.encode() + number[-1:]))
    (row,) = Facts(read_trace(Origin(path, run="", worker="w", span="1")), 0, "").step_rows
    parts = [part or 0 for part in row.breakdown.parts_ns.values()]
    assert sum(parts) == row.step.duration_ns == 100_000
    assert (row.breakdown.parts_ns[Category.KERNEL] or 0) / 1000 in kernel_us


def test_an_event_of_no_length_is_kept(tmp_path: Path) -> None:
    trace = TraceBuilder().op("first", 0, 1).kernel(5, 5).trace(tmp_path)
    assert trace.events.duration_ns.tolist() == [1_000, 0]
    assert trace.health.events_dropped == 0


def test_an_event_without_a_duration_has_no_length(tmp_path: Path) -> None:
    event = kernel()
    del event["dur"]
    assert TraceBuilder().event(**event).trace(tmp_path).events.duration_ns.tolist() == [0]


@pytest.mark.parametrize("starts", [(0, 9 * 10**15), (-(9 * 10**15), 9 * 10**15)])
def test_times_that_would_overflow_never_wrap_around(starts: tuple[int, int], tmp_path: Path) -> None:
    builder = TraceBuilder().op("real", 1, 2)
    for start in starts:
        builder.event(**kernel() | {"ts": start, "dur": 9 * 10**15})
    events = builder.trace(tmp_path).events
    assert (events.start_ns >= 0).all()
    assert (events.end_ns >= events.start_ns).all()


@pytest.mark.parametrize("key", [1, -5, 2**63, 2**63 + 5, 2**64 - 2, 4294967295])
def test_an_id_is_an_opaque_key_of_64_bits(key: int, tmp_path: Path) -> None:
    trace = (
        TraceBuilder()
        .launch(0, 1, kernel=(2, 3), correlation=key)
        .launch(5, 6, kernel=(7, 8), correlation=77)
        .trace(tmp_path)
    )
    launches = link_launches(trace.events)
    assert trace.events.start_ns[launches.call_rows].tolist() == [0, 5_000]


@pytest.mark.parametrize("key", ["correlation", "External id", "external id"])
@pytest.mark.parametrize("value", [-1, 2**64 - 1])
def test_placeholder_ids_of_profilers_mean_no_id(key: str, value: int, tmp_path: Path) -> None:
    events = TraceBuilder().event(**kernel(**{key: value})).trace(tmp_path).events
    assert (events.correlation.tolist(), events.external_id.tolist()) == ([NONE], [NONE])


@pytest.mark.parametrize("key", ["correlation", "External id", "bytes"])
@pytest.mark.parametrize("value", [2**64, 10**30, -(2**63) - 1, -(2**70)])
def test_an_id_beyond_64_bits_matches_nothing_and_leaves_its_neighbours_intact(
    key: str, value: int, tmp_path: Path
) -> None:
    trace = TraceBuilder().launch(0, 1, kernel=(2, 3)).event(**kernel(**{key: value})).trace(tmp_path)
    column = {"correlation": "correlation", "External id": "external_id", "bytes": "byte_count"}[key]
    assert getattr(trace.events, column)[2] == NONE
    assert trace.events.correlation[:2].tolist() == [1, 1]


@pytest.mark.parametrize(("duration", "kept"), [("1e308", [1 << 61]), ("-1e308", [])])
def test_a_duration_that_overflows_is_clamped_or_invalid(duration: str, kept: list[int], tmp_path: Path) -> None:
    path = tmp_path / "w.1.pt.trace.json"
    path.write_bytes(TraceBuilder().op("a", 0, 1).text().replace(b'"dur":1,', b'"dur":' + duration.encode() + b","))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        columns = Columns()
        with open_bytes(path) as stream:
            for chunk in ChunkReader(stream).chunks():
                columns.add(chunk)
    assert columns.tables()[0].duration_ns.tolist() == kept


@pytest.mark.parametrize("device", [2**30, 2**31, 2**40, -(2**40), 2**64, 2**70])
def test_a_device_number_beyond_any_ordinal_is_a_device_of_its_own(device: int, tmp_path: Path) -> None:
    builder = TraceBuilder().kernel(20, 30, device=0)
    for start, other in enumerate((device, device + 1, device), start=40):
        builder.event(**kernel(device=other) | {"ts": start})
    trace = builder.trace(tmp_path)
    ordinary, first, second, again = trace.events.device.tolist()
    assert ordinary == 0
    assert first == again
    assert trace.device_indices == (0, first, second)


@pytest.mark.parametrize("stream", [4294967295, -1, "stream 7", 2**70])
def test_a_stream_is_an_opaque_key(stream: object, tmp_path: Path) -> None:
    trace = TraceBuilder().event(**kernel(stream=stream)).event(**kernel(stream=stream)).kernel(20, 30).trace(tmp_path)
    first, second, other = trace.events.stream.tolist()
    assert first == second != other


def test_a_thread_may_be_called_anything(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for start, thread in enumerate(("stream 7", "stream 7", -7, 4294967295, 2**70, 1.5)):
        builder.event(ph="X", cat="cpu_op", name="a", pid=1, tid=thread, ts=start, dur=1)
    assert builder.trace(tmp_path).events.thread.tolist() == [0, 0, 1, 2, 3, 4]


def test_a_thread_is_the_same_whether_its_id_is_a_number_or_a_text(tmp_path: Path) -> None:
    trace = (
        TraceBuilder().op("a", 0, 1).event(ph="X", cat="cpu_op", name="b", pid="100", tid="100", ts=1).trace(tmp_path)
    )
    assert trace.events.thread.tolist() == [0, 0]


@pytest.mark.parametrize("args", [None, [], "text", 7])
def test_arguments_of_the_wrong_type_are_no_arguments(args: object, tmp_path: Path) -> None:
    trace = TraceBuilder().event(**kernel() | {"args": args}).trace(tmp_path)
    assert trace.events.correlation.tolist() == [NONE]
    assert trace.health.events_read == 1


@pytest.mark.parametrize("pid", [None, [], {"a": 1}, 1.5])
def test_a_process_id_of_any_type_is_tolerated(pid: object, tmp_path: Path) -> None:
    assert TraceBuilder().event(**kernel() | {"pid": pid}).trace(tmp_path).health.events_read == 1


def test_a_member_that_makes_no_sense_is_set_aside_and_counted(tmp_path: Path) -> None:
    trace = TraceBuilder().event(**kernel(correlation="none", device=0, stream=7)).trace(tmp_path)
    assert trace.events.correlation.tolist() == [NONE]
    assert trace.events.device.tolist() == [0]
    assert trace.health.events_repaired == 1
    assert trace.health.status is HealthStatus.DEGRADED


def test_a_null_category_is_no_category(tmp_path: Path) -> None:
    trace = TraceBuilder().event(**kernel() | {"cat": None}).op("a", 0, 1).trace(tmp_path)
    assert [note.code for note in trace.health.notes] == ["unknown-categories"]


def test_one_odd_event_costs_its_neighbours_no_precision(tmp_path: Path) -> None:
    trace = (
        TraceBuilder(origin_us=LONG_AGO)
        .op("first", 0, 1)
        .event(**kernel(correlation="odd") | {"ts": LONG_AGO})
        .op("second", Decimal("0.123"), Decimal("1.5"))
        .op("last", 2, 3)
        .trace(tmp_path)
    )
    assert trace.events.start_ns.tolist() == [0, 0, 123, 2_000]
    assert trace.events.duration_ns[2] == 1_377


@pytest.mark.parametrize("value", ["inf", "nan", None, "many", 1e300, "-1e300"])
def test_a_number_that_is_not_finite_counts_as_not_recorded(value: object, tmp_path: Path) -> None:
    trace = TraceBuilder().event(**kernel(**{"blocks per SM": value})).kernel(9, 10, blocks_per_sm=0.5).trace(tmp_path)
    assert trace.details.blocks_per_sm.values.tolist() == [0.5]


def test_bytes_written_as_text_are_bytes(tmp_path: Path) -> None:
    copies = [
        {**kernel(bytes=value), "cat": "gpu_memcpy", "name": "CopyHostToDevice"} for value in ("4096", 12, "12 kB")
    ]
    builder = TraceBuilder()
    for number, copy in enumerate(copies):
        builder.event(**copy | {"ts": number})
    trace = builder.trace(tmp_path)
    assert trace.events.byte_count.tolist() == [4096, 12, NONE]
    assert trace.events.kind.tolist() == [Kind.COPY_H2D] * 3


def test_input_types_of_any_shape_are_kept_as_text(tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::mm", 0, 1, types=["float", "c10::Half"])
    builder.events[0]["args"]["Input type"].append(None)
    trace = builder.trace(tmp_path)
    assert [trace.texts[number] for number in trace.details.dtypes_id.values] == ["float;c10::Half;None"]


def test_shapes_and_values_are_kept_as_written_for_operators_that_may_multiply_matrices(tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::relu", 0, 1, dims=[[2, 3]], values=[""])
    builder.op("aten::addmm", 1, 2, dims=[[4], [2, 3], [3, 4], []], values=["", "", "", "1"])
    trace = builder.trace(tmp_path)
    details = trace.details
    assert details.dims_id.rows.tolist() == details.concrete_id.rows.tolist() == [1]
    assert [trace.texts[number] for number in details.dims_id.values] == ["[[4],[2,3],[3,4],[]]"]
    assert [trace.texts[number] for number in details.concrete_id.values] == ['["","","","1"]']


def test_shapes_are_kept_beside_members_of_the_wrong_type(tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::mm", 0, 1, dims=[[2, 3], [3, 4]])
    builder.events[0]["args"]["Call stack"] = 7
    trace = builder.trace(tmp_path)
    assert [trace.texts[number] for number in trace.details.dims_id.values] == ["[[2,3],[3,4]]"]


@pytest.mark.parametrize("types", [b'["a \xff"]', b"[1e999]", b'"float"', b"[[[]]]", b"[" + b"9" * 5000 + b"]"])
def test_input_types_that_make_no_sense_are_no_crash(types: bytes, tmp_path: Path) -> None:
    content = TraceBuilder().op("a", 0, 1, types=["float"]).op("b", 1, 2).text().replace(b'["float"]', types)
    path = tmp_path / "worker0.1.pt.trace.json"
    path.write_bytes(content)
    assert read_trace(Origin(path, run="", worker="", span="")).health.events_read == 2


OF_GPU = {"ph": "C", "name": "SM active %", "pid": "GPU 0 Counters", "ts": 1.0, "args": {"": 2.5}}
OF_KINETO = {
    "ph": "C",
    "cat": "hardware_counters",
    "name": "dram__bytes",
    "pid": 0,
    "tid": 0,
    "ts": 1,
    "args": {"v": 1},
}


@pytest.mark.parametrize(("counter", "name"), [(OF_GPU, "SM active %"), (OF_KINETO, "dram__bytes")])
def test_hardware_counters_that_are_not_read_are_named(counter: dict[str, Any], name: str, tmp_path: Path) -> None:
    health = TraceBuilder().op("a", 0, 1).event(**counter).event(**counter).trace(tmp_path).health
    (note,) = health.notes
    assert (note.code, note.degrades, health.events_read) == ("counters-not-read", False, 1)
    assert f"({name})" in note.message


@pytest.mark.parametrize(
    "counter", [{"name": "queue"}, {"name": "queue", "pid": 3}, {"name": 5, "pid": [1], "cat": None}]
)
def test_counters_that_are_none_of_hardware_are_passed_over(counter: dict[str, Any], tmp_path: Path) -> None:
    assert not TraceBuilder().op("a", 0, 1).event(ph="C", ts=1, **counter).trace(tmp_path).health.notes


def test_events_without_time_are_no_events(tmp_path: Path) -> None:
    trace = TraceBuilder().op("a", 0, 1).memory(0, 8, total_allocated=8).thread_name("main").trace(tmp_path)
    assert len(trace.events) == 1
    assert trace.threads[0].name == "main"


def test_times_count_from_the_first_event(tmp_path: Path) -> None:
    trace = (
        TraceBuilder(origin_us=LONG_AGO)
        .op("late", 5, 6)
        .op("early", 2, 3)
        .python("main.py(1): f", 1, 9)
        .trace(tmp_path)
    )
    assert trace.events.start_ns.tolist() == [1_000, 4_000]
    assert trace.python_calls.start_ns.tolist() == [0]
    assert trace.wall_clock_start_ns == (LONG_AGO + 1) * 1000
    assert trace.events.start_ns.dtype == np.int64


@pytest.mark.parametrize("member", few(["tid", "pid", "device", "stream"], "traceadvisor/parsing"))
def test_ids_that_python_hashes_alike_cost_no_more_than_others(member: str, tmp_path: Path) -> None:
    plain_s, alike_s = (_reading_s(member, step, tmp_path) for step in (1, 8 * (2**61 - 1)))
    assert alike_s < 4 * plain_s + 0.5  # 2 s more where each id is compared with all others


def _reading_s(member: str, step: int, folder: Path) -> float:
    """CPU time to read 8,000 events with different ids."""
    builder = TraceBuilder()
    for number in range(1, 8001):
        args = {member: number * step} if member in {"device", "stream"} else {}
        ids = {"pid": 1, "tid": 1} | ({} if args else {member: number * step})
        builder.event(ph="X", cat="kernel", name="k", ts=number, dur=1, args=args, **ids)
    path = builder.write(folder / f"{step}.pt.trace.json")
    started = time.process_time()
    read_trace(Origin(path, "", "", ""))
    return time.process_time() - started
