"""The report in a few lines on the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import click

from traceadvisor.model.report import Report
from traceadvisor.rendering.summary import summary
from traceadvisor.text.cleaning import clean

Line: TypeAlias = Sequence[tuple[str, str]]
"""Texts, each with its style."""


def print_summary(report: Report, written: Sequence[Path]) -> None:
    """Print the verdict, the first findings and where the report lies; without colour where it is not wanted.

    Where the reader has left, as `head` does, it goes on without a word: the exit code is not the reader's matter.
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
    from rich.console import Console  # noqa: PLC0415  # takes time to import, for colours that are seldom asked for
    from rich.text import Text  # noqa: PLC0415

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    console = Terminal(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text.assemble(*line))
