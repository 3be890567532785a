"""``batches.<rank>.csv``: clock reads around the loading of batches.

The columns are the fields of :class:`~traceadvisor.model.run.TimedBatch`, in their order. Unknown values are empty.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator
from dataclasses import fields
from io import StringIO
from operator import attrgetter
from pathlib import Path
from typing import TextIO

from traceadvisor.bundle.steps import LONGEST_STEP_NS, MOST, converted_rows, read_rows
from traceadvisor.model.health import HealthNote
from traceadvisor.model.run import TimedBatch

MOST_BATCHES = 100_000
"""Batches that a file holds: 7 MB in memory. Of a longer run it holds the first half and the latest half of these."""

LARGEST_BATCHES_BYTES = 1 << 26
MOST_WORKERS = 1 << 16

_FIELDS = tuple(field.name for field in fields(TimedBatch))
_UNKNOWN = -1


class BatchLog:
    """Collects the batches of one loader, in little time: the training thread waits for it.

    One thread may add batches while another encodes earlier ones.
    """

    header = f"{','.join(_FIELDS)}\n".encode()
    """First line of the file."""

    def __init__(self, most: int = MOST_BATCHES) -> None:
        self._most, self._count = most, 0
        self._values = array("q")
        """The fields of all batches, one batch after another."""

    def add(self, batch: tuple[int | None, ...]) -> None:
        """Add a batch: its fields in order. In a full log it replaces the oldest batch of the second half."""
        values = array("q", [_UNKNOWN if value is None else value for value in batch])
        if self._count < self._most:
            self._values.extend(values)
        else:
            half = self._most // 2
            place = (half + (self._count - half) % (self._most - half)) * len(_FIELDS)
            self._values[place : place + len(_FIELDS)] = values
        self._count += 1

    def __len__(self) -> int:
        return len(self._values) // len(_FIELDS)

    def __iter__(self) -> Iterator[TimedBatch]:
        """The batches by their start."""
        values = [None if value == _UNKNOWN else value for value in self._values]
        rows = zip(*(values[first :: len(_FIELDS)] for first in range(len(_FIELDS))), strict=True)
        return iter(sorted((TimedBatch(*row) for row in rows), key=attrgetter("start_ns")))

    @property
    def is_replacing(self) -> bool:
        """Whether newer batches have replaced some."""
        return self._count > self._most

    def encoded(self, first: int, end: int) -> bytes:
        """The lines of the batches from ``first`` up to, not including, ``end``, in the order of :meth:`add`."""
        width = len(_FIELDS)
        values = ["" if value == _UNKNOWN else value for value in self._values[first * width : end * width]]
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows(values[place : place + width] for place in range(0, len(values), width))
        return text.getvalue().encode("ascii")


def read_batches(path: Path) -> tuple[tuple[TimedBatch, ...], tuple[HealthNote, ...]]:
    """Read the rows that hold a batch, by their start; a note counts the others."""
    why = "it is larger than a capture writes it"
    batches, notes = read_rows(path, batch_rows, "batches", LARGEST_BATCHES_BYTES, why)
    return tuple(sorted(batches, key=attrgetter("start_ns"))), notes


def batch_rows(file: TextIO) -> Iterator[TimedBatch | None]:
    """The batch of each row; None for a row that holds no possible batch.

    Raises:
        csv.Error: the rest cannot be read.
    """
    return converted_rows(file, TimedBatch, _is_possible, 2 * MOST_BATCHES, may_be_longer=True)


def _is_possible(batch: TimedBatch) -> bool:
    fetch, collate = (batch.fetch_ns, batch.fetch_cpu_ns), (batch.collate_ns or 0, batch.collate_cpu_ns or 0)
    times = (*fetch, *collate, batch.core_wait_ns or 0, batch.process_cpu_ns, batch.threads_cpu_ns or 0)
    possible = all(0 <= time < LONGEST_STEP_NS for time in times) and 0 <= batch.start_ns < MOST
    return possible and 0 <= (batch.worker or 0) < MOST_WORKERS
