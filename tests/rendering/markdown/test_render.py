import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.build_report import (
    CANARY,
    harmless,
    hostile,
    nothing_readable,
    on_the_cpu,
    one_recording,
    outcomes,
    ranked,
    three_recordings,
)
from tests.children import run
from tests.rendering.captures import captured, captured_on_host, captured_ranks
from tests.rendering.formatted import comment
from tests.rendering.reading import Page, markdown_page
from tests.shared import CHECKOUT, SHARED_TRACES
from traceadvisor import load
from traceadvisor.model.findings import Estimate, Fix, Severity
from traceadvisor.model.health import HealthNote
from traceadvisor.model.report import RecordedFinding, RecordingNote, Report
from traceadvisor.model.saving import of_the_fix
from traceadvisor.rendering.content.report.document import most_bytes, report_document
from traceadvisor.rendering.document.budget import ROOMS, Room, trimmed
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.writers import markdown
from traceadvisor.rendering.writers.markdown import escaped, fenced, prose

ALL = (one_recording, three_recordings, on_the_cpu, nothing_readable, captured, captured_on_host, captured_ranks)

SAMPLES = sorted(path.parent for path in (CHECKOUT / "sample_traces").glob("*/manifest.json"))


def _name(path: Path) -> str:
    return path.name


def in_size(report: Report, room: Room) -> str:
    """The comment in one size, however long it gets."""
    return markdown.text(trimmed(report_document(report), Detail.EXTRA, room))


def text_of(report: Report) -> str:
    return comment(report).decode()


@pytest.mark.nightly("traceadvisor/rendering")
@pytest.mark.parametrize("room", [ROOMS[0], ROOMS[4], ROOMS[-1]])
@pytest.mark.parametrize("build", [three_recordings, captured_ranks])
def test_a_hostile_comment_has_the_same_elements_as_a_harmless_one(build: Callable[[], Report], room: Room) -> None:
    wild, tame = (markdown_page(in_size(make(build()), room)) for make in (hostile, harmless))

    assert wild.elements == tame.elements
    assert wild.links == []


ALLOWED = {
    "blockquote",
    "br",
    "code",
    "details",
    "h3",
    "h4",
    "li",
    "p",
    "pre",
    "strong",
    "sub",
    "summary",
    "table",
    "tbody",
}
ALLOWED |= {"td", "th", "thead", "tr", "ul"}
"""Elements that a forge keeps when it sanitises a comment."""


@pytest.mark.parametrize("build", ALL)
def test_a_forge_removes_nothing_from_the_comment(build: Callable[[], Report]) -> None:
    page = markdown_page(text_of(build()))

    assert set(page.elements) <= ALLOWED
    assert set(page.attributes) <= {"style", "class"}  # the alignment of columns, and the language of code


@pytest.mark.parametrize("build", ALL)
def test_a_table_keeps_its_columns_with_any_text(build: Callable[[], Report]) -> None:
    widths: list[set[int]] = []
    for line in in_size(hostile(build()), ROOMS[0]).splitlines():
        if not line.startswith("| "):
            widths.append(set())
        else:
            widths[-1].add(len(re.findall(r"(?<!\\)\|", line)))

    assert max(map(len, widths)) <= 1
    assert max((max(each) for each in widths if each), default=0) <= 8


REFERENCES = (
    *(
        "@team",
        "#1",
        "GH-12",
        "gh-12",
        "http://e",
        "www.e.org",
        "a@b.org",
        "owner/repo#1",
        "user@abcdef0123",
        "closes #3",
    ),
    *(
        "CVE-2026-1",
        "GHSA-abcd-efgh-ijkl",
        "https://e.org/a.png",
        "mailto:a@b.org",
        "0123abc",
        "a" * 40,
        "1623143089861",
    ),
    *("!12", "~bug", '~"a b"', "%3", "$4", "&5", "^alert#1", "[vulnerability:6]", "/close"),
)
"""What a forge would link, close or do."""


@pytest.mark.parametrize("text", REFERENCES)
def test_rendered_text_contains_no_mention_issue_or_link(text: str) -> None:
    shown = markdown_page(str(escaped(text))).text.strip()

    assert shown.replace("\u200b", "") == text
    assert text not in shown


@pytest.mark.parametrize(
    "text", ["*a*", "_a_", "`a`", "[x](y)", "<b>", "&lt;", "a|b", "~~a~~", "\\*", "$x$", "![x](y)"]
)
def test_text_that_looks_like_markup_is_shown_as_it_is(text: str) -> None:
    page = markdown_page(f"x {escaped(text)}")

    assert page.text.strip().replace("\u200b", "") == f"x {text}"
    assert set(page.elements) == {"p"}


def test_text_stays_on_one_line() -> None:
    assert str(escaped("a\n# b\n\n- c")).count("\n") == 0


def test_a_fence_is_longer_than_any_in_the_code() -> None:
    page = markdown_page(f"{fenced('```` <b>x</b>')}\n")

    assert page.text.strip() == "```` <b>x</b>"
    assert set(page.elements) == {"pre", "code"}


def test_the_verdict_is_the_heading() -> None:
    assert (
        "### The device waits for the data loader: the fix saves about 51.0 ms of 177.6 ms per step "
        "(28.7%, range 21.5% to 33.4%).\n" in text_of(one_recording())
    )


def test_the_top_three_findings_are_unfolded_and_the_table_has_all() -> None:
    text = text_of(three_recordings())
    in_the_open, folded = text.split("<summary>1 more finding</summary>")

    assert [f"**{rank}. " in in_the_open for rank in (1, 2, 3, 4)] == [True, True, True, False]
    assert in_the_open.count("<summary>Evidence, origin and caveats</summary>") == 3
    assert "Batches are copied from pageable memory" in folded


def test_an_upper_limit_has_its_reason() -> None:
    report = one_recording()
    finding = replace(report.findings[0].finding, saving=Estimate.bound(9_000_000, of_the_fix("nobody ran it")))
    text = text_of(replace(report, findings=(replace(report.findings[0], finding=finding),)))
    assert "\nAt most: other work may take its place. Not simulated: nobody ran it.\n" in text


@pytest.mark.parametrize("build", ALL)
def test_a_comment_stays_within_its_size(build: Callable[[], Report]) -> None:
    for report in (build(), hostile(build())):
        assert len(comment(report)) <= most_bytes(len(report.recordings))


def test_ten_recordings_may_take_twice_the_size_of_one() -> None:
    assert [most_bytes(count) for count in (0, 1, 4, 10, 2_000)] == [6_000, 6_000, 8_000, 12_000, 12_000]


@pytest.mark.nightly("traceadvisor/rendering")
@pytest.mark.usefixtures("shared_traces")
@pytest.mark.parametrize("path", [SHARED_TRACES / "tensorboard-logs", *SAMPLES, CHECKOUT / "sample_traces"], ids=_name)
def test_the_comment_on_a_recording_stays_within_its_size_and_names_the_first_finding(path: Path) -> None:
    report = load(path)
    content = comment(report)

    assert len(content) <= most_bytes(len(report.recordings))
    assert all(row.finding.rule.title in content.decode() for row in report.findings[:3])


def giant(count: int = 100) -> Report:
    """A report with more of everything than fits into a comment."""
    report = one_recording()
    recordings = tuple(replace(report.recordings[0], id=f"{rank} {CANARY * 10}") for rank in range(count))
    finding = replace(report.findings[0].finding, fix=Fix(CANARY * 100, "`" * 5_000), caveats=(CANARY * 10,) * 20)
    return replace(
        report,
        recordings=recordings,
        findings=tuple(ranked(finding, recording, Severity.HIGH) for recording in recordings),
        health=replace(report.health, events_dropped=1),
        health_notes=tuple(RecordingNote(HealthNote("x", f"{n} {CANARY * 10}"), recordings[0].id) for n in range(100)),
    )


def test_a_giant_report_is_cut_and_says_so() -> None:
    content = comment(giant())
    text = content.decode()

    assert len(content) <= most_bytes(100)
    assert "Not shown here: " in text
    assert "more findings in the full report." in text
    assert "more notes in the full report." in text
    assert text.count("<details>") == text.count("</details>")


def test_details_leave_before_the_change_of_a_fix_does() -> None:
    report = one_recording()
    finding, recording = report.findings[0].finding, report.recordings[0]
    changes = ["\n".join(f"change_{place}_{number}()" for number in range(56)) for place in range(3)]
    rows = [ranked(replace(finding, fix=Fix("Do this", change)), recording, Severity.HIGH) for change in changes]
    text = comment(replace(report, findings=tuple(rows))).decode()

    assert [f"change_{place}_55()" in text for place in range(3)] == [True] * 3
    assert "#### Details" not in text
    assert re.search(r"Not shown here: .*Environment", text)


def ranks(count: int) -> Report:
    """One run of many ranks that all have the same finding, and a note each."""
    report = one_recording()
    one, first = report.recordings[0], report.findings[0]
    recordings = tuple(replace(one, id=f"run/rank{rank}", run="run", worker=f"rank{rank}") for rank in range(count))
    cases = tuple(
        RecordedFinding(first.finding, (recording.id,), first.severity, first.saving_share, step_ns=first.step_ns)
        for recording in recordings
    )
    row = replace(first, recording_ids=tuple(recording.id for recording in recordings), by_recording=cases)
    return replace(
        report,
        recordings=recordings,
        findings=(row,),
        health_notes=tuple(RecordingNote(HealthNote("x", "Late."), recording.id) for recording in recordings),
        outcomes=tuple(outcome for recording in recordings[:50] for outcome in outcomes(recording)),
    )


@pytest.mark.nightly("traceadvisor/rendering")
def test_two_thousand_recordings_fit() -> None:
    text = text_of(ranks(2_000))

    assert len(text.encode()) <= most_bytes(2_000)
    assert re.search(r"And 1,9\d\d more recordings in the full report\.", text)
    assert "Step **177.6 ms**" in text
    assert "(rank 0 and 1,999 more recordings)" in text
    assert "- Late. (rank 0, rank 1, rank 2, rank 3 and 1,996 more)" in text


@pytest.mark.nightly("traceadvisor/rendering")
def test_what_fits_in_no_size_has_a_last_form() -> None:
    content = markdown.write(replace(report_document(giant()), most_bytes=500))

    assert content.decode().startswith("<!-- traceadvisor.report/2 -->\n### ")
    assert "100 recordings, 100 findings. The full report has the rest." in content.decode()
    assert len(content) < 6_000


def test_unmeasured_figures_take_no_column() -> None:
    text = text_of(three_recordings())

    assert "| Recording | Step time | GPU busy | Largest category |" in text
    assert "| gpt2-ddp | 222.4 ms (mean 222.4 ms) | 17.3% | Idle: CPU launching kernels |" in text


def test_the_step_time_of_a_capture_is_the_median_of_undisturbed_steps() -> None:
    text = text_of(captured())

    assert "Step **168.0 ms** (median of 270 undisturbed steps, without the profiler), Samples/s **190**" in text


def test_a_command_in_a_text_is_a_code_span() -> None:
    assert str(prose("Run `pip install x` and `<b>`.")) == "Run `pip install x` and \\`&#60;b&#62;\\`."


def test_a_long_line_of_code_fits_the_column_of_a_comment() -> None:
    report = one_recording()
    change = "loader = DataLoader(dataset, num_workers=4, persistent_workers=True, sampler=s)  # and keep the rest"
    finding = replace(report.findings[0].finding, fix=Fix("Fix it", change))
    text = text_of(replace(report, findings=(replace(report.findings[0], finding=finding),)))
    assert "\n# and keep the rest\nloader = DataLoader(dataset, " in text


@pytest.mark.slow
def test_a_forge_links_nothing_in_a_hostile_comment(page_checkers: Path) -> None:
    wild = (hostile(build()) for build in ALL)
    text = "\n\n".join(in_size(report, ROOMS[0]) for report in wild)
    assert _forge(page_checkers, text).links == []
    linked = _forge(page_checkers, "@team #1 GH-2 a/b#3 abcdef0123 https://e.org www.e.org a@b.org")
    assert len(linked.links) == 8


@pytest.mark.slow
def test_a_forge_links_no_reference(page_checkers: Path) -> None:
    text = "\n\n".join(f"{escaped(one)} and {prose(one)}" for one in REFERENCES)
    assert _forge(page_checkers, text).links == []


def _forge(page_checkers: Path, text: str) -> Page:
    done = run("node", page_checkers.parent / "forge.mjs", stdin=text, check=True)
    return Page(done.stdout)
