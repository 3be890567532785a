"""Prints reports to the terminal: the summary, or a whole report in one format."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, TypeVar

import click

from traceadvisor import api
from traceadvisor.cli.next_commands import next_commands
from traceadvisor.cli.streams import discard, unwritable
from traceadvisor.model.report import Report
from traceadvisor.rendering.content.report.document import report_document
from traceadvisor.rendering.content.report.outcomes import silenced_table
from traceadvisor.rendering.document.blocks import Document
from traceadvisor.rendering.formats import Format, write_formats
from traceadvisor.rendering.writers.lines import Line, Piece, Style, wrapped
from traceadvisor.rendering.writers.terminal import lines as document_lines
from traceadvisor.results.redaction import redacted
from traceadvisor.text.cleaning import clean
from traceadvisor.text.log_commands import html_without_log_commands, json_without_log_commands, without_log_commands

if TYPE_CHECKING:
    from traceadvisor.model.comparison import Comparison
    from traceadvisor.model.index import Index
    from traceadvisor.model.whatif import Answer

_Item = TypeVar("_Item")


def print_report(format_: Format, report: Report | Comparison | Index | Answer) -> None:
    """Print a report, a comparison, an index or an answer in one format, without commands to a CI system."""
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
        explain_silence: whether to say which savings were limited, and why.
    """
    shown = (*document_lines(report_document(report), _columns()), *(_silence(report) if explain_silence else ()))
    print_lines(shown, written, next_commands(report) if goes_on else ())


def _silence(report: Report) -> Iterator[Line]:
    """Yield the savings that were limited."""
    table = silenced_table(redacted(report))
    yield Line()
    yield Line((Piece(table.caption if table else "No saving had to be limited.", Style.STRONG),))
    for row in table.rows if table else ():
        yield Line((Piece("  " + "; ".join(cell.text for cell in row)),), hanging=4)


def print_document(document: Document, written: Sequence[Path], commands: Sequence[Line] = ()) -> None:
    """Print the summary of a document, the paths of its files, and commands to go on with."""
    print_lines(document_lines(document, _columns()), written, commands)


def write_and_print(
    item: _Item,
    document_of: Callable[[_Item], Document],
    folder: Path,
    names: Iterable[str],
    formats: Mapping[str, Format],
) -> None:
    """Write all formats, then print the summary; raise the error of a format that was not written."""
    written = write_formats(item, folder, names, formats)
    print_document(document_of(item), list(written.paths.values()))
    api.raise_failure(written)


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
