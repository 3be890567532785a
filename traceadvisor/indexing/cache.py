"""Pages that were made before, in a folder of the user's own; those not looked at for longest give way.

Nothing in the folder is trusted: an entry that is damaged, too long or no plain file counts as missing.
"""

from __future__ import annotations

import atexit
import gzip
import hashlib
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from traceadvisor.system.remote import is_remote

MOST_BYTES = 1 << 30
LARGEST_ENTRY_BYTES = 64 << 20
"""A page has less than a megabyte."""

_NAME = re.compile(r"[0-9a-f]{64}\Z")
_ENTRY = re.compile(r"(?:[0-9a-f]{64}\.(?:page|told|key)|tmp\w{8}\.part)\Z")
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_folder() -> Path:
    """The folder of the cache; where it cannot be written to, or others may write, one that ends with this process.

    A relative ``XDG_CACHE_HOME`` does not count: XDG Base Directory Specification 0.8.
    """
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME", "")).expanduser()
        folder = (base if base.is_absolute() else Path.home() / ".cache") / "traceadvisor" / "reports"
        if all(map(_is_safe_to_enter, {*folder.parents, *folder.resolve().parents})):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=folder):
                if _is_ours(folder):
                    return folder
    except (OSError, RuntimeError):
        pass
    folder = Path(tempfile.mkdtemp(prefix="traceadvisor-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _is_ours(folder: Path) -> bool:
    """Whether a folder, which is no link, belongs to this user alone."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == _own(status) and not status.st_mode & _OTHERS_MAY_WRITE


def _is_safe_to_enter(folder: Path) -> bool:
    """Whether no other user but root may put something else in the place of what is in a folder, or of a link to it."""
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return True  # it will be made
    may_write = (
        stat.S_ISDIR(status.st_mode) and status.st_mode & _OTHERS_MAY_WRITE and not status.st_mode & stat.S_ISVTX
    )
    return status.st_uid in {0, _own(status)} and not may_write


def _own(status: os.stat_result) -> int:
    """The user of this process; where there are none, the owner of a file."""
    return int(getattr(os, "getuid", lambda: status.st_uid)())


def signature_of(about: str, files: Iterable[Path]) -> str:
    """Changes with what is made of some files, and with their sizes and times; cheap."""
    stats = [(ascii(one), status.st_size, status.st_mtime_ns) for one in files for status in [one.stat()]]
    return hashlib.sha256(f"{about} {stats}".encode()).hexdigest()


def key_of_content(about: str, files: Iterable[Path]) -> str:
    """Changes with what is made of some files, and with their content; of files elsewhere, with size and time."""
    digest = hashlib.sha256(about.encode())
    for path in files:
        if is_remote(path):
            content = signature_of("", [path])
        else:
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "blake2b").hexdigest()
        digest.update(f"{path!a} {content} ".encode())
    return digest.hexdigest()


class Cache:
    """Pages by the key of their content, and keys by the signature of what they were made from."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder = folder
        self._most_bytes = most_bytes
        self._unchecked_bytes = most_bytes

    def holds(self, key: str) -> bool:
        """Whether there is an entry; it then counts as looked at."""
        with suppress(OSError):
            os.utime(self._path(key, "told"))
            os.utime(self._path(key, "page"))
            return True
        return False

    def page(self, key: str) -> bytes | None:
        """The page."""
        packed = self._read(key, "page")
        inflating = zlib.decompressobj(wbits=31)
        with suppress(zlib.error):  # damaged
            page = inflating.decompress(packed or b"", LARGEST_ENTRY_BYTES)
            return page if inflating.eof else None
        return None

    def told(self, key: str) -> dict[str, Any]:
        """Return the line on it in a list of runs."""
        try:
            told = msgspec.json.decode(self._read(key, "told") or b"{}")
        except (ValueError, RecursionError):
            return {}
        return told if isinstance(told, dict) else {}

    def put(self, key: str, page: bytes, told: dict[str, Any]) -> None:
        """Keep a page, empty for a run without one, and drop the oldest ones."""
        self._write(key, "page", gzip.compress(page, 1))
        self._write(key, "told", msgspec.json.encode(told))
        if self._unchecked_bytes > self._most_bytes // 16:  # looking at all entries takes time
            self._shrink(keep=key)

    def key_of(self, signature: str) -> str | None:
        """The key of what was made before, if its entry is still there."""
        key = (self._read(signature, "key") or b"").decode("ascii", errors="replace")
        if not _NAME.match(key) or not self.holds(key):
            return None
        with suppress(OSError):
            os.utime(self._path(signature, "key"))
        return key

    def link(self, signature: str, key: str) -> None:
        """Remember the key."""
        self._write(signature, "key", key.encode())

    def _path(self, name: str, kind: str) -> Path:
        if not _NAME.match(name):
            raise FileNotFoundError(name)
        return self.folder / f"{name}.{kind}"

    def _read(self, name: str, kind: str) -> bytes | None:
        """The content of an entry; a link is not followed, and a pipe is not waited for."""
        with suppress(OSError):
            entry = os.open(self._path(name, kind), os.O_RDONLY | _PLAIN)
            with os.fdopen(entry, "rb") as file:
                status = os.fstat(entry)
                if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_ENTRY_BYTES:
                    return file.read(LARGEST_ENTRY_BYTES)
        return None

    def _write(self, name: str, kind: str, content: bytes) -> None:
        """As a whole or not at all: another process may read it."""
        file, part = tempfile.mkstemp(dir=self.folder, suffix=".part")
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
        Path(part).replace(self._path(name, kind))
        self._unchecked_bytes += max(len(content), _BLOCK_BYTES)

    def _shrink(self, keep: str) -> None:
        found = []
        for path in self.folder.iterdir():
            if not _ENTRY.match(path.name):
                continue
            with suppress(OSError):
                status = path.lstat()
                found.append((not path.name.startswith(keep), status.st_mtime_ns, status.st_size, path))
        room = self._most_bytes - self._most_bytes // 16
        for is_other, _, size, path in sorted(found, key=lambda one: (one[0], -one[1])):
            room -= max(size, _BLOCK_BYTES)
            if room < 0 and is_other:
                with suppress(OSError):
                    path.unlink()
        self._unchecked_bytes = 0


_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_BLOCK_BYTES = 4096
"""Bytes that the smallest file takes on the disk."""
