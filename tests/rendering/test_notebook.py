import re
import sys
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.build_report import hostile, nothing_readable, one_recording, three_recordings
from tests.children import run
from tests.rendering.captures import captured
from tests.rendering.formatted import page
from traceadvisor.model.report import Report
from traceadvisor.rendering.content.report.document import report_document
from traceadvisor.rendering.writers.html import frame
from traceadvisor.results.report_json import render


class Frame(HTMLParser):
    """The elements that a notebook sees."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("build", [one_recording, three_recordings, captured, nothing_readable])
def test_a_notebook_sees_one_sandboxed_frame_with_the_page_in_it(build: Callable[[], Report]) -> None:
    for report in (build(), hostile(build())):
        shown = Frame(frame(report_document(report)))
        ((tag, attributes),) = shown.elements
        assert (tag, shown.text) == ("iframe", "")
        assert attributes["sandbox"] == "allow-scripts"
        assert set(attributes) == {"sandbox", "srcdoc", "style", "title"}
        inside = attributes["srcdoc"] or ""
        assert inside.replace('<base href="about:srcdoc">', "") == page(report)


def test_no_character_of_the_page_ends_the_attribute() -> None:
    (inside,) = re.findall(r' srcdoc="([^"]*)"></iframe>\Z', frame(report_document(hostile(three_recordings()))))
    assert "<" not in inside
    assert unescape(inside).lower().startswith("<!doctype html>")


def test_links_stay_inside_the_frame() -> None:
    inside = unescape(frame(report_document(one_recording())))
    assert inside.index("<base ") < inside.index("Content-Security-Policy")


def test_a_report_that_is_read_back_shows_itself(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(render(one_recording()))
    code = f"import traceadvisor; print(traceadvisor.read({str(path)!r})._repr_html_()[:7])"
    assert run(sys.executable, "-c", code).stdout == "<iframe\n"


def test_a_report_without_a_view_has_no_html(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Report, "notebook_view", None)
    assert one_recording()._repr_html_() is None


def test_the_repr_is_one_line() -> None:
    assert repr(one_recording()) == (
        "<Report: 1 recording, 3 findings, first: DATA001 The device waits for the data loader (28.7%)>"
    )
    assert repr(nothing_readable()) == "<Report: 0 recordings, 0 findings>"


def test_the_repr_names_no_fix_that_was_measured_as_slower() -> None:
    report = one_recording()
    kept, *others = report.findings
    refuted = tuple(replace(one, is_refuted=True) for one in others)
    assert "first: DATA001" in repr(replace(report, findings=(*refuted, kept)))
    assert repr(replace(report, findings=refuted)) == "<Report: 1 recording, 2 findings>"


def test_no_text_of_a_rule_breaks_the_repr() -> None:
    report = one_recording()
    first = report.findings[0]
    rule = replace(first.finding.rule, title="a\n\x1b[31mb " * 100)
    shown = repr(replace(report, findings=(replace(first, finding=replace(first.finding, rule=rule)),)))
    assert shown.isprintable()
    assert len(shown) < 250
