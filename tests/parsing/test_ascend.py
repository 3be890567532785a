"""Recordings of torch_npu: an event list with process tracks and task types instead of categories."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.build import TraceBuilder
from tests.judging.test_other_accelerators import OF_CUDA
from traceadvisor import load
from traceadvisor.analysis.communication.late_ranks import awaited_rank
from traceadvisor.analysis.operators.launches import link_launches
from traceadvisor.analysis.operators.lost_launches import expected_launches
from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Option, Skipped
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Origin, Trace
from traceadvisor.parsing.discovery import find_recordings
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.rendering.content.report.job import job_verdict
from traceadvisor.rules.dist.dist005_straggler import NAMED

PYTHON, CANN, HARDWARE, HCCL = 100, 200, 300, 400
MAIN, QUEUE = 100, 101


def _event(name: str, start: int, end: int, process: int, thread: int = MAIN, **members: Any) -> dict[str, Any]:
    times = {"ts": f"{start}.000", "dur": end - start}
    return {"ph": "X", "name": name, "pid": process, "tid": thread, **times, **members}


def _task(name: str, task: str, times: tuple[int, int], connection: int, *, stream: int = 2) -> dict[str, Any]:
    args = {"Task Type": task, "Physic Stream Id": stream, "connection_id": connection}
    return _event(name, *times, HARDWARE, stream, args=args)


def _queued(number: int, operator: str, enqueued: int, dequeued: int, connection: int) -> list[dict[str, Any]]:
    """An operator's way through the task queue, to a launch with a connection."""
    args = {"correlation_id": number}
    launch = {"Mode": "launch", "level": "node", "connection_id": connection}
    return [
        _event("Enqueue", enqueued, enqueued + 1, PYTHON, MAIN, cat="enqueue", args=args),
        _event(f"Dequeue@{operator}", dequeued, dequeued + 4, PYTHON, QUEUE, cat="dequeue", args=args),
        _event("Node@launch", dequeued + 1, dequeued + 3, CANN, QUEUE, args=launch),
    ]


def _trace(folder: Path, *events: dict[str, Any]) -> Trace:
    path = folder / "trace_view.json"
    path.write_text(json.dumps([_event("aten::mm", 0, 100, PYTHON, cat="cpu_op"), *events]))
    return read_trace(Origin(path, "", "rank0", ""))


def _ranks(shared: Path) -> list[Origin]:
    return list(find_recordings([shared / "ascend/two-ranks-level1"]).origins)


@pytest.mark.parametrize(
    ("name", "task", "kind"),
    [
        ("MatMul", "AI_CORE", Kind.KERNEL),
        ("Dropout", "DSA_SQE", Kind.KERNEL),
        ("MEMCPY_ASYNC", "SDMA_SQE", Kind.COPY_OTHER),
        ("EVENT_WAIT", "EVENT_WAIT_SQE", Kind.DEVICE_WAIT),
        ("Notify Wait", "Notify Wait", Kind.DEVICE_WAIT),
        ("EVENT_RECORD", "EVENT_RECORD_SQE", Kind.OTHER),
    ],
)
def test_the_type_of_a_task_decides_its_kind(name: str, task: str, kind: Kind, tmp_path: Path) -> None:
    trace = _trace(tmp_path, _task(name, task, (10, 20), 1))
    assert Kind(trace.events.kind[1]) is kind
    assert trace.accelerator == "Ascend"
    assert trace.health.notes == ()


def test_a_collective_is_recorded_as_a_whole_and_in_steps_of_which_only_the_whole_counts(tmp_path: Path) -> None:
    trace = _trace(
        tmp_path,
        _event("hcom_allReduce__586_0_1", 10, 50, HCCL, 0, args={"connection_id": 1}),
        _event("Reduce_Inline", 12, 20, HCCL, 1, args={"notify_id": "0"}),
        _task("SDMA", "SDMA", (12, 20), 1, stream=4),
    )
    assert trace.events.start_ns[trace.events.rows(Kind.COLLECTIVE)].tolist() == [10_000]
    assert not trace.events.rows(Kind.KERNEL, Kind.COPY_OTHER).size


def test_a_kernel_belongs_to_the_thread_that_enqueued_it(tmp_path: Path) -> None:
    trace = _trace(tmp_path, *_queued(7, "MatMul", 10, 20, connection=7), _task("MatMul", "AI_CORE", (30, 40), 7))
    events, launches = trace.events, link_launches(trace.events)
    (call,) = launches.call_rows.tolist()
    assert trace.names[events.name_id[call]] == "Enqueue"
    assert events.thread[call] == events.thread[0]


def test_a_kernel_that_passed_no_queue_belongs_to_the_call_of_the_runtime(tmp_path: Path) -> None:
    call = _event("AscendCL@aclnnMm", 10, 15, CANN, args={"connection_id": 9})
    trace = _trace(tmp_path, call, _task("MatMul", "AI_CORE", (30, 40), 9))
    (row,) = link_launches(trace.events).call_rows.tolist()
    assert trace.names[trace.events.name_id[row]] == "AscendCL@aclnnMm"
    assert trace.events.thread[row] == trace.events.thread[0]


@pytest.mark.parametrize("is_queued", [True, False])
def test_a_launch_within_the_runtime_has_the_record_of_its_kernel(tmp_path: Path, *, is_queued: bool) -> None:
    """A recording of level 2 holds calls below ``Node@launch``, with the same connection."""
    queued = _queued(7, "MatMul", 10, 20, connection=7) if is_queued else []
    below = _event("Runtime@KernelLaunchWithHandle", 21, 22, CANN, QUEUE, args={"connection_id": 7})
    trace = _trace(tmp_path, *queued, below, _task("MatMul", "AI_CORE", (30, 40), 7))
    launches = expected_launches(trace)
    assert launches.rows.size == 1
    assert launches.lost_rows.size == 0


def test_a_launch_without_a_kernel_is_lost(tmp_path: Path) -> None:
    queued = [event for number in (7, 8) for event in _queued(number, "Mul", 10 * number, 10 * number + 5, number)]
    below = [
        _event(
            "Runtime@KernelLaunchWithHandle",
            10 * number + 6,
            10 * number + 7,
            CANN,
            QUEUE,
            args={"connection_id": number},
        )
        for number in (7, 8)
    ]
    trace = _trace(tmp_path, *queued, *below, _task("Mul", "AI_CORE", (90, 100), 7))
    assert trace.events.start_ns[expected_launches(trace).lost_rows].tolist() == [86_000]


def test_a_queued_copy_has_the_direction_of_its_operator(tmp_path: Path) -> None:
    queued = _queued(3, "acl_memcpy_host_to_device", 10, 20, connection=5)
    trace = _trace(tmp_path, *queued, _task("MEMCPY_ASYNC", "PCIE_DMA_SQE", (30, 40), 5))
    assert trace.events.rows(Kind.COPY_H2D).size == 1


def test_shapes_types_and_stacks_are_read_from_their_texts(tmp_path: Path) -> None:
    args = {
        "Input Dims": "32,9216;\r\n9216,4096;\r\n",
        "Input type": "float;\r\nfloat;\r\nScalar",
        "Call stack": "train.py(3): step;\r\ntrain.py(9): main",
    }
    trace = _trace(tmp_path, _event("aten::mm", 10, 20, PYTHON, cat="cpu_op", args=args))
    assert {*trace.texts, ""} == {
        "",
        "[[32,9216], [9216,4096], []]",
        "float;float;Scalar",
        "train.py(3): step;train.py(9): main",
    }


def test_an_unknown_type_of_task_is_work_that_is_not_understood(tmp_path: Path) -> None:
    trace = _trace(tmp_path, _task("Brew", "COFFEE_SQE", (10, 20), 1))
    assert trace.unread_work == {"task COFFEE_SQE"}


def test_a_folder_has_one_recording_per_rank(shared_traces: Path) -> None:
    found = find_recordings([shared_traces / "ascend/two-ranks-level1"])
    assert [(one.worker, one.rank, one.run) for one in found.origins] == [
        ("rank0", 0, "two-ranks-level1"),
        ("rank1", 1, "two-ranks-level1"),
    ]
    assert found.notes == ()


@pytest.mark.parametrize("inside", [".", "ASCEND_PROFILER_OUTPUT", "ASCEND_PROFILER_OUTPUT/trace_view.json"])
def test_the_folder_of_one_rank_is_its_recording(inside: str, tmp_path: Path) -> None:
    folder = tmp_path / "node7_4711_20250109074804_ascend_pt"
    (folder / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
    (folder / "profiler_info_3.json").write_text("{}")
    _trace(folder / "ASCEND_PROFILER_OUTPUT", _task("MatMul", "AI_CORE", (10, 20), 1))
    (origin,) = find_recordings([folder / inside]).origins
    assert (origin.worker, origin.span, origin.rank) == ("node7_4711", "20250109074804", 3)


@pytest.mark.parametrize("rank", [0, 1])
def test_in_the_vendors_window_the_breakdown_is_the_vendors(rank: int, shared_traces: Path) -> None:
    origin = _ranks(shared_traces)[rank]
    with (origin.path.parent / "step_trace_time.csv").open() as file:
        (vendor,) = ({key: float(value) for key, value in row.items()} for row in csv.DictReader(file))
    facts = Facts(read_trace(origin), 0, "")
    events = facts.trace.events
    kernels = events.spans(events.rows(Kind.KERNEL))
    window = SpanSet.of((int(kernels.starts_ns[0]), int(kernels.ends_ns[-1])))  # from the first computation to the last
    ours = {category: (spans & window).total_ns / 1000 for category, spans in facts.partition.items()}
    computing, communication = ours.pop(Category.KERNEL), ours.pop(Category.COMMUNICATION)
    assert window.total_ns / 1000 == pytest.approx(vendor["Stage"], rel=1e-4)
    assert computing == pytest.approx(vendor["Computing"], rel=1e-4)
    assert communication == pytest.approx(vendor["Communication(Not Overlapped)"], rel=1e-4)
    assert sum(ours.values()) == pytest.approx(vendor["Free"], rel=1e-4)  # it counts copies as free, too


@pytest.mark.parametrize("rank", [0, 1])
def test_all_work_of_a_real_recording_is_linked_to_its_python_threads(rank: int, shared_traces: Path) -> None:
    trace = read_trace(_ranks(shared_traces)[rank])
    launches = link_launches(trace.events)
    assert launches.call_rows.size == 215
    assert (launches.call_rows != NONE).all()
    operators = trace.events.thread[trace.events.rows(Kind.OPERATOR)]
    assert set(trace.events.thread[launches.call_rows].tolist()) == set(operators.tolist())


def test_a_launch_takes_until_its_operator_has_left_the_queue(tmp_path: Path) -> None:
    args = {"correlation_id": 1}
    trace = _trace(
        tmp_path,
        _task("MatMul", "AI_CORE", (5, 10), 99),
        _event("Enqueue", 20, 30, PYTHON, MAIN, cat="enqueue", args=args),
        _event("Dequeue@Conv2D", 40, 5_000, PYTHON, QUEUE, cat="dequeue", args=args),
        _event("Node@launch", 4_980, 4_990, CANN, QUEUE, args={"connection_id": 1}),
        _task("Conv2D", "AI_CORE", (4_995, 6_000), 1),
    )
    assert not Facts(trace, 0, "").unknown.spans


def test_a_pause_between_the_transfers_of_a_collective_is_a_wait_for_other_ranks(tmp_path: Path) -> None:
    collective = _event("hcom_allReduce__586_0_1", 100, 1_000, HCCL, 0, args={"connection_id": 1})
    steps = [_task("SDMA", "SDMA", span, 1, stream=4) for span in ((100, 110), (700, 960))]
    assert list(Facts(_trace(tmp_path, collective, *steps), 0, "").recorded_waits) == [(110_000, 700_000)]
    remote = _event("RDMASend", 110, 120, HCCL, 1)  # data may be on the way meanwhile
    assert not Facts(_trace(tmp_path, collective, *steps, remote), 0, "").recorded_waits


def test_waiting_for_another_rank_is_the_first_finding_of_ranks_that_all_wait(shared_traces: Path) -> None:
    report = load(shared_traces / "ascend/two-ranks-level1")
    first = report.findings[0]
    assert first.finding.rule.id == "DIST005"
    assert len(first.recording_ids) == 2
    assert first.finding.saving.high_ns == pytest.approx(92.3e6, rel=0.01)


@pytest.mark.parametrize("folder", [".", "rank0_ascend_pt", "rank1_ascend_pt"])
def test_the_rank_that_all_wait_for_is_named_although_it_was_not_recorded(folder: str, shared_traces: Path) -> None:
    """Sums of the files' own waits: rank 0 waits 101.7 of 112.5 ms for rank 5, rank 1 waits 96.1 of 96.5 ms."""
    report = load(shared_traces / "ascend/two-ranks-level1" / folder)
    assert report.findings[0].finding.fix.summary == NAMED.format(5)
    for job in report.jobs:
        assert (
            job_verdict(job)
            == "All recorded ranks wait for rank 5, which was not recorded: at least 92.3 ms per step (59.1%)."
        )


def _wait(own: int, peer: int, start: int, end: int) -> dict[str, Any]:
    return _event("Notify_Wait", start, end, HCCL, 1 + peer, args={"src rank": own, "dst rank": peer})


@pytest.mark.parametrize(
    ("rows", "rank"),
    [
        ([(0, 1, 110, 120), (0, 2, 110, 700), (0, 3, 110, 120)], 2),
        ([(0, 1, 110, 600), (0, 2, 110, 700), (0, 3, 110, 120)], None),  # two ranks are late
        ([(0, 1, 110, 120), (0, 2, 110, 400), (0, 3, 110, 120)], None),  # most of the wait has another reason
        ([(0, 1, 110, 120), (0, 2, 710, 960), (0, 3, 110, 120)], None),  # it waits while data is transferred
        ([(0, 1, 110, 120), (0, 7, 110, 700)], None),  # a ring: the neighbor may wait itself
        ([(0, 1, 110, 120), (0, 2, 110, 700), (0, 4, 110, 120)], None),  # halving and doubling
        ([(1, 0, 110, 120), (1, 2, 110, 700), (1, 3, 110, 120)], None),  # numbers within a group
        ([(0, 1, 110, 120), (0, 2, 110, 700), (0, 3, 110, 120), (0, (1 << 32) - 1, 110, 120)], None),
        ([], None),
    ],
)
def test_the_late_rank_is_named_if_each_waits_for_all_and_one_causes_most(
    rows: list[tuple[int, int, int, int]], rank: int | None, tmp_path: Path
) -> None:
    collective = _event("hcom_allReduce__586_0_1", 100, 1_000, HCCL, 0, args={"connection_id": 1})
    steps = [_task("SDMA", "SDMA", span, 1, stream=4) for span in ((100, 110), (700, 960))]
    trace = _trace(tmp_path, collective, *steps, *(_wait(*row) for row in rows))
    assert awaited_rank(trace, Facts(trace, 0, "").recorded_waits, 0) == rank


def test_one_rank_alone_shows_that_it_waits(shared_traces: Path) -> None:
    report = load(shared_traces / "ascend/two-ranks-level1/rank1_ascend_pt")
    assert report.findings[0].finding.rule.id == "DIST005"


def test_no_advice_for_an_ascend_device_speaks_of_what_it_does_not_have(shared_traces: Path) -> None:
    report = load(shared_traces / "ascend/two-ranks-level1")
    fixes = [(row.finding.fix.summary, row.finding.fix.change, *row.finding.caveats) for row in report.findings]
    texts = [str(fixes), *(row.outcome.reason for row in report.outcomes if isinstance(row.outcome, Skipped))]
    foreign = [text for text in texts if OF_CUDA.search(text.replace("what CUDA devices have", ""))]
    assert foreign == []


def test_no_check_asks_for_an_option_that_the_profiler_had(shared_traces: Path) -> None:
    trace = read_trace(_ranks(shared_traces)[0])
    assert trace.options == {Option.STACKS, Option.SHAPES, Option.MEMORY}
    report = load(trace.origin.path)
    reasons = {row.rule_id: row.outcome.reason for row in report.outcomes if isinstance(row.outcome, Skipped)}
    assert reasons["MEM001"] == "GPU memory was not recorded, although it was recorded with profile_memory=True."


@pytest.mark.parametrize("text", ["", "[]", '{"config": 3}', '{"config": {"common_config": []}}', "[" * 100_000])
def test_a_damaged_file_about_the_process_costs_the_options_only(text: str, tmp_path: Path) -> None:
    folder = tmp_path / "host_ascend_pt"
    (folder / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
    (folder / "profiler_info_1.json").write_text(text)
    trace = _trace(folder / "ASCEND_PROFILER_OUTPUT", _task("MatMul", "AI_CORE", (10, 20), 1))
    assert trace.options == set()


@pytest.mark.parametrize("is_pipe", [True, False])
def test_a_pipe_or_a_link_in_the_place_of_the_file_about_the_process_is_not_read(
    tmp_path: Path, *, is_pipe: bool
) -> None:
    elsewhere, folder = tmp_path / "elsewhere.json", tmp_path / "host_ascend_pt"
    elsewhere.write_text('{"config": {"common_config": {"with_stack": true}}}')
    (folder / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
    about = folder / "profiler_info_1.json"
    if is_pipe:
        os.mkfifo(about)
    else:
        about.symlink_to(elsewhere)
    trace = _trace(folder / "ASCEND_PROFILER_OUTPUT", _task("MatMul", "AI_CORE", (10, 20), 1))
    assert trace.options == set()


def test_a_rank_in_words_is_no_rank_and_no_damage(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 10, 60)
    builder.events[-1]["args"] |= {"src rank": "local", "dst rank": "N/A"}
    trace = builder.trace(tmp_path)
    assert trace.health.events_repaired == 0
    assert trace.details.peer_rank.rows.size == 0
