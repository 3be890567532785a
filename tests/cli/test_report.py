from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.build import TraceBuilder
from traceadvisor.cli import main
from traceadvisor.errors import PdfUnavailableError
from traceadvisor.model.report import Report
from traceadvisor.rendering.formats import FORMATS, Format


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Three steps of 100 us, 40 of them waiting for a loader without workers."""
    builder = TraceBuilder()
    for number in range(3):
        start = 100 * number
        builder.step(number, start, start + 100)
        builder.loader(start, start + 40, kind="_SingleProcessDataLoaderIter").op("aten::mm", start + 40, start + 50)
        builder.launch(start + 41, start + 43, kernel=(start + 44, start + 100))
    return builder.write(tmp_path / "worker0.1.pt.trace.json")


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def test_a_report_is_written_and_its_path_printed(recording: Path, tmp_path: Path) -> None:
    result = _run(recording, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "report.html").is_file()
    assert f"Written: {tmp_path / 'out' / 'report.html'}" in result.output


def test_the_summary_names_the_first_finding(recording: Path, tmp_path: Path) -> None:
    assert "1. Batches are loaded in the training process" in _run(recording, "-o", tmp_path / "out").output


def test_several_formats_are_written_at_once(recording: Path, tmp_path: Path) -> None:
    _run(recording, "-o", tmp_path / "out", "--format", "md,json")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.json", "report.md"]


def test_a_dash_writes_the_report_and_nothing_else_to_standard_output(recording: Path) -> None:
    result = _run(recording, "-o", "-", "--format", "json")
    assert json.loads(result.stdout)["schema"] == "traceadvisor.report/1"


def test_standard_output_takes_one_format_only(recording: Path) -> None:
    result = _run(recording, "-o", "-", "--format", "json,md")
    assert result.exit_code == 2
    assert "one format" in result.output


def test_an_unknown_format_is_wrong_usage(recording: Path) -> None:
    result = _run(recording, "--format", "docx")
    assert result.exit_code == 2
    assert "Known are: html, pdf, md, json" in result.output


def test_unreadable_input_exits_with_3_and_without_a_traceback(tmp_path: Path) -> None:
    result = _run(tmp_path / "missing.json")
    assert result.exit_code == 3
    assert "does not exist" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("condition", "code"),
    [("high", 1), ("low", 1), ("DATA002", 1), ("DATA001", 1), ("GPU001", 0), ("degraded", 0), ("GPU001,high", 1)],
)
def test_a_condition_that_holds_exits_with_1(condition: str, code: int, recording: Path, tmp_path: Path) -> None:
    result = _run(recording, "-o", tmp_path / "out", "--fail-on", condition)
    assert result.exit_code == code
    assert (tmp_path / "out" / "report.html").is_file()


def test_damaged_input_meets_the_condition_degraded(recording: Path, tmp_path: Path) -> None:
    recording.write_bytes(recording.read_bytes()[:-200])
    assert _run(recording, "-o", tmp_path / "out", "--fail-on", "degraded").exit_code == 1


def test_an_unknown_condition_is_wrong_usage(recording: Path) -> None:
    result = _run(recording, "--fail-on", "severe")
    assert result.exit_code == 2
    assert "Unknown --fail-on condition 'severe'" in result.output


def test_a_selection_that_leaves_nothing_is_wrong_usage(recording: Path) -> None:
    assert _run(recording, "--worker", "other").exit_code == 2


def test_without_a_pdf_html_is_written_and_the_exit_code_is_4(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(report: Report) -> bytes:
        raise PdfUnavailableError("install libpango-1.0-0")

    monkeypatch.setitem(FORMATS, "pdf", Format("pdf", "report.pdf", refuse))
    result = _run(recording, "-o", tmp_path / "out", "--format", "pdf,html")
    assert result.exit_code == 4
    assert "install libpango-1.0-0" in result.stderr
    assert (tmp_path / "out" / "report.html").is_file()


def test_no_path_at_all_is_wrong_usage() -> None:
    assert _run().exit_code == 2
