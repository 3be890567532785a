"""Writes one rank's part of a bundle; other ranks may do so at the same time, on other nodes, too.

The manifest is replaced as a whole, so it is complete at any moment. Other files are in it from the moment they exist.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from traceadvisor.bundle.layout import (
    FORMAT,
    MANIFEST,
    UNFINISHED,
    BundleFile,
    Ending,
    Manifest,
    Note,
    RankEnding,
    RankProcess,
    RankStart,
    beginning,
)
from traceadvisor.system import clocks
from traceadvisor.system.processes import start_ticks
from traceadvisor.text.cleaning import without_surrogates
from traceadvisor.text.documents import cleaned_document

_OfRank = TypeVar("_OfRank", RankEnding, RankProcess, RankStart)

LONGEST_WAIT_S = 5.0
"""For the lock of the manifest. Then this process writes without it, and its next write restores what another lost."""


@dataclass(slots=True)
class BundleWriter:
    """One rank's access to the bundle."""

    folder: Path
    """Without links."""
    header: Manifest
    """The part that is equal in all ranks, without endings, files and notes."""

    rank: int
    host: str
    pid: int | None = field(default_factory=os.getpid)
    """The process of the rank; None if this process is another."""

    published: bool = False
    """Whether the manifest names this rank."""

    start: RankStart | None = None
    """When this rank started; None before it is known."""

    _files: dict[str, BundleFile] = field(default_factory=dict)
    _withdrawn: set[str] = field(default_factory=set)
    _ending: RankEnding | None = None

    def stage(self, name: str) -> Path:
        """The path at which to write a file before it is published."""
        self._make_folder()
        return self.staged(name)

    def staged(self, name: str) -> Path:
        """The same, without creating the folder."""
        return self.folder / f"{staged_prefix(self.host)}{name}"

    def place(self, name: str) -> Path:
        """The path of a file in the bundle."""
        self._make_folder()
        return self.folder / name

    def publish_staged(self, name: str) -> None:
        """Move a finished file from its stage into the bundle; raises OSError if that fails."""
        self.stage(name).replace(self.folder / name)

    def enter(self, files: Sequence[BundleFile], notes: Sequence[Note], ending: RankEnding | None) -> None:
        """Add files to the manifest, and replace this rank's notes; raises OSError if that fails."""
        self.place(MANIFEST)
        self._files |= {file.path: file for file in files}
        self._ending = ending or self._ending
        while not self._replaced(tuple(notes)):
            pass
        self.published = True

    def withdraw(self, name: str) -> None:
        """Remove a file, and leave it out of the manifest from its next version on; raises OSError if that fails."""
        self._files.pop(name, None)
        self._withdrawn.add(name)
        (self.folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove files that were not published."""
        with suppress(OSError):  # no file can be opened any more
            for path in self.folder.glob(f"{glob.escape(staged_prefix(self.host))}*"):
                with suppress(OSError):  # such as a folder in which processes meet
                    path.unlink()

    def _make_folder(self) -> None:
        """Create it again where the script removed it; raises OSError for a link in its place."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.folder.resolve() != self.folder:
            raise OSError(errno.ELOOP, "a link has taken the place of the folder")

    def _replaced(self, notes: tuple[Note, ...]) -> bool:
        """Whether the manifest was replaced; False if another process has created it meanwhile."""
        path = self.folder / MANIFEST
        with _locked(path) as file:
            found = (_decoded(file.read()) if file else None) or self.header
            staged = self.stage(MANIFEST)
            staged.write_bytes(_encoded(self._merged(found, notes)))
            if file is None and not _created(staged, path):
                return False
            if file:
                staged.replace(path)
        return True

    def _merged(self, found: Manifest, notes: tuple[Note, ...]) -> Manifest:
        """The manifest with this rank's part."""
        files = {file.path: file for file in found.files if file.path not in self._withdrawn} | self._files
        others = tuple(note for note in found.notes if note.rank != self.rank)
        mine = tuple(msgspec.structs.replace(note, rank=self.rank) for note in notes)
        process = RankProcess(self.rank, self.host, self.pid, start_ticks(self.pid)) if self.pid is not None else None
        return msgspec.structs.replace(
            found,
            world_size=max(found.world_size, self.header.world_size),
            files=tuple(files[path] for path in sorted(files)),
            endings=_by_rank(found.endings, self._ending),
            starts=_by_rank(found.starts, self.start),
            notes=tuple(sorted(others + mine, key=lambda note: note.rank or 0)),
            processes=_by_rank(found.processes, process),
            repository=found.repository or self.header.repository,
        )


def _by_rank(found: Iterable[_OfRank], mine: _OfRank | None) -> tuple[_OfRank, ...]:
    """The rows of all ranks, with that of this rank in place of an earlier one."""
    rows = {one.rank: one for one in (*found, *((mine,) if mine else ()))}
    return tuple(rows[rank] for rank in sorted(rows))


def staged_prefix(host: str) -> str:
    """Beginning of the names of files that this process has not finished."""
    return f"{UNFINISHED}{host}.{os.getpid()}."


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a bundle; None if there is none in this format."""
    try:
        return _decoded(beginning(folder / MANIFEST))
    except OSError:
        return None


def has_foreign_manifest(folder: Path) -> bool:
    """Whether another program's ``manifest.json`` is in a folder, or a link in its place.

    It is read once: another rank may create the bundle's manifest at any moment.
    """
    path = folder / MANIFEST
    try:
        return path.is_symlink() or _decoded(beginning(path)) is None
    except FileNotFoundError:
        return False
    except OSError:
        return path.exists()


def is_taken_by_another(folder: Path, job: str, rank: int) -> bool:
    """Whether a bundle belongs to another job or run, or already has the rank."""
    if has_foreign_manifest(folder):
        return True
    found = read_manifest(folder)
    return found is not None and (found.job != job or any(one.rank == rank for one in found.processes))


def amend(folder: Path, host: str, rank: int, exit_code: int) -> None:
    """Correct the end of a rank that seemed to run to its end; raises OSError if the manifest cannot be written.

    A process cannot see the argument of its own ``sys.exit``. The process that waits for it can.
    """
    found = read_manifest(folder)
    seen = next((one for one in found.endings if one.rank == rank), None) if found else None
    if found and seen and seen.ending is Ending.COMPLETED:
        ending = msgspec.structs.replace(seen, ending=Ending.EXIT, exit_code=exit_code)
        writer = BundleWriter(folder, found, rank, host, pid=None)
        writer.enter((), [note for note in found.notes if note.rank == rank], ending)


def _encoded(manifest: Manifest) -> bytes:
    """The manifest as JSON with its texts cleaned; the command is as the user wants it."""
    cleaned = cleaned_document(msgspec.to_builtins(manifest))
    return msgspec.json.format(
        msgspec.json.encode(cleaned | {"command": [without_surrogates(word) for word in manifest.command]}), indent=2
    )


def _decoded(content: bytes) -> Manifest | None:
    try:
        found = msgspec.json.decode(content, type=Manifest)
    except ValueError:  # also for bytes that are not UTF-8
        return None
    return found if found.format == FORMAT else None


def _created(staged: Path, path: Path) -> bool:
    """Give a file its name unless the name is taken."""
    try:
        path.hardlink_to(staged)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        staged.replace(path)
    else:
        staged.unlink()
    return True


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO | None]:
    """Open the manifest and hold its lock; None if there is no manifest yet.

    It is a POSIX lock, which also works between nodes on a network file system. It belongs to the file, which the owner
    replaces: whoever waited opens the new one. Closing any other descriptor of the file would release it.
    """
    deadline_s = clocks.monotonic() + LONGEST_WAIT_S
    while True:
        try:
            file = _opened(path)
        except FileNotFoundError:
            yield None
            return
        with file:
            if not _lock(file, deadline_s) or _is_current(file, path):
                yield file
                return


def _opened(path: Path) -> BinaryIO:
    """Open a plain file to read and write; raises OSError for another one, and for a link, wherever it leads."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    file = os.fdopen(descriptor, "r+b")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "is no plain file")
    return file


def _lock(file: BinaryIO, deadline_s: float) -> bool:
    """Whether this process got the lock in time; False also where the file system has none."""
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # another process has it
            if clocks.monotonic() > deadline_s:
                return False
            clocks.sleep(0.005)
        except OSError:
            return False
        else:
            return True


def _is_current(file: BinaryIO, path: Path) -> bool:
    """Whether the path still names the open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False
