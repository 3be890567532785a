"""Lines of the whole run, as every format shows them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.build_report import one_recording
from tests.rendering.formatted import every, sentences, summary
from tests.rendering.reading import Page, markdown_page
from traceadvisor.model.location import Frame, Location
from traceadvisor.model.report import Report
from traceadvisor.model.run import Run, RunSettings
from traceadvisor.model.run_time import LineRow, LineTime, RunLines
from traceadvisor.model.workload import Workload
from traceadvisor.rendering.content.report.run_lines import NO_USER_CODE, first_line, lines_fold
from traceadvisor.rendering.document.table import Table
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rendering.origins import OTHER
from traceadvisor.results.report_json import read

LOOP = Location("train.py", 34, "train")
MODEL = Location("model.py", 12, "forward")


def _row(line: Location | None, inner: Location | None, owner: Frame | None, ns: int, step_ns: int) -> LineRow:
    return LineRow(line, None, inner, owner, LineTime(ns, step_ns, 0, 10), ns / 10**9, 0.1, 0.9)


LINES = RunLines(
    whole=LineTime(10**9, 500_000_000, 100_000_000, 20),
    rows=(
        _row(Location("train.py", 3, "<module>"), None, Frame("import"), 400_000_000, 0),
        _row(
            LOOP, MODEL, Frame("linear", "/usr/lib/python3.11/site-packages/torch/nn/f.py", 7), 300_000_000, 300_000_000
        ),
        _row(None, None, Frame("wait", "threading.py", 320), 200_000_000, 0),
    ),
    other=LineTime(100_000_000, 100_000_000, 100_000_000, 2),
    interval_ns=50_000_000,
    late_share=0.1,
    late_by_ns=5_000_000,
    sampler_share=0.002,
)


def _report(lines: RunLines | None = LINES) -> Report:
    report = one_recording()
    run = Run(("train.py",), "ran to its end", (), RunSettings(), None)
    return replace(report, recordings=(replace(report.recordings[0], captured=run, run_lines=lines),))


def test_the_costliest_line_in_training_steps_is_named_not_that_of_the_start() -> None:
    assert first_line(LINES) == "train.py:34 > model.py:12, in torch/nn/f.py:7 (linear) (30.0% of the run)"
    assert first_line(None) is None


def test_the_table_ends_with_all_others_and_shows_the_error_of_each_share() -> None:
    fold = lines_fold(LINES)
    assert fold
    (table,) = every(Table, [fold])
    (explanation,) = sentences([fold])
    assert [row[0].text for row in table.rows] == [
        "train.py:3",
        "train.py:34 > model.py:12",
        "threading.py:320 (wait)",
        OTHER,
    ]
    assert table.rows[2][0].remark == NO_USER_CODE
    assert [(row[2].text, row[2].remark) for row in table.rows[1::2]] == [
        ("30.0%", "10.0% to 90.0%"),
        ("10.0%", None),
    ]
    assert "20 samples in 1.00 s" in explanation
    assert "Samples of 10.0% of the time had to wait for running Python code, 5.00 ms on average" in explanation


def test_the_first_line_is_the_one_whose_rows_take_most_whatever_they_call() -> None:
    other = Location("model.py", 40, "forward")
    rows = (
        _row(LOOP, other, None, 400_000_000, 400_000_000),
        *(_row(LOOP, MODEL, Frame(name), 200_000_000, 200_000_000) for name in ("stft", "abs", "pad")),
    )
    lines = replace(LINES, whole=LineTime(10**9, 10**9, 0, 40), rows=rows, other=LineTime(0, 0, 0, 0))
    assert first_line(lines) == "train.py:34 > model.py:12 (60.0% of the run)"


def test_every_format_shows_the_lines() -> None:
    report = _report()
    page = Page(FORMATS["html"].render(report).decode())
    assert "Time of the training thread by line" in page.text
    assert "model.py:12" in page.text
    markdown = markdown_page(FORMATS["md"].render(report).decode())
    assert "in torch/nn/f.py:7 (linear)" in markdown.text
    assert any(
        line.text.startswith("Line with the most time in training steps: train.py:34") for line in summary(report)
    )


def test_json_holds_the_table_and_gives_it_back(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_bytes(FORMATS["json"].render(_report()))
    (recording,) = read(tmp_path / "report.json").recordings
    assert recording.run_lines == LINES


def test_without_samples_no_format_says_a_word_of_it() -> None:
    report = _report(None)
    for name in ("html", "md"):
        assert b"training thread by line" not in FORMATS[name].render(report)
    assert not [line for line in summary(report) if "Line with the most" in line.text]
    assert lines_fold(None) is None


def test_hostile_names_are_escaped() -> None:
    name = "<script>alert(1)</script>\x1b[31m"
    rows = (replace(LINES.rows[0], line=Location(name, 3, name), owner=Frame(name, name, 1)), *LINES.rows[1:])
    report = _report(replace(LINES, rows=rows))
    assert b"<script>alert" not in FORMATS["html"].render(report)
    assert b"\x1b" not in FORMATS["md"].render(report)


def test_the_lines_of_an_inference_are_not_of_training_steps() -> None:
    report = _report()
    recording = replace(report.recordings[0], workload=Workload.INFERENCE)
    served = replace(report, recordings=(recording, *report.recordings[1:]))
    page = Page(FORMATS["html"].render(served).decode()).text
    assert "In steps" in page
    assert "training steps" not in page.lower()
    assert any(line.text.startswith("Line with the most time in steps: train.py:34") for line in summary(served))
