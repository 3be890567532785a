"""Rows of figures, in the order they stand in a file, to series in the order of time.

The lines of a telemetry file, one JSON object each.
"""

from __future__ import annotations

import json
import stat
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from traceadvisor.errors import InputError
from traceadvisor.model.arrays import Float64, Int64, Mask
from traceadvisor.model.telemetry import Series

GAP_INTERVALS = 5
"""A step between samples this many intervals long is a gap ..."""

SHORTEST_GAP_NS = 1_000_000_000
"""... if it is no shorter than this: a busy interpreter holds up a thread for a while."""

_LARGEST = 1e18
"""An exabyte: no figure comes near it, and sums of those below it cannot overflow."""


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """The times of all samples of a file, and which of them can be believed."""

    time_ns: Int64
    """As recorded; shape ``(samples,)``."""

    stray: Mask
    """Far off while those on either side go together: left out."""

    uncertain: Mask
    """Where the clock went back, what was sampled twice by it: without figures."""

    gaps_ns: Int64
    """A moment within each gap, ascending."""

    gap_total_ns: int

    @classmethod
    def of(cls, time_ns: Int64, interval_ns: Float64) -> Clock:
        """Judge the times; ``interval_ns`` is how long after each sample the next one was due, NaN where not known."""
        stray = _strays(time_ns)
        kept = np.flatnonzero(~stray)
        uncertain = np.zeros(time_ns.size, dtype=np.bool_)
        uncertain[kept] = _out_of_order(time_ns[kept])
        order = kept[np.argsort(time_ns[kept], kind="stable")]
        steps_ns = np.diff(time_ns[order])
        due_ns = interval_ns[order][:-1]
        if steps_ns.size:
            due_ns = np.where(np.isfinite(due_ns), due_ns, np.median(steps_ns))
        gaps = np.flatnonzero(steps_ns > np.maximum(due_ns * GAP_INTERVALS, SHORTEST_GAP_NS))
        moments_ns = time_ns[order][gaps] + steps_ns[gaps] // 2
        return cls(time_ns, stray, uncertain, moments_ns, int(steps_ns[gaps].sum()))

    @property
    def span_ns(self) -> int:
        """From the first believable time to the last."""
        kept = self.time_ns[~self.stray]
        return int(kept.max() - kept.min()) if kept.size else 0


class Rows:
    """Figures of one thing: a row for each sample that holds it."""

    def __init__(self, names: Iterable[str]) -> None:
        self._sample = array("q")
        self._columns = {str(name): array("d") for name in names}

    def __len__(self) -> int:
        return len(self._sample)

    def add(self, sample: int, figures: Mapping[str, object]) -> None:
        """Add the row of one sample, which is given by its place in the file; what is no figure becomes NaN."""
        self._sample.append(sample)
        for name, column in self._columns.items():
            column.append(number(figures.get(name)))

    def series(self, clock: Clock) -> Series:
        """The rows by time, with a row of NaN between two that have gaps between them, however many."""
        samples = np.array(self._sample, dtype=np.int64)
        samples = samples[~clock.stray[samples]]
        rows = np.flatnonzero(~clock.stray[np.array(self._sample, dtype=np.int64)])
        order = np.argsort(clock.time_ns[samples], kind="stable")
        time_ns = clock.time_ns[samples][order]
        gaps_before = np.searchsorted(clock.gaps_ns, time_ns)
        places = 1 + np.flatnonzero(np.diff(gaps_before))
        gaps_ns = clock.gaps_ns[gaps_before[places - 1]]
        uncertain = clock.uncertain[samples][order]
        figures: dict[str, Float64] = {}
        for name, column in self._columns.items():
            values = np.array(column, dtype=np.float64)[rows][order]
            values[uncertain] = np.nan
            figures[name] = np.insert(values, places, np.nan)
        return Series(np.insert(time_ns, places, gaps_ns), figures)


def number(value: object) -> float:
    """A figure as it stands in a file; NaN for null, for what is no number, and for what no figure can be."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _LARGEST:
        return float(value)
    return float("nan")


def _strays(time_ns: Int64) -> Mask:
    """Times out of order with both neighbours, which are in order with one another."""
    stray = np.zeros(time_ns.size, dtype=np.bool_)
    if time_ns.size >= 3:
        before, middle, after = time_ns[:-2], time_ns[1:-1], time_ns[2:]
        stray[1:-1] = (before <= after) & ((middle < before) | (middle > after))
    return stray


def _out_of_order(time_ns: Int64) -> Mask:
    """Times later than one that follows, or earlier than one that precedes."""
    if not time_ns.size:
        return np.zeros(0, dtype=np.bool_)
    latest_before = np.maximum.accumulate(time_ns)
    earliest_after = np.minimum.accumulate(time_ns[::-1])[::-1]
    return np.asarray((time_ns < latest_before) | (time_ns > earliest_after))


LONGEST_LINE_BYTES = 1 << 20
LARGEST_FILE_BYTES = 1 << 30

EXPECTED = "telemetry as a capture writes it (telemetry.<host>.jsonl)"
REMEDY = "Give the folder that `traceadvisor capture` wrote, or capture the run again."


@dataclass(slots=True)
class Lines:
    """Reads a file's objects, and counts what is none."""

    path: Path
    dropped: int = 0
    """Lines that are no JSON object."""

    truncated: bool = False
    """The file ends in the middle of a line."""

    cut: bool = False
    """The file is larger than is read."""

    def __iter__(self) -> Iterator[dict[str, object]]:
        """The objects in the order of the file.

        Raises:
            InputError: the file is missing, not a regular file, unreadable or empty.
        """
        try:
            status = self.path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise InputError(self.path, "is not a regular file", expected=EXPECTED, remedy=REMEDY)
            if status.st_size == 0:
                raise InputError(self.path, "the file is empty", expected=EXPECTED, remedy=REMEDY)
            with self.path.open("rb") as file:
                yield from self._objects(file)
        except OSError as error:
            found = f"cannot be read ({error.strerror or error})"
            raise InputError(self.path, found, expected=EXPECTED, remedy=REMEDY) from error

    def _objects(self, file: BinaryIO) -> Iterator[dict[str, object]]:
        while line := file.readline(LONGEST_LINE_BYTES):
            whole = line.endswith(b"\n")
            found = decode(line) if whole or len(line) < LONGEST_LINE_BYTES else None
            if found is not None:
                yield found
            elif whole or len(line) == LONGEST_LINE_BYTES:
                self.dropped += bool(line.strip())
                _skip_to_line_end(file, line)
            else:
                self.truncated = True
            if file.tell() > LARGEST_FILE_BYTES:
                self.cut = True
                return


def decode(line: bytes) -> dict[str, object] | None:
    """The object that a line holds; a bare ``NaN`` or ``Infinity`` in it is null. None where there is none."""
    try:
        found = msgspec.json.decode(line)
    except (ValueError, RecursionError):  # msgspec's own error and that of bytes that are no UTF-8
        try:
            found = json.loads(line.decode(errors="replace"), parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def _skip_to_line_end(file: BinaryIO, line: bytes) -> None:
    while line and not line.endswith(b"\n"):
        line = file.readline(LONGEST_LINE_BYTES)
