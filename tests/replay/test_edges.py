"""What waits for what: each graph is built from a trace, one duration is changed, and the step follows.

In every trace a launch call takes 2 us, a kernel starts 1 us after it, a queued one 1 us after the one before, and a
wait returns 2 us after what it waited for.
"""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from tests.build import AUTOGRAD, TraceBuilder
from tests.replay.built import graph_of, steps_us, with_device_us, with_work_us
from traceadvisor.replay.step_graph import Action

OTHER = 20
"""A second stream."""


def _one_kernel() -> TraceBuilder:
    """Launched at 10, running from 13 to 53, waited for until 55; then host work to the end."""
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 8, 12).launch(10, 12, kernel=(13, 53))
    return builder.sync(20, 55)


def test_unchanged_steps_are_replayed_as_they_were(tmp_path: Path) -> None:
    assert steps_us(graph_of(_one_kernel(), tmp_path)) == [100]


def test_a_kernel_starts_after_its_launch_and_the_wait_ends_after_the_kernel(tmp_path: Path) -> None:
    # launched by 12, on the device from 13 to 23, waited for until 25; 45 us of host work follow
    assert steps_us(with_device_us(graph_of(_one_kernel(), tmp_path), 10)) == [70]


def test_a_wait_takes_no_time_where_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    # the kernel is done at 14, the wait begins at 20 as recorded and costs its 2 us
    assert steps_us(with_device_us(graph_of(_one_kernel(), tmp_path), 1)) == [67]


def test_host_work_moves_what_it_launches(tmp_path: Path) -> None:
    # 30 us more before the launch, and the kernel still takes 40
    assert steps_us(with_work_us(graph_of(_one_kernel(), tmp_path), 1, 40)) == [130]


def test_a_step_lasts_until_the_device_is_done(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 20).op("aten::mm", 8, 12).launch(10, 12, kernel=(13, 53))
    graph = graph_of(builder, tmp_path)
    assert (steps_us(graph), steps_us(with_device_us(graph, 10))) == ([53], [23])


def test_a_stream_works_in_order(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 20).launch(0, 2, kernel=(3, 103), name="a")
    builder.launch(4, 6, kernel=(104, 204), name="b")
    graph = graph_of(builder, tmp_path)
    assert steps_us(graph) == [204]
    # the second would start at 7, but the first is not done before 53
    assert steps_us(with_device_us(graph, 50, 100)) == [154]


def test_streams_work_side_by_side(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 20).launch(0, 2, kernel=(3, 103))
    builder.launch(4, 6, kernel=(7, 57), stream=OTHER)
    assert steps_us(with_device_us(graph_of(builder, tmp_path), 10, 50)) == [57]


def test_a_stream_that_waits_for_another_starts_after_it(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 20).launch(0, 2, kernel=(3, 103)).runtime("cudaEventRecord", 2, 3)
    builder.runtime("cudaStreamWaitEvent", 3, 4).launch(4, 6, kernel=(104, 154), stream=OTHER)
    graph = graph_of(builder, tmp_path)
    assert steps_us(graph) == [154]
    assert steps_us(with_device_us(graph, 50, 50)) == [104]


def test_a_stream_that_began_before_another_had_ended_did_not_wait_for_it(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 20).launch(0, 2, kernel=(3, 103)).runtime("cudaEventRecord", 2, 3)
    builder.runtime("cudaStreamWaitEvent", 3, 4).launch(4, 6, kernel=(7, 57), stream=OTHER)
    assert graph_of(builder, tmp_path).device.after.tolist() == [-1, -1]


def test_a_stream_synchronise_waits_for_the_stream_that_its_thread_uses(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 60).launch(0, 2, kernel=(3, 53), stream=OTHER)
    builder.launch(4, 6, kernel=(7, 27)).sync(10, 29)
    # the other stream is busy until 53 either way; the wait is for the kernel that ends at 12
    assert steps_us(with_device_us(graph_of(builder, tmp_path), 10, 5)) == [60 - 15]


def test_a_device_synchronise_waits_for_all_streams(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 60).launch(0, 2, kernel=(3, 53), stream=OTHER)
    builder.launch(4, 6, kernel=(7, 27)).sync(10, 55, name="cudaDeviceSynchronize")
    assert steps_us(with_device_us(graph_of(builder, tmp_path), 10, 20)) == [60 - 26]


def test_an_event_synchronise_waits_for_what_was_done_when_it_returned(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 60).launch(0, 2, kernel=(3, 33), name="a").runtime("cudaEventRecord", 2, 3)
    builder.launch(4, 6, kernel=(34, 54), name="b").sync(10, 35, name="cudaEventSynchronize")
    # the event is the first kernel's end: the second may take as long as it likes
    assert steps_us(with_device_us(graph_of(builder, tmp_path), 10, 20)) == [60 - 20]


def test_a_copy_from_pageable_memory_blocks_the_host_until_it_is_done(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).copy(10, 55, on_device=(13, 53)).launch(60, 62, kernel=(63, 64))
    graph = graph_of(builder, tmp_path)
    # the call's own time is that of a launch: on the device from 13; 2 us after its end the host goes on
    shorter = with_device_us(graph, 10, 1)
    assert steps_us(graph)[0] - steps_us(shorter)[0] == 30


def test_a_copy_from_pinned_memory_does_not_block_the_host(tmp_path: Path) -> None:
    builder = (
        TraceBuilder().step(0, 0, 100).copy(10, 12, on_device=(13, 53), pinned=True).launch(60, 62, kernel=(63, 64))
    )
    assert steps_us(with_device_us(graph_of(builder, tmp_path), 10, 1)) == [100]


def test_freeing_memory_waits_for_the_device_and_then_takes_its_own_time(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 2, kernel=(3, 53)).allocate(10, 63, name="cudaFree")
    # 10 us of its own after the kernel
    assert steps_us(with_device_us(graph_of(builder, tmp_path), 10)) == [60]


def test_the_autograd_thread_begins_when_the_training_thread_hands_over_and_gives_back_when_it_is_done(
    tmp_path: Path,
) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(10, 12, kernel=(13, 14))
    builder.op("aten::mm", 20, 60, thread=AUTOGRAD).launch(30, 32, kernel=(33, 34), thread=AUTOGRAD)
    builder.launch(58, 60, kernel=(61, 62), thread=AUTOGRAD).launch(70, 72, kernel=(73, 74))
    graph = graph_of(builder, tmp_path)
    assert steps_us(graph) == [100]
    later = with_work_us(graph, 1, 10 + 100)
    assert steps_us(later) == [200]
    # the task after the first launch is the autograd thread's; the last launch follows that thread's second
    longer = with_work_us(graph, 3, 26 + 50)
    assert steps_us(longer) == [150]


def test_a_thread_that_waits_for_the_device_does_not_hand_over(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 2, kernel=(3, 83)).sync(5, 85)
    builder.launch(20, 22, kernel=(84, 90), thread=AUTOGRAD, stream=OTHER)
    graph = graph_of(builder, tmp_path)
    own = graph.host.thread[graph.host.action == Action.LAUNCH]
    assert own.tolist() == graph.host.after[graph.host.action == Action.LAUNCH].tolist()


def test_several_kernels_of_one_call_are_one_launch(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 20).launch(0, 10, kernel=(11, 21), call="cudaGraphLaunch", correlation=900)
    builder.kernel(22, 32, correlation=900).kernel(33, 43, correlation=900)
    graph = graph_of(builder, tmp_path)
    assert graph.host.count[graph.host.action == Action.LAUNCH].tolist() == [3]
    assert steps_us(with_device_us(graph, 10, 1, 10)) == [34]


def _full_queue(launches: int) -> TraceBuilder:
    """Kernels of 10 us, launched 2 us apart until the queue holds 1,022; then each call waits for one to be done."""
    builder, call, done, ends = TraceBuilder(), 0, 0, []
    for number in range(launches):
        start = max(call + 2, done)
        ends.append(start + 10)
        builder.launch(call, call + 2, kernel=(start, start + 10), call="cudaLaunchKernel")
        done = start + 10
        following = number + 1 - 1022
        call = max(call + 2, ends[following] - 2) if following >= 0 else call + 2
    return builder.step(0, 0, call)


@pytest.mark.parametrize("launches", [1000, 1500])
def test_a_full_queue_holds_the_host_up(tmp_path: Path, launches: int) -> None:
    graph = graph_of(_full_queue(launches), tmp_path)
    assert steps_us(graph) == pytest.approx([launches * 10 + 2], rel=0.001)


def test_a_call_that_a_full_queue_held_up_is_no_host_work(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 20_000).launch(0, 2, kernel=(3, 6998))
    for number in range(1, 1022):
        builder.launch(2 * number, 2 * number + 2, kernel=(6997 + 2 * number, 6998 + 2 * number))
    builder.launch(2044, 7000, kernel=(9042, 9043))
    graph = graph_of(builder, tmp_path)
    assert graph.constants.launch_call_ns == 2_000
    assert graph.host.call_ns[graph.host.action == Action.LAUNCH].max() == 2_000


def test_a_long_call_beside_an_empty_queue_is_host_work(tmp_path: Path) -> None:
    graph = graph_of(TraceBuilder().step(0, 0, 100).launch(0, 90, kernel=(91, 95)), tmp_path)
    assert graph.host.call_ns[graph.host.action == Action.LAUNCH].tolist() == [90_000]


def test_hip_has_no_such_queue(tmp_path: Path) -> None:
    builder = (
        TraceBuilder().step(0, 0, 100).launch(0, 2, kernel=(3, 53), call="hipLaunchKernel", category="hip_runtime")
    )
    assert graph_of(builder, tmp_path).constants.queue_depth is None


def test_an_unexplained_wait_is_reported_and_not_simulated(tmp_path: Path) -> None:
    # the kernel is done at 13, yet the call returns at 85 and not at 15, as a second one does
    builder = TraceBuilder().step(0, 0, 100).launch(0, 2, kernel=(3, 13)).sync(5, 85)
    for start in (86, 88, 90):
        builder.sync(start, start + 2)
    graph = graph_of(builder, tmp_path)
    assert graph.unexplained_ns == (70_000,)
    assert steps_us(graph) == [30]


def test_device_work_from_before_the_steps_is_not_theirs(tmp_path: Path) -> None:
    builder = TraceBuilder().kernel(0, 5).step(0, 10, 100).launch(10, 12, kernel=(13, 53))
    assert len(graph_of(builder, tmp_path).device) == 1


def test_host_work_between_steps_delays_the_next_step(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).step(1, 130, 200).launch(140, 142, kernel=(143, 144))
    graph = graph_of(builder, tmp_path)
    assert (steps_us(graph), graph.host.work_ns.sum()) == ([100, 70], 198_000)


def test_no_task_holds_a_recorded_time(tmp_path: Path) -> None:
    late = TraceBuilder(origin_us=10**6).step(0, 0, 100).launch(10, 12, kernel=(13, 53)).sync(20, 55)
    early = graph_of(late, tmp_path)
    columns = [getattr(early.host, item.name) for item in fields(early.host) if item.name.endswith("_ns")]
    assert all(np.all(column < 100_000) for column in (*columns, early.device.duration_ns))
