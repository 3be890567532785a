"""The PDF of two pages."""

import io
from dataclasses import replace

import pypdf
import pytest

from tests.build_report import one_recording, three_recordings
from tests.rendering.captures import captured_on_host
from traceadvisor.model.report import Report
from traceadvisor.rendering.content.report.document import report_document
from traceadvisor.rendering.document import budget
from traceadvisor.rendering.formats import FORMATS, FULL_FORMATS
from traceadvisor.rendering.writers import brief

pytestmark = [pytest.mark.nightly("traceadvisor/rendering", "templates"), pytest.mark.usefixtures("pango")]


def _many_findings() -> Report:
    report = three_recordings()
    return replace(report, findings=report.findings * 15)


def _pages(content: bytes) -> list[str]:
    return [page.extract_text() for page in pypdf.PdfReader(io.BytesIO(content), strict=True).pages]


def test_the_pdf_of_a_long_report_has_two_pages_with_findings_and_the_step() -> None:
    pages = _pages(FORMATS["pdf"].render(captured_on_host()))
    whole = _pages(FULL_FORMATS["pdf"].render(captured_on_host()))
    assert len(pages) == 2 < len(whole)
    text = " ".join(" ".join(pages).split())
    for words in ("Typical step", "Fix:", "Evidence", "Not shown here:", "add --full"):
        assert words in text
    assert "add --full" not in " ".join(" ".join(whole).split())


@pytest.mark.parametrize(("spare", "has_details"), [(0.0, True), (1.0, False)])
def test_details_fill_the_last_page_where_they_fit(
    spare: float, monkeypatch: pytest.MonkeyPatch, *, has_details: bool
) -> None:
    monkeypatch.setattr(brief, "SPARE_PAGES", spare)
    monkeypatch.setattr(brief, "WITH_DETAILS", budget.Room(2, 0, 1, 70, 1))
    text = " ".join(" ".join(_pages(brief.write(report_document(one_recording())))).split())
    assert ("Failed checks 1" in text) is has_details


def test_more_findings_than_two_pages_hold_are_counted() -> None:
    pages = _pages(FORMATS["pdf"].render(_many_findings()))
    assert len(pages) == 2
    assert "more findings in the full report" in " ".join(" ".join(pages).split())


def test_a_first_screen_that_is_longer_than_two_pages_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brief, "MOST_PAGES", 0)
    assert _pages(brief.write(report_document(one_recording())))
