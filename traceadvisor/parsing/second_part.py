"""Read the second part of a large trace file in another process while this one reads the first.

Both read the file from its start and cut it into the same windows, but the other process only skips those of the first
part, which takes a tenth of the time. What it read counts if it began where this one stopped, with nothing malformed
before. Otherwise this process reads on by itself, so that the result never depends on the other one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from traceadvisor.model.limits import Limits
from traceadvisor.parsing.columns.events import Columns
from traceadvisor.parsing.exceeded_limits import ExceededLimit
from traceadvisor.parsing.input_bytes import ByteStream, open_bytes
from traceadvisor.parsing.json.windows import ReadSummary, WindowReader
from traceadvisor.system.executor import Aside, Tell

FIRST_SHARE = 0.55
"""Share of the file in the first part: the other process has to start, to skip, and to send what it read."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of a file after some bytes of it."""

    path: Path
    state: tuple[int, ...]
    position: int
    limits: Limits
    details: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """What was read of a part, up to the end of the file."""

    place: int
    columns: Columns
    summary: ReadSummary
    is_damaged: bool
    excess: ExceededLimit | None


class SecondPart:
    """The part that another process reads."""

    def __init__(self, position: int, aside: Aside[_Read | None]) -> None:
        self._position = position
        self._aside: Aside[_Read | None] | None = aside

    def ends(self, reader: WindowReader, stream: ByteStream, columns: Columns) -> bool:
        """Add the second part if the first has been read; False if it has not, or if the reader must read on."""
        if self._aside is None or stream.file_position < self._position:
            return False
        aside, self._aside, place = self._aside, None, reader.place
        read = aside.outcome() if place is not None else None
        if not isinstance(read, _Read) or read.place != place:
            return False
        columns.move(read.columns)
        reader.end_with(read.summary)
        stream.end_with(is_damaged=read.is_damaged, excess=read.excess)
        return True


@contextmanager
def second_part(path: Path, stream: ByteStream, limits: Limits, *, details: bool) -> Iterator[SecondPart]:
    """Start to read the second part of a file that was just opened."""
    *_, size, _ = stream.file_state
    part = _Part(path, stream.file_state, int(size * FIRST_SHARE), limits, details)
    with Aside(_read, part) as aside:
        yield SecondPart(part.position, aside)


def _read(part: _Part, _: Tell) -> _Read | None:
    columns = Columns(part.limits.text_length, details=part.details)
    with open_bytes(part.path, part.limits) as stream:
        reader = WindowReader(stream, limits=part.limits, details=part.details)
        place = reader.skip(part.position) if stream.file_state == part.state else None
        if place is None:
            return None
        for window in reader.windows():
            columns.add(window)
        return _Read(place, columns, reader.summary, stream.damaged, stream.excess)
