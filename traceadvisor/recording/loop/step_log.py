"""Every step of a run, in 56 bytes each."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator
from enum import Enum
from io import StringIO
from pathlib import Path

from traceadvisor.bundle.layout import StepTime


class StepState(Enum):
    """What a row of ``steps.<rank>.csv`` says of a step; see :class:`traceadvisor.bundle.layout.StepTime`."""

    PLAIN = "plain"
    WARMUP = "warmup"
    SETTLING = "settling"
    RECORDED = "recorded"
    STALLED = "stalled"
    OTHER = "other"


class StepLog:
    """Rows are added at the end of each step and written once; a run may take millions."""

    def __init__(self) -> None:
        self._columns = tuple(array("q") for _ in range(6))
        self._states: list[StepState] = []

    def add(self, times: tuple[int, int, int, int, int, int], state: StepState) -> None:
        """Add a step: its number, start, duration, time in the loader, batches and time to begin its loop."""
        for column, value in zip(self._columns, times, strict=True):
            column.append(value)
        self._states.append(state)

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[StepTime]:
        for row in self._rows():
            yield StepTime(*row)

    def count(self, *states: StepState) -> int:
        """How many steps are in one of some states."""
        return sum(state in states for state in self._states)

    def write(self, path: Path) -> None:
        """Write ``steps.<rank>.csv``."""
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(StepTime.__struct_fields__)
        writer.writerows(self._rows())
        path.write_text(text.getvalue(), encoding="ascii")

    def _rows(self) -> Iterator[tuple[int, int, int, int, int, str, int]]:
        *before, loader_start = self._columns
        return zip(*before, (state.value for state in self._states), loader_start, strict=True)
