"""Copies of what a script sees, with some files changed: folders of links, in which only a few files are real.

The copy has the shape of the whole file system, so that paths such as ``../data`` lead where they do otherwise. Git
applies patches there, never in the user's folders.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from traceadvisor.errors import UsageError
from traceadvisor.frozen import frozen
from traceadvisor.text.cleaning import clean, clipped

MOST_ENTRIES = 50_000
"""Entries of a folder for which links are made."""

LARGEST_PATCH_BYTES = 1 << 20
MOST_FILES = 100
_LIMIT_S = 30.0
_PREFIX, _LOCK = "traceadvisor-copies-", "lock"

_LEFT_OUT = frozenset({"__pycache__"})
"""Its bytecode would be written through the link."""


_MAKE_IT = "Make it with `git diff > FILE`, from the files as they are now."
_REMEDIES = (
    ("--reverse", "The files have this change already. Take it back, such as with `git stash`, and measure it then."),
    ("--ignore-whitespace", f"Only white space or line endings do not fit. {_MAKE_IT}"),
)
"""Options with which Git would apply a patch that it refuses, and what to do then."""


class RefusedPatchError(UsageError):
    """Git refuses a patch, or it does what no change of code does."""


@frozen
class Copy:
    """A copy below a folder of its own."""

    folder: Path

    def place(self, path: Path) -> Path:
        """The path in the copy of an absolute path."""
        return self.folder / path.relative_to(path.anchor)

    def seen(self, path: Path) -> Path:
        """The same, if the copy has the file or folder itself there and not behind a link; else the path."""
        place = self.place(path)
        return place if place.resolve() == place else path

    def add_folder(self, folder: Path) -> None:
        """Make a folder, and those above it, real: their other entries are links."""
        if folder != folder.parent:
            self.add_folder(folder.parent)
        place = self.place(folder)
        if place.is_dir() and not place.is_symlink():
            return
        with suppress(FileNotFoundError):
            place.unlink()
        place.mkdir(parents=True)
        if folder.is_dir():
            for entry in self._entries(folder):
                (place / entry.name).symlink_to(entry)

    def _entries(self, folder: Path) -> Iterator[Path]:
        try:
            found = sorted(one.name for one in folder.iterdir())
        except OSError:  # it may be entered, and not listed
            return
        if len(found) > MOST_ENTRIES:
            raise UsageError(f"{clean(str(folder))} has more than {MOST_ENTRIES} entries, too many to make a copy.")
        yield from (folder / name for name in found if name not in _LEFT_OUT and folder / name != self.folder.parent)

    def add_file(self, file: Path) -> None:
        """Make a file real: a copy with its bytes and its mode. A file that is missing gets its folder only."""
        self.add_folder(file.parent)
        place = self.place(file)
        if file.is_file():
            with suppress(FileNotFoundError):
                place.unlink()
            shutil.copyfile(file, place)
            shutil.copymode(file, place)

    def apply(self, patch: Path, folder: Path) -> None:
        """Check a patch with Git in the copy of a folder, and apply it.

        Raises:
            RefusedPatchError: Git refuses it.
        """
        place = self.place(folder)
        for arguments in (("--check",), ()):
            try:
                _apply(place, patch, *arguments)
            except RefusedPatchError as error:
                raise RefusedPatchError(f"{error} {_remedy(place, patch)}") from error


def _apply(place: Path, patch: Path, *arguments: str) -> None:
    _git(place, "apply", *arguments, "--whitespace=nowarn", "--", str(patch))


def _remedy(place: Path, patch: Path) -> str:
    """The remedy for a patch that does not apply there."""
    for option, remedy in _REMEDIES:
        with suppress(RefusedPatchError):
            _apply(place, patch, "--check", option)
            return remedy
    return _MAKE_IT


def copied(copy: Copy, path: str) -> str:
    """A path in a copy: a relative one stays, because the working directory is one of the copy."""
    return str(copy.seen(Path(path))) if os.path.isabs(path) else path  # noqa: PTH117  # as it is, with its dots


def touched(patch: Path, folder: Path) -> list[Path]:
    """The files of a patch, below a folder.

    Raises:
        RefusedPatchError: the patch is none, is too large, has binary content, or leaves the folder.
    """
    try:
        status = patch.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_PATCH_BYTES:
            raise RefusedPatchError(f"{clean(str(patch))} is no file of at most {LARGEST_PATCH_BYTES} bytes.")
        listed = b"".join(  # the names after it, and those before it
            _git(patch.parent, "apply", *reverse, "--numstat", "-z", "--", str(patch)) for reverse in ((), ("-R",))
        )
    except RefusedPatchError as error:
        raise RefusedPatchError(f"{error} {_MAKE_IT}") from error
    except OSError as error:
        raise UsageError(f"Cannot read {clean(str(patch))}: {error.strerror}.") from error
    rows = [row.split(b"\t", 2) for row in listed.split(b"\0") if row.count(b"\t") >= 2]
    names = [Path(os.fsdecode(row[2])) for row in rows]
    found = dict.fromkeys(names)  # most stand there twice
    if not found or len(found) > MOST_FILES:
        raise RefusedPatchError(f"{clean(str(patch))} changes {len(found)} files; 1 to {MOST_FILES} are possible.")
    for row, name in zip(rows, names, strict=True):
        if row[0] == b"-" or name.is_absolute() or {"..", ".git"} & {*name.parts}:
            raise RefusedPatchError(
                f"The patch changes {clean(str(name))}, which is no source file below the folder. Leave it out."
            )
    return [folder / name for name in found]


def check_regular(files: Collection[Path], copy: Copy) -> None:
    """Raise RefusedPatchError if a patch made a link or a device of a file."""
    for file in files:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(copy.place(file).lstat().st_mode):
                raise RefusedPatchError(f"The patch makes {clean(str(file))} something else than a file.")


def check_git() -> None:
    """Raise UsageError if there is no Git."""
    if shutil.which("git") is None:
        raise UsageError("Patches are checked with `git apply`, and git was not found. Install Git.")


def base_of(script: Path) -> Path:
    """The folder to which paths in a patch refer: the root of the script's repository, else the working directory."""
    root = next((one for one in script.parents if (one / ".git").exists()), None)
    here = Path.cwd().resolve()
    return root or (here if script.is_relative_to(here) else script.parent)


def _git(folder: Path, *arguments: str) -> bytes:
    """The output of Git. It knows no repository and no configuration: they may name programs and change lines."""
    git = shutil.which("git") or "git"
    try:
        done = subprocess.run(  # noqa: S603  # its arguments are fixed, and a path
            [git, *arguments], cwd=folder, env=_environment(folder), capture_output=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RefusedPatchError(f"git apply took more than {_LIMIT_S:.0f} s.") from error
    if done.returncode:
        said = "; ".join(map(clean, done.stderr.decode(errors="replace").splitlines()))
        raise RefusedPatchError(f"git apply refuses the patch: {clipped(said, 500).rstrip('.')}.")
    return done.stdout


def _environment(folder: Path) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    own = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_DIR": f"{os.devnull}/none",  # a name in the folder could be there: a repository with programs to run
        "GIT_WORK_TREE": str(folder),
        "LC_ALL": "C",
    }
    return kept | own


class TemporaryFolder:
    """A new folder for copies. It holds a locked file, so that others know that its process lives; see :func:`clear`.

    Raises:
        UsageError: there is no place for it.
    """

    def __init__(self) -> None:
        try:
            self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX)
            self.path = Path(self._folder.name).resolve()
            self._lock = os.open(self.path / f"{_LOCK}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise UsageError(f"A copy needs a temporary folder: {error.strerror}. Name one in TMPDIR.") from error
        with suppress(OSError):  # without locks there, nobody clears it
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (self.path / f"{_LOCK}.new").rename(self.path / _LOCK)  # no moment with this name and without the lock

    def close(self) -> None:
        """Remove it."""
        self._folder.cleanup()
        os.close(self._lock)


def clear() -> None:
    """Remove this user's folders for copies whose process was killed, by the locks that ended with it."""
    with suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            with suppress(OSError):
                status = folder.lstat()
                if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                    _clear(folder)


def _clear(folder: Path) -> None:
    """Remove a folder unless a process holds its lock, or it has none; raises OSError then."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(lock)


def made(folder: Path, files: Sequence[Path], working: Path) -> Copy:
    """A copy in a folder with these files, and the working directory, real."""
    copy = Copy(folder)
    copy.add_folder(working)
    for file in files:
        copy.add_file(file)
    return copy
