"""Errors of the libraries that read files elsewhere, in this program's words."""

from __future__ import annotations

import errno
from collections.abc import Iterator


class LeadsElsewhere(Exception):  # noqa: N818  # it is no fault
    """A server answers that a file is at another origin."""


_REFUSED = (401, 403, 407)
_GONE = (404, 410)
_BUSY = (408, 425, 429)
MISSING = "nothing is there"
_UNFIT = (IsADirectoryError, NotADirectoryError, TypeError, AttributeError)


def final_error(error: Exception) -> OSError | None:
    """The error in this program's words if another attempt would repeat it, else None."""
    cause = error.__cause__  # fsspec calls any failure over HTTP a missing file
    status = _status(error)
    kind = type(error).__name__
    elsewhere = next((one for one in _chain(error) if isinstance(one, LeadsElsewhere)), None)
    is_circle = any(type(one).__name__ == "TooManyRedirects" for one in _chain(error))
    cases = (
        ("Credentials" in kind, errno.EACCES, f"no credentials were found ({kind})"),
        (
            elsewhere is not None,
            errno.EACCES,
            f"it leads to {elsewhere}, and only what is typed is read: type that URL if you trust it",
        ),
        (
            status in _REFUSED or isinstance(error, PermissionError),
            errno.EACCES,
            "access is denied: check the credentials; a single file may be readable where its folder cannot be listed",
        ),
        (status in _GONE or (isinstance(error, FileNotFoundError) and cause is None), errno.ENOENT, MISSING),
        (is_circle, errno.ELOOP, "the server redirects without end"),
        (kind == "FileExpired", errno.ESTALE, "it was replaced while it was read"),
        (
            status is not None and 400 <= status < 500 and status not in _BUSY,
            errno.EIO,
            f"the server answers with status {status}",
        ),
        (isinstance(error, _UNFIT), errno.EIO, f"it cannot be read as a file ({kind})"),
    )
    return next((OSError(number, words) for holds, number, words in cases if holds), None)


def cause_of(error: BaseException) -> str:
    """The class of an error, and the status that a server answered with."""
    status = _status(error)
    *_, first = _chain(error)
    return type(first).__name__ + ("" if status is None else f", status {status}")


def _status(error: BaseException) -> int | None:
    """The status of HTTP that an error is about, as the libraries for each kind of URL tell it."""
    for one in _chain(error):
        response = getattr(one, "response", None)
        metadata = response.get("ResponseMetadata", {}) if isinstance(response, dict) else {}
        told = (getattr(one, "status", None), metadata.get("HTTPStatusCode"), getattr(response, "status_code", None))
        if status := next((each for each in told if isinstance(each, int)), None):
            return status
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes."""
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__
