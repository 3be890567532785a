"""Terminal output: the summary of a report, and progress bars."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from traceadvisor import api
from traceadvisor.judging import files as judging
from traceadvisor.model.report import Report
from traceadvisor.model.trace import Origin
from traceadvisor.rendering.summary import summary
from traceadvisor.text.cleaning import clean, clipped_inside, one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Line: TypeAlias = Sequence[tuple[str, str]]
"""Texts with their styles."""


def print_summary(report: Report, written: Sequence[Path]) -> None:
    """Print the summary of a report and the paths of its files; colour only on a terminal.

    If the reader closes the pipe, as `head` does, the rest is dropped without an error.
    """
    lines: list[Line] = [[(piece.text, piece.style.value) for piece in line.pieces] for line in summary(report)]
    lines += [[]] if written else []
    lines += [[("Written: ", ""), (clean(str(path)), "bold")] for path in written]
    may_have_colour = sys.stdout.isatty() or "FORCE_COLOR" in os.environ
    try:
        (_print_styled if may_have_colour else _print_plain)(lines)
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _print_plain(lines: Sequence[Line]) -> None:
    for line in lines:
        click.echo("".join(text for text, _ in line))


def _print_styled(lines: Sequence[Line]) -> None:
    from rich.console import Console  # noqa: PLC0415  # slow to import, and needed for colour only
    from rich.text import Text  # noqa: PLC0415

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    console = Terminal(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text.assemble(*line))


LONGEST_NAME = 32
"""Characters of a file name; a terminal with 80 columns must also fit the bar."""


@contextmanager
def bars() -> Iterator[judging.Progress]:
    """Draw progress bars until the end of the context; no-op on a dumb terminal."""
    from rich.console import Console  # noqa: PLC0415  # slow to import, and needed on a terminal only
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

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
        self._progress.update(self._all, total=self._size_bytes, advance=advance)
        self._read_bytes[origin] = read_bytes


def _name(origin: Origin) -> str:
    return clipped_inside(one_line(clean(f"{origin.run}/{origin.path.name}".lstrip("/"))), LONGEST_NAME)


@contextmanager
def reading_progress() -> Iterator[judging.Progress]:
    """The progress callback: draws bars on a terminal, no-op without a terminal."""
    if not sys.stderr.isatty():
        yield api.silent
        return

    with bars() as show:
        yield show
