"""Bars for files that are read, on a terminal.

How far the reading of files has come, drawn on a terminal while it lasts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from traceadvisor import api
from traceadvisor.judging import files as judging
from traceadvisor.model.trace import Origin
from traceadvisor.text.cleaning import clean, clipped_inside, one_line

LONGEST_NAME = 32
"""Characters: a terminal of 80 has to hold the bar as well."""


@contextmanager
def bars() -> Iterator[judging.Progress]:
    """A bar for all files and one for each that is being read, gone at the end; nothing where none can be drawn."""
    console = Console(stderr=True)
    if console.is_dumb_terminal:
        yield api.silent
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        DownloadColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as progress:
        yield Bars(progress).show


class Bars:
    """A bar for all files together and, where there are several, one for each that is being read."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._all = progress.add_task("Reading", total=0)
        self._size_bytes = 0
        self._read_bytes: dict[Origin, int] = {}
        self._bars: dict[Origin, TaskID] = {}

    def show(self, origin: Origin, read_bytes: int, size_bytes: int) -> None:
        """Draw how far a file has been read."""
        if origin not in self._bars:
            self._bars[origin] = self._progress.add_task(_name(origin), total=size_bytes, visible=False)
            self._size_bytes += size_bytes
        is_shown = 0 < read_bytes < size_bytes and len(self._bars) > 1
        self._progress.update(self._bars[origin], completed=read_bytes, visible=is_shown)
        advance = read_bytes - self._read_bytes.get(origin, 0)
        self._progress.update(self._all, total=self._size_bytes, advance=advance)
        self._read_bytes[origin] = read_bytes


def _name(origin: Origin) -> str:
    return clipped_inside(one_line(clean(f"{origin.run}/{origin.path.name}".lstrip("/"))), LONGEST_NAME)


@contextmanager
def reading_progress() -> Iterator[judging.Progress]:
    """Who is told how the reading gets on; nobody where nobody looks on."""
    if not sys.stderr.isatty():
        yield api.silent
        return

    with bars() as show:
        yield show
