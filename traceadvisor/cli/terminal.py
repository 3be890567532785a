"""The report in a few lines on the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from traceadvisor.model.report import Report
from traceadvisor.rendering.redaction import clean
from traceadvisor.rendering.summary import summary


class _Terminal(Console):
    """Goes on without a word where its reader has left, as `head` does; the exit code is not the reader's matter."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def print_summary(report: Report, written: Sequence[Path]) -> None:
    """Print the verdict, the first findings and where the report lies; without colour where it is not wanted."""
    console = _Terminal(highlight=False, soft_wrap=True)
    for line in summary(report):
        console.print(Text.assemble(*((piece.text, piece.style.value) for piece in line.pieces)))
    if written:
        console.print()
    for path in written:
        console.print(Text.assemble("Written: ", (clean(str(path)), "bold")))
