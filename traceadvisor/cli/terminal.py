"""Terminal output: the summary of a report, and progress bars."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from traceadvisor import api
from traceadvisor.cli.next_commands import next_commands
from traceadvisor.cli.streams import discard, unwritable
from traceadvisor.judging import files as judging
from traceadvisor.model.report import Report
from traceadvisor.model.trace import Origin
from traceadvisor.rendering.content.report.document import report_document
from traceadvisor.rendering.content.report.outcomes import silenced_table
from traceadvisor.rendering.document.blocks import Document
from traceadvisor.rendering.formats import Format
from traceadvisor.rendering.writers.lines import Line, Piece, Style
from traceadvisor.rendering.writers.terminal import lines as document_lines
from traceadvisor.rendering.writers.wrapping import wrapped
from traceadvisor.results.redaction import redacted
from traceadvisor.text.cleaning import clean, clipped_inside, one_line
from traceadvisor.text.log_commands import (
    html_without_log_commands,
    json_without_log_commands,
    without_log_commands,
)

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from traceadvisor.model.comparison import Comparison


def tell(text: str) -> None:
    """Print a message of this command to standard error."""
    click.echo(f"traceadvisor: {without_log_commands(click.unstyle(text))}", err=True)


def print_report(format_: Format, report: Report | Comparison) -> None:
    """Print a report or a comparison in one format to standard output, without commands to a CI system."""
    content = format_.render(report)
    harmless = _WITHOUT_LOG_COMMANDS.get(format_.name)
    printed = content if harmless is None else harmless(content.decode()).encode()
    with _until_the_reader_leaves():
        click.echo(printed, nl=False)


_WITHOUT_LOG_COMMANDS: dict[str, Callable[[str], str]] = {
    "html": html_without_log_commands,
    "md": without_log_commands,
    "json": json_without_log_commands,
    "sarif": json_without_log_commands,
    "gitlab": json_without_log_commands,
}
"""For each format of text. The others are not read line by line, or are commands themselves."""


def print_summary(
    report: Report, written: Sequence[Path], *, goes_on: bool = True, explain_silence: bool = False
) -> None:
    """Print the summary of a report and the paths of its files; colour only on a terminal.

    Lines are wrapped to the terminal, or to 80 columns without one. If the reader closes the pipe, as `head` does, the
    rest is dropped without an error.

    Args:
        report: what to summarise.
        written: the files of the report.
        goes_on: whether to end with the commands that go on from here; the caller may have better ones.
        explain_silence: whether to say what laws took from findings.
    """
    shown = (*document_lines(report_document(report), _columns()), *(_silence(report) if explain_silence else ()))
    print_lines(shown, written, next_commands(report) if goes_on else ())


def _silence(report: Report) -> Iterator[Line]:
    """Yield what laws took from findings."""
    table = silenced_table(redacted(report))
    yield from (
        Line(),
        Line((Piece("What laws took from findings" if table else "No law took anything.", Style.STRONG),)),
    )
    for row in table.rows if table else ():
        yield Line((Piece("  " + "; ".join(cell.text for cell in row)),), hanging=4)


def print_document(document: Document, written: Sequence[Path], commands: Sequence[Line] = ()) -> None:
    """Print the summary of a document, the paths of its files, and commands to go on with."""
    print_lines(document_lines(document, _columns()), written, commands)


def _columns() -> int:
    return get_terminal_size((UNKNOWN_COLUMNS, 24)).columns


def print_lines(shown: Sequence[Line], written: Sequence[Path], commands: Sequence[Line] = ()) -> None:
    """Print a summary, the paths of written files, and commands to go on with."""
    columns = _columns()
    lines = [part for line in shown for part in wrapped(line, columns)]
    paths = [Line((Piece("Written: "), Piece(clean(str(path)), Style.STRONG))) for path in written]
    for block in (paths, commands):
        lines += [Line(), *block] if block else []
    with _until_the_reader_leaves():
        (_print_styled if may_have_colour() else _print_plain)(lines)
        sys.stdout.flush()


UNKNOWN_COLUMNS = 80
"""Columns without a terminal."""


def may_have_colour() -> bool:
    """Whether to print colours: on a terminal, or where FORCE_COLOR is set; never where NO_COLOR is."""
    if os.environ.get("NO_COLOR"):
        return False
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


@contextmanager
def _until_the_reader_leaves() -> Iterator[None]:
    """Drop what nobody reads any more; other failures of standard output are errors."""
    try:
        yield
    except BrokenPipeError:
        discard(sys.stdout)
    except OSError as error:
        discard(sys.stdout)
        raise unwritable(error) from error


def _print_plain(lines: Sequence[Line]) -> None:
    for line in lines:
        click.echo(line.text)


def _print_styled(lines: Sequence[Line]) -> None:
    from rich.console import Console  # noqa: PLC0415  # slow to import, and needed for colour only
    from rich.text import Text  # noqa: PLC0415

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    console = Terminal(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text.assemble(*((piece.text, piece.style.value) for piece in line.pieces)))


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


@contextmanager
def reading_progress() -> Iterator[judging.Progress]:
    """The progress callback: draws bars on a terminal, no-op without a terminal."""
    if not sys.stderr.isatty():
        yield api.silent
        return

    with bars() as show:
        yield show
