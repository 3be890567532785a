from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.build_report import (
    CANARY,
    harmless,
    hostile,
    nothing_readable,
    on_the_cpu,
    one_recording,
    ranked,
    three_recordings,
)
from tests.rendering.captures import captured, captured_on_host, captured_ranks
from tests.rendering.reading import markdown_page
from traceadvisor.model.findings import Estimate, Fix, Severity
from traceadvisor.model.health import HealthNote
from traceadvisor.model.report import RecordingNote, Report
from traceadvisor.rendering.markdown import render as markdown
from traceadvisor.rendering.markdown.render import escaped, fenced

ALL = (one_recording, three_recordings, on_the_cpu, nothing_readable, captured, captured_on_host, captured_ranks)


def text_of(report: Report) -> str:
    return markdown.render(report).decode()


@pytest.mark.parametrize("build", [three_recordings, captured_ranks])
def test_a_hostile_comment_has_the_same_elements_as_a_harmless_one(build: Callable[[], Report]) -> None:
    wild, tame = markdown_page(text_of(hostile(build()))), markdown_page(text_of(harmless(build())))

    assert wild.elements == tame.elements
    assert wild.links == []


def test_a_table_keeps_its_columns_with_any_text() -> None:
    rows = [line for line in text_of(hostile(three_recordings())).splitlines() if line.startswith("| ")]

    widths = {line.count("|") for line in rows[:4]}
    assert widths == {11}


@pytest.mark.parametrize("text", ["@team", "#1", "GH-12", "http://e", "www.e.org", "a@b.org"])
def test_rendered_text_contains_no_mention_issue_or_link(text: str) -> None:
    shown = markdown_page(str(escaped(text))).text.strip()

    assert shown.replace("\u200b", "") == text
    assert text not in shown


@pytest.mark.parametrize(
    "text", ["*a*", "_a_", "`a`", "[x](y)", "<b>", "&lt;", "a|b", "~~a~~", "\\*", "$x$", "![x](y)"]
)
def test_text_that_looks_like_markup_is_shown_as_it_is(text: str) -> None:
    page = markdown_page(f"x {escaped(text)}")

    assert page.text.strip() == f"x {text}"
    assert set(page.elements) == {"p"}


def test_text_stays_on_one_line() -> None:
    assert str(escaped("a\n# b\n\n- c")).count("\n") == 0


def test_a_fence_is_longer_than_any_in_the_code() -> None:
    page = markdown_page(f"{fenced('```` <b>x</b>')}\n")

    assert page.text.strip() == "```` <b>x</b>"
    assert set(page.elements) == {"pre", "code"}


def test_the_verdict_is_the_heading() -> None:
    assert "### The device waits for the data loader: the fix saves about 51.0 ms of each step (28.7%).\n" in text_of(
        one_recording()
    )


def test_the_top_three_findings_are_unfolded_and_the_table_has_all() -> None:
    text = text_of(three_recordings())
    in_the_open, folded = text.split("<details>", maxsplit=1)

    assert [f"**{rank}. " in in_the_open for rank in (1, 2, 3, 4)] == [True, True, True, False]
    assert "All findings (4)" in folded
    assert "Batches are copied from pageable memory" in folded


def test_an_upper_limit_has_its_reason() -> None:
    report = one_recording()
    finding = replace(report.findings[0].finding, saving=Estimate.bound(9_000_000, "nobody ran it"))
    text = text_of(replace(report, findings=(replace(report.findings[0], finding=finding),)))
    assert "Upper limit: other work may take its place. Not simulated: nobody ran it. |" in text


@pytest.mark.parametrize(
    "build", [one_recording, three_recordings, on_the_cpu, nothing_readable, captured, captured_on_host, captured_ranks]
)
def test_a_comment_is_never_too_long_for_a_forge(build: Callable[[], Report]) -> None:
    assert len(text_of(hostile(build()))) < markdown.MOST_CHARACTERS


def giant() -> Report:
    """A report with more of everything than fits into a comment."""
    report = one_recording()
    recordings = tuple(replace(report.recordings[0], id=f"{rank} {CANARY * 10}") for rank in range(100))
    finding = replace(report.findings[0].finding, fix=Fix(CANARY * 100, "`" * 5_000), caveats=(CANARY * 10,) * 20)
    return replace(
        report,
        recordings=recordings,
        findings=tuple(ranked(finding, recording, Severity.HIGH) for recording in recordings),
        health=replace(report.health, events_dropped=1),
        health_notes=tuple(RecordingNote(HealthNote("x", f"{n} {CANARY * 10}"), recordings[0].id) for n in range(100)),
    )


def test_a_giant_report_is_cut_and_says_so() -> None:
    text = text_of(giant())

    assert len(text) < markdown.MOST_CHARACTERS
    assert " more in the full report." in text
    assert text.count("<details>") == text.count("</details>")


def test_unmeasured_values_are_named() -> None:
    assert "| gpt2-ddp/rank0 | 222.4 ms | 17.3% | not measured |" in text_of(three_recordings())


def test_the_step_time_of_a_capture_is_the_median_of_undisturbed_steps() -> None:
    text = text_of(captured())

    assert "| Recording | Step | Recorded step | Samples/s |" in text
    assert "| train/rank0/cycle0 | 168.0 ms, median of 270 undisturbed steps | 177.6 ms | 190 |" in text
