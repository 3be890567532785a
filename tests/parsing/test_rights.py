"""Unreadable files are reported, and the rest is read."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.build import TraceBuilder
from traceadvisor import load
from traceadvisor.errors import InputError

NOBODY = 65534


@pytest.fixture
def log() -> Iterator[Path]:
    """A log dir of two recordings, looked at by somebody who is not root."""
    folder = Path(mkdtemp())
    folder.chmod(0o755)
    for span in (1, 2):
        TraceBuilder().step(0, 0, 10).op("aten::mm", 0, 5).write(folder / "log" / f"w.{span}.pt.trace.json")
    yield folder / "log"
    (folder / "log").chmod(0o755)
    shutil.rmtree(folder)


@contextmanager
def unreadable(path: Path, mode: int = 0) -> Iterator[None]:
    """Nobody may read it, and root, for whom nothing is unreadable, is nobody meanwhile."""
    path.chmod(mode)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_file_that_may_not_be_read_is_a_note_among_others(log: Path) -> None:
    with unreadable(log / "w.1.pt.trace.json"):
        report = load(log)
    assert [one.span for one in report.recordings] == ["2"]
    (message,) = [row.note.message for row in report.health_notes if row.note.code == "unreadable"]
    assert "w.1.pt.trace.json: cannot be read (Permission denied)" in message


def test_a_file_that_may_not_be_read_is_refused_with_its_name(log: Path) -> None:
    denied = pytest.raises(InputError, match=r"w\.1\.pt\.trace\.json: cannot be read \(Permission denied\)")
    with unreadable(log / "w.1.pt.trace.json"), denied:
        load(log / "w.1.pt.trace.json")


def test_a_file_in_an_unreadable_folder_is_refused_by_name(log: Path) -> None:
    denied = pytest.raises(InputError, match=r"w\.1\.pt\.trace\.json: cannot be read \(Permission denied\)")
    with unreadable(log), denied:
        load(log / "w.1.pt.trace.json")


def test_a_folder_that_may_not_be_entered_is_refused_with_its_name(log: Path) -> None:
    with unreadable(log), pytest.raises(InputError, match=r"log: cannot be read \(Permission denied\)"):
        load(log)


@pytest.mark.parametrize("mode", [0, 0o444])
def test_a_folder_within_that_may_not_be_entered_is_left_out(mode: int, log: Path) -> None:
    TraceBuilder().step(0, 0, 10).op("aten::mm", 0, 5).write(log / "deeper" / "w.3.pt.trace.json")
    with unreadable(log / "deeper", mode):
        assert [one.span for one in load(log).recordings] == ["1", "2"]
    (log / "deeper").chmod(0o755)
