"""What the command line's exit codes mean, and which error leads to which."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import click

from traceadvisor.errors import InputError, PdfUnavailableError, TraceAdvisorError, UsageError
from traceadvisor.recording.script.termination import end_by


class ExitCode(IntEnum):
    """Exit codes of every verb but ``capture``, which returns the script's own."""

    OK = 0
    CONDITION_MET = 1
    """A ``--fail-on`` condition holds; or ``doctor`` found that no report can be made."""

    USAGE = 2
    UNREADABLE = 3
    NO_PDF = 4
    """A PDF was asked for but cannot be made here; the other formats are written."""


@contextmanager
def errors_as_exit_codes() -> Iterator[None]:
    """Print errors raised on purpose, without a traceback, and leave with their exit code."""
    try:
        yield
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    except TraceAdvisorError as error:
        click.echo(f"traceadvisor: {click.unstyle(str(error))}", err=True)
        sys.exit(_code_of(error))


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """After Ctrl-C, end by that signal: a shell that runs several commands stops at one that a signal ended."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("traceadvisor: interrupted", err=True)
        sys.stdout.flush()
        end_by(signal.SIGINT)


def _code_of(error: TraceAdvisorError) -> ExitCode:
    match error:
        case PdfUnavailableError():
            return ExitCode.NO_PDF
        case InputError():
            return ExitCode.UNREADABLE
        case _:
            return ExitCode.USAGE
