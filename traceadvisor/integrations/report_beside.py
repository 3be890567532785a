"""Writes the report on the newest recordings of a log folder, in a process of its own."""

from __future__ import annotations

import os
import stat
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, count
from pathlib import Path

from traceadvisor import api
from traceadvisor.errors import TraceAdvisorError
from traceadvisor.integrations.trace_handler import FOLDER
from traceadvisor.text.cleaning import clean

FORMATS = ("html", "json")


def main() -> None:
    """Report on the folder that the command line names, unless another process is about to do it."""
    logs = Path(sys.argv[1])
    folder = logs / FOLDER
    with suppress(OSError):  # the folder is gone, or cannot be written
        folder.mkdir(exist_ok=True)
        with ExitStack() as stack:
            with _alone(folder / ".waiting", waits=False) as is_next:
                if not is_next:
                    return
                stack.enter_context(_alone(folder / ".writing", waits=True))
            write(logs, folder)


def write(logs: Path, folder: Path) -> None:
    """Write the report, or the reason why there is none."""
    log = _own_log(folder)
    try:
        api.report(*api.newest_recordings(logs), out=folder, formats=FORMATS)
        log.unlink(missing_ok=True)
    except TraceAdvisorError as error:
        _put(log, clean(str(error)))
    except Exception:  # noqa: BLE001  # nobody else would see it
        _put(log, clean(traceback.format_exc()))


def _own_log(folder: Path) -> Path:
    """The first of ``report.log``, ``report-2.log`` and so on that is ours, or not there."""
    names = chain(("report.log",), (f"report-{number}.log" for number in count(2)))
    return next(path for path in (folder / name for name in names) if _is_ours(path) or not os.path.lexists(path))


def _is_ours(path: Path) -> bool:
    """Whether a file begins as :func:`_put` writes it; a link is not."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | _PLAIN), "rb") as file:
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.read(len(_HEAD)) == _HEAD.encode()
    except OSError:
        return False


def _put(log: Path, text: str) -> None:
    """Write a log as a whole; what another program puts in its place meanwhile stays."""
    log.unlink(missing_ok=True)
    with log.open("x", encoding="utf-8") as file:
        file.write(f"{_HEAD}{text}\n")


_HEAD = "TraceAdvisor wrote no report.\n"
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@contextmanager
def _alone(path: Path, *, waits: bool) -> Iterator[bool]:
    """Whether this process alone holds a lock; where the system knows none, as if it did."""
    try:
        import fcntl  # noqa: PLC0415  # only Unix has it
    except ImportError:
        yield True
        return
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
