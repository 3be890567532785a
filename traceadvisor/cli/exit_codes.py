"""The exit codes of the command line, and the errors that lead to them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import click

from traceadvisor.cli.last_resort import show_traceback
from traceadvisor.errors import InputError, PdfUnavailableError, TraceAdvisorError, UnwrittenError, UsageError
from traceadvisor.recording.script.termination import end_by
from traceadvisor.text.log_commands import without_log_commands


class ExitCode(IntEnum):
    """Exit codes of all verbs except ``capture``, which returns the exit code of the script."""

    OK = 0
    CONDITION_MET = 1
    """A ``--fail-on`` condition is true, or ``doctor`` found that reports do not work."""

    USAGE = 2
    UNREADABLE = 3
    NO_PDF = 4
    """PDF is not available on this machine; the other formats were written."""

    UNEXPECTED = 70
    """A bug in TraceAdvisor; the number that `sysexits.h` has for it. Formats without an error were written."""


class EndedByInterrupt(BaseException):
    """Ctrl-C ended the command of a capture. Python decides what that means here, too."""


@contextmanager
def errors_as_exit_codes() -> Iterator[None]:
    """Print TraceAdvisor errors without a traceback and exit with their exit code."""
    try:
        yield
    except UsageError as error:
        raise click.UsageError(without_log_commands(str(error))) from error
    except TraceAdvisorError as error:
        click.echo(f"traceadvisor: {without_log_commands(click.unstyle(str(error)))}", err=True)
        if isinstance(error, UnwrittenError) and error.is_bug:
            show_traceback(error)
        sys.exit(_code_of(error))


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """After Ctrl-C, end by SIGINT, so that a shell also stops the commands that follow."""
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
        case UnwrittenError(is_bug=True):
            return ExitCode.UNEXPECTED
        case _:
            return ExitCode.USAGE
