"""Whatever stands in a recording, a capture or the name of a file is shown as text, in every format."""

import io
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pypdf
import pytest
from click.testing import CliRunner

from tests.hostile_input import HOSTILE, PLAIN, write_hostile_input
from tests.rendering.formatted import paper
from tests.rendering.reading import Page, markdown_page
from traceadvisor import load
from traceadvisor.api import to_frame
from traceadvisor.cli import main
from traceadvisor.model.report import Report
from traceadvisor.rendering.formats import FORMATS

UNSHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028]|ghp_|hunter2|/home/ada")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The hostile folder and the plain one."""
    return (
        write_hostile_input(tmp_path_factory.mktemp("input"), HOSTILE),
        write_hostile_input(tmp_path_factory.mktemp("input"), PLAIN),
    )


@pytest.fixture(scope="module")
def reports(inputs: tuple[Path, Path]) -> tuple[Report, Report]:
    return load(inputs[0]), load(inputs[1])


def _texts(reports: tuple[Report, Report], format_name: str) -> tuple[str, str]:
    wild, tame = (FORMATS[format_name].render(report).decode() for report in reports)
    return wild, tame


def test_the_hostile_word_reaches_the_report(reports: tuple[Report, Report]) -> None:
    wild, tame = reports
    assert len(wild.recordings) == 3
    assert wild.findings
    assert [row.finding.rule.id for row in wild.findings] == [row.finding.rule.id for row in tame.findings]
    assert str(asdict(wild)).count("onerror") > 100


def test_the_page_has_the_elements_and_attributes_of_a_clean_one(reports: tuple[Report, Report]) -> None:
    wild, tame = map(Page, _texts(reports, "html"))
    assert wild.elements == tame.elements
    assert wild.attributes == tame.attributes
    assert all(link.startswith("#") for link in wild.links)
    assert "<script>document.documentElement" in wild.text


def test_the_comment_has_only_elements_of_a_clean_one(reports: tuple[Report, Report]) -> None:
    wild, tame = map(markdown_page, _texts(reports, "md"))  # there is less room for the longer one
    assert set(wild.elements) <= set(tame.elements)
    assert wild.links == []


def _shape(value: Any) -> Any:
    """What a document is made of, its texts and numbers apart."""
    if isinstance(value, Mapping):
        return {key: _shape(item) for key, item in value.items()}
    return [_shape(item) for item in value] if isinstance(value, list) else None


def test_the_document_has_the_shape_of_a_clean_one(reports: tuple[Report, Report]) -> None:
    wild, tame = (json.loads(text) for text in _texts(reports, "json"))
    assert _shape(wild) == _shape(tame)


@pytest.mark.parametrize("name", ["html", "md", "json", "sarif", "github", "gitlab"])
def test_no_format_shows_what_a_terminal_obeys_a_secret_or_a_home(name: str, reports: tuple[Report, Report]) -> None:
    assert UNSHOWN.search(HOSTILE)
    text, _ = _texts(reports, name)
    assert not UNSHOWN.search(text)


@pytest.mark.nightly("traceadvisor/rendering", "templates", "tests/hostile_input.py")
@pytest.mark.usefixtures("pango")
def test_the_document_for_paper_loads_nothing_attaches_nothing_and_shows_the_word(
    reports: tuple[Report, Report],
) -> None:
    document = pypdf.PdfReader(io.BytesIO(paper(reports[0])))
    text = "".join(page.extract_text() for page in document.pages)
    assert "onerror=alert(1)" in text
    assert not UNSHOWN.search(text)
    assert dict(document.attachments) == {}
    links = [note.get_object() for page in document.pages for note in page.get("/Annots", [])]
    assert [link for link in links if "/A" in link and "/URI" in link["/A"]] == []


def test_the_terminal_shows_lines_and_nothing_else(inputs: tuple[Path, Path], tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["report", str(inputs[0]), "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "Damaged input: " in result.stdout
    assert not UNSHOWN.search(result.output)
    assert all(line.isprintable() for line in result.output.split("\n"))


def test_an_error_about_a_hostile_name_is_one_line(inputs: tuple[Path, Path]) -> None:
    (broken,) = inputs[0].rglob("broken*")
    result = CliRunner().invoke(main, ["report", str(broken)])
    assert result.exit_code == 3
    assert result.stderr.count("\n") == 1
    assert result.stderr.rstrip("\n").isprintable()


def test_the_table_of_steps_holds_no_text_but_the_names_of_recordings(reports: tuple[Report, Report]) -> None:
    frame = to_frame(reports[0])
    texts = [name for name in frame.columns if frame[name].dtype == object or frame[name].dtype == "str"]
    assert texts == ["recording"]
