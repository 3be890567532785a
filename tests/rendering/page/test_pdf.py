import io
import re
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pypdf
import pytest

from tests.build_report import hostile, nothing_readable, on_the_cpu, one_recording, three_recordings
from tests.children import run
from tests.rendering.captures import captured, captured_on_host, captured_ranks
from tests.rendering.drawn import Draw
from tests.rendering.formatted import paper
from tests.shared import CHECKOUT
from traceadvisor.errors import PdfUnavailableError, RefusedFetchError
from traceadvisor.model.report import Report
from traceadvisor.rendering.content.report.document import report_document
from traceadvisor.rendering.writers import pdf
from traceadvisor.rendering.writers.html import page

makes_a_pdf = pytest.mark.usefixtures("pango")

NIGHTLY = pytest.mark.nightly("traceadvisor/rendering", "templates")
ALL = (
    nothing_readable,
    captured,
    *(pytest.param(build, marks=NIGHTLY) for build in (three_recordings, on_the_cpu, captured_on_host, captured_ranks)),
)


def hostile_three() -> Report:
    return hostile(three_recordings())


@makes_a_pdf
def test_the_document_holds_the_headline_and_the_findings(drawn: Draw) -> None:
    text = drawn(one_recording).text

    assert "The device waits for the data loader: the fix saves about 51.0 ms of 177.6 ms per step" in text
    assert "DataLoader(..., num_workers=4, persistent_workers=True)" in text


@makes_a_pdf
def test_the_pages_are_a4_and_numbered(drawn: Draw) -> None:
    document = drawn(one_recording).document

    assert [round(float(size)) for size in document.pages[0].mediabox[2:]] == [595, 842]
    assert f"1 of {len(document.pages)}" in document.pages[0].extract_text()


@pytest.mark.nightly("traceadvisor/rendering")
@makes_a_pdf
def test_a_recording_without_a_device_is_drawn(drawn: Draw) -> None:
    assert "no GPU activity was recorded" in drawn(on_the_cpu).text


@makes_a_pdf
def test_an_unreadable_input_makes_a_document_too(drawn: Draw) -> None:
    assert "The file holds no events." in drawn(nothing_readable).text


@pytest.mark.nightly("traceadvisor/rendering")
def test_a_document_whose_layout_would_take_long_is_cut_and_says_so() -> None:
    report = three_recordings()
    few, many = (replace(report, findings=(report.findings * 400)[:count]) for count in (4, 400))
    whole = page(report_document(many), for_paper=True)

    html = pdf.paper_page(report_document(many))

    assert html.count("<") <= pdf.MOST_TAGS < whole.count("<")
    assert re.search(r"And 3\d\d more findings in the full report\.", html)
    assert pdf.paper_page(report_document(few)) == page(report_document(few), for_paper=True)


@pytest.mark.nightly("traceadvisor/rendering", "templates")
@makes_a_pdf
def test_hostile_text_is_printed_as_text_and_nothing_is_attached(drawn: Draw) -> None:
    document = drawn(hostile_three).document
    text = "".join(page.extract_text() for page in document.pages)

    assert "onerror=alert(1)" in text
    assert "ghp_" not in text
    assert dict(document.attachments) == {}


@makes_a_pdf
@pytest.mark.parametrize(
    "markup",
    [
        "<img src='{url}'>",
        "<link rel=stylesheet href='{url}'>",
        "<link rel=attachment href='{url}'>",
        "<a rel=attachment href='{url}'>x</a>",
        "<style>@import '{url}';</style>",
        "<style>@font-face {{ font-family: x; src: url('{url}') }} p {{ font-family: x }}</style><p>x</p>",
        "<style>p {{ background: url('{url}') }}</style><p>x</p>",
        "<object data='{url}'></object>",
        "<embed src='{url}'>",
        "<svg><image href='{url}' width=9 height=9 /></svg>",
    ],
)
@pytest.mark.parametrize("scheme", ["file", "http", "data"])
def test_every_fetch_of_a_page_is_refused(markup: str, scheme: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("not for any report")
    url = {"file": secret.as_uri(), "http": "http://127.0.0.1:9/x", "data": "data:text/plain,x"}[scheme]

    with pytest.raises(RefusedFetchError, match="self-contained"):
        pdf.from_html(markup.format(url=url), "")


@pytest.mark.nightly("traceadvisor/rendering")
@makes_a_pdf
@pytest.mark.parametrize("build", ALL)
def test_weasyprint_logs_no_warning(build: Callable[[], Report], drawn: Draw) -> None:
    assert drawn(build).warnings == []


def test_without_weasyprint_the_message_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"cannot load library 'libpango-1.0-0' for {name}")

    monkeypatch.setattr(pdf, "import_module", missing)

    with pytest.raises(PdfUnavailableError, match=r"apt-get install libpango-1\.0-0"):
        paper(one_recording())


@pytest.mark.nightly("traceadvisor/rendering")
def test_no_other_format_loads_weasyprint() -> None:
    program = textwrap.dedent("""
        import sys
        from traceadvisor.rendering.formats import FORMATS
        from tests.build_report import one_recording
        for name in ("html", "md", "json"):
            FORMATS[name].render(one_recording())
        sys.exit("weasyprint" in sys.modules)
    """)

    run(sys.executable, "-c", program, check=True, cwd=CHECKOUT)


WITHOUT_PANGO = """
import sys
from cffi import FFI
def refuse(self, name, flags=0):
    if name == "libgobject-2.0-0":
        print("-----", "another line", "-----", sep="\\n")
    raise OSError(f"cannot load library {name!r}")
FFI.dlopen = refuse
from tests.build_report import one_recording
from traceadvisor.errors import PdfUnavailableError
from tests.rendering.formatted import paper
from traceadvisor.rendering.content.report.document import report_document
from traceadvisor.rendering.writers import pdf
from traceadvisor.rendering.writers.html import page
try:
    paper(one_recording())
except PdfUnavailableError:
    sys.exit(3)
"""


@pytest.mark.nightly("traceadvisor/rendering")
def test_without_pango_only_the_banner_of_weasyprint_is_not_printed() -> None:
    done = run(sys.executable, "-c", WITHOUT_PANGO, cwd=CHECKOUT)
    others = "-----\nanother line\n-----\n" * 2  # it tries this library twice
    assert (done.returncode, done.stdout, done.stderr) == (3, others, "")


@pytest.mark.parametrize(
    ("page_count", "end", "font_px"),
    [
        (8, 900, None),
        (8, 350, None),
        (5, 100, 12 * 0.95),
        (3, 300, 12 * (1 - pdf.MOST_TIGHTER)),
        (2, 100, None),
        (13, 100, None),
    ],
)
def test_a_nearly_empty_last_page_is_laid_out_again_in_a_smaller_font(
    page_count: int, end: float, font_px: float | None
) -> None:
    pages = [SimpleNamespace(anchors={"end": (0, end, 100, end + 20)}, height=1000.0)] * page_count
    tighter = pdf._tighter_font(SimpleNamespace(pages=pages))
    assert tighter == (None if font_px is None else pytest.approx(font_px))


@pytest.mark.nightly("traceadvisor/rendering")
@makes_a_pdf
@pytest.mark.parametrize(("is_again", "page_count"), [(False, 4), (True, 3)])
def test_the_second_layout_saves_the_last_page(
    page_count: int, monkeypatch: pytest.MonkeyPatch, *, is_again: bool
) -> None:
    if not is_again:
        monkeypatch.setattr(pdf, "_tighter_font", lambda _: None)
    blocks = "<p style='height: 100px; margin: 0'>a</p>" * 9
    lines = "<p style='margin: 0; line-height: 1.5'>word</p>" * 119
    style = "<style>@page { size: A4; margin: 16mm 15mm 18mm } body { font-size: 12px; margin: 0 }</style>"
    document = pdf.from_html(f"{style}<body>{blocks}{lines}<footer id=end>end</footer></body>", "")
    assert len(pypdf.PdfReader(io.BytesIO(document)).pages) == page_count
