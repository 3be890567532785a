from dataclasses import replace
from typing import Any

import pytest

from tests.build_report import (
    MS,
    SHARES_NO_WORKERS,
    SHARES_ON_HOST,
    device_recording,
    nothing_readable,
    on_the_cpu,
    one_recording,
    rule,
    three_recordings,
    v100,
)
from tests.rendering.captures import captured
from tests.rendering.formatted import every, in_report, sentences, summary
from traceadvisor.model.breakdown import Category
from traceadvisor.model.distortion import Distortion
from traceadvisor.model.findings import Estimate, Evidence, Fix, Unit
from traceadvisor.model.health import HealthNote
from traceadvisor.model.location import Location
from traceadvisor.model.report import Recording, RecordingNote, Report, Umbrella
from traceadvisor.model.run import undisturbed_count
from traceadvisor.model.run_time import CauseTime, RunCause, RunPart, RunTime
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.steps import StepSource
from traceadvisor.model.workload import InferenceSign, Workload
from traceadvisor.rendering.charts.drawing import Chart
from traceadvisor.rendering.content.report.document import report_document
from traceadvisor.rendering.content.report.recordings import (
    busy_words,
    environment_facts,
    main_figures,
    recording_blocks,
    step_figure,
)
from traceadvisor.rendering.document.blocks import Block, Group, Prose, Tone, plain
from traceadvisor.rendering.document.budget import Room, trimmed
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rendering.headline import (
    lost_share,
    recording_of_verdict,
    recording_verdict,
    step_time,
    verdict,
    verdict_scope,
)
from traceadvisor.rendering.units import percent

NOTHING = dict.fromkeys(SHARES_NO_WORKERS, 0.0)


def test_a_recording_that_was_cut_short_gives_the_verdict_only_without_another() -> None:
    report = replace(three_recordings(), findings=())
    worst = recording_of_verdict(report)
    cut = tuple(replace(one, is_cut_short=one is worst) for one in report.recordings)
    assert recording_of_verdict(replace(report, recordings=cut)).id != worst.id
    all_cut = tuple(replace(one, is_cut_short=True) for one in report.recordings)
    assert recording_of_verdict(replace(report, recordings=all_cut)).id == worst.id


def scope(report: Report) -> str | None:
    """What stands under the verdict where no check failed."""
    return verdict_scope(replace(report, outcomes=()))


def said(shares: dict[Category, float]) -> str:
    return recording_verdict(device_recording("x", NOTHING | shares, step_ms=100, device=v100()))


@pytest.mark.parametrize(
    ("category", "share", "sentence"),
    [
        (Category.DATA_WAIT, 0.334, "The GPU waits 33% of each step for the data loader."),
        (Category.DATA_WAIT, 0.37, "The GPU waits 37% of each step for the data loader."),
        (Category.COMMUNICATION, 0.5, "Communication that does not overlap with compute takes 50% of each step."),
        (Category.IDLE_LAUNCH, 0.665, "The GPU waits 67% of each step for the CPU to launch the next kernel."),
        (Category.IDLE_PROFILER, 0.99, "The GPU waits 99% of each step for the profiler. A run without"),
    ],
)
def test_the_largest_loss_is_named(category: Category, share: float, sentence: str) -> None:
    assert said({Category.KERNEL: 1 - share, category: share}).startswith(sentence)


def test_where_no_operator_was_recorded_idle_time_has_no_cause() -> None:
    shares = NOTHING | {Category.KERNEL: 0.7, Category.IDLE_HOST: 0.3}
    recording = replace(device_recording("x", shares, step_ms=100, device=v100()), operators=())
    assert recording_verdict(recording) == (
        "The GPU is idle for 30% of each step. No operators were recorded, so the cause is unknown."
    )


def test_a_busy_device_is_not_blamed_on_anything() -> None:
    assert said({Category.KERNEL: 0.96, Category.IDLE_LAUNCH: 0.04}).startswith("The GPU computes for 96% of each step")


def test_unknown_time_is_never_named_as_the_loss() -> None:
    shares = {Category.KERNEL: 0.3, Category.IDLE_UNKNOWN: 0.6, Category.IDLE_HOST: 0.1}
    assert said(shares) == "The GPU waits 10% of each step for other CPU work, such as Python code."
    shares = {Category.KERNEL: 0.3, Category.IDLE_UNKNOWN: 0.7}
    assert said(shares) == (
        "For 70% of each step, the recording does not show whether the GPU worked. Kernels take at least 30%."
    )
    shares = {Category.KERNEL: 0.52, Category.IDLE_UNKNOWN: 0.48}
    assert said(shares) == (
        "The GPU computes for 52% to 100% of each step. "
        "For 48% of it, the recording does not show whether the GPU worked. Idle time is 0%."
    )


def test_unknown_time_is_not_lost_time() -> None:
    shares = NOTHING | {Category.KERNEL: 0.3, Category.IDLE_UNKNOWN: 0.6, Category.IDLE_HOST: 0.1}
    unsure = device_recording("x", shares, step_ms=100, device=v100())
    assert lost_share(unsure) == pytest.approx(0.1, abs=0.01)


def test_several_small_losses_have_no_single_name() -> None:
    idle = (Category.IDLE_DEVICE, Category.IDLE_SYNC, Category.IDLE_LAUNCH, Category.IDLE_HOST)

    assert "The rest has several small causes; idle time is 16%." in said(
        {Category.KERNEL: 0.84} | dict.fromkeys(idle, 0.04)
    )


def without_findings(report: Report) -> Report:
    return replace(report, findings=())


def test_without_findings_and_gpu_activity_the_verdict_is_about_cpu_time() -> None:
    assert verdict(without_findings(on_the_cpu())) == (
        "The backward pass takes 48% of each step. No GPU activity was recorded."
    )


def test_without_findings_the_verdict_names_the_recording_with_the_most_lost_time() -> None:
    report = without_findings(three_recordings())
    assert verdict(report) == "The GPU waits 65% of each step for the CPU to launch the next kernel."
    assert scope(report) == ("This is gpt2-ddp/rank0, the recording with the most lost time (3 recordings compared).")


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (
            one_recording(),
            "The device waits for the data loader: the fix saves about 51.0 ms of 177.6 ms per step "
            "(28.7%, range 21.5% to 33.4%).",
        ),
        (
            three_recordings(),
            "Kernels are shorter than their launches: the fix may save up to 27.8 ms of 222.4 ms per step (12.5%).",
        ),
        (
            on_the_cpu(),
            "The device waits for the data loader: the fix may save up to 5.80 ms of 48.2 ms per step (12.0%). "
            "No GPU activity was recorded.",
        ),
    ],
)
def test_the_verdict_is_about_the_first_finding(report: Report, sentence: str) -> None:
    assert verdict(report) == sentence


def test_the_verdict_says_in_how_many_recordings_the_first_finding_is() -> None:
    report = three_recordings()
    assert (scope(report) or "").startswith(
        "These figures are from gpt2-ddp/rank0. 1 of 3 recordings has this finding. The GPU waits 65%"
    )
    first, *rest = report.findings
    everywhere = replace(first, recording_ids=("gpt2-ddp/rank0", *(one.id for one in report.recordings[:2])))
    shown = replace(report, findings=(everywhere, *rest))
    assert "All 3 recordings have this finding." in (scope(shown) or "")


def test_a_first_finding_without_a_saving_leaves_room_for_where_the_time_goes() -> None:
    report = one_recording()
    first = report.findings[0]
    free = replace(first, finding=replace(first.finding, saving=Estimate.nothing()), saving_share=0.0)
    assert verdict(replace(report, findings=(free,))) == (
        "The device waits for the data loader: the fix frees memory or prevents errors; no speed-up. "
        "The GPU waits 33% of each step for the data loader."
    )


@pytest.mark.parametrize(("high_ms", "is_told"), [(28, True), (31, False)])
def test_a_loss_that_the_fixes_cannot_reach_is_named_below_the_verdict(high_ms: float, is_told: bool) -> None:  # noqa: FBT001  # a case
    # the GPU waits for data for 59.3 of 177.6 ms
    report = one_recording()
    first = report.findings[2]
    saving = Estimate.bound(high_ms * 1_000_000, of_the_fix("nobody asked"))
    small = replace(first, finding=replace(first.finding, saving=saving))
    said = scope(replace(report, findings=(small,))) or ""
    told = "The GPU waits 33% of each step for the data loader. The fixes below reach less than half of this time."
    assert (said == told) is is_told


def test_fixes_that_reach_nothing_of_a_loss_are_not_said_to_reach_a_part() -> None:
    report = one_recording()
    free = replace(report.findings[2], further_saving=Estimate.nothing())
    said = scope(replace(report, findings=(free,))) or ""
    assert said.endswith("The fixes below reach none of this time.")


@pytest.mark.parametrize("name", ["html", "md"])
def test_headline_and_first_finding_agree_in_every_format(name: str) -> None:
    for report in (one_recording(), three_recordings(), on_the_cpu()):
        text = FORMATS[name].render(report).decode()
        title = report.findings[0].finding.rule.title
        heading = text.split("<h1>")[1] if name == "html" else text.split("### ")[1]
        assert heading.startswith(f"{title}: ")


def test_a_damaged_recording_headlines_with_its_finding() -> None:
    report = three_recordings()
    note = RecordingNote(HealthNote("truncated", "The file breaks off."), "gpt2-ddp/rank0")
    damaged = replace(report, health_notes=(note,))
    assert verdict(damaged).startswith(report.findings[0].finding.rule.title)


def test_a_recording_without_steps_headlines_with_its_finding() -> None:
    report = one_recording()
    recording = replace(report.recordings[0], mean_breakdown=None, steps=(), median_step_ns=None, mean_step_ns=None)
    assert verdict(replace(report, recordings=(recording,))).startswith("The device waits for the data loader: the fix")


def test_a_single_recording_is_not_named() -> None:
    assert scope(one_recording()) is None


def test_a_recording_without_steps_has_its_own_sentence() -> None:
    recording = replace(one_recording().recordings[0], mean_breakdown=None, steps=())

    assert recording_verdict(recording).startswith("No complete training step was recorded")


def test_without_a_recorded_step_the_step_time_says_of_which_steps_it_is() -> None:
    recording = captured().recordings[0]
    recording = replace(recording, mean_breakdown=None, steps=(), distortion=None)
    run = recording.captured
    assert run
    timed, whole = undisturbed_count(run), run.step_count
    says = f"the step time is that of {timed} of {whole} timed steps."
    assert says in recording_verdict(recording)
    unknown = replace(recording, undisturbed_median_step_ns=None)
    assert "no step time to report" in recording_verdict(unknown)


def test_an_unreadable_input_has_its_own_sentence() -> None:
    assert verdict(nothing_readable()).startswith("No recording could be read")


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        ({Category.KERNEL: 0.5, Category.DATA_WAIT: 0.5}, "The GPU waits 50% of the recording for the data loader."),
        ({Category.KERNEL: 0.96}, "The GPU computes for 96% of the recording. Faster kernels"),
    ],
)
def test_a_recording_without_detected_steps_counts_as_a_whole(shares: dict[Category, float], sentence: str) -> None:
    recording = device_recording("x", NOTHING | {Category.IDLE_HOST: 0.04} | shares, step_ms=100, device=v100())
    assert recording_verdict(replace(recording, step_source=StepSource.WINDOW)).startswith(sentence)


def test_a_single_step_is_called_the_only_one() -> None:
    recording = device_recording(
        "x", NOTHING | {Category.KERNEL: 0.14, Category.IDLE_LAUNCH: 0.86}, step_ms=100, device=v100()
    )
    (one, *_) = (row for row in recording.steps if row.step.kept)
    sentence = recording_verdict(replace(recording, steps=(one,)))
    assert sentence == "The GPU waits 86% of the only recorded step for the CPU to launch the next kernel."


def test_without_findings_the_headline_prefers_an_undamaged_recording() -> None:
    report = without_findings(three_recordings())
    worst = recording_of_verdict(report)
    note = RecordingNote(HealthNote("truncated", "The file breaks off."), worst.id)
    assert recording_of_verdict(replace(report, health_notes=(note,))).id != worst.id


def test_the_first_fix_is_the_first_finding() -> None:
    (first,) = (one for one in in_report(Prose, three_recordings()) if one.tone is Tone.ACTION)
    assert plain(first.words).startswith("Fix first: ")
    assert recording_of_verdict(three_recordings()).run == "gpt2-ddp"


def test_without_findings_the_summary_of_an_umbrella_rule_follows_the_verdict() -> None:
    report = without_findings(one_recording())
    umbrella = Umbrella(rule("IDLE009", "low-gpu-busy"), Fix("Look at loading first"), ())
    hardware = Umbrella(rule("HW005", "host-gpu-balance"), Fix("A faster CPU would save time"), ())
    recording = replace(report.recordings[0], umbrellas=(umbrella, hardware))
    assert scope(replace(report, recordings=(recording,))) == "Look at loading first."


def test_with_findings_umbrella_rules_point_to_the_first_one() -> None:
    report = one_recording()
    umbrella = Umbrella(rule("IDLE009", "low-gpu-busy", "The GPU is idle: look"), Fix("Look at launches first"), ())
    shown = replace(report, recordings=(replace(report.recordings[0], umbrellas=(umbrella,)),))
    assert scope(shown) is None
    (group,) = (one for one in in_report(Group, shown) if one.title == "The GPU is idle")
    told = "Follow the findings, beginning with the first: The device waits for the data loader."
    assert sentences([group]) == [told]


def test_every_format_shows_the_figures_of_an_umbrella_rule() -> None:
    report = one_recording()
    evidence = (Evidence("GPU seen at work", 0.25, Unit.SHARE),)
    umbrella = Umbrella(rule("IDLE009", "low-gpu-busy"), Fix("Look at loading first"), evidence)
    shown = replace(report, recordings=(replace(report.recordings[0], umbrellas=(umbrella,)),))
    for name in ("html", "md"):
        assert "GPU seen at work" in FORMATS[name].render(shown).decode()


def test_without_findings_the_headline_prefers_a_recording_with_enough_steps() -> None:
    report = without_findings(three_recordings())
    worst = recording_of_verdict(report)
    short = replace(worst, steps=worst.steps[:3])
    others = tuple(one for one in report.recordings if one.id != worst.id)
    mixed = replace(report, recordings=(short, *others))
    assert recording_of_verdict(mixed).id != worst.id
    assert "(2 recordings with 3 or more steps compared)" in (scope(mixed) or "")
    assert recording_of_verdict(replace(report, recordings=(short,))) is short


def _with_unusual_steps(count: int) -> Recording:
    """The recording with its first steps not typical; the typical ones take 100 ms."""
    recording = device_recording(
        "x", NOTHING | {Category.KERNEL: 0.5, Category.IDLE_HOST: 0.5}, step_ms=100, device=v100()
    )
    slow = "it takes 90% more time than the median step"
    rows = tuple(
        replace(row, step=replace(row.step, left_out=None, atypical=slow if at < count else None))
        for at, row in enumerate(recording.steps)
    )
    return replace(recording, steps=rows, typical_step_ns=100e6, typical_breakdown=recording.mean_breakdown)


def test_the_verdict_speaks_of_typical_steps_where_others_are_unusual() -> None:
    assert "50% of each step" in recording_verdict(_with_unusual_steps(0))
    assert "50% of a typical step" in recording_verdict(_with_unusual_steps(2))


def test_the_step_time_is_the_mean_of_the_typical_steps() -> None:
    recording = _with_unusual_steps(2)
    count = len(recording.steps)
    time = step_time(recording)
    assert (time.ns, time.kind) == (100e6, f"mean of {count - 2} of {count} steps")
    assert step_time(_with_unusual_steps(0)).kind == f"mean of {count} steps"


def test_the_page_says_which_steps_are_typical_and_why_others_are_not() -> None:
    blocks = _blocks(_with_unusual_steps(1))
    first = _with_unusual_steps(1).steps[0].step.index
    reason = "it takes 90% more time than the median step"
    assert f"Step {first} is not typical, so findings do not count it: {reason}" in sentences(blocks)
    (chart,) = (chart for chart in every(Chart, blocks) if chart.title == "Recorded steps")
    assert chart.data is not None
    assert [row[-1].text for row in chart.data.rows][:2] == [f"no: {reason}", "yes"]


def _blocks(recording: Recording) -> tuple[Block, ...]:
    report = replace(one_recording(), recordings=(recording,))
    return tuple(recording_blocks(report, recording, 1, with_origins=True))


def _one_step(**changes: Any) -> Recording:
    recording = _with_unusual_steps(0)
    return replace(recording, steps=recording.steps[:1], **changes)


_ROLLOUT = Location("train.py", 41, "step")


def _run(steps_ns: int, cause: RunCause = RunCause.SET_UP, line: Location | None = _ROLLOUT) -> RunTime:
    parts = {RunPart.START_UP: 1_000 - steps_ns, RunPart.TRAINING: steps_ns}
    causes = (CauseTime(RunPart.START_UP, cause, 1_000 - steps_ns, line=line),)
    return RunTime(1_000, parts, 9, is_whole=True, causes=causes)


@pytest.mark.parametrize(
    ("run", "is_said"),
    [
        (_run(17), True),
        (_run(100), False),
        (_run(17, RunCause.IMPORTS), False),
        (_run(17, line=None), False),
        (replace(_run(17), is_whole=False), False),
    ],
    ids=["rollout", "many steps", "imports", "no line", "no start"],
)
def test_a_run_with_few_steps_is_headed_by_the_code_before_them(run: RunTime, *, is_said: bool) -> None:
    said = recording_verdict(replace(one_recording().recordings[0], run_time=run))
    sentence = "Training steps take only 1.7% of the run, code before them at train.py:41 98.3%."
    assert said.startswith(sentence) is is_said


@pytest.mark.parametrize(("share", "named"), [(0.24, False), (0.25, True)])
def test_start_up_is_named_first_where_it_fills_the_only_step(share: float, *, named: bool) -> None:
    sentence = recording_verdict(_one_step(start_up_share=share, operations_per_step=60.0))
    assert sentence.startswith("Start-up takes 25% of the only recorded step") is named


@pytest.mark.parametrize(("operations", "named"), [(9.0, True), (10.0, False)])
def test_a_step_of_few_operations_is_not_judged(operations: float, *, named: bool) -> None:
    sentence = recording_verdict(_one_step(operations_per_step=operations))
    assert sentence.startswith("The recording holds too little work to judge") is named


def test_an_unmarked_recording_is_not_called_a_step() -> None:
    recording = _one_step(step_source=StepSource.WINDOW)
    report = replace(one_recording(), recordings=(recording,))
    assert "of the recording" in recording_verdict(recording)
    assert next(main_figures(report, recording)).label == "Recording"
    assert any(line.text.startswith("Recording 100.0 ms (the whole recording") for line in summary(report))
    assert "Recording **100.0 ms** (the whole recording" in FORMATS["md"].render(report).decode()


def test_inference_is_named_first_and_counted_in_iterations() -> None:
    recording = replace(_with_unusual_steps(1), workload=Workload.INFERENCE, inference_sign=InferenceSign.SERVING)
    sentence = recording_verdict(recording)
    assert sentence.startswith("This recording shows inference, not training.")
    assert "50% of a typical iteration" in sentence
    assert step_figure(recording).label == "Typical iteration"
    facts = {fact.label: fact.value for fact in environment_facts(recording)}
    assert facts["Recognised as inference by"] == "marks of a serving engine"


def test_of_several_recordings_the_one_with_inference_is_named() -> None:
    served = replace(_with_unusual_steps(1), workload=Workload.INFERENCE, inference_sign=InferenceSign.SERVING)
    training = replace(served, id="run/training", workload=None, inference_sign=None)
    sentence = verdict(replace(one_recording(), recordings=(served, training), findings=()))
    assert sentence.startswith(f"{served.id} shows inference, not training.")


def test_a_headline_without_room_ends_with_a_sentence_or_before_a_parenthesis() -> None:
    room = Room(rows=1, extra=0, parts=0, characters=1, cards=1)
    document = report_document(one_recording())
    two = replace(document, headline=f"{'word ' * 30}ends. {'more ' * 30}")
    assert trimmed(two, Detail.SUMMARY, room).headline.endswith("word ends.")
    one = replace(document, headline=f"{'word ' * 30}(63.6% of each step, and so on")
    assert trimmed(one, Detail.SUMMARY, room).headline.endswith("word…")


def distorted(
    recording: Recording, ratio: float, *, loader_share: float = 0.0, gpu_ms: float | None = None
) -> Recording:
    """The recording beside undisturbed steps of 10 ms."""
    found = Distortion(
        10 * MS,
        ratio * 10 * MS,
        loader_share * 10 * MS,
        loader_share * 10 * MS,
        ratio / 1.1,
        ratio * 1.1,
        None if gpu_ms is None else gpu_ms * MS,
    )
    return replace(recording, distortion=found, undisturbed_median_step_ns=10.0 * MS)


def test_shares_of_steps_twelve_times_as_long_are_no_headline() -> None:
    report = one_recording()
    recording = distorted(report.recordings[0], 12)
    sentence = recording_verdict(recording)
    assert sentence == (
        "An undisturbed step takes 10.0 ms. The profiler slowed the recorded steps by a factor of 12.0: treat their "
        "shares as rough."
    )
    shown = replace(report, recordings=(recording,), findings=())
    texts = [FORMATS[name].render(shown).decode() for name in ("html", "md")]
    texts.append(" ".join(line.text for line in summary(shown)))
    assert all("by a factor of 12.0" in text for text in texts)
    assert "largest category" not in texts[-1]


@pytest.mark.parametrize(("ratio", "is_told"), [(3.0, True), (2.9, False)])
def test_steps_that_are_far_longer_by_chance_are_no_all_clear(ratio: float, *, is_told: bool) -> None:
    recording = distorted(one_recording().recordings[0], ratio)
    assert recording.distortion
    recording = replace(recording, distortion=replace(recording.distortion, ratio_low=0.8, ratio_high=40.0))
    assert ("Record again on a quieter machine." in recording_verdict(recording)) is is_told
    assert "Record again" not in recording_verdict(recording, one_recording().findings[0])


def test_a_saving_from_much_longer_steps_is_no_headline_but_one_from_the_step_log_is() -> None:
    recording = distorted(on_the_cpu().recordings[0], 12, loader_share=0.4)
    assert recording.distortion is not None
    assert recording.distortion.doubt is not None
    first = on_the_cpu().findings[0]
    doubtful = Estimate.bound(3.0 * MS, recording.distortion.doubt)
    of_recorded = replace(first, finding=replace(first.finding, saving=doubtful))
    assert "save" not in recording_verdict(recording, of_recorded)
    title = first.finding.rule.title
    assert recording_verdict(recording, of_recorded) == (
        "An undisturbed step takes 10.0 ms, of which the data loader takes 40%. "
        f"Check first: {title[0].lower()}{title[1:]}. No GPU activity was recorded."
    )
    assert "may save up to" in recording_verdict(recording, first)


def test_a_title_that_begins_with_an_abbreviation_keeps_its_capitals_within_a_sentence() -> None:
    recording = distorted(on_the_cpu().recordings[0], 12, loader_share=0.4)
    assert recording.distortion is not None
    assert recording.distortion.doubt is not None
    first = on_the_cpu().findings[0]
    rule = replace(first.finding.rule, title="CPU cores limit data loading")
    doubtful = Estimate.bound(3.0 * MS, recording.distortion.doubt)
    sentence = recording_verdict(recording, replace(first, finding=replace(first.finding, rule=rule, saving=doubtful)))
    assert "Check first: CPU cores limit data loading." in sentence


def test_the_share_of_the_loader_is_that_of_undisturbed_steps() -> None:
    recording = device_recording("x", SHARES_ON_HOST | {Category.DATA_WAIT: 0.2}, step_ms=12, device=v100())
    on_host = replace(recording, device=None)
    assert "spends 70% of each step waiting" in recording_verdict(distorted(on_host, 1.2, loader_share=0.7))


def test_a_sole_step_of_start_up_comes_before_any_finding() -> None:
    report = one_recording()
    recording = replace(report.recordings[0], start_up_share=0.6)
    assert recording_verdict(recording, report.findings[0]).startswith("Start-up takes 60% of")


def test_a_share_of_the_whole_run_is_no_part_of_the_step() -> None:
    report = one_recording()
    first = report.findings[0]
    limit = Estimate.bound(50.0 * MS, of_the_fix("x"))
    of_run = replace(
        first,
        saving_share=0.25,
        finding=replace(first.finding, of_run=True, saving=limit),
    )
    sentence = recording_verdict(report.recordings[0], of_run)
    assert "the fix may save up to 50.0% of the training time." in sentence
    shown = replace(report, findings=(of_run,))
    assert "Saves up to 50.0% of the training time" in " ".join(line.text for line in summary(shown))


def test_the_busy_share_of_much_longer_steps_is_set_against_the_undisturbed_step() -> None:
    recording = one_recording().recordings[0]
    share = recording.shown_figures.busy_share
    assert share is not None
    assert busy_words(recording)[1] is None
    assert busy_words(distorted(recording, 1.6)) == (percent(min(1.6 * share, 1)), "estimated for undisturbed steps")
    assert busy_words(distorted(recording, 50))[0] == "100.0%"


def _inference_that_saves_of_the_run() -> Report:
    report = one_recording()
    first = report.findings[0]
    limit = Estimate.bound(50.0 * MS, of_the_fix("x"))
    of_run = replace(
        first, saving_share=0.25, of_inference=True, finding=replace(first.finding, of_run=True, saving=limit)
    )
    recording = replace(report.recordings[0], workload=Workload.INFERENCE)
    return replace(report, findings=(of_run,), recordings=(recording,))


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("json", "pdf")])
def test_no_format_calls_the_time_of_an_inference_a_training_time(name: str) -> None:
    page = FORMATS[name].render(_inference_that_saves_of_the_run()).decode()
    assert "time of the run" in page
    assert "training time" not in page


def test_the_headline_of_an_inference_speaks_of_its_run() -> None:
    report = _inference_that_saves_of_the_run()
    assert "the fix may save up to 50.0% of the time of the run." in verdict(report)
    assert "Saves up to 50.0% of the time of the run" in " ".join(line.text for line in summary(report))
