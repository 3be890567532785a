"""Read the second part of a large trace file in another process while this one reads the first.

Both read the file from its start and cut it into the same chunks, but the other process only skips those of the first
part, which takes a tenth of the time. What it read counts if it began where this one stopped, with nothing malformed
before. Otherwise this process reads on by itself, so that the result never depends on the other one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from traceadvisor.frozen import frozen
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.parsing.columns.events import Columns
from traceadvisor.parsing.exceeded_limits import ExceededLimit
from traceadvisor.parsing.input_bytes import ByteStream, open_bytes, state_of
from traceadvisor.parsing.json.chunks import ChunkReader, ReadSummary
from traceadvisor.system.executor import Aside

FIRST_SHARE = 0.53
"""Share of the file in the first part: the other process has to skip it, and to send what it read."""


@frozen
class _Part:
    """The part of a file after some bytes of it."""

    path: Path
    state: tuple[int, ...]
    position: int
    limits: Limits
    details: bool

    def __call__(self, _: object) -> _Read | None:
        """Read it, in the other process."""
        columns = Columns(self.limits.text_length, details=self.details)
        with open_bytes(self.path, self.limits) as stream:
            reader = ChunkReader(stream, limits=self.limits, details=self.details)
            place = reader.skip(self.position) if stream.file_state == self.state else None
            if place is None:
                return None
            for chunk in reader.chunks():
                columns.add(chunk)
                del chunk  # the next events take its place in memory
            return _Read(place, columns, reader.summary, stream.damaged, stream.excess)


@frozen(eq=False)
class _Read:
    """Content of a part, up to the end of the file."""

    place: int
    columns: Columns
    summary: ReadSummary
    is_damaged: bool
    excess: ExceededLimit | None


class SecondPart:
    """The second part of a file, which another process begins to read."""

    def __init__(self, path: Path, aside: Aside, limits: Limits = LIMITS, *, details: bool = True) -> None:
        """Begin to read it.

        ``details``: as :func:`~traceadvisor.parsing.trace_file.read_trace` takes them.
        """
        self.aside = aside
        """The other process; it can take more tasks."""

        self._state: tuple[int, ...] | None = None
        self._number: int | None = None
        with suppress(OSError):  # reading tells what is wrong with the file
            self._state = state_of(path.stat())
            *_, size, _ = self._state
            self._position = int(size * FIRST_SHARE)
            self._number = aside.begin(_Part(path, self._state, self._position, limits, details))

    def ends(self, reader: ChunkReader, stream: ByteStream, columns: Columns) -> bool:
        """Add the second part if the first has been read; False if it has not, or if the reader must read on."""
        if self._number is None or stream.file_position < self._position:
            return False
        number, self._number, place = self._number, None, reader.place
        read = self.aside.outcome(number) if place is not None and stream.file_state == self._state else None
        if not isinstance(read, _Read) or read.place != place:
            return False
        columns.move(read.columns)
        reader.end_with(read.summary)
        stream.end_with(is_damaged=read.is_damaged, excess=read.excess)
        return True


@contextmanager
def second_part(path: Path, limits: Limits) -> Iterator[SecondPart]:
    """The second part of a file, with all details. The other process ends with it."""
    with Aside() as aside:
        yield SecondPart(path, aside, limits)
