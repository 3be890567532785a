"""The exit codes of the command line, and the errors that lead to them."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

import click

from traceadvisor import __version__
from traceadvisor.errors import InputError, PdfUnavailableError, TraceAdvisorError, UnwrittenError, UsageError, named
from traceadvisor.recording.script.termination import end_by
from traceadvisor.text.cleaning import clean, clipped, one_line
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


def capture_exit_code(status: str | int | None, *, is_recorded: bool) -> str | int | None:
    """The exit code of ``capture``: that of the script or command; if it succeeded without a recording, 3."""
    return status or (None if is_recorded else ExitCode.UNREADABLE)


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
            _show_traceback(error)
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


_LONGEST_MESSAGE = 300

_TRACKERS = ("issues", "issue tracker", "bug tracker", "bugs", "tracker")
"""Labels of a project's link to the place for bug reports."""


@dataclass(slots=True)
class _Debugging:
    """Whether ``--debug`` was given."""

    is_on: bool = False


_DEBUGGING = _Debugging()


def _turn_on(_context: click.Context, _option: click.Parameter, is_on: object) -> None:
    _DEBUGGING.is_on = _DEBUGGING.is_on or bool(is_on)


DEBUG_OPTION = click.Option(
    ["--debug"],
    is_flag=True,
    expose_value=False,
    callback=_turn_on,
    help="Show the Python traceback of an unexpected error.",
)
"""An option of every verb."""


@contextmanager
def last_resort(exit_code: int) -> Iterator[None]:
    """Turn any error into a short message and the exit code."""
    _DEBUGGING.is_on = False
    try:
        yield
    except Exception as error:  # noqa: BLE001  # the last resort for all of them
        click.echo(f"traceadvisor: {_said(error)}", err=True)
        _show_traceback(error)
        sys.exit(exit_code)


def _show_traceback(error: BaseException) -> None:
    """Show the traceback if the user asked for it."""
    if _DEBUGGING.is_on:
        click.echo(clean("".join(traceback.format_exception(error))), err=True, nl=False)


def _how_to_report() -> str:
    """Address for reporting a bug, and the details to send."""
    address = _tracker()
    where = f"at {address}" if address else "to the maintainers of TraceAdvisor"
    return f"Please report it {where}, with the output of the same command with --debug."


def _said(error: Exception) -> str:
    what = clipped(one_line(clean(named(error))), _LONGEST_MESSAGE)
    if isinstance(error, OSError):
        return f"the system refused an operation ({what}). If that is unexpected: {_how_to_report()}"
    if isinstance(error, MemoryError):
        return "not enough memory. Use fewer --processes, or select fewer recordings."
    return f"unexpected error in version {__version__} ({what}). {_how_to_report()}"


def _tracker() -> str | None:
    """The address for bug reports in the metadata of the installed package; None without one."""
    from importlib.metadata import PackageNotFoundError, metadata  # noqa: PLC0415  # slow, and hardly ever needed

    try:
        links: Sequence[str] = metadata("traceadvisor").get_all("Project-URL") or ()
    except (PackageNotFoundError, OSError):
        return None
    labelled = (link.partition(",") for link in links)
    return next((address.strip() for label, _, address in labelled if label.strip().lower() in _TRACKERS), None)
