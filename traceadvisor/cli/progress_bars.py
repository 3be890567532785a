"""Progress bars while recordings are read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from traceadvisor import api
from traceadvisor.judging import files as judging
from traceadvisor.model.trace import Origin
from traceadvisor.text.cleaning import clean, clipped_inside, one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LONGEST_NAME = 32
"""Characters of a file name; a terminal with 80 columns must also fit the bar."""


@contextmanager
def reading_progress() -> Iterator[judging.Progress]:
    """The progress callback: draws bars until the end of the context; no-op without a terminal, or on a dumb one."""
    if not sys.stderr.isatty():
        yield api.silent
        return
    from rich.console import Console  # noqa: PLC0415  # slow to import, and needed on a terminal only
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    console = Console(stderr=True)
    if console.is_dumb_terminal:
        yield api.silent
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        DownloadColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as progress:
        yield Bars(progress).show


class Bars:
    """One bar for all files and, if there are several, one for each file being read."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._all = progress.add_task("Reading", total=0)
        self._size_bytes = 0
        self._read_bytes: dict[Origin, int] = {}
        self._bars: dict[Origin, TaskID] = {}

    def show(self, origin: Origin, read_bytes: int, size_bytes: int) -> None:
        """Update the bars with the progress of a file."""
        if origin not in self._bars:
            self._bars[origin] = self._progress.add_task(_name(origin), total=size_bytes, visible=False)
            self._size_bytes += size_bytes
        is_shown = 0 < read_bytes < size_bytes and len(self._bars) > 1
        self._progress.update(self._bars[origin], completed=read_bytes, visible=is_shown)
        advance = read_bytes - self._read_bytes.get(origin, 0)
        self._read_bytes[origin] = read_bytes
        is_reading = sum(self._read_bytes.values()) < self._size_bytes
        self._progress.update(self._all, description="Reading" if is_reading else "Analysing", advance=advance)
        self._progress.tasks[0].total = self._size_bytes if is_reading else None  # without a total, the bar moves


def _name(origin: Origin) -> str:
    return clipped_inside(one_line(clean(f"{origin.run}/{origin.path.name}".lstrip("/"))), LONGEST_NAME)
