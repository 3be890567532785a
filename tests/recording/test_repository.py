"""The Git repository of a script."""

import os
import shutil
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from tests.children import added, run
from tests.few import few
from tests.recording.running import capture, manifest
from traceadvisor.api import load
from traceadvisor.recording import repository as module
from traceadvisor.recording.repository import repository_of
from traceadvisor.rendering.formats import FORMATS

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

WHO = added(
    **{f"GIT_{role}_{key}": "x@example.org" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")},
    GIT_CONFIG_GLOBAL="/dev/null",
)


def git(folder: Path, *arguments: str) -> str:
    return run("git", "-C", folder, *arguments, env=WHO, check=True).stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with one commit on the branch ``topic/a``."""
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    (root / "src" / "train.py").write_text("print('ran')")
    git(root, "init", "--quiet", "--initial-branch", "topic/a")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "one")
    return root


@pytest.mark.parametrize("packed", [False, True])
def test_commit_and_branch_are_those_of_git(folder: Path, packed: bool) -> None:  # noqa: FBT001
    if packed:
        git(folder, "pack-refs", "--all")
    found = repository_of(folder / "src")
    assert found is not None
    assert (found.commit, found.branch, found.dirty) == (git(folder, "rev-parse", "HEAD"), "topic/a", False)
    assert (found.root, found.folder) == (str(folder), "src")
    assert (found := repository_of(folder)) is not None
    assert found.folder == "."


def test_a_detached_head_and_a_linked_working_tree(folder: Path) -> None:
    git(folder, "worktree", "add", "--quiet", "--detach", str(folder.parent / "linked"))
    git(folder, "worktree", "add", "--quiet", "-b", "other", str(folder.parent / "branched"))
    commit = git(folder, "rev-parse", "HEAD")
    for name, branch in (("linked", None), ("branched", "other")):
        found = repository_of(folder.parent / name)
        assert found is not None
        assert (found.commit, found.branch, found.dirty) == (commit, branch, False)


def test_only_changes_of_tracked_files_count(folder: Path) -> None:
    (folder / "new").touch()
    found = repository_of(folder)
    assert found is not None
    assert found.dirty is False
    (folder / "src" / "train.py").write_text("print('changed')")
    found = repository_of(folder)
    assert found is not None
    assert found.dirty is True


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    path = tmp_path / "trap"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("place", ["--local", "--worktree"])
def test_no_program_that_a_repository_names_is_run(folder: Path, trap: Path, place: str) -> None:
    """Git would run these as it compares files: a monitor, a filter, and a hook."""
    git(folder, "config", "extensions.worktreeConfig", "true")
    for setting in ("core.fsmonitor", "filter.a.clean", "filter.a.process", "core.pager"):
        git(folder, "config", place, setting, str(trap))
    git(folder, "config", place, "filter.a.required", "true")
    (folder / ".gitattributes").write_text("* filter=a\n")
    shutil.copy(trap, folder / ".git" / "hooks" / "post-index-change")
    (folder / "src" / "train.py").write_text("print('Ran')")  # as long, so that Git compares the contents
    index = (folder / ".git" / "index").read_bytes()
    found = repository_of(folder)
    assert found is not None
    assert found.dirty is True
    assert not (folder.parent / "ran").exists()
    assert (folder / ".git" / "index").read_bytes() == index


def test_a_filter_that_cannot_be_turned_off_is_not_run(folder: Path, trap: Path) -> None:
    git(folder, "config", "filter.a=b.clean", str(trap))
    (folder / ".gitattributes").write_text("* filter=a=b\n")
    (folder / "src" / "train.py").write_text("print('Ran')")  # as long, so that Git compares the contents
    found = repository_of(folder)
    assert found is not None
    assert found.dirty is None
    assert not (folder.parent / "ran").exists()


@pytest.mark.parametrize("setting", ["url", "uploadpack"])
def test_a_missing_object_is_not_fetched(folder: Path, trap: Path, setting: str) -> None:
    """Git would run the program of the remote that promises the object."""
    settings = {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": str(folder),
        "protocol.ext.allow": "always",
        "protocol.file.allow": "always",
        f"remote.origin.{setting}": f"ext::{trap}" if setting == "url" else str(trap),
    }
    for name, value in settings.items():
        git(folder, "config", name, value)
    tree = git(folder, "rev-parse", "HEAD^{tree}")
    (folder / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    found = repository_of(folder)
    assert found is not None
    assert found.dirty is None
    assert not (folder.parent / "ran").exists()


def test_without_git_the_commit_is_still_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    found = repository_of(folder)
    assert found is not None
    assert (found.commit, found.dirty) == (git(folder, "rev-parse", "HEAD"), None)


def test_git_that_takes_too_long_leaves_changes_unknown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = folder.parent / "git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(slow))
    monkeypatch.setattr(module, "LIMIT_S", 0.1)
    found = repository_of(folder)
    assert found is not None
    assert found.dirty is None


@pytest.mark.parametrize(
    "head", ["", "ref: ../../../etc/passwd", "ref: /etc/passwd", "x" * 100, "\0", "ref: refs/heads/no"]
)
def test_a_damaged_repository_has_no_commit(head: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(head)
    found = repository_of(tmp_path)
    assert found is None or found.commit is None


@pytest.mark.parametrize(
    "name",
    few(["HEAD", "commondir", "config", "index", "packed-refs", "refs/heads/topic/a", ""], "traceadvisor/recording"),
)
def test_a_pipe_in_the_place_of_any_file_does_not_block(folder: Path, name: str) -> None:
    place = folder / ".git" / name
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    begin_s = time.monotonic()
    repository_of(folder / "src")
    assert time.monotonic() - begin_s < 30  # the time limit of Git


def test_a_folder_outside_of_repositories_has_none(tmp_path: Path) -> None:
    assert repository_of(tmp_path) is None


def test_the_report_names_the_commit(folder: Path) -> None:
    source = (
        "import torch\nmodel = torch.nn.Linear(1, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=1.0)\n"
        "for _ in range(9):\n    model(torch.ones(1)).backward()\n    optimizer.step()\n"
    )
    (folder / "src" / "train.py").write_text(source)
    done = capture("-o", str(folder.parent / "bundle"), "src/train.py", cwd=folder)
    assert done.returncode == 3
    written = manifest(folder.parent / "bundle").repository
    assert written is not None
    assert written.dirty is True
    report = load(folder.parent / "bundle")
    commit = git(folder, "rev-parse", "HEAD")
    assert f'"commit":"{commit}"' in FORMATS["json"].render(report).decode().replace(" ", "").replace("\n", "")
    assert f"{commit} on topic/a, with changes" in FORMATS["html"].render(report).decode()


@pytest.mark.nightly("traceadvisor/recording")
def test_a_block_in_an_installed_program_is_of_the_repository_of_the_working_folder(folder: Path) -> None:
    """Such as pytest, or the kernel of a notebook, which may lie in another repository."""
    installed = Path(sysconfig.get_path("scripts")) / "pytest"
    source = f"import sys, traceadvisor\nsys.argv[0] = {str(installed)!r}\nwith traceadvisor.capture('bundle'): pass\n"
    run(sys.executable, "-c", source, cwd=folder / "src", check=True)
    found = manifest(folder / "src" / "bundle").repository
    assert found
    assert (found.commit, found.folder) == (git(folder, "rev-parse", "HEAD"), "src")
