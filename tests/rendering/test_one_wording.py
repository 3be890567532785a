"""Every format words a finding alike: its saving, how certain that is, and its fix."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pypdf
import pytest

from tests.build_report import one_recording, three_recordings
from tests.rendering.captures import captured, captured_ranks
from tests.rendering.formatted import comment, in_report, page, paper, summary
from tests.rendering.reading import Page, markdown_page
from tests.sample_reports import sample
from tests.shared import CHECKOUT
from traceadvisor.model.report import Report
from traceadvisor.rendering.document.blocks import Card, Cards, Prose, Tone, plain

NIGHTLY = pytest.mark.nightly("traceadvisor/rendering", "templates")

BUILT = {build.__name__: build for build in (one_recording, three_recordings, captured, captured_ranks)}
SAMPLES = tuple(sorted(path.parent.name for path in (CHECKOUT / "sample_traces").glob("*/manifest.json")))
MOST_SHOWN = 3
"""Findings that every format shows."""


def _report(name: str) -> Report:
    return BUILT[name]() if name in BUILT else sample(name)


def _one_line(text: str) -> str:
    """The text without what line ends and the escapes of a format add."""
    return re.sub(r"\s+", "", text.replace("\u200b", "").replace("\u00ad", "")).lower()


def _said(card: Card) -> tuple[str, ...]:
    fixes = (
        plain(one.words).partition(": ")[2] for one in card.main if isinstance(one, Prose) and one.tone is Tone.FIX
    )
    return (card.title, card.effect, card.certainty, *fixes)


def _in_html(report: Report) -> str:
    return Page(page(report)).text


def _in_markdown(report: Report) -> str:
    return markdown_page(comment(report).decode()).text


def _on_a_terminal(report: Report) -> str:
    return "\n".join(line.text for line in summary(report))


def _on_paper(report: Report) -> str:
    return " ".join(one.extract_text() for one in pypdf.PdfReader(io.BytesIO(paper(report))).pages)


@pytest.mark.nightly("traceadvisor/rendering")
@pytest.mark.parametrize("shown", [_in_html, _in_markdown, _on_a_terminal])
@pytest.mark.parametrize("name", [*BUILT, *SAMPLES])
def test_saving_certainty_and_fix_of_a_finding_read_alike(name: str, shown: Callable[[Report], str]) -> None:
    _check(_report(name), shown)


@NIGHTLY
@pytest.mark.usefixtures("pango")
@pytest.mark.parametrize("name", [*BUILT, *SAMPLES])
def test_paper_reads_like_the_other_formats(name: str) -> None:
    _check(_report(name), _on_paper)


def _check(report: Report, shown: Callable[[Report], str]) -> None:
    cards = [card for one in in_report(Cards, report) for card in one.cards][:MOST_SHOWN]
    text = _one_line(shown(report))
    assert cards or not report.findings
    for card in cards:
        assert len(_said(card)) in {4, 5}
        for words in _said(card):
            assert _one_line(words) in text


def test_the_sources_of_a_test_of_wording_have_findings() -> None:
    assert all(Path(CHECKOUT / "sample_traces" / name).is_dir() for name in SAMPLES)
    assert sum(bool(_report(name).findings) for name in BUILT) == len(BUILT)
