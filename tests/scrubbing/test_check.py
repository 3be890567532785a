"""`scrub --check`: recordings that are no scrubbed copies, and reports with secrets."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.build import TraceBuilder
from tests.children import added, run
from tests.shared import CHECKOUT, SAMPLES
from traceadvisor import api
from traceadvisor.cli import main


def _check(*paths: Path) -> Result:
    return CliRunner().invoke(main, ["scrub", "--check", *map(str, paths)])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A recording with a path."""
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10).python("/data/team/train.py(3): main", 0, 90)
    return builder.write(tmp_path / "host7_1.pt.trace.json")


def test_a_recording_is_refused_and_its_copy_passes(tmp_path: Path, trace: Path) -> None:
    refused = _check(trace)
    assert refused.exit_code == 1
    assert "not scrubbed. Commit a copy: traceadvisor scrub" in refused.output
    copy = tmp_path / "copy.json.gz"
    api.scrub(trace, copy)
    assert (_check(copy).exit_code, _check(copy).output) == (0, "")


@pytest.mark.nightly("traceadvisor/scrubbing")
def test_a_capture_is_refused_once_for_all_its_files(tmp_path: Path) -> None:
    capture = next(sample for sample in SAMPLES if sample.name == "two-ranks")
    refused = _check(*capture.iterdir())
    assert refused.exit_code == 1
    assert refused.output.count("not scrubbed") == 1
    api.scrub(capture, tmp_path / "copy")
    assert _check(*(tmp_path / "copy").iterdir()).exit_code == 0
    (tmp_path / "copy" / "notes.txt").write_text("my own")
    assert _check(tmp_path / "copy" / "notes.txt").exit_code == 1


@pytest.mark.parametrize("text", ["--db-password hunter2", "/home/alice/train.py"])
def test_a_report_with_a_secret_or_a_home_directory_is_refused(tmp_path: Path, trace: Path, text: str) -> None:
    api.report(trace, out=tmp_path / "report", formats=("html", "json", "md"))
    files = [*(tmp_path / "report").iterdir()]
    assert _check(*files).exit_code == 0
    report = tmp_path / "report" / "report.md"
    report.write_text(f"{report.read_text()}\n{text}\n")
    refused = _check(*files)
    assert refused.exit_code == 1
    assert "report.md:" in refused.output
    assert text not in refused.output


def test_other_files_pass(tmp_path: Path) -> None:
    note = tmp_path / "note.md"
    note.write_text("password = 'hunter2'")
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"password": "hunter2"}))
    assert _check(note, settings).exit_code == 0


def test_a_check_and_a_copy_exclude_each_other(tmp_path: Path, trace: Path) -> None:
    for options in ((), ("--check", "-o", str(tmp_path / "copy"))):
        assert CliRunner().invoke(main, ["scrub", str(trace), *options]).exit_code == 2


@pytest.mark.nightly("traceadvisor/scrubbing", ".pre-commit-hooks.yaml")
@pytest.mark.usefixtures("pre_commit")
def test_pre_commit_refuses_a_commit_with_a_recording(tmp_path: Path, trace: Path) -> None:
    (hook,) = yaml.safe_load((CHECKOUT / ".pre-commit-hooks.yaml").read_text())
    project = tmp_path / "project"
    project.mkdir()
    local = {"repo": "local", "hooks": [hook | {"language": "system"}]}  # this installation, without a network
    (project / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [local]}))
    shutil.copy(trace, project)
    (project / "train.py").write_text("")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = added(PRE_COMMIT_HOME=str(tmp_path / "home"), PATH=path)
    run("git", "init", "-q", ".", cwd=project, check=True)
    run("git", "add", ".", cwd=project, check=True)
    done = run(sys.executable, "-m", "pre_commit", "run", cwd=project, env=env)
    assert done.returncode == 1
    assert "not scrubbed" in done.stdout
    run("git", "rm", "-q", "--cached", trace.name, cwd=project, check=True)
    assert run(sys.executable, "-m", "pre_commit", "run", cwd=project, env=env).returncode == 0
