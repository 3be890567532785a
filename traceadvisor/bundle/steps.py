"""``steps.<rank>.csv``: every step of a run, recorded or not.

The columns are the fields of :class:`~traceadvisor.model.run.TimedStep`, in their order; ``index`` is called ``step``.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from dataclasses import fields
from io import StringIO
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, TextIO, TypeVar

import msgspec

from traceadvisor.model.health import HealthNote
from traceadvisor.model.run import StepState, TimedStep

T = TypeVar("T")

MOST_STEPS = 10_000_000
LARGEST_STEPS_BYTES = 1 << 30
LONGEST_LINE = 1 << 12
"""In characters; longer lines are cut into pieces, which hold no step."""

MOST_COLUMNS = 64
"""Each row takes time for all columns, also for those that it lacks."""

LONGEST_STEP_NS = 10**15
"""Eleven days."""

MOST = 1 << 62
"""For counts and for nanoseconds since the epoch (the year 2116): the sum of two still fits 64 bits."""

_FIELDS = tuple(field.name for field in fields(TimedStep))
_values = attrgetter(*_FIELDS)
_COLUMNS = tuple("step" if name == "index" else name for name in _FIELDS)


SHORT_STEP_NS = 3_000_000
"""Mean step below which samplers of this process take turns with it less often. To hand over the interpreter for a
sample takes the training thread 0.1 to 0.2 ms of CPU time."""

RECENT_STEPS = 50
"""Steps whose mean counts."""


class StepLog:
    """Collects the steps of a run in 72 bytes each: a run may take millions.

    One thread may add steps while another encodes earlier ones.
    """

    header = f"{','.join(_COLUMNS)}\n".encode()
    """First line of the file."""

    def __init__(self) -> None:
        self._columns: dict[str, MutableSequence[Any]] = {
            name: [] if name == "state" else array("q") for name in _FIELDS
        }
        self._appends = [column.append for column in self._columns.values()]
        self.is_replacing = False
        """Whether earlier steps changed: a file that has them must be written anew."""
        self.changes = 0
        """Number of changes of earlier steps."""

    def add(self, step: TimedStep) -> None:
        """Add a step at its end."""
        for append, value in zip(self._appends, _values(step), strict=True):
            append(value)

    def __len__(self) -> int:
        return len(self._columns[_FIELDS[-1]])  # the last to get a new step

    def __iter__(self) -> Iterator[TimedStep]:
        for row in zip(*self._columns.values(), strict=True):
            yield TimedStep(*row)

    def clock_ns(self, place: int) -> int:
        """Steady clock at the start of a step."""
        clock_ns: int = self._columns["clock_ns"][place]
        return clock_ns

    def end_clock_ns(self, place: int) -> int:
        """Steady clock at the end of a step."""
        end_ns: int = self.clock_ns(place) + self._columns["duration_ns"][place]
        return end_ns

    @property
    def has_short_steps(self) -> bool:
        """Whether the latest steps are so short that samples at the usual interval would take a part of them."""
        end = len(self)
        first = max(end - RECENT_STEPS, 0)
        return end > 0 and self.end_clock_ns(end - 1) - self.clock_ns(first) < (end - first) * SHORT_STEP_NS

    def state(self, place: int) -> StepState:
        """The state of a step."""
        state: StepState = self._columns["state"][place]
        return state

    def count(self, state: StepState) -> int:
        """Count the steps in one state."""
        return self._columns["state"].count(state)

    def undisturbed_ns(self) -> dict[int, int]:
        """Undisturbed steps without their time in the loader, by their number among the training steps."""
        columns = (self._columns[name] for name in ("state", "duration_ns", "loader_ns", "loader_start_ns"))
        trained = enumerate(row for row in zip(*columns, strict=True) if row[0] is not StepState.OTHER)
        return {number: row[1] - row[2] - row[3] for number, row in trained if row[0] is StepState.PLAIN}

    def reject(self, first: int) -> None:
        """The steps from a place on proved to be no training steps."""
        self._change(range(first, len(self)), StepState.OTHER)

    def count_last(self, count: int) -> None:
        """The last so many steps after a pause of the profiler are recorded ones: the script ended after them."""
        settling = (place for place in reversed(range(len(self))) if self.state(place) is StepState.SETTLING)
        self._change(tuple(islice(settling, count)), StepState.RECORDED)

    def _change(self, places: Sequence[int], state: StepState) -> None:
        for place in places:
            self._columns["state"][place] = state
        self.is_replacing |= bool(places)
        self.changes += bool(places)

    def encoded(self, first: int, end: int) -> bytes:
        """The lines of the steps from ``first`` up to, not including, ``end``."""
        columns = {name: column[first:end] for name, column in self._columns.items()}
        states = [state.value for state in columns["state"]]
        text = StringIO()
        csv.writer(text, lineterminator="\n").writerows(zip(*(columns | {"state": states}).values(), strict=True))
        return text.getvalue().encode("ascii")


def read_steps(path: Path) -> tuple[tuple[TimedStep, ...], tuple[HealthNote, ...]]:
    """Read the rows that hold a step; a note counts the others. A last line without its end is left out."""
    return read_rows(path, step_rows, "steps", LARGEST_STEPS_BYTES, "it is larger than the step times of any run")


def read_rows(
    path: Path, rows_of: Callable[[TextIO], Iterator[T | None]], kind: str, most_bytes: int, why: str
) -> tuple[tuple[T, ...], tuple[HealthNote, ...]]:
    """Read a file of rows; a note counts those that hold nothing possible, or says why a file is too large."""
    read: list[T] = []
    broken = 0
    try:
        if path.stat().st_size > most_bytes:
            return (), (HealthNote(f"{kind}-too-large", f"{path.name} was not read: {why}."),)
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            for row in rows_of(file):
                if row is None:
                    broken += 1
                else:
                    read.append(row)
    except (OSError, ValueError, csv.Error):
        broken += 1
    notes = (HealthNote(f"{kind}-dropped", f"{broken} rows of {path.name} could not be read."),) if broken else ()
    return tuple(read), notes


def step_rows(file: TextIO) -> Iterator[TimedStep | None]:
    """The step of each row; None for a row that holds no possible step.

    Raises:
        csv.Error: the rest cannot be read.
    """
    return converted_rows(file, TimedStep, _is_possible, MOST_STEPS)


def converted_rows(
    file: TextIO, kind: type[T], is_possible: Callable[[T], bool], most: int, *, may_be_longer: bool = False
) -> Iterator[T | None]:
    """The content of each row, up to a number of rows; None for a row that holds nothing possible.

    ``may_be_longer``: whether a row may have more columns than the header.
    """
    rows = csv.DictReader(whole_lines(file))
    rows.fieldnames = ["index" if name == "step" else name for name in (rows.fieldnames or ())[:MOST_COLUMNS]]
    for row in islice(rows, most):
        try:
            if may_be_longer:
                row.pop(None, None)  # the surplus
            found = msgspec.convert({name: text or None for name, text in row.items()}, kind, strict=False)
        except msgspec.ValidationError:
            yield None
        else:
            yield found if is_possible(found) else None


def whole_lines(file: TextIO) -> Iterator[str]:
    """The lines of a file in pieces of limited length, without a last one that has no end: a killed run left it."""
    piece = file.readline(LONGEST_LINE)
    while piece:
        following = file.readline(LONGEST_LINE)
        if following or piece.endswith("\n"):
            yield piece
        piece = following


def _is_possible(step: TimedStep) -> bool:
    known = (step.index, step.start_ns, step.loader_ns, step.fetches)
    counts = (*known, step.loader_start_ns or 0, step.clock_ns or 0, step.checkpoint_ns or 0)
    return 0 < step.duration_ns < LONGEST_STEP_NS and all(0 <= count < MOST for count in counts)
