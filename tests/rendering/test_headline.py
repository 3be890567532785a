from dataclasses import replace

import pytest

from tests.build_report import (
    SHARES_NO_WORKERS,
    device_recording,
    nothing_readable,
    on_the_cpu,
    one_recording,
    three_recordings,
    v100,
)
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Evidence, Fix, Unit
from traceadvisor.model.health import HealthNote
from traceadvisor.model.report import RecordingNote
from traceadvisor.model.steps import StepSource
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rendering.headline import recording_of_verdict, recording_verdict, verdict, verdict_scope
from traceadvisor.rendering.page.html import report_view

NOTHING = dict.fromkeys(SHARES_NO_WORKERS, 0.0)


def said(shares: dict[Category, float]) -> str:
    return recording_verdict(device_recording("x", NOTHING | shares, step_ms=100, device=v100()))


@pytest.mark.parametrize(
    ("category", "share", "sentence"),
    [
        (Category.DATA_WAIT, 0.334, "A third of every step the GPU waits for the data loader."),
        (Category.DATA_WAIT, 0.37, "37% of every step the GPU waits for the data loader."),
        (Category.COMMUNICATION, 0.5, "Half of every step goes to communication that no computing hides."),
        (Category.IDLE_LAUNCH, 0.665, "Two thirds of every step the GPU waits for the host to launch its next work."),
        (Category.IDLE_PROFILER, 0.99, "The whole of every step the GPU waits for the profiler, which an unprofiled"),
    ],
)
def test_the_largest_loss_is_named(category: Category, share: float, sentence: str) -> None:
    assert said({Category.KERNEL: 1 - share, category: share}).startswith(sentence)


def test_a_busy_device_is_not_blamed_on_anything() -> None:
    assert said({Category.KERNEL: 0.96, Category.IDLE_LAUNCH: 0.04}).startswith(
        "The GPU computes for 96% of every step"
    )


def test_many_small_losses_are_not_made_into_one() -> None:
    idle = (Category.IDLE_DEVICE, Category.IDLE_SYNC, Category.IDLE_LAUNCH, Category.IDLE_HOST)

    assert "has no single cause" in said({Category.KERNEL: 0.84} | dict.fromkeys(idle, 0.04))


def test_the_host_s_time_is_told_as_the_host_s() -> None:
    assert verdict(on_the_cpu()) == (
        "No device was recorded; on the host, 48% of every step is spent in the backward pass."
    )


def test_of_several_recordings_the_one_that_loses_most_is_named() -> None:
    assert verdict(three_recordings()) == "65% of every step the GPU waits for the host to launch its next work."
    assert verdict_scope(three_recordings()) == (
        "This is gpt2-ddp/rank0, which of 3 recordings loses the most of its step."
    )


def test_one_recording_needs_no_name() -> None:
    assert verdict_scope(one_recording()) is None


def test_a_recording_without_steps_is_said_to_have_none() -> None:
    recording = replace(one_recording().recordings[0], mean_breakdown=None, steps=())

    assert recording_verdict(recording).startswith("No complete training step was recorded")


def test_an_unreadable_input_has_a_sentence_too() -> None:
    assert verdict(nothing_readable()).startswith("Nothing could be measured")


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        ({Category.KERNEL: 0.5, Category.DATA_WAIT: 0.5}, "Half of the recording the GPU waits for the data loader."),
        ({Category.KERNEL: 0.96}, "The GPU computes for 96% of the recording: what there is to gain"),
    ],
)
def test_a_recording_without_steps_told_apart_is_not_called_every_step(
    shares: dict[Category, float], sentence: str
) -> None:
    recording = device_recording("x", NOTHING | {Category.IDLE_HOST: 0.04} | shares, step_ms=100, device=v100())
    assert recording_verdict(replace(recording, step_source=StepSource.WINDOW)).startswith(sentence)


def test_a_single_step_is_not_called_every_step() -> None:
    recording = device_recording(
        "x", NOTHING | {Category.KERNEL: 0.14, Category.IDLE_LAUNCH: 0.86}, step_ms=100, device=v100()
    )
    (one, *_) = (row for row in recording.steps if row.step.kept)
    sentence = recording_verdict(replace(recording, steps=(one,)))
    assert sentence == "86% of the one step recorded the GPU waits for the host to launch its next work."


def test_a_damaged_recording_does_not_make_the_headline_while_there_is_a_sound_one() -> None:
    report = three_recordings()
    worst = recording_of_verdict(report)
    note = RecordingNote(HealthNote("truncated", "The file breaks off."), worst.id)
    assert recording_of_verdict(replace(report, health_notes=(note,))).id != worst.id


def test_what_to_change_first_is_about_the_recording_of_the_headline() -> None:
    report = three_recordings()
    others = sorted(report.findings, key=lambda row: recording_of_verdict(report).id in row.recording_ids)
    first = report_view(replace(report, findings=tuple(others))).first_action
    assert first is not None
    assert recording_of_verdict(report).id in first.recordings


def test_a_verdict_on_the_whole_step_stands_beside_the_sentence() -> None:
    report = one_recording()
    umbrella = replace(report.findings[0].finding, fix=Fix("Look at loading first"))
    recording = replace(report.recordings[0], umbrellas=(umbrella,))
    assert verdict_scope(replace(report, recordings=(recording,))) == "Look at loading first."


def test_the_figures_of_a_verdict_on_the_whole_step_are_in_every_format() -> None:
    report = one_recording()
    umbrella = replace(report.findings[0].finding, evidence=(Evidence("GPU seen at work", 0.25, Unit.SHARE),))
    shown = replace(report, recordings=(replace(report.recordings[0], umbrellas=(umbrella,)),))
    for name in ("html", "md"):
        assert "GPU seen at work" in FORMATS[name].render(shown).decode()


def test_a_recording_of_a_step_or_two_leads_only_where_no_other_has_more() -> None:
    report = three_recordings()
    worst = recording_of_verdict(report)
    short = replace(worst, steps=worst.steps[:3])
    others = tuple(one for one in report.recordings if one.id != worst.id)
    mixed = replace(report, recordings=(short, *others))
    assert recording_of_verdict(mixed).id != worst.id
    assert "which of 2 recordings of 3 steps or more loses" in (verdict_scope(mixed) or "")
    assert recording_of_verdict(replace(report, recordings=(short,))) is short
