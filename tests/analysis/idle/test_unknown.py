"""Unknown time: each reason on a small trace, and beside it what must not count as unknown."""

from pathlib import Path

import pytest

from tests.analysis.analysing import breakdown_us, facts_of, spans_us
from tests.build import AUTOGRAD, TraceBuilder
from traceadvisor.model.breakdown import Category

Found = dict[str, list[tuple[float, float]]]

PREFIXES = ["cuda", "hip"]


def unknown(builder: TraceBuilder, folder: Path, *, device: int = 0) -> Found:
    """Unknown time by reason, in microseconds since the first event."""
    found = facts_of(builder, folder, device=device).unknown.by_reason
    return {reason.value: spans_us(spans) for reason, spans in found.items() if spans}


def step(length: int = 10_000) -> TraceBuilder:
    """One step, 10 ms long."""
    return TraceBuilder().step(0, 0, length)


# -- lost launches ----------------------------------------------------------------------------------------------------


def test_before_the_first_record_time_is_unknown_from_the_first_launch_on(tmp_path: Path) -> None:
    builder = step().op("aten::mm", 90, 4000).launch(100, 110).launch(120, 130).launch(3000, 3010, kernel=(3020, 4000))
    assert unknown(builder, tmp_path) == {"lost": [(110, 3020)]}


def test_unknown_time_comes_before_data_wait(tmp_path: Path) -> None:
    builder = step().launch(100, 110).loader(200, 2200).launch(3000, 3010, kernel=(3020, 9000))
    parts = breakdown_us(builder, tmp_path)
    assert (parts["idle_unknown"], parts.get("data_wait", 0)) == (2910, 0)


def test_a_lost_kernel_ran_between_what_was_launched_before_and_after_it(tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 500)).launch(30, 40).launch(700, 710, kernel=(720, 800))
    assert unknown(builder, tmp_path) == {"lost": [(500, 720)]}


def test_a_lost_kernel_in_a_full_queue_leaves_only_the_gap_at_its_turn(tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 2000)).launch(11, 12, kernel=(2010, 4000)).launch(13, 14)
    builder.launch(15, 16, kernel=(4400, 5000)).launch(17, 18, kernel=(5010, 9000))
    assert unknown(builder, tmp_path) == {"lost": [(4000, 4400)]}


def test_a_synchronisation_of_the_device_ends_the_doubt(tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 500)).launch(600, 610)
    builder.sync(700, 900, name="cudaDeviceSynchronize").launch(5000, 5010, kernel=(5020, 6000))
    assert unknown(builder, tmp_path) == {"lost": [(610, 900)]}


def test_records_that_stop_leave_the_rest_unknown(tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 500))
    for at in range(1000, 5000, 500):
        builder.launch(at, at + 10)
    assert unknown(builder, tmp_path) == {"lost": [(1010, 10_000)]}


def test_a_complete_recording_has_no_unknown_time(tmp_path: Path) -> None:
    builder = (
        step().launch(0, 10, kernel=(20, 500)).launch(5000, 5010, kernel=(5020, 6000)).memset(10, 20, on_device=None)
    )
    assert unknown(builder, tmp_path) == {}


def test_a_call_for_the_host_is_no_lost_launch(tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 500)).runtime("cudaLaunchHostFunc", 600, 610)
    assert unknown(builder, tmp_path) == {}


def test_a_launch_is_lost_on_the_device_that_its_thread_used_last(tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 500)).launch(20, 30, kernel=(40, 500), device=1, thread=AUTOGRAD)
    builder.launch(1000, 1010, thread=AUTOGRAD).launch(2000, 2010, kernel=(2020, 2100), device=1, thread=AUTOGRAD)
    builder.launch(2000, 2010, kernel=(2020, 2100))
    assert unknown(builder, tmp_path, device=0) == {}
    assert unknown(builder, tmp_path, device=1) == {"lost": [(1010, 2020)]}


def test_a_first_launch_without_record_is_for_the_device_that_its_thread_uses_next(tmp_path: Path) -> None:
    builder = step().launch(0, 10, thread=AUTOGRAD).launch(20, 30, kernel=(40, 500))
    builder.launch(600, 610, kernel=(620, 700), device=1, thread=AUTOGRAD)
    assert unknown(builder, tmp_path, device=0) == {}
    assert unknown(builder, tmp_path, device=1) == {"lost": [(10, 620)]}


def test_without_any_link_between_launches_and_kernels_no_launch_is_lost(tmp_path: Path) -> None:
    builder = step().launch(0, 10).launch(20, 30).kernel(40, 500).kernel(3000, 3500)
    assert unknown(builder, tmp_path) == {}


@pytest.mark.parametrize(("outer", "inner"), [((100, 130), (110, 120)), ((110, 120), (100, 130))])
def test_one_launch_recorded_as_two_calls_is_not_lost(
    outer: tuple[int, int], inner: tuple[int, int], tmp_path: Path
) -> None:
    builder = step().launch(*outer, kernel=(140, 500)).launch(*inner, call="cuLaunchKernel", category="cuda_driver")
    facts = facts_of(builder.launch(5000, 5010, kernel=(5020, 6000)), tmp_path)
    assert not facts.unknown.spans
    assert "kernels-missing" not in {note.code for note in facts.notes}


def test_a_launch_of_another_thread_at_the_same_time_can_be_lost(tmp_path: Path) -> None:
    builder = step().launch(100, 130, kernel=(140, 500)).launch(110, 120, thread=AUTOGRAD)
    assert unknown(builder.launch(5000, 5010, kernel=(5020, 6000)), tmp_path) == {"lost": [(500, 5020)]}


# -- capture of graphs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vendor", PREFIXES)
def test_the_device_is_unknown_while_a_graph_is_captured(vendor: str, tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 500)).runtime(f"{vendor}StreamBeginCapture", 1000, 1010)
    for at in (1100, 1200, 1300):
        builder.launch(at, at + 10, call=f"{vendor}LaunchKernel")
    builder.runtime(f"{vendor}StreamEndCapture", 2000, 2020).launch(5000, 5010, kernel=(5020, 6000))
    facts = facts_of(builder, tmp_path)
    assert unknown(builder, tmp_path) == {"capture": [(1000, 2020)]}
    assert "kernels-missing" not in {note.code for note in facts.notes}
    assert [one.kept for one in facts.steps.steps] == [True]


def test_other_streams_may_work_during_a_capture(tmp_path: Path) -> None:
    builder = step().runtime("cudaStreamBeginCapture", 1000, 1010).launch(1100, 1110, thread=AUTOGRAD)
    builder.launch(1200, 1210, kernel=(1220, 1500), stream=9, thread=AUTOGRAD)
    builder.runtime("cudaStreamEndCapture", 2000, 2020)
    assert unknown(builder, tmp_path) == {"capture": [(1000, 1220), (1500, 2020)]}


def test_nested_captures_count_once(tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 500)).runtime("cudaStreamBeginCapture", 1000, 1010)
    builder.runtime("cudaStreamBeginCapture", 1100, 1110).launch(1150, 1160).runtime("cudaStreamEndCapture", 1200, 1210)
    builder.launch(1250, 1260).runtime("cudaStreamEndCapture", 1300, 1310).launch(1400, 1410, kernel=(1420, 1500))
    assert unknown(builder, tmp_path) == {"capture": [(1000, 1310)]}


def test_a_capture_whose_end_is_missing_lasts_until_kernels_run_again(tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 500)).runtime("cudaStreamBeginCapture", 1000, 1010).launch(1100, 1110)
    assert unknown(builder, tmp_path) == {"capture": [(1000, 10_000)]}
    assert unknown(builder.launch(3000, 3010, kernel=(3020, 3100)), tmp_path) == {"capture": [(1000, 3000)]}


def test_a_capture_whose_start_is_missing_begins_behind_the_last_kernel_launch(tmp_path: Path) -> None:
    builder = step().launch(100, 110, kernel=(120, 200)).launch(300, 310).runtime("cudaStreamEndCapture", 1000, 1010)
    assert unknown(builder, tmp_path) == {"capture": [(110, 120), (200, 1010)]}


def test_a_capture_shows_in_python_calls_alone(tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 500)).python("torch/cuda/graphs.py(90): capture_begin", 1000, 1040)
    builder.launch(1100, 1110).python("torch/cuda/graphs.py(95): capture_end", 1900, 2000)
    assert unknown(builder.launch(5000, 5010, kernel=(5020, 6000)), tmp_path) == {"capture": [(1000, 2000)]}


@pytest.mark.parametrize("name", ["cudaStreamIsCapturing", "cudaStreamGetCaptureInfo", "cudaGraphInstantiate"])
def test_asking_for_captures_is_no_capture(name: str, tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 500)).runtime(name, 1000, 1010).launch(5000, 5010, kernel=(5020, 6000))
    assert unknown(builder, tmp_path) == {}


def test_a_recording_of_nothing_but_a_capture_lacks_no_kernels(tmp_path: Path) -> None:
    builder = step().runtime("cudaStreamBeginCapture", 10, 20).launch(30, 40).runtime("cudaStreamEndCapture", 50, 60)
    codes = {note.code for note in facts_of(builder, tmp_path).notes}
    assert "no-device" in codes
    assert "no-kernels" not in codes


# -- graph launches that lack operations ------------------------------------------------------------------------------


def graphs(recorded: list[range], *, names: int = 5, call: str = "cudaGraphLaunch") -> TraceBuilder:
    """Steps of 1 ms, each with a launch of one graph: ten kernels of 40 us, 50 us apart. Some have a record."""
    builder = TraceBuilder()
    for number, kept in enumerate(recorded):
        at = 1000 * number
        builder.step(number, at, at + 1000).runtime(call, at, at + 50, correlation=1000 + number)
        for kernel in kept:
            begun = at + 100 + 50 * kernel
            builder.kernel(begun, begun + 40, name=f"kernel {kernel % names}", correlation=1000 + number)
    return builder


@pytest.mark.parametrize("call", ["cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch"])
def test_a_graph_launch_with_fewer_operations_than_others_leaves_the_rest_unknown(call: str, tmp_path: Path) -> None:
    builder = graphs([range(10), range(6), range(10)], call=call)
    gaps = [(1000.0 + 140 + 50 * kernel, 1000.0 + 150 + 50 * kernel) for kernel in range(5)]
    assert unknown(builder, tmp_path) == {"graph": [(1050.0, 1100.0), *gaps, (1390.0, 1590.0)]}


def test_a_graph_launch_that_lost_its_first_operations_may_have_begun_earlier(tmp_path: Path) -> None:
    found = unknown(graphs([range(10), range(7, 10), range(10)]), tmp_path)["graph"]
    assert found[0] == (1100, 1450)


def test_all_launches_of_a_graph_with_the_same_operations_are_whole(tmp_path: Path) -> None:
    assert unknown(graphs([range(6)] * 4), tmp_path) == {}


def test_two_lengths_of_which_each_is_usual_are_two_graphs(tmp_path: Path) -> None:
    assert unknown(graphs([range(10), range(6), range(10), range(6)]), tmp_path) == {}


def test_one_longer_launch_is_no_measure(tmp_path: Path) -> None:
    assert unknown(graphs([range(10), range(6)]), tmp_path) == {}


def test_a_shorter_graph_with_other_operations_is_whole(tmp_path: Path) -> None:
    builder = graphs([range(10), range(10)], names=10)
    builder.step(2, 2000, 3000).runtime("cudaGraphLaunch", 2000, 2050, correlation=7)
    assert unknown(builder.kernel(2100, 2140, name="another", correlation=7), tmp_path) == {}


def test_kernels_of_graphs_without_a_link_to_their_launch_are_not_lost(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in builder.steps(3, 1000):
        builder.launch(at, at + 10, kernel=(at + 20, at + 30))
        builder.runtime("hipGraphLaunch", at + 40, at + 50).kernel(at + 60, at + 500)
    facts = facts_of(builder, tmp_path)
    assert not facts.unknown.spans
    assert "kernels-missing" not in {note.code for note in facts.notes}


# -- work from before the recording -----------------------------------------------------------------------------------


def first_copy(
    starts: int, *, call: str = "cudaMemcpyAsync", direction: str = "h2d", length: int = 10_000
) -> TraceBuilder:
    """A copy called at 500 us, the first operation of the recording, and work behind it."""
    builder = step(length).loader(0, 400).op("aten::copy_", 490, starts + 130)
    builder.copy(500, starts + 110, on_device=(starts, starts + 100), call=call, direction=direction)
    return builder.launch(starts + 200, starts + 210, kernel=(starts + 220, 9000))


@pytest.mark.parametrize(
    ("call", "direction"), [("cudaMemcpyAsync", "h2d"), ("cudaMemcpy", "h2d"), ("hipMemcpyWithStream", "d2h")]
)
def test_a_first_copy_that_waits_long_waits_for_work_without_a_record(
    call: str, direction: str, tmp_path: Path
) -> None:
    builder = first_copy(4500, call=call, direction=direction)
    assert unknown(builder, tmp_path) == {"earlier": [(500, 4500)]}
    parts = breakdown_us(builder, tmp_path)
    assert (parts["idle_unknown"], parts["data_wait"]) == (4000, 400)


@pytest.mark.parametrize(("starts", "found"), [(1500, {}), (1501, {"earlier": [(500, 1501)]})])
def test_a_wait_of_a_millisecond_is_not_long(starts: int, found: Found, tmp_path: Path) -> None:
    assert unknown(first_copy(starts), tmp_path) == found


def test_a_later_copy_cannot_wait_for_work_from_before_the_recording(tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 100)).op("aten::copy_", 490, 4630)
    assert unknown(builder.copy(500, 4610, on_device=(4500, 4600)), tmp_path) == {}


@pytest.mark.parametrize("name", ["cudaStreamSynchronize", "cudaEventSynchronize", "hipDeviceSynchronize"])
def test_a_synchronisation_before_all_records_waits_for_work_without_one(name: str, tmp_path: Path) -> None:
    builder = (
        step()
        .sync(100, 3000, name=name)
        .launch(3100, 3110, kernel=(3120, 9000))
        .launch(3200, 3210, kernel=(9000, 9500))
    )
    assert unknown(builder, tmp_path) == {"earlier": [(100, 3000)]}


def test_a_later_synchronisation_is_explained_by_what_was_recorded(tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 100)).sync(200, 4000).launch(4100, 4110, kernel=(4120, 9000))
    assert unknown(builder, tmp_path) == {}


def test_the_profiler_that_stops_waits_for_nothing_unknown(tmp_path: Path) -> None:
    builder = step().kernel(5000, 5010).sync(100, 3000, name="cudaDeviceSynchronize")
    assert unknown(builder, tmp_path) == {}


def test_a_synchronisation_with_another_device_is_explained(tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 3000), device=1).sync(100, 3010)
    assert unknown(builder.launch(3100, 3110, kernel=(3120, 9000)), tmp_path) == {}


# -- latency ----------------------------------------------------------------------------------------------------------


def latencies(*us: int, stream: int = 7) -> TraceBuilder:
    """Launches of 10 us to an idle device, 10 ms apart; the kernels start so long after the call and run 1 ms."""
    builder = TraceBuilder().step(0, 0, 10_000 * len(us))
    for number, latency in enumerate(us):
        at = 10_000 * number
        builder.launch(at, at + 10, kernel=(at + 10 + latency, at + 1010 + latency), stream=stream)
    return builder


def test_a_start_long_after_the_launch_that_nothing_explains_is_unknown(tmp_path: Path) -> None:
    assert unknown(latencies(5, 5, 5, 5, 4000), tmp_path) == {"latency": [(40_010, 44_010)]}


def test_a_millisecond_is_latency(tmp_path: Path) -> None:
    assert unknown(latencies(5, 5, 5, 5, 1000), tmp_path) == {}
    assert unknown(latencies(5, 5, 5, 5, 1001), tmp_path) == {"latency": [(40_010, 41_011)]}


def test_twenty_times_the_usual_latency_is_latency(tmp_path: Path) -> None:
    # From the start of the call it is 100 us as a rule; from its end the last one takes 2000 or 2001.
    assert unknown(latencies(90, 90, 90, 90, 2000), tmp_path) == {}
    assert unknown(latencies(90, 90, 90, 90, 2001), tmp_path) == {"latency": [(40_010, 42_011)]}


def test_few_latencies_have_no_median(tmp_path: Path) -> None:
    assert unknown(latencies(1500, 1500), tmp_path) == {"latency": [(10, 1510), (10_010, 11_510)]}
    assert unknown(latencies(1500, 1500, 1500, 1500), tmp_path) == {}


def test_a_first_operation_behind_a_queue_from_before_the_recording_is_unknown(tmp_path: Path) -> None:
    builder = step().launch(100, 110, kernel=(5000, 6000)).launch(120, 130, kernel=(6000, 9000))
    assert unknown(builder, tmp_path) == {"latency": [(110, 5000)]}


def test_a_long_queue_is_no_latency(tmp_path: Path) -> None:
    builder = step()
    for number in range(90):
        builder.launch(2 * number, 2 * number + 1, kernel=(200 + 100 * number, 299 + 100 * number))
    assert unknown(builder, tmp_path) == {}


def test_a_kernel_that_waits_for_another_stream_is_explained(tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 5000), stream=8).launch(20, 30, kernel=(5005, 6000), stream=7)
    assert unknown(builder, tmp_path) == {}


def test_gaps_between_kernels_of_another_stream_are_explained(tmp_path: Path) -> None:
    """An all-reduce waits for gradients; between their kernels the device is idle for the usual reasons."""
    builder = step().collective(0, 10, kernel=(8000, 9000))
    for at in range(100, 8000, 500):
        builder.launch(at, at + 10, kernel=(at + 20, at + 100))
    assert unknown(builder, tmp_path) == {}


def test_a_kernel_that_waits_for_another_device_is_explained(tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 5000), device=1).launch(20, 30, kernel=(5010, 6000))
    assert unknown(builder, tmp_path) == {}


def test_a_launch_call_that_loads_a_module_is_launching(tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 100)).op("aten::mm", 190, 5030).launch(200, 5010, kernel=(5012, 6000))
    assert unknown(builder, tmp_path) == {}
    assert breakdown_us(builder, tmp_path)["idle_launch"] == pytest.approx(10 + 10 + 4820 + 2 + 18, abs=30)


def test_a_first_launch_call_that_loads_a_module_is_launching(tmp_path: Path) -> None:
    assert unknown(step().op("aten::mm", 0, 5030).launch(200, 5010, kernel=(5012, 6000)), tmp_path) == {}


def test_a_host_that_does_nothing_is_not_unknown(tmp_path: Path) -> None:
    builder = step().launch(0, 10, kernel=(20, 100)).launch(8000, 8010, kernel=(8020, 9000))
    assert unknown(builder, tmp_path) == {}


def test_without_recorded_gpu_work_nothing_is_unknown(tmp_path: Path) -> None:
    for builder in (TraceBuilder().python("train.py(1): main", 0, 9), step().launch(0, 10).op("aten::mm", 0, 20)):
        facts = facts_of(builder, tmp_path)
        assert not facts.unknown.spans
        assert Category.IDLE_UNKNOWN not in facts.partition


# -- what follows -----------------------------------------------------------------------------------------------------


def test_unknown_time_is_no_cause_of_idle_time(tmp_path: Path) -> None:
    facts = facts_of(first_copy(4500), tmp_path)
    assert facts.mean is not None
    totals = facts.mean.totals
    assert totals.unknown_ns == 4_000_000
    causes = [facts.partition[category] for category in Category if category.value.startswith("idle_")]
    assert sum(spans.total_ns for spans in causes[1:]) == totals.idle_ns
    assert not any(facts.unknown.spans & spans for spans in causes[1:])


def test_the_note_says_how_much_is_unknown_and_why(tmp_path: Path) -> None:
    builder = first_copy(1600).launch(9100, 9110).launch(9300, 9310, kernel=(9320, 9900))
    (note,) = (note for note in facts_of(builder, tmp_path).notes if note.code == "gpu-unknown")
    assert note.message == (
        "For 13.1% of the step time, the recording does not show whether the GPU worked: "
        "launched kernels have no GPU record (2.1%); the CPU waited for the GPU while no GPU work was recorded (11.0%)."
    )
    assert note.degrades


@pytest.mark.parametrize(("length", "degrades"), [(20_000, True), (20_020, False)])
def test_less_than_a_tenth_of_unknown_time_only_informs(length: int, tmp_path: Path, *, degrades: bool) -> None:
    (note,) = (note for note in facts_of(first_copy(2500, length=length), tmp_path).notes if "unknown" in note.code)
    assert note.degrades is degrades
    assert note.message == (
        "For 10.0% of the step time, the recording does not show whether the GPU worked: "
        "the CPU waited for the GPU while no GPU work was recorded."
    )


@pytest.mark.parametrize(("length", "noted"), [(10_000, True), (10_001, False)])
def test_unknown_time_that_changes_no_figure_gets_no_note(length: int, tmp_path: Path, *, noted: bool) -> None:
    builder = step(length).launch(0, 10, kernel=(20, 500)).launch(500, 500).launch(505, 506, kernel=(510, 600))
    facts = facts_of(builder, tmp_path)
    assert facts.unknown.spans.total_ns == 10_000
    assert ("gpu-unknown" in {note.code for note in facts.notes}) is noted


def test_unknown_time_of_steps_that_are_not_typical_only_informs(tmp_path: Path) -> None:
    builder = (
        TraceBuilder().step(0, 0, 5000).copy(100, 3110, on_device=(3000, 3100)).launch(3200, 3210, kernel=(3220, 4900))
    )
    for number in range(1, 4):
        at = 2000 + 3000 * number
        builder.step(number, at, at + 3000).launch(at + 100, at + 110, kernel=(at + 120, at + 2900))
    (note,) = (note for note in facts_of(builder, tmp_path).notes if note.code == "gpu-unknown")
    assert note.message == (
        "For 20.7% of the step time, the recording does not show whether the GPU worked, "
        "in steps that are not typical: the CPU waited for the GPU while no GPU work was recorded."
    )
    assert not note.degrades


def test_unknown_time_outside_the_steps_gets_no_note(tmp_path: Path) -> None:
    builder = TraceBuilder().launch(0, 10).launch(2000, 2010, kernel=(2020, 2100))
    facts = facts_of(builder.step(0, 3000, 13_000).launch(3000, 3010, kernel=(3020, 12_000)), tmp_path)
    assert spans_us(facts.unknown.spans) == [(10, 2020)]
    assert [note.code for note in facts.notes if note.code == "gpu-unknown"] == []
