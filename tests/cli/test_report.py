import json
import os
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.cli.reporting import reported
from traceadvisor.bundle.layout import FORMAT


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Three steps of 100 ms, 40 of them waiting for a loader without workers."""
    builder = TraceBuilder()
    for number in range(3):
        start, ready, end = 100_000 * number, 100_000 * number + 40_000, 100_000 * (number + 1)
        builder.step(number, start, end).loader(start, ready, kind="_SingleProcessDataLoaderIter")
        builder.op("aten::mm", ready, ready + 10).launch(ready + 1, ready + 3, kernel=(ready + 4, end))
    return builder.write(tmp_path / "worker0.1.pt.trace.json")


def test_a_report_is_written_and_its_path_printed(recording: Path, tmp_path: Path) -> None:
    result = reported(recording, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "report.html").is_file()
    assert f"Written: {tmp_path / 'out' / 'report.html'}" in result.output


def test_the_summary_names_the_first_finding(recording: Path, tmp_path: Path) -> None:
    assert "1. Batches are loaded in the training process" in reported(recording, "-o", tmp_path / "out").output


def test_the_summary_can_end_with_what_laws_took(recording: Path, tmp_path: Path) -> None:
    asked, usual = (
        reported(recording, "-o", tmp_path / "out", *options).stdout for options in (("--explain-silence",), ())
    )
    assert "No saving had to be limited." in asked
    assert "law" not in usual


def test_several_formats_are_written_at_once(recording: Path, tmp_path: Path) -> None:
    reported(recording, "-o", tmp_path / "out", "--format", "md,json")
    reported(recording, "-o", tmp_path / "again", "--format", "md", "--format", "json")
    for folder in ("out", "again"):
        assert sorted(path.name for path in (tmp_path / folder).iterdir()) == ["report.json", "report.md"]


@pytest.mark.parametrize(
    ("name", "options", "beginning"),
    [("page.html", (), "<!doctype html>"), ("page.md", (), "#"), ("gl.json", ("--format", "gitlab"), "[")],
)
def test_a_file_is_written_where_one_is_named(
    recording: Path, tmp_path: Path, name: str, options: tuple[str, ...], beginning: str
) -> None:
    path = tmp_path / "new" / name
    result = reported(recording, "-o", path, *options)
    assert result.exit_code == 0, result.output
    assert [*path.parent.iterdir()] == [path]
    assert path.read_text().lower().lstrip().startswith(beginning) or beginning in path.read_text()[:400]
    assert f"Written: {path}" in result.output


def test_a_file_takes_no_other_format_and_not_several(recording: Path, tmp_path: Path) -> None:
    for formats in ("md", "md,json"):
        result = reported(recording, "-o", tmp_path / "page.html", "--format", formats)
        assert result.exit_code == 2
        assert "takes one format, html" in " ".join(result.output.split())
    assert not (tmp_path / "page.html").exists()


def test_a_capture_without_a_step_is_reported_and_ends_with_3(tmp_path: Path) -> None:
    manifest = {
        "format": FORMAT,
        "tool_version": "0",
        "started_ns": 1,
        "command": ["train.py"],
        "schedule": {"skip_first": 0, "wait": 0, "warmup": 0, "active": 3, "repeat": 1},
        "world_size": 1,
        "endings": [{"rank": 0, "ending": "completed", "exit_code": 0, "steps": 0, "recorded_steps": 0}],
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    result = reported(tmp_path, "-o", tmp_path / "out")
    assert result.exit_code == 3, result.output
    assert "exit code 3: no step was found" in result.output
    assert (tmp_path / "out" / "report.html").is_file()


def test_a_dash_writes_the_report_and_nothing_else_to_standard_output(recording: Path) -> None:
    result = reported(recording, "-o", "-", "--format", "json")
    assert json.loads(result.stdout)["schema"] == "traceadvisor.report/2"


def test_standard_output_takes_one_format_only(recording: Path) -> None:
    result = reported(recording, "-o", "-", "--format", "json,md")
    assert result.exit_code == 2
    assert "one format" in result.output


def test_an_existing_folder_with_the_name_of_a_file_is_a_folder(recording: Path, tmp_path: Path) -> None:
    output = tmp_path / "x.json"
    output.mkdir()
    assert reported(recording, "-o", output).exit_code == 0
    assert (output / "report.html").is_file()


def test_an_unknown_format_is_wrong_usage(recording: Path) -> None:
    result = reported(recording, "--format", "docx")
    assert result.exit_code == 2
    assert "Known formats: html, pdf, md, json" in result.output


def test_unreadable_input_exits_with_3_and_without_a_traceback(tmp_path: Path) -> None:
    result = reported(tmp_path / "missing.json")
    assert result.exit_code == 3
    assert "does not exist" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("condition", "code"),
    [("high", 1), ("low", 1), ("DATA002", 1), ("DATA001", 1), ("GPU001", 0), ("degraded", 0), ("GPU001,high", 1)],
)
def test_a_true_condition_exits_with_1(condition: str, code: int, recording: Path, tmp_path: Path) -> None:
    result = reported(recording, "-o", tmp_path / "out", "--fail-on", condition)
    assert result.exit_code == code
    assert (tmp_path / "out" / "report.html").is_file()


def test_damaged_input_meets_the_condition_degraded(recording: Path, tmp_path: Path) -> None:
    recording.write_bytes(recording.read_bytes()[:-200])
    assert reported(recording, "-o", tmp_path / "out", "--fail-on", "degraded").exit_code == 1


def test_an_unknown_condition_is_wrong_usage(recording: Path) -> None:
    result = reported(recording, "--fail-on", "severe")
    assert result.exit_code == 2
    assert "Unknown --fail-on condition 'severe'" in result.output


def test_a_selection_without_a_match_is_wrong_usage(recording: Path) -> None:
    assert reported(recording, "--worker", "other").exit_code == 2


@pytest.mark.nightly("traceadvisor/cli")
def test_without_a_pdf_html_is_written_and_the_exit_code_is_4(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weasyprint.py").write_text("raise OSError('cannot load library')")
    monkeypatch.syspath_prepend(tmp_path)
    result = reported(recording, "-o", tmp_path / "out", "--format", "pdf,html")
    assert result.exit_code == 4
    assert "apt-get install libpango-1.0-0" in result.stderr
    assert (tmp_path / "out" / "report.html").is_file()


def test_full_is_refused_without_a_pdf(recording: Path, tmp_path: Path) -> None:
    result = reported(recording, "-o", tmp_path / "out", "--full")
    assert result.exit_code == 2
    assert "--full is for a PDF. Add `--format pdf`" in result.output


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(
    ("crash", "said"),
    [
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
            "The process that draws the PDF was killed by SIGSEGV",
        ),
        pytest.param(
            "raise MemoryError",
            "Not enough memory to draw the PDF",
            marks=pytest.mark.nightly("traceadvisor/rendering"),
        ),
    ],
)
def test_a_crash_of_the_library_that_draws_the_pdf_costs_the_pdf_only(
    crash: str, said: str, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weasyprint.py").write_text(crash)
    monkeypatch.syspath_prepend(tmp_path)
    result = reported(recording, "-o", tmp_path / "out", "--format", "pdf,json")
    assert result.exit_code == 4
    assert said in result.stderr
    assert "Written: " in result.stdout
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.json"]


def _capture(folder: Path, recording: Path, started_ns: int) -> None:
    """A capture of one rank that started at this time."""
    folder.mkdir(parents=True)
    (folder / recording.name).write_bytes(recording.read_bytes())
    manifest = {
        "format": FORMAT,
        "tool_version": "0",
        "started_ns": started_ns,
        "command": ["train.py"],
        "schedule": {"skip_first": 0, "wait": 0, "warmup": 0, "active": 3, "repeat": 1},
        "world_size": 1,
        "files": [{"path": recording.name, "kind": "trace", "rank": 0, "cycle": 0}],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_without_a_path_the_newest_capture_is_read(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "work" / "runs"
    for name, started_ns in (("b-old", 1), ("a-newest", 3), ("c-older", 2)):
        _capture(runs / name, recording, started_ns)
    (runs / "no capture").mkdir()
    monkeypatch.chdir(runs.parent)
    result = reported("--format", "json")
    assert result.exit_code == 0, result.output
    assert result.stderr == "traceadvisor: reading runs/a-newest, the newest of 3 captures in runs/.\n"
    document = json.loads((runs.parent / "traceadvisor-report" / "report.json").read_text())
    assert [one["run"] for one in document["recordings"]] == ["a-newest"]


def test_the_only_capture_is_called_so(recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _capture(tmp_path / "work" / "runs" / "a", recording, 1)
    monkeypatch.chdir(tmp_path / "work")
    assert "reading runs/a, the only capture in runs/." in reported("--format", "json").stderr


def test_without_a_path_and_without_a_capture_the_usage_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        result = reported()
        assert result.exit_code == 2
        assert "No path given, and there is no capture in runs/. Record one with" in result.stderr
        (tmp_path / "runs" / "empty").mkdir(parents=True, exist_ok=True)


def test_without_a_terminal_a_summary_of_80_columns_ends_with_the_next_command(recording: Path, tmp_path: Path) -> None:
    lines = reported(recording, "-o", tmp_path / "out").stdout.splitlines()
    assert lines[-2:] == ["Next:", "  traceadvisor rules explain DATA002  # more on the first finding"]
    assert max(len(line) for line in lines if not line.startswith("Written: ")) <= 80


@pytest.mark.parametrize(
    ("given", "is_coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": ""}, True),
    ],
)
def test_only_a_terminal_gets_colours(
    given: dict[str, str], *, is_coloured: bool, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    output = reported(recording, "-o", tmp_path / "out").stdout
    assert ("\x1b[" in output) == is_coloured


def test_lines_are_as_wide_as_the_terminal(recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    lines = reported(recording, "-o", tmp_path / "out").stdout.partition("Written: ")[0].splitlines()
    assert 40 < max(len(line) for line in lines) <= 50


@pytest.mark.nightly("traceadvisor/cli")
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_damaged_file_among_good_ones_is_named_in_every_format(
    processes: str, recording: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged.pt.trace.json"
    damaged.write_text("{")
    paths = (recording, damaged, tmp_path / "missing.json")
    result = reported(*paths, "-o", tmp_path / "out", "--format", "html,md,json", "--processes", processes)
    assert result.exit_code == 0, result.output
    notes = json.loads((tmp_path / "out" / "report.json").read_text())["health_notes"]
    assert [row["note"]["code"] for row in notes if "recording_id" not in row] == ["unreadable"] * 2
    for name in ("report.html", "report.md", "report.json"):
        text = (tmp_path / "out" / name).read_text()
        assert "damaged.pt.trace.json" in text
        assert "missing.json" in text


@pytest.mark.nightly("traceadvisor/cli", "traceadvisor/system")
def test_without_a_readable_file_the_exit_code_is_3(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.pt.trace.json").write_text("{")
    result = reported(tmp_path, "-o", tmp_path / "out", "--processes", "2")
    assert result.exit_code == 3
    assert "a.pt.trace.json" in result.stderr
    assert not (tmp_path / "out").exists()


def test_the_report_of_another_run_that_is_replaced_is_named(tmp_path: Path) -> None:
    runs = [
        TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10).write(tmp_path / f"{name}.pt.trace.json") for name in "ab"
    ]
    said = [reported(run, "-o", tmp_path / "out").stderr for run in (runs[0], runs[0], runs[1])]
    assert ["replaced" in one for one in said] == [False, False, True]
