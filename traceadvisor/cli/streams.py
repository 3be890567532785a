"""Standard output and standard error while a verb runs: the one way by which text reaches the terminal.

Whatever a verb prints passes through here, so that no text from a trace is a command to a CI system, and so that a
closed or full output is an error message and not a traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

import click

from traceadvisor.errors import OutputError
from traceadvisor.text.log_commands import without_log_commands

STANDARD_OUTPUT = "standard output"


def tell(text: str) -> None:
    """Print a message of this command to standard error."""
    click.echo(f"traceadvisor: {without_log_commands(click.unstyle(text))}", err=True)


class Sink:
    """A text stream whose lines are no commands to a CI system; everything else is the stream's own."""

    encoding = "utf-8"
    """It takes any text. Click writes past a stream that calls its encoding ASCII."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_mid_line = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text without log commands; returns the number of characters given."""
        harmless = without_log_commands(text, mid_line=self._is_mid_line)
        if text:  # click writes nothing to find out whether this is a stream of text
            self._is_mid_line = not text.endswith("\n")
            self._try(lambda: self._stream.write(_encodable(harmless, self._stream.encoding)))
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        self._try(self._stream.flush)

    def _try(self, action: Callable[[], object]) -> None:
        action()


def _encodable(text: str, encoding: str | None) -> str:
    """The text with escapes for characters that an encoding lacks."""
    return text.encode(encoding, "backslashreplace").decode(encoding) if encoding else text


class OutputSink(Sink):
    """Standard output: a failed write is an error, except where the reader went away, as `head` does."""

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as error:
            discard(self._stream)
            if not isinstance(error, BrokenPipeError):
                raise unwritable(error) from error


class ErrorSink(Sink):
    """Standard error: where it cannot be written, nobody can be told, and the work goes on."""

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError:
            discard(self._stream)


class ClosedOutput:
    """Standard output that was closed before the command began."""

    encoding = "utf-8"
    errors = "strict"

    def write(self, text: str | bytes) -> int:
        """Fail where there is something to write."""
        if text:
            raise unwritable(OSError(errno.EBADF, os.strerror(errno.EBADF)))
        if isinstance(text, bytes):
            raise TypeError("a stream of text")
        return 0

    def flush(self) -> None:
        """Nothing to write."""

    def isatty(self) -> bool:
        """It is no terminal."""
        return False


def unwritable(error: OSError) -> OutputError:
    """The error for standard output that cannot be written."""
    return OutputError(
        STANDARD_OUTPUT,
        f"could not be written ({error.strerror or error})",
        remedy="Redirect it elsewhere, or write to a folder with -o.",
    )


def discard(stream: TextIO) -> None:
    """Let what is buffered, and all that follows, go nowhere, so that Python does not fail again at its end."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


@contextmanager
def guarded_streams() -> Iterator[Callable[[], None]]:
    """Print through sinks until the end of the context; yields a function that takes the sinks away before it."""
    before = sys.stdout, sys.stderr
    _open_closed_descriptors()
    sys.stdout = cast("TextIO", ClosedOutput() if sys.stdout is None else OutputSink(sys.stdout))
    sys.stderr = cast("TextIO", ErrorSink(sys.stderr or open(os.devnull, "w", encoding="utf-8")))  # noqa: SIM115, PTH123
    sinks = sys.stdout, sys.stderr

    def take_away() -> None:
        if (sys.stdout, sys.stderr) == sinks:
            sys.stdout, sys.stderr = before

    try:
        yield take_away
    finally:
        take_away()


def _open_closed_descriptors() -> None:
    """Open the standard descriptors that are closed: a report would get their number, and be printed into."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
