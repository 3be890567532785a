"""A view of the file system in which the script may do anything, and files that were there before it never change.

A file of before that the script writes, replaces, moves or removes stays where it is: its changed content lies in a
scratch folder, and the view leads there. New files are written where the script says.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from traceadvisor.system import clocks
from traceadvisor.text.cleaning import clean, clipped

LARGEST_COPY = 1 << 30
"""A larger file of before that is opened to change a part of it is not copied first."""

MOST_LINKS = 40
"""As Linux follows."""

KERNEL = ("/proc/", "/sys/")
"""Folders in which writing changes the system and no file; read back, it is something else."""

AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_NAMES = (
    *("open", "stat", "lstat", "listdir", "scandir", "remove", "rename", "mkdir", "rmdir", "link", "symlink"),
    *("readlink", "access", "truncate", "chmod", "utime", "chown", "setxattr", "getxattr", "listxattr"),
)
real = SimpleNamespace(**{name: getattr(os, name) for name in _NAMES if hasattr(os, name)})
"""The system's own functions, as they were when this module was imported."""

_ANY_WRITE = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND | os.O_CREAT


def _parts(path: str) -> list[str]:
    """The names of an absolute path, the last one first."""
    return [part for part in reversed(os.path.normpath(path).split(os.sep)) if part]


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _error(number: int, path: AnyPath) -> OSError:
    return OSError(number, os.strerror(number), path)


class Overlay:
    """Maps each path of the script to the file in use. Paths are absolute, their folders without links."""

    def __init__(self, folder: Path, exempt: Path, saving: Callable[[], None], note: Callable[[str], None]) -> None:
        """``folder``: for changed files; ``exempt``: files below it are changed in place.

        ``saving``: called before each file that goes to the folder; ``note``: called with what could not be kept.
        """
        self._folder, self._exempt = os.path.realpath(folder), os.path.realpath(exempt) + os.sep
        self._saving, self._note = saving, note
        self._begin_s = clocks.time()
        self._temporary = os.path.realpath(tempfile.gettempdir()) + os.sep
        self._moved: dict[str, str] = {}
        self._gone: set[str] = set()
        self._own: set[str] = set()
        self._count = 0
        self._pid = os.getpid()
        self.renew_lock()
        os.register_at_fork(after_in_child=self.renew_lock)

    def renew_lock(self) -> None:
        """In a forked process nobody would release the lock of another thread."""
        self.lock = threading.RLock()

    @property
    def is_empty(self) -> bool:
        """Whether everything still lies where its path says."""
        return not self._moved and not self._gone

    # -- paths -------------------------------------------------------------------------------------------------------

    def key(self, path: AnyPath, dir_fd: int | None = None, *, follow: bool = False) -> str:
        """The name of a path in the view: its folder's place, and its last name. ``follow``: links at the end, too."""
        folder = os.getcwd() if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")
        pending = _parts(os.path.join(folder, os.fsdecode(path)))
        folder, links = os.sep, 0
        while pending:
            key = os.path.join(folder, pending.pop())
            place = self.place(key)
            if place and (pending or follow) and os.path.islink(place):
                links += 1
                if links > MOST_LINKS:
                    raise _error(errno.ELOOP, path)
                pending += _parts(os.path.join(folder, os.readlink(place)))
                folder = os.sep
            elif not pending:
                return key
            elif place is None:
                raise _error(errno.ENOENT, path)
            else:
                folder = place
        return folder

    def place(self, key: str) -> str | None:
        """The path of the content; None if the script removed it."""
        return self._moved.get(key) or (None if key in self._gone else key)

    def existing(self, path: AnyPath, dir_fd: int | None = None, *, follow: bool = False) -> str:
        """The path of content that must exist."""
        place = self.place(self.key(path, dir_fd, follow=follow))
        if place is None or not os.path.lexists(place):
            raise _error(errno.ENOENT, path)
        return place

    def is_of_before(self, place: str) -> bool:
        """Whether the file must stay as it is: it was there before the script, which did not make it."""
        if place in self._own or place.startswith((f"{self._folder}{os.sep}", self._exempt, *KERNEL)):
            return False
        try:
            status = real.lstat(place)
        except OSError:
            return False
        if stat.S_ISDIR(status.st_mode):
            return True
        is_new = place.startswith(self._temporary) and status.st_ctime >= self._begin_s  # also by other processes
        return not is_new and (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode))

    def in_scratch(self, key: str) -> str:
        """A path in the scratch folder for what is to be written now."""
        self._saving()
        Path(self._folder).mkdir(parents=True, exist_ok=True)
        number = f"{self._count:03d}" if os.getpid() == self._pid else f"{os.getpid()}-{self._count:03d}"
        place = os.path.join(self._folder, f"{number}-{clipped(clean(os.path.basename(key)), 60)}")
        self._count += 1
        self._moved[key] = place
        return place

    def to_save(self, path: AnyPath) -> str:
        """The path that a function other than Python's own writes to; new files go to the scratch folder, too."""
        with self.lock:
            key = self.key(path, follow=True)
            place = self.place(key)
            if place and place.startswith((f"{self._folder}{os.sep}", self._exempt)):
                self._saving()
                return place
            return self.in_scratch(key)

    # -- what the script does ----------------------------------------------------------------------------------------

    def open(self, path: AnyPath, flags: int, mode: int = 0o666, *, dir_fd: int | None = None) -> int:
        """As ``os.open``."""
        with self.lock:
            place = self._to_open(path, flags, dir_fd)
        descriptor: int = real.open(place, flags, mode)
        return descriptor

    def _to_open(self, path: AnyPath, flags: int, dir_fd: int | None) -> str:
        is_exclusive = flags & os.O_EXCL and flags & os.O_CREAT
        key = self.key(path, dir_fd, follow=not is_exclusive)
        place = self.place(key)
        if not flags & _ANY_WRITE:
            return self.existing(path, dir_fd, follow=True) if place is None else place
        if place is None:
            if not flags & os.O_CREAT:
                raise _error(errno.ENOENT, path)
            self._check_folder(key, path)
            return self.in_scratch(key)
        if not os.path.lexists(place):
            if flags & os.O_CREAT and os.path.isdir(os.path.dirname(place)):
                self._own.add(place)
            return place
        if is_exclusive or os.path.isdir(place) or not self.is_of_before(place):
            return place
        if not os.access(place, os.W_OK):
            raise _error(errno.EACCES, path)
        changed = self._copied(key, place, empty=bool(flags & os.O_TRUNC))
        self._moved |= {name: changed for name, other in self._moved.items() if other == place}
        if place != key and place not in self._gone:
            self._moved[place] = changed
        return changed

    def _copied(self, key: str, place: str, *, empty: bool) -> str:
        """A copy that may be changed, as private as the file."""
        status = real.stat(place)
        if not empty and status.st_size > LARGEST_COPY:
            self._note(f"The script changed {os.path.basename(key)} in place: it is too large to copy.")
            return place
        copied = self.in_scratch(key)
        os.close(real.open(copied, os.O_CREAT | os.O_WRONLY, stat.S_IMODE(status.st_mode)))
        if not empty:
            shutil.copyfile(place, copied)
        return copied

    def remove(self, path: AnyPath, *, dir_fd: int | None = None) -> None:
        """As ``os.remove``."""
        key = self.key(path, dir_fd)
        if _is_folder(self.existing(path, dir_fd)):
            raise _error(errno.EISDIR, path)
        self._forget(key)
        self._hide(key)

    def _forget(self, key: str) -> None:
        """End the view of a path; a file in the scratch folder that no path leads to is deleted."""
        place = self._moved.pop(key, None)
        if place and place.startswith(self._folder) and place not in self._moved.values() and os.path.lexists(place):
            if _is_folder(place):
                shutil.rmtree(place)
            else:
                real.remove(place)

    def _hide(self, key: str) -> None:
        """Hide what the disk has at a path."""
        if self.is_of_before(key) or key in self._moved.values():  # a second name of it goes on
            self._gone.add(key)
        elif os.path.lexists(key):
            real.remove(key)
            self._own.discard(key)

    def rename(
        self, src: AnyPath, dst: AnyPath, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        """As ``os.replace``."""
        source, target = self.key(src, src_dir_fd), self.key(dst, dst_dir_fd)
        moved, replaced = self.existing(src, src_dir_fd), self.place(target)
        self._check_folder(target, dst)
        if replaced and os.path.lexists(replaced) and os.path.samestat(real.lstat(moved), real.lstat(replaced)):
            return  # two names of one file
        if f"{target}{os.sep}".startswith(f"{source}{os.sep}"):
            raise _error(errno.EINVAL, dst)
        if replaced and os.path.lexists(replaced):
            if _is_folder(moved) != _is_folder(replaced):
                raise _error(errno.EISDIR if _is_folder(replaced) else errno.ENOTDIR, dst)
            if _is_folder(replaced):
                self.rmdir(dst, dir_fd=dst_dir_fd)
        are_real = self.place(target) == target and not {source, target} & self._moved.keys()
        if are_real and not self.is_of_before(source) and not self.is_of_before(target):
            real.rename(source, target)
            self._follow(source, target)
        else:
            self._move(source, moved, target)

    def _move(self, source: str, place: str, target: str) -> None:
        """Move a path in the view, where source or target differs from the disk."""
        if source in self._moved:
            del self._moved[source]
            self._hide(source)
        elif self.is_of_before(source):
            self._gone.add(source)
        else:
            scratch = self.in_scratch(target)
            shutil.move(place, scratch)
            self._follow(place, scratch)
            place = scratch
        if self._moved.get(target) != place:
            self._forget(target)
        if not _is_folder(target):
            self._hide(target)
        self._moved[target] = place

    def _follow(self, old: str, new: str) -> None:
        """A path was really moved, with all below it."""

        def now(path: str) -> str:
            return new + path[len(old) :] if f"{path}{os.sep}".startswith(f"{old}{os.sep}") else path

        self._own = {now(path) for path in self._own} | {new}
        self._moved = {now(key): now(place) for key, place in self._moved.items()}
        self._gone = {now(path) for path in self._gone}

    def mkdir(self, path: AnyPath, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        """As ``os.mkdir``."""
        key = self.key(path, dir_fd)
        self._check_folder(key, path)
        if self.place(key) is None:
            real.mkdir(self.in_scratch(key), mode)
        else:
            real.mkdir(self.place(key), mode)
            self._own.add(key)

    def rmdir(self, path: AnyPath, *, dir_fd: int | None = None) -> None:
        """As ``os.rmdir``."""
        key, place = self.key(path, dir_fd), self.existing(path, dir_fd)
        if not _is_folder(place):
            raise _error(errno.ENOTDIR, path)
        if self._names(place):
            raise _error(errno.ENOTEMPTY, path)
        self._forget(key)
        if self.is_of_before(key) or (os.path.isdir(key) and real.listdir(key)):
            self._gone.add(key)
        elif os.path.isdir(key):
            real.rmdir(key)
            self._own.discard(key)

    def link(self, src: AnyPath, dst: AnyPath, **options: Any) -> None:
        """As ``os.link``: a second name of the same content."""
        key, place = self.key(dst, options.get("dst_dir_fd")), self.existing(src, options.get("src_dir_fd"))
        self._check_free(key, dst)
        if _is_folder(place):
            raise _error(errno.EPERM, src)
        if key in self._gone or place in self._moved.values() or self.is_of_before(place):
            self._moved[key] = place
        else:
            real.link(place, key)
            self._own.add(key)

    def symlink(
        self, src: AnyPath, dst: AnyPath, target_is_directory: bool = False, *, dir_fd: int | None = None
    ) -> None:
        """As ``os.symlink``."""
        key = self.key(dst, dir_fd)
        self._check_free(key, dst)
        if key not in self._gone:
            real.symlink(src, key, target_is_directory)
            self._own.add(key)
            return
        real.symlink(src, self.in_scratch(key))

    @staticmethod
    def _check_folder(key: str, path: AnyPath) -> None:
        if not os.path.isdir(os.path.dirname(key)):
            raise _error(errno.ENOENT, path)

    def _check_free(self, key: str, path: AnyPath) -> None:
        self._check_folder(key, path)
        place = self.place(key)
        if place and os.path.lexists(place):
            raise _error(errno.EEXIST, path)

    def truncate(self, path: AnyPath, length: int) -> None:
        """As ``os.truncate``."""
        descriptor = self.open(path, os.O_WRONLY)
        try:
            os.ftruncate(descriptor, length)
        finally:
            os.close(descriptor)

    # -- what the script sees ----------------------------------------------------------------------------------------

    def _names(self, place: str) -> list[str]:
        names = dict.fromkeys(real.listdir(place))
        for path in self._gone:
            if os.path.dirname(path) == place:
                names.pop(os.path.basename(path), None)
        for path in self._moved:
            if os.path.dirname(path) == place:
                names[os.path.basename(path)] = None
        return list(names)

    def listdir(self, path: AnyPath | int | None = None) -> list[Any]:
        """As ``os.listdir``."""
        names = self._names(self.existing(_folder(path), follow=True))
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    def scandir(self, path: AnyPath | int | None = None) -> Entries:
        """As ``os.scandir``."""
        folder = _folder(path)
        shown = "" if isinstance(path, int) else os.fspath(folder)
        return Entries(Entry(name, os.path.join(shown or name[:0], name), folder) for name in self.listdir(folder))


def _folder(path: AnyPath | int | None) -> Any:
    return os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else "." if path is None else path


class Entries(Iterator["Entry"]):
    """The result of ``os.scandir``."""

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    close = __exit__


class Entry:
    """As ``os.DirEntry``, seen through the functions of the view."""

    def __init__(self, name: Any, path: Any, folder: Any) -> None:
        self.name, self.path = name, path
        self._full = os.path.join(folder, name)

    def __fspath__(self) -> Any:
        return self.path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """As that of ``os.DirEntry``."""
        return os.stat(self._full, follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        """As that of ``os.DirEntry``."""
        return self.stat(follow_symlinks=False).st_ino

    def is_symlink(self) -> bool:
        """As that of ``os.DirEntry``."""
        return os.path.islink(self._full)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """As that of ``os.DirEntry``."""
        return os.path.isdir(self._full) and (follow_symlinks or not self.is_symlink())

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """As that of ``os.DirEntry``."""
        return os.path.isfile(self._full) and (follow_symlinks or not self.is_symlink())
