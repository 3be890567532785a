"""Lines on standard error while the script runs: each is whole, and starts where a line starts if that can be told."""

from __future__ import annotations

import gc
import io
import os
import shlex
import stat
from collections.abc import Iterable
from contextlib import suppress
from os import write  # the script may replace that of the module
from pathlib import Path

from traceadvisor.bundle.layout import Note
from traceadvisor.recording.children.rendezvous import TrainedChildren

PREFIX = "traceadvisor: "
STOPPED = "The run was stopped after its recording, as requested."

_ALWAYS_QUOTED = (
    "out-of-memory",
    "own-profiler",
    "profile-counts-threads",
    "not-stopped",
    "steps-uncertain",
    "capture-failed",
    "window-bounded",
)
"""Codes of notes that the last line quotes even if steps were recorded."""

_STANDARD_ERROR = 2


def _identity(descriptor: int) -> tuple[int, int] | None:
    """The identity of an open file; None if the descriptor is closed."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


_AT_START = _identity(_STANDARD_ERROR)


def _is_data_file(descriptor: int) -> bool:
    """Whether Python opened this descriptor by a path: the number was free."""
    streams = ("<stdin>", "<stdout>", "<stderr>")
    files = [one for one in gc.get_objects() if type(one) is io.FileIO and not one.closed and one.name not in streams]
    return any(one.fileno() == descriptor and isinstance(one.name, str | bytes) for one in files)


def say(text: str, descriptor: int = _STANDARD_ERROR) -> None:
    """Write a line at once, past Python's buffers: a signal handler may call it in the middle of a ``print``.

    Writes nothing if the script has closed standard error, or opened a file of its own in its place.
    """
    with suppress(OSError):  # such as a closed terminal
        if _identity(descriptor) == _AT_START or not _is_data_file(descriptor):
            write(descriptor, f"{_new_line(descriptor)}{PREFIX}{text}\n".encode(errors="replace"))


def report_command(folder: Path) -> str:
    """The command that reports a bundle, quoted for a shell."""
    name = str(folder)
    return f"traceadvisor report {shlex.quote(f'./{name}' if name.startswith('-') else name)}"


def kept_line(steps: int, recorded_steps: int, folder: Path) -> str:
    """Describe a bundle after a signal, with the command that reports it."""
    return f"recorded {recorded_steps} of {steps} steps in {folder}. To read it: {report_command(folder)}"


def remark(notes: Iterable[Note], recorded_steps: int, *, stopped: bool) -> str:
    """Additions to the last line of a capture, after its numbers of steps; empty if there is nothing to add."""
    found = [note for note in notes if note.code != "not-written"]  # it has a line of its own
    chosen = [note for note in found if note.code in _ALWAYS_QUOTED] or ([] if recorded_steps else found[:1])
    return " ".join([*(note.message for note in chosen), *([STOPPED] if stopped else [])])


def ending_lines(children: TrainedChildren) -> list[str]:
    """Describe the recordings of a command's training processes, a line for each bundle."""
    lines = [f"a process was not captured: {failure}." for failure in children.failures]
    lines += [f"a process was killed or left by os._exit; its recording is in {folder}." for folder in children.killed]
    for folder in sorted({one.folder for one in children.results}):
        ranks = [one for one in children.results if one.folder == folder]
        first = ranks[0]
        others = f" of rank {first.rank}" if len(ranks) > 1 else ""
        problem = next((one.problem for one in ranks if one.problem), None)
        lines.append(
            f"no recording could be written: {problem}."
            if problem
            else f"recorded {first.recorded_steps} of {first.steps} steps{others} in {folder}. {first.note}".strip()
        )
        if not problem and (loss := next((one.loss for one in ranks if one.loss), None)):
            lines.append(loss_line(loss))
    return lines


def loss_line(loss: str) -> str:
    """Say that a part of a capture is missing, and why."""
    return f"a part of the capture could not be written: {loss}."


def _new_line(descriptor: int) -> str:
    """Characters that move to the start of a line.

    A terminal does not tell its column. As many spaces as it has columns, and then a carriage return, end at the start
    of a line: of the same line if that was empty, else of the next one.
    """
    if os.isatty(descriptor):
        columns = 0 if os.environ.get("TERM", "dumb") == "dumb" else os.get_terminal_size(descriptor).columns
        return " " * columns + "\r" if columns else "\n"
    return "" if _is_at_line_start(descriptor) else "\n"


def _is_at_line_start(descriptor: int) -> bool:
    """Whether what was written last ended a line; of a pipe it is not known, and taken to be so."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return True
    place = os.lseek(descriptor, 0, os.SEEK_CUR)
    if place == 0:
        return True
    with suppress(OSError), open(f"/proc/self/fd/{descriptor}", "rb") as file:  # noqa: PTH123  # the one we write to
        file.seek(place - 1)
        return file.read(1) in (b"\n", b"")
    return True
