"""The structure that a screen reader follows, and how pages are filled. No validator is at hand: these are checks."""

import io
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pypdf
import pytest

from tests.build_report import hostile, nothing_readable, on_the_cpu, one_recording, three_recordings
from tests.rendering.captures import captured, captured_on_host, captured_ranks
from tests.rendering.drawn import Draw
from tests.rendering.formatted import page, paper
from tests.shared import SAMPLES, SHARED_TRACES
from traceadvisor import load
from traceadvisor.model.report import Report
from traceadvisor.rendering.writers import pdf

pytestmark = pytest.mark.usefixtures("pango")
NIGHTLY = pytest.mark.nightly("traceadvisor/rendering", "templates")

ALL = (
    nothing_readable,
    captured,
    *(
        pytest.param(build, marks=NIGHTLY)
        for build in (one_recording, three_recordings, on_the_cpu, captured_on_host, captured_ranks)
    ),
)


def hostile_captured() -> Report:
    return hostile(captured())


def root_of(document: pypdf.PdfReader) -> Any:
    return document.trailer["/Root"]


def elements(document: pypdf.PdfReader) -> Iterator[tuple[str, str, Any]]:
    """Kind, kind of the parent, and dictionary of each structure element, in reading order."""
    yield from _below(root_of(document)["/StructTreeRoot"], "")


def _below(element: Any, parent: str) -> Iterator[tuple[str, str, Any]]:
    kind = str(element.get("/S", ""))
    if kind:
        yield kind, parent, element
    kids = element.get("/K", [])
    for kid in kids if isinstance(kids, list) else [kids]:
        inside = kid.get_object()
        if isinstance(inside, dict) and inside.get("/Type") != "/OBJR":
            yield from _below(inside, kind)


class Printed(HTMLParser):
    """The levels of headings and the titles of pictures of a page, without what is not printed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.pictures: list[str] = []
        self._open: list[tuple[str, bool]] = []
        self._wants_title = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"meta", "br", "input", "link"}:
            return
        classes = set((dict(attrs).get("class") or "").split())
        is_folded = "folded" in classes and "origin" not in classes
        hides = is_folded or bool(pdf.UNPRINTED & classes) or tag == "script" or "hidden" in dict(attrs)
        hidden = hides or (bool(self._open) and self._open[-1][1])
        self._open.append((tag, hidden))
        if not hidden and re.fullmatch(r"h[1-6]", tag):
            self.headings.append(f"/{tag.upper()}")
        names = [name for name, _ in self._open]
        if not hidden and names[-2:] == ["svg", "title"] and names.count("svg") == 1:
            self._wants_title = True

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._wants_title:
            self.pictures.append(data)
            self._wants_title = False


@pytest.mark.nightly("traceadvisor/rendering")
@pytest.mark.parametrize("build", ALL)
def test_the_document_says_that_it_is_tagged_in_which_language_and_how_it_is_called(
    build: Callable[[], Report], drawn: Draw
) -> None:
    document = drawn(build).document
    root = root_of(document)
    assert root["/MarkInfo"]["/Marked"]
    assert root["/Lang"] == "en"
    assert root["/ViewerPreferences"]["/DisplayDocTitle"]
    assert document.metadata is not None
    assert str(document.metadata.title).endswith(" · TraceAdvisor")
    assert b'pdfuaid:part="1"' in root["/Metadata"].get_data()


@pytest.mark.parametrize("build", ALL)
def test_the_readers_order_is_that_of_the_page(build: Callable[[], Report], drawn: Draw) -> None:
    printed, tagged = Printed(page(build())), list(elements(drawn(build).document))
    headings = [kind for kind, _, _ in tagged if re.fullmatch(r"/H[1-6]", kind)]
    pictures = [str(element["/Alt"]) for kind, _, element in tagged if kind == "/Figure"]
    assert headings == printed.headings
    assert pictures == printed.pictures


@NIGHTLY
@pytest.mark.parametrize("build", [one_recording, captured, captured_ranks, hostile_captured])
def test_every_picture_has_a_text_and_every_table_its_heads(build: Callable[[], Report], drawn: Draw) -> None:
    tagged = list(elements(drawn(build).document))
    assert all(str(element.get("/Alt", "")).strip() for kind, _, element in tagged if kind == "/Figure")
    assert sum(kind == "/Figure" for kind, _, _ in tagged) >= 3
    cells = [element for kind, _, element in tagged if kind == "/TD"]
    assert cells
    assert all(element["/A"]["/Headers"] for element in cells)


@pytest.mark.parametrize("build", ALL)
def test_elements_stand_only_where_they_may(build: Callable[[], Report], drawn: Draw) -> None:
    allowed = {
        "/L": {"/LI", "/L", "/Caption"},
        "/Table": {"/TR", "/THead", "/TBody", "/TFoot", "/Caption"},
        "/THead": {"/TR"},
        "/TBody": {"/TR"},
        "/TR": {"/TH", "/TD"},
        "/LI": {"/Lbl", "/LBody"},
    }
    wrong = {
        (parent, kind)
        for kind, parent, _ in elements(drawn(build).document)
        if parent in allowed and kind not in allowed[parent]
    }
    assert wrong == set()


@pytest.mark.parametrize("build", ALL)
def test_no_level_of_headings_is_left_out(build: Callable[[], Report], drawn: Draw) -> None:
    levels = [int(kind[2]) for kind, _, _ in elements(drawn(build).document) if re.fullmatch(r"/H[1-6]", kind)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))


@pytest.mark.parametrize("build", ALL)
def test_no_bookmark_is_doubled(build: Callable[[], Report], drawn: Draw) -> None:
    places = list(_places(drawn(build).document.outline))
    assert len(places) >= 2
    assert len(places) == len(set(places))


def _places(outline: list[Any]) -> Iterator[tuple[str, int, float]]:
    """Title, page and height of each bookmark."""
    for part in outline:
        if isinstance(part, list):
            yield from _places(part)
        else:
            yield str(part.title), part.page.idnum, float(part.top)


@NIGHTLY
@pytest.mark.parametrize("build", [one_recording, captured, captured_ranks, three_recordings])
def test_the_pages_are_filled_and_begin_with_the_findings(build: Callable[[], Report], drawn: Draw) -> None:
    _check_pages(build(), drawn(build).document)


@NIGHTLY
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_the_pages_of_samples_are_filled_and_begin_with_the_findings(path: Path) -> None:
    _check_recording(path)


@NIGHTLY
@pytest.mark.usefixtures("shared_traces")
@pytest.mark.parametrize(
    "path",
    [SHARED_TRACES / "tensorboard-logs", *sorted(SHARED_TRACES.glob("*/*.pt.trace.json.gz"))],
    ids=lambda path: path.name,
)
def test_the_pages_of_recordings_are_filled_and_begin_with_the_findings(path: Path) -> None:
    _check_recording(path)


def _check_recording(path: Path) -> None:
    report = load(path)
    _check_pages(report, pypdf.PdfReader(io.BytesIO(paper(report)), strict=True))


def _check_pages(report: Report, document: pypdf.PdfReader) -> None:
    if report.findings:
        first = report.findings[0].finding.fix.summary
        beginning = " ".join(" ".join(one.extract_text() for one in document.pages[:2]).split())
        assert beginning.count(first) >= 2  # in the headline, and in the finding
    blank = [_blank_share(one) for one in document.pages[:-1]]  # the last page ends where the text does
    assert [share for share in blank if share > 1 / 3] == []
    alone = [text for one in document.pages if (text := _body(one)).endswith("in the HTML report.") and len(text) < 60]
    assert alone == []


def _body(one: pypdf.PageObject) -> str:
    return re.sub(r"\d+ of \d+$", "", " ".join(one.extract_text().split())).strip()


MARGIN_TOP_MM, MARGIN_BOTTOM_MM, HEIGHT_MM = 16, 18, 297
POINTS_PER_MM = 72 / 25.4


def _blank_share(one: pypdf.PageObject) -> float:
    """The share of the page, without its margins, that is below its last text."""
    lowest = [HEIGHT_MM * POINTS_PER_MM]
    floor = MARGIN_BOTTOM_MM * POINTS_PER_MM

    def visit(text: str, matrix: list[float], text_matrix: list[float], _font: object, _size: float) -> None:
        y = text_matrix[4] * matrix[1] + text_matrix[5] * matrix[3] + matrix[5]
        if text.strip() and y >= floor:
            lowest.append(y)

    one.extract_text(visitor_text=visit)
    return (min(lowest) - floor) / ((HEIGHT_MM - MARGIN_TOP_MM - MARGIN_BOTTOM_MM) * POINTS_PER_MM)
