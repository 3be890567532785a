"""One wrong time costs the event that has it, and stretches neither the recording nor what runs beside it."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.analysing import breakdown_us, facts_of, windows_us
from tests.build import MAIN, TraceBuilder
from traceadvisor.analysis.steps.detection import recording_extent
from traceadvisor.model.health import HealthStatus
from traceadvisor.model.trace import Trace

TODAY_US = 1_700_000_000_000_000
YEAR_US = 365 * 86_400 * 1_000_000
HOUR_US = 3_600 * 1_000_000


def unmarked(origin_us: int = TODAY_US) -> TraceBuilder:
    """A recording of 100 us without step marks: an operator, a launch, a kernel."""
    return TraceBuilder(origin_us=origin_us).op("aten::mm", 0, 20).launch(10, 15, kernel=(20, 100))


def codes(trace: Trace) -> list[str]:
    return [note.code for note in trace.health.notes]


def absolute(at_us: int, duration_us: int = 0, **members: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": "astray", "pid": 1, "tid": 1, "ts": at_us, "dur": duration_us} | members


@pytest.mark.parametrize("at_us", [0, TODAY_US - YEAR_US, TODAY_US + YEAR_US, TODAY_US + 2 * HOUR_US, -TODAY_US])
@pytest.mark.parametrize("category", ["cpu_op", "kernel", "python_function", "Trace", "unheard_of"])
def test_an_event_far_from_all_others_is_left_out_and_counted(category: str, at_us: int, tmp_path: Path) -> None:
    trace = unmarked().event(**absolute(at_us, cat=category)).trace(tmp_path)
    assert recording_extent(trace) == (0, 100_000)
    assert trace.wall_clock_start_ns == TODAY_US * 1000
    assert (trace.health.events_read, trace.health.events_dropped) == (3, 1)
    assert "stray-events" in codes(trace)


def test_without_step_marks_a_stray_event_stretches_no_step_and_no_timeline(tmp_path: Path) -> None:
    facts = facts_of(unmarked().event(**absolute(0)), tmp_path)
    assert windows_us(facts) == [(0, 100)]
    assert facts.recorded_wall_ns == (TODAY_US * 1000, TODAY_US * 1000 + 100_000)


def test_kernels_without_times_are_left_out_and_the_others_keep_their_details(tmp_path: Path) -> None:
    builder = (
        unmarked().kernel(100, 110, blocks_per_sm=0.5, occupancy_percent=25).op("aten::mm", 60, 70, types=["float"])
    )
    for number in range(3):
        builder.event(**absolute(0, cat="kernel", args={"stream": 7, "correlation": 900 + number}))
    trace = builder.trace(tmp_path)
    assert trace.health.events_dropped == 3
    (row,) = trace.details.blocks_per_sm.rows
    assert (trace.events.start_ns[row], trace.details.blocks_per_sm.values.tolist()) == (100_000, [0.5])
    (row,) = trace.details.dtypes_id.rows
    assert (trace.events.start_ns[row], trace.texts[trace.details.dtypes_id.values[0]]) == (60_000, "float")


def test_the_larger_of_two_clusters_is_the_recording(tmp_path: Path) -> None:
    builder = unmarked()
    for number in range(2):
        builder.event(**absolute(TODAY_US + YEAR_US + number))
    trace = builder.trace(tmp_path)
    assert (trace.health.events_read, trace.health.events_dropped) == (3, 2)


def test_a_recording_that_pauses_for_minutes_is_one(tmp_path: Path) -> None:
    trace = unmarked().op("later", 1_800_000_000, 1_800_000_010).trace(tmp_path)
    assert trace.health.status is HealthStatus.OK
    assert recording_extent(trace) == (0, 1_800_000_010_000)


@pytest.mark.parametrize("phase", ["i", "X"])
def test_the_end_of_the_record_window_does_not_stretch_the_recording(phase: str, tmp_path: Path) -> None:
    end = {"name": "Record Window End", "ph": phase, "s": "g", "pid": "", "tid": "", "ts": TODAY_US + 500_000}
    assert windows_us(facts_of(unmarked().event(**end), tmp_path)) == [(0, 100)]


def test_samples_of_memory_without_a_usable_time_are_left_out(tmp_path: Path) -> None:
    builder = unmarked().memory(50, 8, total_allocated=8)
    lost = dict(builder.events[-1])
    builder.event(**lost | {"ts": 0}).event(**lost | {"ts": None}).event(**lost | {"ts": TODAY_US + YEAR_US})
    assert builder.trace(tmp_path).memory.time_ns.tolist() == [50_000]


@pytest.mark.parametrize("duration_us", [YEAR_US, 18_446_744_073_709_551])
@pytest.mark.parametrize("category", ["cpu_op", "user_annotation", "python_function"])
def test_an_event_that_never_ends_ends_with_the_recording(category: str, duration_us: int, tmp_path: Path) -> None:
    trace = unmarked().event(**absolute(TODAY_US + 50, duration_us, cat=category)).trace(tmp_path)
    assert recording_extent(trace) == (0, 100_000)
    assert (trace.health.events_read, trace.health.events_dropped, trace.health.events_repaired) == (4, 0, 1)
    assert codes(trace) == ["endless-events"]


# -- kernels that outlast what follows them ----------------------------------------------------------------------------


def kernels(*spans: tuple[int | Decimal, int | Decimal, int]) -> TraceBuilder:
    """One step of 100 us and kernels by start, end and stream."""
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10)
    for start, end, stream in spans:
        builder.launch(0, 1, kernel=(start, end), stream=stream)
    return builder


def durations_us(trace: Trace) -> list[float]:
    return [int(duration) / 1000 for duration in trace.events.duration_ns[trace.events.stream >= 0]]


def test_a_kernel_that_ends_after_a_later_one_is_cut_where_the_next_begins(tmp_path: Path) -> None:
    trace = kernels((10, 90, 7), (20, 30, 7), (40, 50, 7)).trace(tmp_path)
    assert durations_us(trace) == [10, 10, 10]
    assert trace.health.events_repaired == 1
    assert codes(trace) == ["overruns"]


@pytest.mark.parametrize("duration_us", [10**6, YEAR_US, 18_446_744_073_709_551])
def test_a_duration_that_overflowed_does_not_fill_the_step(duration_us: int, tmp_path: Path) -> None:
    builder = kernels((20, 30, 7), (40, 50, 7))
    builder.events[-3]["dur"] = duration_us
    parts = breakdown_us(builder, tmp_path)
    assert (parts["kernel"], sum(part or 0 for part in parts.values())) == (30, 100)


def test_a_last_kernel_that_never_ends_ends_with_the_recording(tmp_path: Path) -> None:
    trace = kernels((20, 30, 7), (40, 40 + YEAR_US, 7)).trace(tmp_path)
    assert durations_us(trace) == [10, 60]
    assert codes(trace) == ["endless-events"]


def test_two_kernels_that_outlast_the_rest_are_both_cut(tmp_path: Path) -> None:
    assert durations_us(kernels((10, 80, 7), (20, 95, 7), (40, 50, 7)).trace(tmp_path)) == [10, 20, 10]


@pytest.mark.parametrize(
    "spans",
    [
        [(10, 90, 7), (20, 30, 8)],
        [(10, 25, 7), (20, 30, 7)],
        [(10, 30, 7), (10, 20, 7)],
        [(10, 30, 7), (20, 20, 7)],
        [(10, Decimal("30.5"), 7), (20, 30, 7)],
        [(10, 20, 7), (30, 90, 8), (40, 50, 7)],
    ],
    ids=["other streams", "partly", "together", "of no length", "jitter", "lanes in turn"],
)
def test_plausible_times_are_not_changed(spans: list[tuple[int, int, int]], tmp_path: Path) -> None:
    trace = kernels(*spans).trace(tmp_path)
    assert sorted(durations_us(trace)) == sorted(float(end - start) for start, end, _ in spans)
    assert trace.health.status is HealthStatus.OK


def test_overlapping_kernels_keep_the_device_busy_once(tmp_path: Path) -> None:
    assert breakdown_us(kernels((10, 25, 7), (20, 30, 7)), tmp_path)["kernel"] == 20


def test_the_kernels_of_one_graph_may_run_side_by_side(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(10, 90), call="cudaGraphLaunch", correlation=5)
    trace = builder.kernel(20, 30, correlation=5).trace(tmp_path)
    assert durations_us(trace) == [80, 10]


def test_the_same_stream_of_another_device_is_another_stream(tmp_path: Path) -> None:
    trace = TraceBuilder().kernel(10, 90, device=0).kernel(20, 30, device=1).op("a", 0, 1).trace(tmp_path)
    assert durations_us(trace) == [80, 10]


def test_a_launch_without_a_duration_is_a_launch(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": MAIN, "tid": MAIN, "ts": 5, "dur": 0}
    trace = TraceBuilder().op("a", 0, 10).event(**event).trace(tmp_path)
    assert trace.health.status is HealthStatus.OK


@pytest.mark.parametrize("strays", [13, 1400])
def test_many_events_near_time_0_do_not_displace_twelve_good_steps(strays: int, tmp_path: Path) -> None:
    builder = TraceBuilder(origin_us=TODAY_US)
    for at in builder.steps(12, 100):
        builder.op("aten::mm", at, at + 20).launch(at + 10, at + 15, kernel=(at + 20, at + 90))
    for at in range(strays):
        builder.event(**absolute(at, 1))
    facts = facts_of(builder, tmp_path)
    assert [row.step.duration_ns for row in facts.step_rows] == [100_000] * 12
    assert f"{strays} events were more than an hour away" in facts.trace.health.notes[0].message


def test_of_two_groups_with_as_many_kinds_the_larger_stays(tmp_path: Path) -> None:
    builder = unmarked()
    for at in range(5):
        builder.event(**absolute(TODAY_US - YEAR_US + at, 1)).event(
            **absolute(TODAY_US - YEAR_US + at, 1, cat="kernel")
        )
    builder.event(**absolute(TODAY_US - YEAR_US, 1, cat="cuda_runtime"))
    assert builder.trace(tmp_path).wall_clock_start_ns == (TODAY_US - YEAR_US) * 1000
