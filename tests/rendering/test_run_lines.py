"""Lines of the whole run, as every format shows them."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.build_report import MS, on_the_cpu, one_recording
from tests.rendering.formatted import every, sentences, summary
from tests.rendering.reading import Page, markdown_page
from traceadvisor.model.findings import Estimate, Fix
from traceadvisor.model.location import Frame, Location, PlaceKind
from traceadvisor.model.report import Report
from traceadvisor.model.run import Run, RunSettings
from traceadvisor.model.run_time import CostliestLine, LineRow, LineShare, LineTime, RunLines
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.workload import Workload
from traceadvisor.rendering.content.report.run_lines import NO_USER_CODE, lines_fold
from traceadvisor.rendering.document.table import Table
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rendering.headline import verdict
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


COSTLIEST = CostliestLine(
    LineShare(LOOP, 0.35, 0.3, 0.4),
    LineShare(MODEL, 0.2, 0.15, 0.25),
    Location("train.py", 60, "main"),
    MODEL,
    calls_per_step=2.5,
    operators_per_step=40.0,
)


def _report(lines: RunLines | None = LINES) -> Report:
    report = one_recording()
    run = Run(("train.py",), "ran to its end", (), RunSettings(), None)
    return replace(
        report, recordings=(replace(report.recordings[0], captured=run, run_lines=lines, costliest_line=COSTLIEST),)
    )


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


def test_every_format_shows_the_lines() -> None:
    report = _report()
    page = Page(FORMATS["html"].render(report).decode())
    assert "Time of the training thread by line" in page.text
    assert "model.py:12" in page.text
    markdown = markdown_page(FORMATS["md"].render(report).decode())
    assert "in torch/nn/f.py:7 (linear)" in markdown.text


def test_json_holds_the_table_and_gives_it_back(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_bytes(FORMATS["json"].render(_report()))
    (recording,) = read(tmp_path / "report.json").recordings
    assert (recording.run_lines, recording.costliest_line) == (LINES, COSTLIEST)


def test_without_samples_no_format_says_a_word_of_it() -> None:
    report = _report(None)
    for name in ("html", "md"):
        assert b"training thread by line" not in FORMATS[name].render(report)
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
    lines = [line.text for line in summary(served) if line.text.startswith("Line with the most time: train.py:34")]
    assert ["35.0% of the loop, with" in line for line in lines] == [True]


@pytest.mark.parametrize(
    ("place", "saving_ms", "is_open"),
    [
        (Location("loss.py", 3, "loss"), 1.0, True),
        (Location("loss.py", 3, "loss"), 20.0, False),  # so large that it may be about the same time
        (LOOP, 1.0, False),
        (Location("model.py", 10, "forward", PlaceKind.FUNCTION_START), 1.0, False),
        (Location("model.py", 14, "forward", PlaceKind.FUNCTION_START), 1.0, True),
    ],
)
def test_time_that_no_finding_is_about_is_in_the_headline_with_its_line_and_as_no_saving(
    place: Location, saving_ms: float, *, is_open: bool
) -> None:
    found = replace(on_the_cpu().findings[0], step_ns=50.0 * MS)
    finding = replace(
        found.finding, locations=(place,), fix=Fix("Do less"), saving=Estimate.bound(saving_ms * MS, of_the_fix("?"))
    )
    report = on_the_cpu()
    recording = replace(report.recordings[0], costliest_line=COSTLIEST, workload=Workload.TRAINING)
    report = replace(report, recordings=(recording,), findings=(replace(found, finding=finding),))
    assert ("model.py:12 takes 20% of the training time, within train.py:34 (35%)." in verdict(report)) is is_open
    said = [line.text for line in summary(report) if line.text.startswith("Line with the most time")]
    assert len(said) == 1
    assert said[0].startswith(
        "Line with the most time outside backward() and the optimizer: train.py:34 takes 35.0% of the training time, "
        "with all that it calls, mostly called "
        "at train.py:60; inside it, model.py:12 takes 20.0%. "
        "In a recorded step, forward runs 2.5 times and starts 40 operators."
    )
    assert ("not a saving" in said[0]) is is_open


def test_without_a_step_the_line_is_of_the_run() -> None:
    report = on_the_cpu()
    found = replace(COSTLIEST, of_run=True, calls_per_step=None)
    recording = replace(report.recordings[0], costliest_line=found)
    report = replace(report, recordings=(recording,), findings=())
    assert "model.py:12 takes 20% of the run without its imports, within train.py:34 (35%)." in verdict(report)
    said = [line.text for line in summary(report) if line.text.startswith("Line with the most time: train.py:34")]
    assert "takes 35.0% of the run without its imports, with all that it calls" in said[0]


def test_a_line_with_little_of_the_loop_and_a_loop_with_a_gpu_have_no_headline_of_a_line() -> None:
    little = replace(COSTLIEST, line=replace(COSTLIEST.line, share=0.19))
    for report, line in ((on_the_cpu(), little), (one_recording(), COSTLIEST)):
        recording = replace(report.recordings[0], costliest_line=line)
        assert "train.py:34" not in verdict(replace(report, recordings=(recording,), findings=()))
