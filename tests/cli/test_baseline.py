from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.build_report import CANARY, hostile, one_recording
from tests.rendering.captures import captured
from traceadvisor.cli import main
from traceadvisor.model.report import Report
from traceadvisor.model.run import Repository
from traceadvisor.results.report_json import render

COMMIT, OTHER = "a1" * 20, "a2" * 20


def baseline(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["baseline", *map(str, arguments)], catch_exceptions=False)


def of_commit(*commits: str, dirty: bool = False) -> Report:
    """A report with a captured run for each commit."""
    report = captured()
    (recording,) = report.recordings
    assert recording.captured
    recordings = tuple(
        replace(
            recording,
            id=f"run{number}",
            captured=replace(recording.captured, repository=Repository("/repo", commit, "main", dirty, ".")),
        )
        for number, commit in enumerate(commits)
    )
    return replace(report, recordings=recordings, findings=(), outcomes=(), health_notes=())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def written(report: Report, tmp_path: Path) -> Path:
    path = tmp_path / "report.json"
    path.write_bytes(render(report))
    return path


def test_a_report_is_kept_under_the_commit_of_its_capture(folder: Path, tmp_path: Path) -> None:
    report = written(of_commit(COMMIT, COMMIT), tmp_path)
    result = baseline("save", report, "--folder", folder)
    assert (result.exit_code, result.stdout) == (0, f"{folder / COMMIT}.json\n")
    assert [path.name for path in folder.iterdir()] == [f"{COMMIT}.json"]
    assert (folder / f"{COMMIT}.json").read_bytes() == report.read_bytes()


def test_a_report_without_a_commit_needs_one(folder: Path, tmp_path: Path) -> None:
    report = written(one_recording(), tmp_path)
    result = baseline("save", report, "--folder", folder)
    assert result.exit_code == 2
    assert "it has no capture in a Git repository. Give it with --commit." in result.stderr
    assert baseline("save", report, "--folder", folder, "--commit", COMMIT).exit_code == 0


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (of_commit(COMMIT, OTHER), "captures of 2 commits"),
        (of_commit(COMMIT, dirty=True), "uncommitted changes"),
        (of_commit("../../x"), "is no full commit"),
    ],
)
def test_a_report_that_is_not_of_one_commit_is_refused(
    report: Report, reason: str, folder: Path, tmp_path: Path
) -> None:
    result = baseline("save", written(report, tmp_path), "--folder", folder)
    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.split())
    assert not folder.exists()


@pytest.mark.parametrize("commit", ["abc", "../x", COMMIT.upper(), "HEAD", f"{COMMIT}/x"])
def test_what_is_no_full_commit_is_refused(commit: str, folder: Path, tmp_path: Path) -> None:
    result = baseline("save", written(one_recording(), tmp_path), "--folder", folder, "--commit", commit)
    assert (result.exit_code, folder.exists()) == (2, False)


def test_another_report_of_a_commit_is_only_replaced_on_request(folder: Path, tmp_path: Path) -> None:
    first = written(of_commit(COMMIT), tmp_path)
    assert baseline("save", first, "--folder", folder).exit_code == 0
    assert baseline("save", first, "--folder", folder).exit_code == 0
    second = written(of_commit(COMMIT, COMMIT), tmp_path)
    result = baseline("save", second, "--folder", folder)
    assert (result.exit_code, "another report of this commit. To replace it, add --replace." in result.stderr) == (
        2,
        True,
    )
    assert baseline("save", second, "--folder", folder, "--replace").exit_code == 0
    assert (folder / f"{COMMIT}.json").read_bytes() == second.read_bytes()


def test_a_file_that_is_no_report_is_not_kept(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    result = baseline("save", tmp_path / "a.json", "--folder", folder, "--commit", COMMIT)
    assert (result.exit_code, folder.exists()) == (3, False)
    assert baseline("save", tmp_path / "gone.json", "--folder", folder).exit_code == 3


def test_kept_reports_are_listed_with_their_steps(folder: Path, tmp_path: Path) -> None:
    for commit in (OTHER, COMMIT):
        baseline("save", written(of_commit(commit), tmp_path), "--folder", folder)
    (folder / "README.md").touch()
    result = baseline("show", "--folder", folder)
    assert result.stdout == f"{COMMIT}  run0: step 168.0 ms\n{OTHER}  run0: step 168.0 ms\n"
    assert result.stderr == "traceadvisor: 1 other file in the folder ignored.\n"


def test_a_kept_report_is_summarised_by_the_first_digits_of_its_commit(folder: Path, tmp_path: Path) -> None:
    for commit in (OTHER, COMMIT):
        baseline("save", written(of_commit(commit), tmp_path), "--folder", folder)
    assert "168.0 ms" in baseline("show", "--folder", folder, OTHER[:5]).stdout
    assert baseline("show", "--folder", folder, "a1a1").exit_code == 0
    assert baseline("show", "--folder", folder, "ffff").exit_code == 3
    assert baseline("show", "--folder", folder, "a1").exit_code == 2
    assert baseline("show", "--folder", folder, "main").exit_code == 2


def test_an_ambiguous_commit_is_refused(folder: Path, tmp_path: Path) -> None:
    for end in ("0", "1"):
        baseline("save", written(one_recording(), tmp_path), "--folder", folder, "--commit", f"{COMMIT[:-1]}{end}")
    result = baseline("show", "--folder", folder, "a1a1")
    assert (result.exit_code, "begins 2 commits. Give more digits." in result.stderr) == (2, True)


def test_a_folder_without_reports_is_an_error(folder: Path) -> None:
    assert "cannot be read" in baseline("show", "--folder", folder).stderr
    folder.mkdir()
    result = baseline("show", "--folder", folder)
    assert (result.exit_code, "keeps no report" in result.stderr) == (3, True)


def test_a_hostile_report_is_listed_on_one_line(folder: Path, tmp_path: Path) -> None:
    report = written(hostile(one_recording()), tmp_path)
    baseline("save", report, "--folder", folder, "--commit", COMMIT)
    (line,) = baseline("show", "--folder", folder).stdout.splitlines()
    assert line.isprintable()
    assert CANARY not in line


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = baseline("save", written(of_commit(COMMIT), tmp_path), "--folder", tmp_path / "file" / "below")
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_pipe_in_the_place_of_a_kept_report_is_refused(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    os.mkfifo(folder / f"{COMMIT}.json")
    result = baseline("save", written(of_commit(COMMIT), tmp_path), "--folder", folder, "--replace")
    assert result.exit_code == 2
    assert "is not a file" in result.stderr
