"""Why the device is idle: the first cause that holds, instant by instant, each shown with the fewest events."""

from pathlib import Path

import pytest

from tests.analysis.analysing import breakdown_us
from tests.build import AUTOGRAD, Generation, TraceBuilder


def busy_until_40() -> TraceBuilder:
    """A step of 100 us, of which the device runs dry at 40; the first 5 go by in its first launch."""
    return TraceBuilder().step(0, 0, 100).launch(0, 5, kernel=(5, 40))


# -- data wait --------------------------------------------------------------------------------------------------------


def test_the_device_waits_for_data_while_the_training_thread_is_in_the_loader(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 30).launch(40, 50, kernel=(50, 100))
    assert breakdown_us(builder, tmp_path) == {"data_wait": 30, "idle_host": 10, "idle_launch": 10, "kernel": 50}


def test_data_wait_comes_before_every_other_cause(tmp_path: Path) -> None:
    builder = busy_until_40().loader(40, 60).overhead(40, 60).allocate(40, 60).op("aten::stack", 40, 60)
    builder.launch(58, 60, kernel=(60, 100))
    assert breakdown_us(builder, tmp_path) == {"data_wait": 20, "idle_launch": 5, "kernel": 75}


def test_loading_behind_a_running_kernel_is_no_wait(tmp_path: Path) -> None:
    builder = busy_until_40().loader(10, 40).launch(40, 45, kernel=(45, 100))
    assert breakdown_us(builder, tmp_path) == {"idle_launch": 10, "kernel": 90}


def test_another_threads_loading_is_no_wait(tmp_path: Path) -> None:
    builder = busy_until_40().op("a", 0, 1).loader(40, 60, thread=AUTOGRAD).launch(60, 65, kernel=(65, 100))
    assert breakdown_us(builder, tmp_path) == {"idle_launch": 10, "idle_host": 20, "kernel": 70}


def test_without_a_loader_data_wait_is_not_measured(tmp_path: Path) -> None:
    builder = busy_until_40().launch(40, 45, kernel=(45, 100))
    assert breakdown_us(builder, tmp_path) == {"data_wait": None, "idle_launch": 10, "kernel": 90}


@pytest.mark.parametrize(
    "name",
    [
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "enumerate(DataLoader)#_MultiProcessingDataLoaderI",
        "enumerate(DataPipe)#IterDataPipe",
    ],
)
@pytest.mark.parametrize("generation", list(Generation))
def test_a_loader_is_recognised_by_the_prefix_of_its_name(name: str, generation: Generation, tmp_path: Path) -> None:
    builder = TraceBuilder(generation).step(0, 0, 100).annotation(name, 0, 30).launch(30, 40, kernel=(40, 100))
    assert breakdown_us(builder, tmp_path) == {"data_wait": 30, "idle_launch": 10, "kernel": 60}


# -- the device itself ------------------------------------------------------------------------------------------------


def test_a_gap_before_work_that_was_queued_is_the_devices(tmp_path: Path) -> None:
    builder = busy_until_40().launch(6, 10, kernel=(60, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 5, "idle_device": 20, "kernel": 75}


def test_a_launch_that_returned_as_the_device_ran_dry_was_in_time(tmp_path: Path) -> None:
    builder = busy_until_40().launch(35, 40, kernel=(60, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 5, "idle_device": 20, "kernel": 75}


def test_a_gap_whose_launch_returned_late_is_not_the_devices(tmp_path: Path) -> None:
    builder = busy_until_40().launch(35, 41, kernel=(60, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 5 + 20, "kernel": 75}


def test_launch_latency_takes_the_category_of_the_calls_last_instant(tmp_path: Path) -> None:
    builder = busy_until_40().launch(45, 50, kernel=(60, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 5 + 5 + 10, "idle_host": 5, "kernel": 75}


def test_launch_latency_behind_an_instrumented_call_is_the_profilers(tmp_path: Path) -> None:
    builder = busy_until_40().launch(45, 50, kernel=(60, 100)).overhead(48, 50)
    expected = {"idle_launch": 5 + 3, "idle_host": 5, "idle_profiler": 2 + 10, "kernel": 75}
    assert without_loader(builder, tmp_path) == expected


def test_launch_latency_behind_a_call_in_the_loader_is_data_wait(tmp_path: Path) -> None:
    builder = busy_until_40().loader(45, 55).launch(45, 50, kernel=(60, 100))
    assert breakdown_us(builder, tmp_path) == {"idle_launch": 5, "idle_host": 5, "data_wait": 5 + 10, "kernel": 75}


def test_a_wait_for_data_while_work_is_queued_is_still_a_wait_for_data(tmp_path: Path) -> None:
    builder = busy_until_40().launch(6, 10, kernel=(60, 100)).loader(45, 55)
    assert breakdown_us(builder, tmp_path) == {"idle_launch": 5, "idle_device": 10, "data_wait": 10, "kernel": 75}


def test_a_copy_and_a_memset_are_next_operations_like_a_kernel(tmp_path: Path) -> None:
    builder = busy_until_40().memset(6, 7, on_device=(50, 60)).copy(8, 9, on_device=(70, 100), pinned=True)
    expected = {"idle_launch": 5, "kernel": 35, "idle_device": 20, "other_copy": 10, "h2d_copy": 30}
    assert without_loader(builder, tmp_path) == expected


def test_an_operation_of_no_length_ends_one_gap_and_starts_another(tmp_path: Path) -> None:
    builder = busy_until_40().launch(6, 10, kernel=(60, 60)).launch(70, 80, kernel=(80, 100))
    expected = {"idle_launch": 5 + 10, "idle_device": 20, "idle_host": 10, "kernel": 55}
    assert without_loader(builder, tmp_path) == expected


# -- the profiler -----------------------------------------------------------------------------------------------------


def test_the_profilers_own_work_is_the_profilers(tmp_path: Path) -> None:
    builder = busy_until_40().op("aten::mm", 40, 60).overhead(45, 55).launch(55, 60, kernel=(60, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 5 + 10, "idle_profiler": 10, "kernel": 75}


def test_the_profilers_work_on_any_thread_counts(tmp_path: Path) -> None:
    builder = busy_until_40().overhead(45, 55, thread=AUTOGRAD).launch(60, 65, kernel=(65, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 10, "idle_host": 10, "idle_profiler": 10, "kernel": 70}


@pytest.mark.parametrize("name", ["Lazy Function Loading", "Command Buffer Full"])
def test_overhead_of_the_driver_is_not_the_profilers(name: str, tmp_path: Path) -> None:
    builder = busy_until_40().overhead(40, 60, name=name).launch(60, 65, kernel=(65, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 10, "idle_host": 20, "kernel": 70}


@pytest.mark.parametrize("name", ["cudaDeviceSynchronize", "hipDeviceSynchronize"])
def test_the_synchronise_at_stop_is_the_profilers(name: str, tmp_path: Path) -> None:
    builder = busy_until_40().sync(50, 100, name=name)
    assert without_loader(builder, tmp_path) == {"idle_launch": 5, "kernel": 35, "idle_host": 10, "idle_profiler": 50}


def test_a_synchronise_with_work_behind_it_is_the_users(tmp_path: Path) -> None:
    builder = busy_until_40().sync(35, 60, name="cudaDeviceSynchronize").launch(60, 65, kernel=(65, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 5, "idle_sync": 25, "kernel": 70}


def test_a_stream_synchronise_at_the_end_is_the_users(tmp_path: Path) -> None:
    builder = busy_until_40().sync(35, 100)
    assert without_loader(builder, tmp_path) == {"idle_launch": 5, "idle_sync": 60, "kernel": 35}


# -- the allocator ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaFreeHost", "hipMalloc", "hipFree", "hipHostMalloc", "hipHostFree"],
)
def test_time_in_the_drivers_allocator_is_the_allocators(name: str, tmp_path: Path) -> None:
    builder = busy_until_40().op("aten::empty", 40, 70).allocate(45, 65, name=name).launch(70, 75, kernel=(75, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 5 + 10 + 5, "idle_allocator": 20, "kernel": 60}


@pytest.mark.parametrize("name", ["cudaFuncGetAttributes", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaMemGetInfo"])
def test_other_calls_are_not_the_allocators(name: str, tmp_path: Path) -> None:
    builder = busy_until_40().runtime(name, 45, 65).launch(70, 75, kernel=(75, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 5 + 20 + 5, "idle_host": 10, "kernel": 60}


def test_allocation_by_a_thread_that_does_not_launch_next_explains_nothing(tmp_path: Path) -> None:
    builder = busy_until_40().allocate(45, 65, thread=AUTOGRAD).launch(70, 75, kernel=(75, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 10, "idle_host": 30, "kernel": 60}


# -- synchronisation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "cudaStreamSynchronize",
        "cudaEventSynchronize",
        "hipStreamSynchronize",
        "cuCtxSynchronize",
        "cudaMemcpy",
        "hipMemcpyWithStream",
    ],
)
def test_refilling_the_queue_after_a_blocking_call_is_the_price_of_the_call(name: str, tmp_path: Path) -> None:
    builder = busy_until_40().sync(6, 42, name=name).op("aten::mm", 42, 60).launch(55, 60, kernel=(60, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 5, "idle_sync": 20, "kernel": 75}


def test_python_after_a_blocking_call_is_the_hosts(tmp_path: Path) -> None:
    builder = busy_until_40().sync(6, 42).op("aten::mm", 50, 60).launch(55, 60, kernel=(60, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 5, "idle_sync": 12, "idle_host": 8, "kernel": 75}


def test_launch_latency_after_a_blocking_call_is_the_price_of_the_call(tmp_path: Path) -> None:
    builder = busy_until_40().sync(6, 42).launch(42, 45, kernel=(60, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 5, "idle_sync": 20, "kernel": 75}


def test_a_blocking_call_that_was_over_when_the_device_ran_dry_explains_nothing(tmp_path: Path) -> None:
    builder = busy_until_40().sync(6, 40).op("aten::mm", 40, 60).launch(55, 60, kernel=(60, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 25, "kernel": 75}


def test_a_wait_counts_in_a_gap_that_the_window_cuts(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 41).launch(0, 5, kernel=(5, 40)).sync(6, 41)
    builder.step(1, 41, 100).op("aten::mm", 41, 60).launch(55, 60, kernel=(60, 100))
    assert without_loader(builder, tmp_path, step=1) == {"idle_sync": 19, "kernel": 40}


def test_an_item_call_drains_the_device(tmp_path: Path) -> None:
    builder = busy_until_40().item(6, 45, copy=(40, 41)).op("aten::mm", 45, 60).launch(55, 60, kernel=(60, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 5, "other_copy": 1, "idle_sync": 19, "kernel": 75}


def test_a_pageable_copy_blocks_on_itself(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).copy(5, 45, on_device=(5, 40)).launch(45, 50, kernel=(50, 100))
    assert without_loader(builder, tmp_path) == {"idle_host": 5, "h2d_copy": 35, "idle_sync": 10, "kernel": 50}


def test_a_pinned_copy_does_not_block(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).copy(5, 45, on_device=(5, 40), pinned=True)
    builder.launch(45, 50, kernel=(50, 100))
    assert without_loader(builder, tmp_path) == {"idle_host": 5, "h2d_copy": 35, "idle_launch": 10, "kernel": 50}


def test_a_wait_in_another_thread_drains_the_device_as_well(tmp_path: Path) -> None:
    builder = busy_until_40().sync(6, 42, thread=AUTOGRAD).op("aten::mm", 40, 60).launch(55, 60, kernel=(60, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 5, "idle_sync": 20, "kernel": 75}


# -- launching, and everything else -----------------------------------------------------------------------------------


def test_operators_of_the_launching_thread_are_launch_time(tmp_path: Path) -> None:
    builder = busy_until_40().op("aten::mm", 40, 60).launch(55, 60, kernel=(60, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 5 + 20, "kernel": 75}


@pytest.mark.parametrize("generation", list(Generation))
@pytest.mark.parametrize("name", ["ProfilerStep#9", "enumerate(MyLoader)#next", "Optimizer.zero_grad#SGD.zero_grad"])
def test_an_annotation_is_no_operator_whatever_its_generation_calls_it(
    name: str, generation: Generation, tmp_path: Path
) -> None:
    builder = TraceBuilder(generation).step(0, 0, 100).launch(0, 5, kernel=(5, 40)).annotation(name, 40, 60)
    builder.launch(60, 65, kernel=(65, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 10, "idle_host": 20, "kernel": 70}


def test_todays_user_annotations_are_no_operators(tmp_path: Path) -> None:
    builder = busy_until_40().annotation("validation", 40, 60).launch(60, 65, kernel=(65, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 10, "idle_host": 20, "kernel": 70}


def test_python_functions_are_no_operators(tmp_path: Path) -> None:
    builder = busy_until_40().python("train.py(9): log", 40, 60).launch(60, 65, kernel=(65, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 10, "idle_host": 20, "kernel": 70}


def test_only_the_thread_that_launches_next_is_looked_at(tmp_path: Path) -> None:
    builder = busy_until_40().op("aten::mul", 40, 60).launch(55, 60, kernel=(60, 100), thread=AUTOGRAD)
    assert without_loader(builder, tmp_path) == {"idle_launch": 5 + 5, "idle_host": 15, "kernel": 75}


def test_operators_of_the_thread_that_launches_next_count(tmp_path: Path) -> None:
    builder = busy_until_40().op("MmBackward0", 45, 60, thread=AUTOGRAD)
    builder.launch(55, 60, kernel=(60, 100), thread=AUTOGRAD)
    assert without_loader(builder, tmp_path) == {"idle_launch": 5 + 15, "idle_host": 5, "kernel": 75}


NODE = "autograd::engine::evaluate_function: MmBackward0"


def test_while_the_training_thread_waits_for_the_backward_pass_that_pass_counts(tmp_path: Path) -> None:
    # The optimizer launches next; the last node of the backward pass runs from 40 to 60.
    builder = busy_until_40().op(NODE, 20, 60, thread=AUTOGRAD).op("aten::add_", 70, 80)
    builder.launch(75, 80, kernel=(80, 100))
    assert without_loader(builder, tmp_path) == {"idle_launch": 5 + 20 + 10, "idle_host": 10, "kernel": 55}


def test_before_the_backward_pass_begins_the_training_thread_counts(tmp_path: Path) -> None:
    builder = busy_until_40().op("aten::mse_loss", 40, 55).op(NODE, 60, 80, thread=AUTOGRAD)
    builder.launch(70, 80, kernel=(80, 100), thread=AUTOGRAD)
    assert without_loader(builder, tmp_path) == {"idle_launch": 5 + 15 + 20, "idle_host": 5, "kernel": 55}


def test_a_thread_beside_the_training_waits_for_no_backward_pass(tmp_path: Path) -> None:
    builder = busy_until_40().op(NODE, 20, 60, thread=AUTOGRAD).launch(75, 80, kernel=(80, 100), thread=9)
    assert without_loader(builder, tmp_path) == {"idle_launch": 5 + 5, "idle_host": 35, "kernel": 55}


def test_the_next_operation_may_lie_beyond_the_windows_end(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 50).launch(0, 5, kernel=(5, 40)).op("MmBackward0", 42, 70, thread=AUTOGRAD)
    builder.step(1, 50, 120).launch(60, 70, kernel=(70, 120), thread=AUTOGRAD)
    assert without_loader(builder, tmp_path, step=0) == {"idle_launch": 5 + 8, "idle_host": 2, "kernel": 35}


def test_behind_the_last_operation_the_training_thread_is_looked_at(tmp_path: Path) -> None:
    builder = busy_until_40().op("aten::detach", 50, 70).op("MmBackward0", 40, 65, thread=AUTOGRAD)
    assert without_loader(builder, tmp_path) == {"idle_launch": 5 + 20, "idle_host": 40, "kernel": 35}


def test_before_work_without_a_recorded_launch_the_training_thread_is_looked_at(tmp_path: Path) -> None:
    builder = (
        busy_until_40().op("aten::mm", 40, 50).kernel(60, 61).step(1, 100, 200).launch(100, 105, kernel=(105, 200))
    )
    assert without_loader(builder, tmp_path, step=0) == {"idle_launch": 5 + 10, "idle_host": 10 + 39, "kernel": 36}


def without_loader(builder: TraceBuilder, folder: Path, step: int = 0) -> dict[str, float | None]:
    """The breakdown of a recording that has no loader events, whose data wait is not measured."""
    parts = breakdown_us(builder, folder, step)
    assert parts.pop("data_wait") is None
    return parts
