import json
import os
from pathlib import Path

import pytest

from traceadvisor.bundle.layout import FORMAT, Repository
from traceadvisor.experiments.own_capture import own_capture

COMMIT, OTHER = "a" * 40, "b" * 40


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, a repository at a commit, with a script of an hour ago."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(COMMIT)
    (tmp_path / "train.py").touch()
    os.utime(tmp_path / "train.py", ns=(1000, 1000))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _capture(
    project: Path, name: str, started_ns: int, *, folder: str = ".", commit: str = COMMIT, dirty: bool | None = None
) -> Path:
    path = Path("runs", name)
    path.mkdir(parents=True)
    manifest = {
        "format": FORMAT,
        "started_ns": started_ns,
        "command": ["train.py"],
        "repository": {"root": str(project), "commit": commit, "folder": folder, "dirty": dirty},
    }
    (path / "manifest.json").write_text(json.dumps(manifest))
    return path


def test_the_newest_capture_of_the_same_file_and_commit_is_taken(project: Path) -> None:
    same = _capture(project, "same", 2000)
    _capture(project, "other-commit", 3000, commit=OTHER)
    _capture(project, "other-folder", 4000, folder="examples")
    assert own_capture(("train.py",), Path("runs")) == (same, None)


@pytest.mark.parametrize(
    ("started_ns", "folder", "commit", "reason"),
    [
        (2000, "examples", COMMIT, "in another folder"),
        (2000, ".", OTHER, "of another commit"),
        (500, ".", COMMIT, "train.py has changed since"),
    ],
)
def test_a_capture_of_another_program_is_left_out_with_the_reason(
    project: Path, started_ns: int, folder: str, commit: str, reason: str
) -> None:
    _capture(project, "other", started_ns, folder=folder, commit=commit)
    found, why = own_capture(("train.py",), Path("runs"))
    assert found is None
    assert reason in (why or "")


@pytest.mark.parametrize(("now", "then", "is_same"), [(False, True, False), (True, False, False), (None, True, True)])
def test_changes_beside_the_commit_make_another_program(
    project: Path, monkeypatch: pytest.MonkeyPatch, *, now: bool | None, then: bool, is_same: bool
) -> None:
    repository = Repository(root=str(project), commit=COMMIT, branch=None, dirty=now, folder=".")
    monkeypatch.setattr("traceadvisor.experiments.own_capture.repository_of", lambda _: repository)
    path = _capture(project, "one", 2000, dirty=then)
    found, why = own_capture(("train.py",), Path("runs"))
    assert (found, why is None) == ((path, True) if is_same else (None, False))


def test_without_a_capture_there_is_nothing_to_say(project: Path) -> None:
    assert project.is_dir()
    assert own_capture(("train.py",), Path("runs")) == (None, None)
