import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.few import few
from traceadvisor.experiments.inside.overlay import Overlay

NAMES = ("a", "b", "c", "old/x", "old/y", "old", "new", "new/x", "link", "link/x", "big")


def _planted(folder: Path) -> Path:
    """Files of before: two folders, a link, and some files."""
    (folder / "old").mkdir(parents=True)
    for name in ("a", "b", "old/x", "big"):
        (folder / name).write_text(f"before {name}")
    (folder / "link").symlink_to(folder / "old")
    return folder


def _content(folder: Path) -> dict[str, Any]:
    return {
        str(path.relative_to(folder)): path.readlink()
        if path.is_symlink()
        else path.is_dir() or (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
    }


class _Plain:
    """The system's own functions under the names of the overlay's."""

    open, remove, rename, mkdir, rmdir = os.open, os.remove, os.replace, os.mkdir, os.rmdir
    link, symlink, listdir, truncate = os.link, os.symlink, os.listdir, os.truncate


def _written(files: Any, path: str, flags: int, text: str) -> bytes:
    descriptor = files.open(path, flags, 0o666)
    try:
        os.write(descriptor, text.encode())
        os.lseek(descriptor, 0, os.SEEK_SET)
        return os.read(descriptor, 1000) if flags & os.O_RDWR else b""
    finally:
        os.close(descriptor)


def _read(files: Any, path: str) -> bytes:
    descriptor = files.open(path, os.O_RDONLY, 0o666)
    try:
        return os.read(descriptor, 1000)
    finally:
        os.close(descriptor)


NEW = os.O_CREAT | os.O_TRUNC
ACTIONS: tuple[Callable[[Any, str, str, str], Any], ...] = (
    lambda files, a, b, text: _written(files, a, os.O_WRONLY | NEW, text),
    lambda files, a, b, text: _written(files, a, os.O_WRONLY | NEW, text),
    lambda files, a, b, text: _written(files, a, os.O_RDWR | os.O_CREAT | os.O_APPEND, text),
    lambda files, a, b, text: _written(files, a, os.O_RDWR, text),
    lambda files, a, b, text: _written(files, a, os.O_WRONLY | os.O_CREAT | os.O_EXCL, text),
    lambda files, a, b, text: files.remove(a),
    lambda files, a, b, text: files.rename(a, b),
    lambda files, a, b, text: files.rename(a, b),
    lambda files, a, b, text: files.mkdir(a),
    lambda files, a, b, text: files.rmdir(a),
    lambda files, a, b, text: files.link(a, b),
    lambda files, a, b, text: files.symlink(a, b),
    lambda files, a, b, text: files.truncate(a, 3),
)


def _outcome(files: Any, folder: Path, action: tuple[int, str, str], text: str) -> Any:
    place, first, second = action
    try:
        return ACTIONS[place](files, f"{folder}/{first}", f"{folder}/{second}", text)
    except OSError:
        return "error"


def _view(files: Any, folder: Path) -> dict[str, Any]:
    """What can be listed and read by each name."""
    found: dict[str, Any] = {}
    for name in NAMES:
        for look in (lambda path: sorted(files.listdir(path)), lambda path: _read(files, path)):
            try:
                found[f"{name} {len(found)}"] = look(f"{folder}/{name}")
            except OSError:
                found[f"{name} {len(found)}"] = "error"
    return found | {"": sorted(files.listdir(str(folder)))}


@pytest.mark.parametrize("seed", few(range(40), "traceadvisor/experiments"))
def test_files_behave_as_without_it_and_those_of_before_stay(tmp_path: Path, seed: int) -> None:
    plain, seen = _planted(tmp_path / "plain"), _planted(tmp_path / "seen")
    before = _content(seen)
    overlay = Overlay(tmp_path / "out" / "scratch", tmp_path / "out", lambda: None, lambda _: None)
    chance = random.Random(seed)
    done = []
    for number in range(25):
        first, second = chance.choices(NAMES, k=2)
        done.append((chance.randrange(len(ACTIONS)), first, second))
        text = f"new {number}"
        assert _outcome(overlay, seen, done[-1], text) == _outcome(_Plain, plain, done[-1], text), done
        assert _view(overlay, seen) == _view(_Plain, plain), done
    after = _content(seen)
    assert {name: after.get(name) for name in before} == before


def test_what_is_written_to_the_kernel_reaches_it(tmp_path: Path) -> None:
    overlay = Overlay(tmp_path / "scratch", tmp_path / "out", lambda: None, lambda _: None)
    _written(overlay, "/proc/self/coredump_filter", os.O_WRONLY | os.O_TRUNC, "0x33")
    assert not (tmp_path / "scratch").exists()
