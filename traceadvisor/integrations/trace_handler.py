"""A handler for ``torch.profiler`` that writes what torch's own writes, and has a report written beside it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDER = "traceadvisor"
"""The folder of the report, in the log folder."""

_REPORT = """
import os, sys
sys.path.append(sys.argv.pop())
os.nice(10)
from traceadvisor.integrations.report_beside import main
main()
"""
_HERE = str(Path(__file__).parents[2])


def trace_handler(
    dir_name: str,
    worker_name: str | None = None,
    use_gzip: bool = False,  # noqa: FBT001, FBT002  # as torch has it
) -> Callable[[Any], None]:
    """A value for ``on_trace_ready`` of ``torch.profiler.profile``, in the place of ``tensorboard_trace_handler``.

    It writes the same files. After each, a process of low priority writes the report on the newest recording of each
    worker to ``dir_name/traceadvisor/report.html`` and ``report.json``, and what went wrong to ``report.log``, or to
    ``report-2.log`` beside one of another program. The training waits for the start of that process only, and outlives
    any fault of it. If that folder cannot be made, one line on standard error says so.

    Args:
        dir_name: the log folder.
        worker_name: unique for each worker of a distributed training; ``<host>_<process id>`` by default.
        use_gzip: whether to compress the recordings.
    """
    from torch.profiler import tensorboard_trace_handler  # noqa: PLC0415  # who profiles has torch

    write = tensorboard_trace_handler(dir_name, worker_name, use_gzip)
    reports: list[subprocess.Popen[bytes]] = []
    told: list[str] = []

    def write_and_report(profiler: Any) -> None:
        write(profiler)
        reports[:] = [one for one in reports if one.poll() is None]  # reaps those that have ended
        try:
            Path(dir_name, FOLDER).mkdir(exist_ok=True)
            reports.append(_started(dir_name))
        except OSError as error:
            if not told:
                told.append(f"traceadvisor: no report is written: {FOLDER} in the log folder: {error.strerror}.\n")
                with suppress(OSError, ValueError, AttributeError):  # the script may have closed or replaced it
                    sys.stderr.write(told[0])
                    sys.stderr.flush()

    return write_and_report


def _started(folder: str) -> subprocess.Popen[bytes]:
    """A process that outlives this one, and shares none of its signals and files."""
    return subprocess.Popen(  # noqa: S603  # this program, without a shell
        [sys.executable, "-P", "-c", _REPORT, folder, _HERE],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
