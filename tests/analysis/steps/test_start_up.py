"""Start-up: work that a run does once."""

from pathlib import Path

import pytest

from tests.analysis.analysing import facts_of, spans_us
from tests.build import TraceBuilder
from traceadvisor.analysis.steps.start_up import start_up


def _busy(builder: TraceBuilder, start: int = 0) -> TraceBuilder:
    """Ten short launches of one kernel, each with its operator."""
    for at in range(start, start + 100, 10):
        builder.op("aten::add", at, at + 10).launch(at + 2, at + 4, kernel=(at + 5, at + 10))
    return builder


def _found(builder: TraceBuilder, folder: Path) -> list[tuple[float, float]]:
    return spans_us(start_up(facts_of(builder, folder).observation))


@pytest.mark.parametrize("name", ["cudaMalloc", "hipMalloc", "cudaHostAlloc", "cuModuleLoadData", "cuCtxCreate_v2"])
def test_memory_from_the_driver_contexts_and_modules_are_start_up(name: str, tmp_path: Path) -> None:
    builder = _busy(TraceBuilder().step(0, 0, 300)).runtime(name, 110, 200)
    assert _found(builder, tmp_path) == [(110, 200)]


@pytest.mark.parametrize("name", ["cudaFree", "cudaMemGetInfo", "cudaEventRecord"])
def test_calls_of_every_step_are_no_start_up(name: str, tmp_path: Path) -> None:
    assert _found(_busy(TraceBuilder().step(0, 0, 300)).runtime(name, 110, 200), tmp_path) == []


def test_loading_a_function_lazily_is_start_up(tmp_path: Path) -> None:
    builder = _busy(TraceBuilder().step(0, 0, 300)).overhead(110, 200, name="Lazy Function Loading")
    assert _found(builder, tmp_path) == [(110, 200)]


@pytest.mark.parametrize(("length", "found"), [(999, False), (1_000, True)])
def test_a_first_call_counts_from_a_millisecond_on(length: int, tmp_path: Path, *, found: bool) -> None:
    builder = _busy(TraceBuilder().step(0, 0, 5_000)).runtime("cudaStreamIsCapturing", 200, 200 + length)
    builder.runtime("cudaStreamIsCapturing", 4_000, 4_001)
    assert _found(builder, tmp_path) == ([(200, 200 + length)] if found else [])


@pytest.mark.parametrize(("later", "found"), [(100, True), (101, False)])
def test_a_first_call_is_twenty_times_as_long_as_later_ones(later: int, tmp_path: Path, *, found: bool) -> None:
    builder = _busy(TraceBuilder().step(0, 0, 5_000)).runtime("cudaStreamIsCapturing", 200, 2_200)
    builder.runtime("cudaStreamIsCapturing", 4_000, 4_000 + later)
    assert bool(_found(builder, tmp_path)) is found


def test_a_wait_for_the_gpu_is_no_start_up(tmp_path: Path) -> None:
    assert _found(_busy(TraceBuilder().step(0, 0, 5_000)).sync(200, 4_000), tmp_path) == []


def test_waiting_for_a_busy_gpu_is_no_start_up_whatever_waits(tmp_path: Path) -> None:
    builder = _busy(TraceBuilder().step(0, 0, 5_000)).launch(200, 205, kernel=(210, 3_000), name="long")
    builder.runtime("cudaStreamIsCapturing", 300, 4_000).runtime("cudaStreamIsCapturing", 4_500, 4_501)
    assert _found(builder, tmp_path) == [(3_000, 4_000)]


def test_the_closing_wait_of_the_profiler_is_no_start_up(tmp_path: Path) -> None:
    assert (
        _found(_busy(TraceBuilder().step(0, 0, 5_000)).sync(2_000, 5_000, name="cudaDeviceSynchronize"), tmp_path) == []
    )


@pytest.mark.parametrize(
    ("kind", "later", "found"),
    [
        ("_MultiProcessingDataLoaderIter", 100, True),
        ("_MultiProcessingDataLoaderIter", 101, False),
        ("_SingleProcessDataLoaderIter", 100, False),
    ],
)
def test_a_long_first_batch_starts_the_workers(kind: str, later: int, tmp_path: Path, *, found: bool) -> None:
    builder = (
        _busy(TraceBuilder().step(0, 0, 9_000)).loader(200, 2_200, kind=kind).loader(5_000, 5_000 + later, kind=kind)
    )
    assert _found(builder, tmp_path) == ([(200, 2_200)] if found else [])


def test_an_only_batch_starts_the_workers_unless_steps_are_marked(tmp_path: Path) -> None:
    kind = "_MultiProcessingDataLoaderIter"
    assert _found(_busy(TraceBuilder()).loader(200, 2_200, kind=kind), tmp_path / "a") == [(200, 2_200)]
    assert _found(_busy(TraceBuilder().step(0, 0, 9_000)).loader(200, 2_200, kind=kind), tmp_path / "b") == []


def test_the_only_launch_of_a_graph_is_no_start_up(tmp_path: Path) -> None:
    builder = _busy(TraceBuilder().step(0, 0, 9_000))
    builder.launch(200, 4_000, call="cudaGraphLaunch", kernel=(210, 9_000), name="nodes")
    assert _found(builder, tmp_path) == []


def test_a_launch_that_waits_for_room_in_the_queue_is_no_start_up(tmp_path: Path) -> None:
    builder = _busy(TraceBuilder().step(0, 0, 9_000)).launch(200, 205, kernel=(210, 6_000), name="long")
    builder.launch(300, 4_000, kernel=(6_000, 6_100), name="new")
    assert _found(builder, tmp_path) == []


def test_the_first_of_many_operators_counts_without_what_it_calls(tmp_path: Path) -> None:
    builder = _busy(TraceBuilder().step(0, 0, 9_000)).op("aten::conv2d", 200, 4_000).op("aten::add", 300, 310)
    for at in range(5_000, 5_100, 10):
        builder.op("aten::conv2d", at, at + 5)
    assert _found(builder, tmp_path) == [(200, 300), (310, 4_000)]


def test_an_operator_that_runs_once_may_take_long_in_every_step(tmp_path: Path) -> None:
    assert _found(_busy(TraceBuilder().step(0, 0, 9_000)).op("aten::sort", 200, 4_000), tmp_path) == []


def test_the_first_allocation_creates_the_context(tmp_path: Path) -> None:
    builder = _busy(TraceBuilder().step(0, 0, 9_000)).op("aten::empty", 200, 4_000)
    assert _found(builder, tmp_path) == [(200, 4_000)]


def test_the_start_of_the_recording_is_start_up_if_it_begins_with_a_step(tmp_path: Path) -> None:
    assert _found(_busy(TraceBuilder().step(0, 0, 900), 600), tmp_path) == [(0, 600)]
    assert _found(_busy(TraceBuilder().annotation("set up", 0, 1).step(0, 1, 900), 600), tmp_path) == []


def test_three_steps_show_start_up_by_themselves(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number in range(3):
        start = 300 * number
        _busy(builder.step(number, start, start + 300), start).allocate(start + 110, start + 200)
    facts = facts_of(builder, tmp_path)
    assert (facts.start_up_share, facts.start_up.total_ns) == (None, 0)


@pytest.mark.parametrize("direction", ["h2d", "d2h", "d2d"])
def test_the_only_copy_of_a_recording_is_no_start_up(direction: str, tmp_path: Path) -> None:
    builder = _busy(TraceBuilder().step(0, 0, 60_000))
    builder.copy(200, 50_200, on_device=(50_190, 50_210), direction=direction, pinned=True)
    assert _found(builder, tmp_path) == []


def test_a_copy_call_without_a_recorded_copy_is_no_start_up(tmp_path: Path) -> None:
    builder = _busy(TraceBuilder().step(0, 0, 60_000)).copy(200, 50_200, on_device=None)
    assert _found(builder, tmp_path) == []


def test_a_first_copy_that_is_much_longer_than_later_ones_is_start_up(tmp_path: Path) -> None:
    builder = _busy(TraceBuilder().step(0, 0, 60_000)).copy(200, 50_200, on_device=(50_205, 50_210), pinned=True)
    builder.copy(51_000, 51_004, on_device=(51_005, 51_010), pinned=True)
    assert _found(builder, tmp_path) == [(200, 50_200)]


def test_the_only_launch_of_a_kernel_is_start_up(tmp_path: Path) -> None:
    builder = _busy(TraceBuilder().step(0, 0, 60_000)).runtime("cudaLaunchKernelExC", 200, 50_200)
    assert _found(builder, tmp_path) == [(200, 50_200)]
