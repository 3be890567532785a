"""Paths of files elsewhere, such as ``s3://bucket/runs``: listed and read by ranges through fsspec.

Nothing is written, neither there nor on the local disk.

A :class:`RemotePath` stands for its URL without user, password, query and fragment, which may be credentials. Only
what lies at or below a URL that the user typed, see :func:`location`, is ever accessed: the path of a report that was
read back, or a name in a recording, gives no access. fsspec is imported at the first access.
"""

from __future__ import annotations

import errno
import io
import os
import posixpath
import re
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PosixPath
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from traceadvisor.errors import InputError, UsageError
from traceadvisor.system.remote_errors import MISSING, LeadsElsewhere, cause_of, final_error

if TYPE_CHECKING:
    from typing_extensions import Buffer

Result = TypeVar("Result")

PACKAGES = {
    "s3": ("s3fs", "remote"),
    "https": ("aiohttp", "remote"),
    "http": ("aiohttp", "remote"),
    "memory": ("fsspec", "remote"),
    "gs": ("gcsfs", "gs"),
    "hf": ("huggingface-hub", "hf"),
}
"""The package that reads each kind of URL, and the extra that installs it."""

OF_THIS_PROCESS = "memory"
"""Protocol of files that fsspec keeps in the memory of a process: no other process can read them."""

_SINGLE_FILES = ("https", "http")
"""No folder is listed: that would follow links in a page."""

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,20})://(?:[^/?#]*@)?(?P<place>[^?#]*)", re.DOTALL)

_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|(?!\.*(?::|\Z))[^\s:/\\\[\]]+)(?::(?P<port>[0-9]{1,5}))?")
_LARGEST_PORT = 65_535

PAUSES_S = (0.5, 1.0, 2.0)
"""After a failed attempt; as many attempts and one more are made."""

CONNECT_S, SILENCE_S = 10, 30
"""A connection that takes longer to open, or brings nothing for so long, has failed."""

_SHORTEST_S, LONGEST_S = 0.1, 1_800
"""Times that reading one file may take: the shortest one for a request, and the longest one unless it is set."""

_FIRST_BYTES, _MOST_BYTES = 1 << 16, 1 << 22
"""Sizes of the first and the largest range: most files that are no recording are recognised by the first."""


def is_url(text: str) -> bool:
    """Whether a text names something elsewhere."""
    return _URL.match(text) is not None


def location(text: Path | str) -> Path:
    """The path that a user typed, or gave as one; a URL gives access to what is there.

    Raises:
        UsageError: there is no such kind of URL, or it names no place, or one with ``..`` in it.
    """
    if isinstance(text, Path):
        return text
    if not (found := _URL.match(text)):
        return Path(text)
    scheme = found["scheme"].lower()
    if scheme not in PACKAGES:
        known = ", ".join(f"{one}://" for one in PACKAGES)
        found_kind = f": {scheme}://" if scheme.isalnum() else ""  # with other signs it may be part of a name
        raise UsageError(f"Unknown kind of URL{found_kind}. Known kinds: {known}.")
    place = found["place"]
    if fault := _fault(scheme, place):
        raise UsageError(f"A URL given with {scheme}:// {fault}.")  # what should be a host may be a password
    return _granted(scheme, place, text)


def _fault(scheme: str, place: str) -> str | None:
    """The fault of the place that a URL names; None without one."""
    authority, *names = place.split("/")
    if ".." in (authority, *names):
        return "has '..' in it: only what is typed is read, so type the whole path"
    if scheme in _SINGLE_FILES:
        host = _HOST.fullmatch(authority)
        if not host or int(host["port"] or 0) > _LARGEST_PORT:
            return "has no valid host and port: https://host/path is expected"
    elif ":" in authority:
        return "has ':' in its first name: in a user or password, write '/' as %2F"
    elif not authority.strip("."):
        return "names no place: such as s3://bucket/path is expected"
    return None


def path_of(text: str) -> Path:
    """The path with this text, for a report; if it is elsewhere, it gives no access."""
    return RemotePath(text) if is_url(text) else Path(text)


class RemotePath(PosixPath):
    """A file or folder elsewhere. Like a local path it is listed and opened for reading; its errors are OSErrors."""

    def __str__(self) -> str:
        scheme, *rest = self.parts or ("",)
        return f"{scheme}//{'/'.join(rest)}" if scheme.endswith(":") else super().__str__()

    def __fspath__(self) -> str:
        raise TypeError(f"{self} is no local file")

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling for a process that reads the file, which needs the URL as typed."""
        with suppress(OSError):
            root = _root_of(self)
            return _restored, (str(self), str(root.path), root.url, root.limit_s)
        return RemotePath, (str(self),)

    @property
    def scheme(self) -> str:
        """The kind of URL."""
        return self.parts[0].rstrip(":")

    def absolute(self) -> RemotePath:
        """The path itself."""
        return self

    def resolve(self, strict: bool = False) -> RemotePath:  # noqa: ARG002, FBT001, FBT002  # as Path has it
        """The path without ``..``; nothing elsewhere is a link."""
        return RemotePath(posixpath.normpath("/".join(self.parts)))

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ARG002  # as Path has it
        """Size and time of the last change; 1 byte if the size is not known."""
        info = _root_of(self).info(self)
        mode = stat.S_IFDIR if info["type"] == "directory" else stat.S_IFREG
        size, changed_s = info.get("size"), _changed_s(info)
        times = {name: int(changed_s * 1e9) for name in ("st_atime_ns", "st_mtime_ns", "st_ctime_ns")}
        whole = int(changed_s)
        return os.stat_result((mode, 0, 0, 1, 0, 0, 1 if size is None else size, whole, whole, whole), times)

    def exists(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002  # as Path has it
        """Whether something is there."""
        return self._mode() != 0

    def is_file(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002  # as Path has it
        """Whether a file is there."""
        return self._mode() == stat.S_IFREG

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002  # as Path has it
        """Whether a folder is there."""
        return self._mode() == stat.S_IFDIR

    def is_symlink(self) -> bool:
        """False: there are no links."""
        return False

    def iterdir(self) -> Generator[RemotePath, None, None]:
        """The entries of a folder."""
        yield from dict.fromkeys(self / path.relative_to(self).parts[0] for path in self.files_below())

    def glob(self, pattern: str, **_: object) -> Iterator[RemotePath]:  # type: ignore[override]  # of one folder only
        """The entries of a folder with a name of this form."""
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def files_below(self) -> Iterator[RemotePath]:
        """All files in a folder, however deep."""
        return iter(_root_of(self).listing(self))

    def open(  # type: ignore[override]  # for reading only
        self,
        mode: str = "r",
        buffering: int = -1,  # noqa: ARG002  # as Path has it
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Open it for reading."""
        if mode not in ("r", "rt", "rb"):
            raise io.UnsupportedOperation(f"{self} is only read")
        stream = io.BufferedReader(_Ranges(_root_of(self), self), _MOST_BYTES)
        return stream if mode == "rb" else io.TextIOWrapper(stream, encoding or "utf-8", errors, newline)

    def _mode(self) -> int:
        try:
            return stat.S_IFMT(self.stat().st_mode)
        except FileNotFoundError:
            return 0


def is_of_this_process(path: Path) -> bool:
    """Whether no other process can read a path."""
    return isinstance(path, RemotePath) and path.scheme == OF_THIS_PROCESS


def is_remote(path: Path) -> bool:
    """Whether a path is elsewhere."""
    return isinstance(path, RemotePath)


class _Root:
    """Files at and below a URL that the user typed."""

    def __init__(self, path: RemotePath, url: str, limit_s: float = LONGEST_S) -> None:
        self.path, self.url, self.limit_s = path, url, limit_s
        self.failed_attempts = 0
        self._spent_s: defaultdict[RemotePath, float] = defaultdict(float)
        self._infos: dict[RemotePath, Mapping[str, Any] | OSError] = {}
        self._listings: dict[RemotePath, Sequence[RemotePath]] = {}

    def info(self, path: RemotePath) -> Mapping[str, Any]:
        """Type, size and time of what is at a path."""
        path = path.resolve()
        if path != self.path and self.path.scheme in _SINGLE_FILES:
            raise FileNotFoundError(errno.ENOENT, MISSING)
        if path not in self._infos and self._infos.get(self.path) == _FOLDER:
            self.listing(self.path)  # one request for all
        if path not in self._infos:
            if any(path.is_relative_to(folder) for folder in self._listings):
                raise FileNotFoundError(errno.ENOENT, MISSING)
            self._infos[path] = self._asked(path)
        found = self._infos[path]
        if isinstance(found, OSError):
            raise found.with_traceback(None)
        return found

    def _asked(self, path: RemotePath) -> Mapping[str, Any] | OSError:
        try:
            found: Mapping[str, Any] = self.attempt(path, lambda: self.asking(path).info(self.real(path)))
        except OSError as error:
            return error
        return _FOLDER if found["type"] == "directory" else found

    def listing(self, folder: RemotePath) -> Sequence[RemotePath]:
        """The files below a folder, from one listing of all."""
        for known, files in self._listings.items():
            if folder.is_relative_to(known):
                return [path for path in files if path.is_relative_to(folder)]
        top = self.real(folder).rstrip("/")
        found = self.attempt(folder, lambda: self.files.find(top, detail=True))
        infos = {
            folder / name.removeprefix(top).lstrip("/"): info
            for name, info in found.items()
            if name.startswith(f"{top}/") and info.get("type") == "file" and not name.endswith("/")
        }
        folders = dict.fromkeys((one for path in infos for one in path.parents if one.is_relative_to(folder)), _FOLDER)
        self._infos |= infos | folders | {folder: _FOLDER}
        self._listings[folder] = tuple(infos)
        return self._listings[folder]

    def real(self, path: RemotePath) -> str:
        """The path as fsspec takes it."""
        inside = path.relative_to(self.path).as_posix()
        top: str = self.files._strip_protocol(self.url)  # fsspec's documented way
        return top if inside == "." else f"{top.rstrip('/')}/{inside}"

    @property
    def files(self) -> Any:
        """The file system of fsspec."""
        try:
            return _file_system(self.path.scheme)
        except (ImportError, ValueError):
            package, extra = PACKAGES[self.path.scheme]
            raise InputError(
                self.path,
                f"reading {self.path.scheme}:// needs a package that is not installed",
                expected=package,
                remedy=f"Install it: pip install 'traceadvisor[{extra}]'",
            ) from None

    def attempt(self, path: RemotePath, work: Callable[[], Result]) -> Result:
        """The result of an access to a path; if the connection fails, it is tried again.

        No text of a library's error is passed on: it may hold a URL with its query, or an id of a key.

        Raises:
            OSError: it failed for ever, or takes too long; its ``strerror`` says why.
        """
        began = time.monotonic()
        try:
            return self._attempted(work, began, began + self.limit_s - self._spent_s[path])
        finally:
            self.spend(path, time.monotonic() - began)

    def _attempted(self, work: Callable[[], Result], began_s: float, ends_s: float) -> Result:
        for pause_s in (*PAUSES_S, None):
            try:
                return work() if self.path.scheme == OF_THIS_PROCESS else _within(ends_s, work)
            except InputError:
                raise
            except _TooSlow:
                raise OSError(errno.ETIMEDOUT, _too_slow(self.limit_s)) from None
            except Exception as error:  # noqa: BLE001  # the errors of a dozen libraries
                if (final := final_error(error)) is not None:
                    raise final from None
                self.failed_attempts += 1
                if pause_s is None:
                    tries, took_s = len(PAUSES_S) + 1, time.monotonic() - began_s
                    words = f"the connection failed {tries} times within {took_s:.0f} s: {cause_of(error)}"
                    raise OSError(errno.EIO, words) from None
            time.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    def spend(self, path: RemotePath, seconds: float) -> None:
        """Count time as taken for a path."""
        self._spent_s[path] += seconds

    def asking(self, path: RemotePath) -> Any:
        """The file system of fsspec; its next request over HTTP ends by itself when the time of a path ends."""
        files = self.files
        if self.path.scheme in _SINGLE_FILES:
            files.kwargs["timeout"] = _timeout(max(self.limit_s - self._spent_s[path], _SHORTEST_S))
        return files


class _TooSlow(Exception):  # noqa: N818  # it is no fault
    """An access takes longer than it may."""


def _too_slow(limit_s: float) -> str:
    return (
        f"it takes longer than {limit_s:g} s to arrive: if you trust it, add --trusted, or raise remote_seconds in "
        "[tool.traceadvisor.limits]"
    )


def _within(ends_s: float, work: Callable[[], Result]) -> Result:
    """The result of work that blocks; in a thread, which is left to itself when the time ends."""
    outcomes: SimpleQueue[tuple[Result | None, Exception | None]] = SimpleQueue()

    def attempted() -> None:
        try:
            outcomes.put((work(), None))
        except Exception as error:  # noqa: BLE001  # raised below
            outcomes.put((None, error))

    if (left_s := ends_s - time.monotonic()) <= 0:
        raise _TooSlow
    Thread(target=attempted, name="traceadvisor-request", daemon=True).start()
    try:
        result, error = outcomes.get(timeout=left_s)
    except Empty:
        raise _TooSlow from None
    if error is not None:
        raise error
    return cast("Result", result)


_ROOTS: dict[RemotePath, _Root] = {}
"""The path that the user typed, by the path that is shown."""


def _granted(scheme: str, place: str, url: str) -> RemotePath:
    """The path of a URL, from now on accessible. If another URL looks the same without its query, it has a number."""
    authority, slash, rest = place.partition("/")
    number = 1
    while True:
        name = authority if number == 1 else f"{authority}#{number}"
        path = RemotePath(f"{scheme}://{name}{slash}{rest}")
        if path not in _ROOTS or _ROOTS[path].url == url:
            _ROOTS[path] = _Root(path, url)  # anew, to list what is there now
            return path
        number += 1


def _restored(text: str, root: str, url: str, limit_s: float) -> RemotePath:
    path = RemotePath(root)
    _ROOTS.setdefault(path, _Root(path, url, limit_s))
    return RemotePath(text)


def limit_time(paths: Iterable[Path], limit_s: float) -> None:
    """Let the requests for each file at and below some paths take so long together."""
    for path in paths:
        if isinstance(path, RemotePath):
            _root_of(path).limit_s = limit_s


def _root_of(path: RemotePath) -> _Root:
    inside = path.resolve()
    root = next((_ROOTS[one] for one in (inside, *inside.parents) if one in _ROOTS), None)
    if root is None:
        raise PermissionError(errno.EACCES, "only what is typed is read, and what is below it")
    return root


def failed_attempts(path: Path) -> int:
    """How often the connection to the URL of a path failed so far."""
    return _root_of(path).failed_attempts if isinstance(path, RemotePath) else 0


class _Ranges(io.RawIOBase):
    """A file read range by range, each larger than the one before; as one stream if the server knows no ranges."""

    def __init__(self, root: _Root, path: RemotePath) -> None:
        super().__init__()
        self._root, self._path = root, path
        self._position, self._most = 0, _FIRST_BYTES
        self._is_stream = False
        self._file: Any = None
        before = root.failed_attempts
        self._file = root.attempt(path, self._opened)
        self._idle_since_s = time.monotonic()
        self.failed_attempts = root.failed_attempts - before
        """How often the connection failed."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            raise io.UnsupportedOperation("the end may not be known")
        self._position = offset + (self._position if whence == io.SEEK_CUR else 0)
        return self._position

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer).cast("B")
        before = self._root.failed_attempts
        self._root.spend(self._path, time.monotonic() - self._idle_since_s)  # who reads what has come takes time, too
        content = self._root.attempt(self._path, lambda: self._fetched(min(len(view), self._most)))
        self._idle_since_s = time.monotonic()
        self.failed_attempts += self._root.failed_attempts - before
        view[: len(content)] = content
        self._position += len(content)
        self._most = min(2 * self._most, _MOST_BYTES)
        return len(content)

    def close(self) -> None:
        self._disconnect()
        super().close()

    def _disconnect(self) -> None:
        if self._file is not None and self._path.scheme != OF_THIS_PROCESS:
            self._file.close()
        self._file = None

    def _opened(self) -> Any:
        ranges: dict[str, Any] = {"block_size": 0} if self._is_stream else {"cache_type": "none"}
        file = self._root.asking(self._path).open(self._root.real(self._path), "rb", **ranges)
        self._is_stream |= file.size is None or not file.seekable()
        return file

    def _fetched(self, count: int) -> bytes:
        try:
            return self._read(count)
        except Exception:
            if self._is_stream:  # it would fail again: the next attempt opens it anew
                self._disconnect()
            raise

    def _read(self, count: int) -> bytes:
        size = self._file.size if self._file is not None else None
        if size is not None:
            count = min(count, size - self._position)
        if count <= 0:
            return b""
        try:
            content = self._range(count) if self._is_in_ranges else self._at_position().read(count)
        except ValueError:  # fsspec's, for a server that knows no ranges
            if self._is_stream:
                raise
            self._is_stream = True
            self._disconnect()
            content = self._at_position().read(count)
        if not content and size is not None:
            raise EOFError
        return bytes(content)

    @property
    def _is_in_ranges(self) -> bool:
        return self._path.scheme in _SINGLE_FILES and not self._is_stream

    def _range(self, count: int) -> bytes:
        """The next bytes from an HTTP server, and no more than asked for, whatever it sends; fsspec keeps all of it.

        Raises:
            ValueError: the server knows no ranges, and these are not the first bytes.
        """
        asked = {"Range": f"bytes={self._position}-{self._position + count - 1}"}
        files, url = self._root.asking(self._path), self._root.real(self._path)
        with files.open(url, "rb", block_size=0, size=count, headers=asked) as stream:
            given = _RANGE.match(stream.r.headers.get("Content-Range", "")) if stream.r.status == _PARTIAL else None
            if (int(given[1]) if given else 0) != self._position:
                raise ValueError("another range")
            parts: list[bytes] = []
            while count > 0 and (part := stream.read(count)):
                parts.append(part)
                count -= len(part)
        return b"".join(parts)

    def _at_position(self) -> Any:
        """The file of fsspec, where the next bytes are."""
        if not self._is_stream:
            self._file.seek(self._position)
            return self._file
        if self._file is None or self._file.tell() != self._position:
            self._disconnect()
            self._file = self._opened()
            while (left := self._position - self._file.tell()) and self._file.read(min(left, _MOST_BYTES)):
                pass
        return self._file


@cache
def _file_system(scheme: str) -> Any:
    import fsspec  # noqa: PLC0415  # local files do not need it

    files = fsspec.filesystem(scheme, skip_instance_cache=True, use_listings_cache=False, **_options(scheme))
    if scheme == "s3":
        files.retries = 1  # the attempts are counted here
    return files


def _options(scheme: str) -> dict[str, Any]:
    if scheme == "s3":
        limits = {"connect_timeout": CONNECT_S, "read_timeout": SILENCE_S, "retries": {"max_attempts": 0}}
        return {"config_kwargs": limits}
    if scheme in _SINGLE_FILES:
        from aiohttp import TraceConfig  # noqa: PLC0415  # as above

        as_stored = {"headers": {"Accept-Encoding": "identity"}, "auto_decompress": False}
        watched = TraceConfig()
        watched.on_request_redirect.append(_stay)
        return {"client_kwargs": {"trust_env": True, "trace_configs": [watched], **as_stored}}
    return {}


def _timeout(total_s: float) -> Any:
    from aiohttp import ClientTimeout  # noqa: PLC0415  # as above

    return ClientTimeout(total=total_s, sock_connect=CONNECT_S, sock_read=SILENCE_S)


async def _stay(_session: object, _context: object, redirect: Any) -> None:
    """Follow no redirect to another origin: the user typed this one. It is called before the next request."""
    named = redirect.response.headers.get("Location") or redirect.response.headers.get("URI") or ""
    target = redirect.url.join(type(redirect.url)(named))
    if any(getattr(target, part) != getattr(redirect.url, part) for part in ("scheme", "host", "port")):
        redirect.response.close()
        anonymous = target.with_user(None) if target.host else target
        raise LeadsElsewhere(str(anonymous.with_query(None).with_fragment(None)))


def _changed_s(info: Mapping[str, Any]) -> float:
    """When a file was changed, since the epoch; 0 if that is not known."""
    times = (info.get(key) for key in ("LastModified", "mtime", "created", "last_modified"))
    return next((one.timestamp() for one in times if isinstance(one, datetime)), 0.0)


_FOLDER: Mapping[str, Any] = {"type": "directory", "size": 0}
_RANGE = re.compile(r"bytes (\d{1,19})-")
_PARTIAL = 206
