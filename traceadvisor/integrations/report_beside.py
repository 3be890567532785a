"""Writes the report on the newest recordings of a log folder, in a process of its own."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from traceadvisor import api
from traceadvisor.errors import TraceAdvisorError
from traceadvisor.text.cleaning import clean

FOLDER = "traceadvisor"
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
    log = folder / "report.log"
    try:
        api.report(*api.newest_recordings(logs), out=folder, formats=FORMATS)
        log.unlink(missing_ok=True)
    except TraceAdvisorError as error:
        log.write_text(f"{clean(str(error))}\n", encoding="utf-8")
    except Exception:  # noqa: BLE001  # nobody else would see it
        log.write_text(clean(traceback.format_exc()), encoding="utf-8")


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
