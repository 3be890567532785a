"""An edit leaves every tree as it is: what lies there, what is linked, and who may write."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.children import run
from tests.few import few
from traceadvisor.experiments.patching.edit import Edit
from traceadvisor.experiments.plan import Plan

pytestmark = pytest.mark.usefixtures("git")

OLD = b"def loss(x):\n    return x + 1\n\nloss(1)\n"


def _as_it_is(_: Path) -> None:
    pass


def _crlf(here: Path) -> None:
    (here / "train.py").write_bytes(OLD.replace(b"\n", b"\r\n"))


def _byte_order_mark(here: Path) -> None:
    (here / "train.py").write_bytes(b"\xef\xbb\xbf" + OLD)


def _tabs(here: Path) -> None:
    (here / "train.py").write_bytes(OLD.replace(b"    ", b"\t"))


def _latin_1(here: Path) -> None:
    (here / "train.py").write_bytes(b"# coding: latin-1\nname = '\xe9'\n" + OLD)


def _link_to_the_outside(here: Path) -> None:
    (here / "train.py").rename(here.parent / "real.py")
    (here / "train.py").symlink_to("../real.py")


def _hard_link(here: Path) -> None:
    os.link(here / "train.py", here.parent / "other.py")


def _links_in_a_circle_and_pipes(here: Path) -> None:
    (here / "a").symlink_to("b")
    (here / "b").symlink_to("a")
    (here / "up").symlink_to("..")
    os.mkfifo(here / "pipe")


def _ignored_by_git(here: Path) -> None:
    run("git", "init", "-q", ".", cwd=here, check=True)
    (here / ".gitignore").write_text("train.py\n")
    (here / ".gitattributes").write_text("*.py text eol=crlf filter=none\n")


def _changed_since_the_commit(here: Path) -> None:
    _ignored_by_git(here)
    run("git", "add", "-f", "train.py", cwd=here, check=True)
    (here / "train.py").write_bytes(OLD + b"# more\n")


def _read_only(here: Path) -> None:
    (here / "train.py").chmod(0o444)
    here.chmod(0o555)


TREES = (
    _link_to_the_outside, _as_it_is, _crlf, _byte_order_mark, _tabs, _latin_1, _hard_link,
    _links_in_a_circle_and_pipes, _ignored_by_git, _changed_since_the_commit, _read_only,
)  # fmt: skip


def _state(folder: Path) -> dict[str, tuple[object, ...]]:
    """All that is in a folder, with modes, times, targets of links and contents of files."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else path.readlink() if path.is_symlink() else None
        found[str(path)] = (status.st_mode, status.st_ino, status.st_nlink, status.st_mtime_ns, content)
    return found


@pytest.mark.parametrize("tree", few(TREES, "traceadvisor/experiments"), ids=lambda tree: tree.__name__.strip("_"))
def test_an_edit_is_made_in_a_copy_of_any_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree: Callable[[Path], None]
) -> None:
    here = tmp_path / "home" / "project"
    here.mkdir(parents=True)
    (here / "train.py").write_bytes(OLD)
    monkeypatch.chdir(here)
    tree(here)
    lines = (here / "train.py").read_bytes().splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines) if b"x + 1" in line)
    around, new_line = [b" " + line for line in lines], lines[place].replace(b"1", b"2")
    around[place] = b"-" + lines[place] + b"+" + new_line
    head = b"--- a/train.py\n+++ b/train.py\n@@ -1,%d +1,%d @@\n" % (len(lines), len(lines))
    (tmp_path / "my.patch").write_bytes(head + b"".join(around))
    before = _state(tmp_path / "home")
    edit = Edit(tmp_path / "my.patch", Plan(script=("train.py",)))
    ((_, new),) = edit.plan(Plan()).code.items()
    assert Path(new).read_bytes() == (here / "train.py").read_bytes().replace(b"x + 1", b"x + 2")
    edit.close()
    assert not Path(new).exists()
    assert _state(tmp_path / "home") == before
