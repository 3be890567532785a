"""Checks before the script starts that its capture can be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from traceadvisor.bundle.layout import MANIFEST, UNFINISHED, FileKind
from traceadvisor.errors import UsageError
from traceadvisor.recording.bundle_writer import has_foreign_manifest, read_manifest
from traceadvisor.recording.growing_file import GrowingFile
from traceadvisor.recording.script.launch import Launch
from traceadvisor.text.cleaning import clean

PROBE_BYTES = 1 << 16
_MOST_ATTEMPTS = 100

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class OutputFolder:
    """The folder of a bundle, made ready before the script starts."""

    def __init__(self, path: Path, made: tuple[Path, ...] = ()) -> None:
        """A folder that exists; ``made`` are those that were created for it, the innermost first."""
        self.path = path
        self._made = tuple(folder.absolute() for folder in made)  # the script may change the working directory

    @classmethod
    def prepared(cls, launch: Launch, given: Path | None, name: str) -> OutputFolder:
        """Create the folder of a bundle and try to write to it.

        Args:
            launch: this process within its job. A process without others gets a folder of its own by default.
            given: the folder that the user chose, if any.
            name: name of the run, for the default folder.

        Raises:
            UsageError: it holds another capture, or cannot be written to.
        """
        path = launch.given(given) if given else launch.folder(name)
        made: tuple[Path, ...] = ()
        try:
            made = tuple(folder for folder in (path, *path.parents) if not folder.exists())
            if given is None and launch.world_size == 1:
                path = _reserved(path)
                made = (path, *made[1:])
            else:
                _refuse_foreign(path, launch)
                path.mkdir(parents=True, exist_ok=True)
            _try_to_write(path, launch.host)
        except OSError as error:
            cls(path, made).remove_if_empty()
            raise UsageError(_refusal(path, error)) from error
        return cls(path, made)

    def remove_if_empty(self) -> None:
        """Remove what was created, if nothing was written."""
        for folder in self._made:
            try:
                folder.rmdir()
            except OSError:
                return


def _reserved(path: Path) -> Path:
    """The folder, or the first free one with a number: elsewhere a process may have the same id and time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in range(1, _MOST_ATTEMPTS):
        own = path if number == 1 else path.with_name(f"{path.name}.{number}")
        try:
            own.mkdir()
        except FileExistsError:
            continue
        return own
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def _refuse_foreign(path: Path, launch: Launch) -> None:
    """Raise UsageError if the folder holds the bundle of another job, or a file in the place of one of this process."""
    if has_foreign_manifest(path):
        raise UsageError(f"{path / MANIFEST} is no manifest of a capture. Choose another folder with -o.")
    found = read_manifest(path)
    if found and not (launch.world_size > 1 and launch.is_of_job(found.job)):
        raise UsageError(f"{path} already holds a capture. Choose another with -o, or remove it.")
    begins = (f"telemetry.{launch.host}.jsonl", *(f"{kind.value}.{launch.rank}." for kind in FileKind))
    # Also links that lead nowhere.
    names = [] if found or not path.exists() else sorted(one.name for one in path.iterdir())
    taken = next((name for name in names if name.startswith(begins)), None)
    if taken:
        raise UsageError(f"{path / taken} exists and would be replaced. Choose another folder with -o, or remove it.")


def _try_to_write(path: Path, host: str) -> None:
    probe = path / f"{UNFINISHED}{host}.{os.getpid()}.probe"
    try:
        file = GrowingFile(probe)
        try:
            file.append(bytes(PROBE_BYTES))
        finally:
            file.close()
    finally:
        probe.unlink(missing_ok=True)


def _refusal(path: Path, error: OSError) -> str:
    """Why nothing can be written, and what to do."""
    if isinstance(error, FileExistsError | NotADirectoryError):
        place = next((each for each in (path, *path.parents) if each.exists() and not each.is_dir()), path)
        return clean(f"Cannot write to {path}: {place} is a file. Choose another folder with -o.")
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return clean(f"Cannot write to {path}: {reason}. Free some space, or choose another folder with -o.")
    return clean(f"Cannot write to {path}: {reason}. Choose a folder that you can write to with -o.")
