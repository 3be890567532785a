"""``steps.<rank>.csv``: every step of a run, recorded or not.

The columns are the fields of :class:`~traceadvisor.model.run.TimedStep`, in their order; ``index`` is called ``step``.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from io import StringIO
from itertools import accumulate, chain, groupby, islice, repeat
from operator import add, attrgetter, sub
from pathlib import Path
from typing import Any, TextIO, TypeAlias, TypeVar

import msgspec

from traceadvisor.bundle.packed_columns import Packed, packed, unpacked
from traceadvisor.model.health import HealthNote
from traceadvisor.model.loop_starts import ends_with_start
from traceadvisor.model.run import StepState, TimedStep

T = TypeVar("T")

Times: TypeAlias = tuple[int, int, int]
"""Steady clock at the start and at the end of a step, and the time in the loader in between."""

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
_WIDTH = len(_FIELDS)
_values = attrgetter(*_FIELDS)
_CLOCK, _WALL, _DURATION, _STATE = map(_FIELDS.index, ("clock_ns", "start_ns", "duration_ns", "state"))
_ASCENDING = _FIELDS.index("index"), _CLOCK
_STATES = tuple(StepState)
_STATE_NUMBERS = {state: number for number, state in enumerate(_STATES)}
_COLUMNS = tuple("step" if name == "index" else name for name in _FIELDS)


SHORT_STEP_NS = 3_000_000
"""Mean step below which samplers of this process take turns with it less often. To hand over the interpreter for a
sample takes the training thread 0.1 to 0.2 ms of CPU time."""

RECENT_STEPS = 50
"""Steps whose mean counts."""

BLOCK_STEPS = 512
"""Steps that are packed at once."""

_BLOCK_VALUES = BLOCK_STEPS * _WIDTH


class StepLog:
    """Collects the steps of a run in 11 to 16 bytes each: a run may take millions.

    One thread may add steps while another encodes earlier ones.
    """

    header = f"{','.join(_COLUMNS)}\n".encode()
    """First line of the file."""

    def __init__(self) -> None:
        self._count = 0
        self._packed: list[Packed] = []
        """Blocks of :data:`BLOCK_STEPS` steps."""
        self._latest: list[Any] = []
        """The values of the steps after these, one after another."""
        self._known: tuple[int, int, Columns] | None = None
        """Number of the block that was packed or read last, and its columns as they are after so many changes."""
        self._rejected: list[range] = []
        """Steps that proved to be no training steps: marked, since to pack them again would hold up the training."""
        self.is_replacing = False
        """Whether earlier steps changed: a file that has them must be written anew."""
        self.changes = 0
        """Number of changes of earlier steps."""

    def add(self, step: TimedStep) -> None:
        """Add a step at its end."""
        self._extend(_values(step))

    def add_like(self, step: TimedStep, times: Sequence[Times]) -> TimedStep:
        """Add steps after a step, each like it but for its times; returns the last one."""
        starts_ns, ends_ns, loaders_ns = zip(*times, strict=True)
        changed: dict[str, Iterable[Any]] = {
            "index": range(step.index + 1, step.index + 1 + len(times)),
            "start_ns": map(add, starts_ns, repeat(step.start_ns - (step.clock_ns or 0))),
            "duration_ns": map(max, map(sub, ends_ns, starts_ns), repeat(1)),
            "loader_ns": loaders_ns,
            "clock_ns": starts_ns,
        }
        columns = (changed.get(name, repeat(getattr(step, name))) for name in _FIELDS)
        rows = zip(*columns, strict=False)
        while part := tuple(islice(rows, BLOCK_STEPS - len(self._latest) // _WIDTH)):
            self._extend(tuple(chain.from_iterable(part)))
            step = TimedStep(*part[-1])
        return step

    def _extend(self, values: Sequence[Any]) -> None:
        """Add the values of steps that the latest block has room for."""
        self._latest.extend(values)
        self._count += len(values) // _WIDTH
        if len(self._latest) == _BLOCK_VALUES:
            number = len(self._packed)
            self._known = number, self.changes, self._marked(number, _columns(self._latest))
            self._packed.append(_pack(self._known[2]))
            self._latest = []

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[TimedStep]:
        for columns in self._parts(0, len(self)):
            yield from map(TimedStep, *columns)

    def clock_ns(self, place: int) -> int:
        """Steady clock at the start of a step."""
        clock_ns: int = self._value(place, _CLOCK)
        return clock_ns

    def end_clock_ns(self, place: int) -> int:
        """Steady clock at the end of a step."""
        end_ns: int = self._value(place, _CLOCK) + self._value(place, _DURATION)
        return end_ns

    @property
    def has_short_steps(self) -> bool:
        """Whether the latest steps are so short that samples at the usual interval would take a part of them."""
        end = len(self)
        first = max(end - RECENT_STEPS, 0)
        return end > 0 and self.end_clock_ns(end - 1) - self.clock_ns(first) < (end - first) * SHORT_STEP_NS

    def state(self, place: int) -> StepState:
        """The state of a step."""
        state: StepState = self._value(place, _STATE)
        return StepState.OTHER if self.is_rejected(place) else state

    def is_rejected(self, place: int) -> bool:
        """Whether a step proved to be no training step."""
        return any(place in one for one in self._rejected)

    def count(self, state: StepState) -> int:
        """Count the steps in one state."""
        return sum(columns[_STATE].count(state) for columns in self._parts(0, len(self)))

    def undisturbed_ns(self) -> dict[int, int]:
        """Undisturbed steps without their time in the loader, by their number among the training steps.

        Without those at whose end the next loop over the loader starts.
        """
        trained, broken = [step for step in self if step.state is not StepState.OTHER], ends_with_start(self)
        return {
            number: _without_loader_ns(step)
            for number, step in enumerate(trained)
            if step.state is StepState.PLAIN and step.index not in broken
        }

    def reject(self, first: int) -> None:
        """The steps from a place on proved to be no training steps."""
        if first < len(self):
            self._rejected = [one for one in self._rejected if one.start < first] + [range(first, len(self))]
            self._note_change()

    def count_last(self, count: int) -> None:
        """The last so many steps after a pause of the profiler are recorded ones: the script ended after them."""
        settling = (place for place in reversed(range(len(self))) if self.state(place) is StepState.SETTLING)
        if last := tuple(islice(settling, count)):
            self._change(last, StepState.RECORDED)
            self._note_change()

    def encoded(self, first: int, end: int) -> bytes:
        """The lines of the steps from ``first`` up to, not including, ``end``."""
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        for columns in self._parts(first, end):
            states = [state.value for state in columns[_STATE]]
            writer.writerows(zip(*columns[:_STATE], states, *columns[_STATE + 1 :], strict=True))
        return text.getvalue().encode("ascii")

    def _change(self, places: Sequence[int], state: StepState) -> None:
        by_block = groupby(sorted(places), lambda place: place // BLOCK_STEPS)
        for number, own in by_block:
            columns = [list(column) for column in self._block(number)]
            for place in own:
                columns[_STATE][place % BLOCK_STEPS] = state
            if number < len(self._packed):
                self._packed[number] = _pack(columns)
            else:
                self._latest = list(chain.from_iterable(zip(*columns, strict=True)))

    def _note_change(self) -> None:
        self.is_replacing = True
        self.changes += 1

    def _parts(self, first: int, end: int) -> Iterator[Columns]:
        """The columns of the steps from ``first`` up to, not including, ``end``, in blocks."""
        for number in range(first // BLOCK_STEPS, -(-end // BLOCK_STEPS)):
            begin = number * BLOCK_STEPS
            yield [column[max(first - begin, 0) : end - begin] for column in self._block(number)]

    def _block(self, number: int) -> Columns:
        latest, changes = self._latest, self.changes  # before the look at what is packed: another thread may add steps
        if number == len(self._packed):
            return self._marked(number, _columns(latest))
        if (known := self._known) is None or known[:2] != (number, changes):
            known = self._known = number, changes, self._marked(number, _unpack(self._packed[number]))
        return known[2]

    def _marked(self, number: int, columns: Columns) -> Columns:
        """Return the columns of a block with its rejected steps."""
        begin, states = number * BLOCK_STEPS, columns[_STATE]
        for rejected in self._rejected:
            first, end = (min(max(place - begin, 0), len(states)) for place in (rejected.start, rejected.stop))
            states[first:end] = [StepState.OTHER] * (end - first)
        return columns

    def _value(self, place: int, column: int) -> Any:
        number, at = divmod(place, BLOCK_STEPS)
        latest = self._latest
        return latest[at * _WIDTH + column] if number == len(self._packed) else self._block(number)[column][at]


Columns: TypeAlias = list[list[Any]]
"""The values of some steps by field."""


def _columns(values: list[Any]) -> Columns:
    return [values[at : len(values) // _WIDTH * _WIDTH : _WIDTH] for at in range(_WIDTH)]


def _pack(columns: Columns) -> Packed:
    numbers = columns.copy()
    numbers[_STATE] = list(map(_STATE_NUMBERS.get, columns[_STATE]))
    numbers[_WALL] = list(map(sub, columns[_WALL], columns[_CLOCK]))  # both clocks run alike
    for column in _ASCENDING:
        numbers[column] = [columns[column][0], *map(sub, columns[column][1:], columns[column])]
    return packed(numbers)


def _unpack(content: Packed) -> Columns:
    columns: Columns = [*unpacked(content, BLOCK_STEPS)]
    columns[_STATE] = [_STATES[number] for number in columns[_STATE]]
    for column in _ASCENDING:
        columns[column] = list(accumulate(columns[column]))
    columns[_WALL] = list(map(add, columns[_WALL], columns[_CLOCK]))
    return columns


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


def _without_loader_ns(step: TimedStep) -> int:
    """The step without its time in the loader; a start of the loop that is longer lies in the step before."""
    rest_ns, start_ns = step.duration_ns - step.loader_ns, step.loader_start_ns or 0
    return rest_ns - start_ns if start_ns <= rest_ns else rest_ns
