"""``report --format github`` and the step summary, and JSON formats on standard output."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.shared import CHECKOUT
from traceadvisor.cli import main
from traceadvisor.cli.report_command import MOST_BYTES, VARIABLE

SAMPLE = CHECKOUT / "sample_traces" / "loader-bound"


def report(*arguments: str | Path, summary: Path | None = None) -> Result:
    env = {VARIABLE: None if summary is None else str(summary)}
    return CliRunner(env=env).invoke(main, ["report", str(SAMPLE), *map(str, arguments)], catch_exceptions=False)


def test_annotations_follow_the_summary_and_write_no_file(tmp_path: Path) -> None:
    result = report("--format", "github", "-o", tmp_path / "out")
    assert result.exit_code == 0
    assert (
        "\n::error file=train.py,line=113,title=DATA002 Batches are loaded in the training process::" in result.stdout
    )
    assert not (tmp_path / "out").exists()
    assert "step summary" not in result.stderr


@pytest.mark.nightly("traceadvisor/cli")
def test_files_and_annotations_can_be_combined(tmp_path: Path) -> None:
    result = report("--format", "gitlab,github,sarif", "-o", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gl-code-quality-report.json", "report.sarif"]
    assert "::error file=" in result.stdout


@pytest.mark.parametrize("name", ["sarif", "gitlab"])
def test_json_for_a_code_host_is_printed_alone(name: str) -> None:
    assert json.loads(report("--format", name, "-o", "-").stdout)


def test_annotations_can_be_printed_alone_and_an_empty_file_is_filled(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.touch()
    result = report("--format", "github", "-o", "-", summary=summary)
    assert all(line.startswith("::") for line in result.stdout.splitlines())
    assert summary.read_text(encoding="utf-8").startswith("<!-- traceadvisor.report/2 -->\n### ")


def test_the_step_summary_is_appended_to(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("# Mine\n")
    report("--format", "github", "-o", tmp_path / "out", summary=summary)
    assert summary.read_text(encoding="utf-8").startswith("# Mine\n\n<!-- traceadvisor.report/2 -->\n### ")


def test_other_formats_leave_the_step_summary_alone(tmp_path: Path) -> None:
    report("--format", "md", "-o", tmp_path / "out", summary=tmp_path / "summary.md")
    assert not (tmp_path / "summary.md").exists()


def test_a_full_step_summary_stays_within_its_limit_and_is_no_error(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_bytes(b"x" * (MOST_BYTES - 100))
    result = report("--format", "github", "-o", tmp_path / "out", summary=summary)
    assert result.exit_code == 0
    assert "no step summary: it has 1,048,476 bytes already" in result.stderr
    assert summary.stat().st_size == MOST_BYTES - 100


def test_a_step_summary_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    result = report("--format", "github", "-o", tmp_path / "out", summary=tmp_path / "missing" / "summary.md")
    assert result.exit_code == 0
    assert "no step summary: GITHUB_STEP_SUMMARY names a file that could not be written" in result.stderr
