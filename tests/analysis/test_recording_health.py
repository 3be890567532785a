"""Notes say what a recording lacks, and lower the confidence of findings that depend on it."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.analysis.analysing import facts_of
from tests.build import TraceBuilder
from tests.rules.captured import NODE, PROCESSES
from traceadvisor.analysis.recording_health import machine_notes, start_up_notes
from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Confidence, Input
from traceadvisor.model.steps import Step, StepSource, StepTable
from traceadvisor.model.telemetry_window import TelemetryWindow
from traceadvisor.savings.outcomes import confidence_of


def steps(lost: list[int], launches: int = 10) -> TraceBuilder:
    """Steps of 100 us with so many launches each, of which so many have no kernel."""
    builder = TraceBuilder()
    for step, missing in enumerate(lost):
        start = 100 * step
        builder.step(step, start, start + 100).loader(start, start + 2).op("aten::mm", start + 2, start + 90)
        for number in range(launches):
            at = start + 5 + 2 * number
            builder.launch(at, at + 1, kernel=None if number < missing else (at + 1, at + 2))
    return builder


def notes(facts: Facts) -> dict[str, bool]:
    return {note.code: note.degrades for note in facts.notes}


def message(facts: Facts, code: str) -> str:
    return next(note.message for note in facts.notes if note.code == code)


def test_a_whole_recording_has_no_note(tmp_path: Path) -> None:
    facts = facts_of(steps([0, 0, 0, 0]), tmp_path)
    assert notes(facts) == {}
    assert confidence_of(facts) is Confidence.HIGH


def test_kernels_launched_but_not_recorded_at_all_rule_out_claims_about_the_device(tmp_path: Path) -> None:
    facts = facts_of(steps([10, 10, 10, 10]), tmp_path)
    assert message(facts, "no-kernels").startswith("The CPU launched 40 kernels but the recording holds none of them")
    assert Category.KERNEL not in facts.partition
    assert facts.missing(frozenset({Input.DEVICE})) is not None
    assert confidence_of(facts) is Confidence.MEDIUM


def test_a_gpu_that_the_profiler_could_not_record_shows_in_its_memory(tmp_path: Path) -> None:
    """The calls that launch kernels come from CUPTI, too: without it neither they nor the kernels are recorded."""
    builder = TraceBuilder()
    for number, at in enumerate(builder.steps(4, 1000)):
        builder.op("aten::mm", at + 100, at + 200)
        builder.memory(at + 150, 512, total_allocated=512 * (number + 1))
    facts = facts_of(builder, tmp_path)
    assert "traceadvisor doctor" in message(facts, "no-kernels")
    assert notes(facts)["no-kernels"]
    assert "no-device" not in notes(facts)


def test_missing_first_kernels_are_reported_and_their_step_is_left_out(tmp_path: Path) -> None:
    facts = facts_of(steps([4, 0, 0, 0]), tmp_path)
    assert message(facts, "kernels-missing").startswith("4 of 40 kernels launched in the steps are missing")
    assert [step.index for step in facts.steps.kept] == [1, 2, 3]
    assert notes(facts) == {"kernels-missing": True, "step-left-out": False}  # what is unknown lies in that step


def test_launches_of_which_none_has_a_kernel_are_not_called_lost_kernels(tmp_path: Path) -> None:
    builder = steps([10, 10, 10, 10])
    builder.kernel(350, 380)
    said = message(facts_of(builder, tmp_path), "kernels-missing")
    assert said.startswith("None of the 40 launches in the steps has the correlation id of a kernel.")


def test_damage_explains_missing_kernels_before_the_profiler_does(tmp_path: Path) -> None:
    trace = steps([4, 0, 0, 0]).trace(tmp_path)
    whole = Facts(trace, 0, "a")
    damaged = Facts(replace(trace, health=replace(trace.health, events_dropped=1_215)), 0, "a")
    assert "Profilers lose the first kernels" in message(whole, "kernels-missing")
    said = message(damaged, "kernels-missing")
    assert said.endswith("The file is damaged: 1,215 of its events could not be read, and these may be among them.")


@pytest.mark.parametrize(("lost", "is_noted"), [([1, 1, 1, 1, 0], False), ([1, 1, 1, 1, 1], True)])
def test_missing_kernels_are_reported_above_two_percent_of_all_launches(
    lost: list[int], tmp_path: Path, *, is_noted: bool
) -> None:
    facts = facts_of(steps(lost, launches=40), tmp_path)  # 4 and 5 of 200
    assert ("kernels-missing" in notes(facts)) is is_noted


def test_kernels_missing_everywhere_make_everything_less_sure(tmp_path: Path) -> None:
    facts = facts_of(steps([3, 3, 3, 3]), tmp_path)
    assert len(facts.steps.kept) == 4
    assert confidence_of(facts) is Confidence.MEDIUM


@pytest.mark.parametrize(
    ("marked", "count", "confidence"),
    [
        (True, 3, Confidence.HIGH),
        (True, 1, Confidence.LOW),
        (False, 5, Confidence.MEDIUM),
        (False, 1, Confidence.LOW),
    ],
)
def test_few_steps_and_steps_without_marks_lower_the_confidence(
    marked: bool,  # noqa: FBT001  # one of two kinds of recording
    count: int,
    confidence: Confidence,
    tmp_path: Path,
) -> None:
    builder = steps([0] * count)
    if not marked:
        builder.events[:] = [event for event in builder.events if not event["name"].startswith("ProfilerStep#")]
        for end in range(100, 100 * count + 1, 100):
            builder.optimizer(end - 1, end)
    facts = facts_of(builder, tmp_path)
    assert len(facts.steps.kept) >= min(count, 3)
    assert confidence_of(facts) is confidence


def test_the_last_step_of_a_recording_that_stopped_there_is_no_loss(tmp_path: Path) -> None:
    assert notes(facts_of(steps([0, 0, 0, 0, 9]), tmp_path)) == {"step-dropped": False}


LOG = (
    "WARNING:2026-11-20 09:59:04 47:47 CuptiActivityApi.cpp:174] Exceeded max GPU buffer count (33 >= 33) - terminating"
)
SUMMARY = "INFO:2026-11-20 09:59:05 47:47 Profiler.cpp:341] Record counts: Out-of-range = 12, CUPTI stopped early? = {}"


@pytest.mark.parametrize(("log", "line"), [("WARNING", LOG), ("INFO", SUMMARY.format(1)), ("ERROR", LOG)])
def test_a_profiler_that_stopped_early_is_reported_with_the_remedy(log: str, line: str, tmp_path: Path) -> None:
    facts = facts_of(steps([0, 0, 0, 0]).member(log, ["a line", line]), tmp_path)
    assert "ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB" in message(facts, "stopped-early")
    assert confidence_of(facts) is Confidence.MEDIUM


def _full(*, launches_recorded: bool) -> TraceBuilder:
    """Six steps; in or after the third the buffers are full, and the CPU goes on."""
    builder = steps([0, 0, 0])
    for step in (3, 4, 5):
        start = 100 * step
        builder.step(step, start, start + 100).loader(start, start + 2).op("aten::mm", start + 2, start + 90)
        if launches_recorded:
            builder.launch(start + 5, start + 6, kernel=None)
    return builder


@pytest.mark.parametrize("launches_recorded", [True, False])
def test_a_profiler_whose_buffers_were_full_is_noticed_without_its_log(
    tmp_path: Path, *, launches_recorded: bool
) -> None:
    facts = facts_of(_full(launches_recorded=launches_recorded), tmp_path)
    assert message(facts, "stopped-early").startswith("After step 2 no GPU activity is recorded")
    assert "ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB" in message(facts, "stopped-early")
    assert [step.index for step in facts.steps.kept] == [0, 1]
    assert confidence_of(facts) is not Confidence.HIGH


def test_full_buffers_are_reported_once(tmp_path: Path) -> None:
    facts = facts_of(_full(launches_recorded=True).member("WARNING", [LOG]), tmp_path)
    assert [note.code for note in facts.notes].count("stopped-early") == 1


def test_a_step_without_gpu_work_between_others_is_no_sign_of_full_buffers(tmp_path: Path) -> None:
    builder = steps([0, 0])
    builder.step(2, 200, 300).loader(200, 202).op("aten::mm", 202, 290)
    builder.step(3, 300, 400).loader(300, 302).op("aten::mm", 302, 390).launch(305, 306, kernel=(306, 307))
    assert "stopped-early" not in notes(facts_of(builder, tmp_path))


@pytest.mark.parametrize("log", [[SUMMARY.format(0)], "a text", [1, None], {"a": LOG}])
def test_an_unrelated_log_line_gives_no_note(log: object, tmp_path: Path) -> None:
    assert notes(facts_of(steps([0, 0, 0, 0]).member("INFO", log), tmp_path)) == {}


@pytest.mark.parametrize(("lost", "codes"), [(2, ["gpu-unknown"]), (3, ["kernels-missing", "gpu-unknown"])])
def test_kernels_are_missing_beyond_two_percent_of_all_launches(lost: int, codes: list[str], tmp_path: Path) -> None:
    # Each of four steps loses as many of its hundred launches, so that none of them stands out.
    builder = TraceBuilder()
    for step in range(4):
        builder.step(step, 1000 * step, 1000 * step + 1000).loader(1000 * step, 1000 * step + 1)
        builder.op("aten::mm", 1000 * step + 1, 1000 * step + 2)
        for number in range(100):
            at = 1000 * step + 10 * number
            builder.launch(at, at + 1, kernel=None if number < lost else (at + 1, at + 9))
    assert list(notes(facts_of(builder, tmp_path))) == codes


@pytest.mark.parametrize(("share", "code"), [(0.05, "start-up"), (0.049, "first-step"), (None, None)])
def test_start_up_in_a_short_recording_is_noted(share: float | None, code: str | None) -> None:
    table = StepTable(StepSource.MARKS, (Step(0, 0, 100, 0, 100),))
    assert [note.code for note in start_up_notes(share, table)] == ([code] if code else [])


def test_a_later_step_is_not_the_first_of_the_run() -> None:
    assert list(start_up_notes(0.0, StepTable(StepSource.MARKS, (Step(7, 0, 100, 0, 100),)))) == []


@pytest.mark.parametrize(
    ("share", "own", "samples", "said"),
    [(1.0, 2.0, 4, True), (0.89, 2.0, 4, False), (1.0, 3.3, 4, False), (1.0, 2.0, 3, False)],
)
def test_other_programs_that_keep_all_cores_busy_are_reported(
    share: float, own: float, samples: int, *, said: bool
) -> None:
    node = replace(NODE, mean_cpu_share=share, sample_count=samples)
    window = TelemetryWindow((), node, replace(PROCESSES, mean_cpu_cores=own))
    assert bool(list(machine_notes(window, 4))) is said
    assert list(machine_notes(window, None)) == list(machine_notes(None, 4)) == []


@pytest.mark.parametrize(("threads", "words"), [(4, "OMP_NUM_THREADS=2: the 4 threads"), (2, None), (None, None)])
def test_threads_that_lack_cores_on_a_busy_machine_are_named(threads: int | None, words: str | None) -> None:
    """Other programs use two of four cores."""
    node = replace(NODE, mean_cpu_share=1.0, sample_count=4)
    window = TelemetryWindow((), node, replace(PROCESSES, mean_cpu_cores=2.0))
    (note,) = machine_notes(window, 4, threads)
    assert (words or "Repeat on an idle machine.") in note.message
    assert ("OMP_NUM_THREADS" in note.message) is (words is not None)


def test_a_note_names_an_accelerator_of_which_no_real_recording_was_read(tmp_path: Path) -> None:
    call = {"ph": "X", "cat": "xpu_runtime", "name": "urEnqueueKernelLaunch", "pid": 100, "tid": 100, "ts": 5, "dur": 1}
    builder = TraceBuilder().step(0, 0, 100).event(**call, args={"correlation": 1}).kernel(20, 30, correlation=1)
    facts = facts_of(builder, tmp_path)
    assert "XPU" in message(facts, "accelerator-untested")
    assert not notes(facts)["accelerator-untested"]


def test_without_operators_the_cpu_is_unknown_between_launches(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(1, 2, kernel=(3, 90), name="my_kernel")
    facts = facts_of(builder, tmp_path)
    assert message(facts, "no-operators").endswith("is unknown: record with ProfilerActivity.CPU.")
    (row,) = facts.origins(facts.partition[Category.KERNEL], 8).operators.rows
    assert row.name == "my_kernel"
    assert "no-operators" not in notes(facts_of(builder.op("aten::mm", 1, 2), tmp_path))
