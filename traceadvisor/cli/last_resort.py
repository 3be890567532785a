"""Handling of errors that nothing else handles."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import click

from traceadvisor import __version__
from traceadvisor.errors import named
from traceadvisor.text.cleaning import clean, clipped, one_line

LONGEST_MESSAGE = 300

_TRACKERS = ("issues", "issue tracker", "bug tracker", "bugs", "tracker")
"""Labels of a project's link to the place for bug reports."""


@dataclass(slots=True)
class Debugging:
    """Whether ``--debug`` was given."""

    is_on: bool = False


DEBUGGING = Debugging()


def _turn_on(_context: click.Context, _option: click.Parameter, is_on: object) -> None:
    DEBUGGING.is_on = DEBUGGING.is_on or bool(is_on)


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
    DEBUGGING.is_on = False
    try:
        yield
    except Exception as error:  # noqa: BLE001  # the last resort for all of them
        click.echo(f"traceadvisor: {_said(error)}", err=True)
        show_traceback(error)
        sys.exit(exit_code)


def show_traceback(error: BaseException) -> None:
    """Show the traceback if the user asked for it."""
    if DEBUGGING.is_on:
        click.echo(clean("".join(traceback.format_exception(error))), err=True, nl=False)


def how_to_report() -> str:
    """Address for reporting a bug, and the details to send."""
    address = _tracker()
    where = f"at {address}" if address else "to the maintainers of TraceAdvisor"
    return f"Please report it {where}, with the output of the same command with --debug."


def _said(error: Exception) -> str:
    what = clipped(one_line(clean(named(error))), LONGEST_MESSAGE)
    if isinstance(error, OSError):
        return f"the system refused an operation ({what}). If that is unexpected: {how_to_report()}"
    if isinstance(error, MemoryError):
        return "not enough memory. Use fewer --processes, or select fewer recordings."
    return f"unexpected error in version {__version__} ({what}). {how_to_report()}"


def _tracker() -> str | None:
    """The address for bug reports in the metadata of the installed package; None without one."""
    from importlib.metadata import PackageNotFoundError, metadata  # noqa: PLC0415  # slow, and hardly ever needed

    try:
        links: Sequence[str] = metadata("traceadvisor").get_all("Project-URL") or ()
    except PackageNotFoundError:
        return None
    labelled = (link.partition(",") for link in links)
    return next((address.strip() for label, _, address in labelled if label.strip().lower() in _TRACKERS), None)
