"""``stacks.<rank>.jsonl``: samples of the training thread's Python stack over the whole run.

``loader_stacks.<rank>.jsonl`` has the same form: samples of loader workers while they make batches.
The first line is the header. A line of a frame is followed by lines of stacks that refer to it: frames are numbered
from 0 in their order. Then a line counts the samples whose stacks were not kept, and one for each function of the user
tells the names that it calls at one place only. Fields are those of
:mod:`~traceadvisor.model.samples`. Last come lines of single samples in order of time: each sample has microseconds
since the sample before, the place of its stack among those above, the time that it stands for, and CPU time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import msgspec

from traceadvisor.bundle.layout import Private
from traceadvisor.model.health import HealthNote
from traceadvisor.model.run import StepState
from traceadvisor.model.samples import (
    OnlyCall,
    Sampled,
    SampledFrame,
    SampledStack,
    StackSamples,
    Tallies,
    TimedSample,
)
from traceadvisor.text.cleaning import clean

STACKS_FORMAT = "traceadvisor.stacks/1"

MOST_FRAMES = 20_000
MOST_STACKS = 8_000
MOST_CALLS = 20_000
MOST_DEPTH = 200
"""Frames of one stack."""

LONGEST_TEXT = 400
"""Characters of a file or function."""

LARGEST_STACKS_BYTES = 1 << 25
"""Larger than the largest file that a capture writes, which is 30 MB."""

LONGEST_LINE = 1 << 14
SAMPLES_PER_LINE = 200
MOST_TIMED = 1 << 20
MOST_NS = 1 << 62

OUTSIDE = "outside"
"""Stands for samples outside all steps."""

_KEYS = {state: OUTSIDE if state is None else state.value for state in (None, *StepState)}
_STATES = {key: state for state, key in _KEYS.items()}

_Written = Mapping[str, tuple[int, int]]
"""Time in nanoseconds and number of samples by state."""


class _Header(msgspec.Struct, frozen=True, tag_field="record", tag="header"):
    format: str
    squares_ns2: float
    late_ns: int
    late_by_ns: int
    cpu_ns: int


class _Frame(msgspec.Struct, frozen=True, tag_field="record", tag="frame"):
    function: Annotated[str, Private.NAME]
    file: Annotated[str | None, Private.FILE]
    line: int | None
    user: bool


class _Stack(msgspec.Struct, frozen=True, tag_field="record", tag="stack"):
    frames: tuple[int, ...]
    samples: _Written
    fetching: bool = False
    waiting: bool = False
    beside: bool = False


class _Other(msgspec.Struct, frozen=True, tag_field="record", tag="other"):
    samples: _Written


class _Call(msgspec.Struct, frozen=True, tag_field="record", tag="call"):
    file: Annotated[str, Private.FILE]
    function: Annotated[str, Private.NAME]
    first_line: int
    last_line: int
    name: Annotated[str, Private.NAME]
    line: int
    has_calls_outside_loops: bool = False
    has_fixed_arguments: bool = False


class _Times(msgspec.Struct, frozen=True, tag_field="record", tag="times"):
    start_ns: int
    """Steady clock of the first sample."""

    samples: tuple[tuple[int, int, int, int], ...]


StackRecord = _Header | _Frame | _Stack | _Other | _Call | _Times
_DECODER = msgspec.json.Decoder(StackRecord)


def decode_record(line: bytes) -> StackRecord:
    """The record in a line, with known states only.

    Raises:
        ValueError: a capture does not write such a line (msgspec's errors are ValueErrors).
    """
    try:
        record: StackRecord = _DECODER.decode(line)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if isinstance(record, _Header) and record.format != STACKS_FORMAT:
        raise ValueError("no header of this format")
    if isinstance(record, _Stack | _Other):
        known = {key: one for key, one in record.samples.items() if key in _STATES}
        return msgspec.structs.replace(record, samples=known)
    return record


def is_frame(line: bytes) -> bool:
    """Whether a line that holds no record was that of a frame: it keeps its number."""
    return b'"frame"' in line[:40]


def write_stacks(path: Path, samples: StackSamples) -> None:
    """Write a file of samples."""
    with path.open("wb") as file:
        file.writelines(msgspec.json.encode(record) + b"\n" for record in _records(samples))


def _records(samples: StackSamples) -> Iterator[StackRecord]:
    yield _Header(STACKS_FORMAT, samples.squares_ns2, samples.late_ns, samples.late_by_ns, samples.cpu_ns)
    for frame in samples.frames:
        yield _Frame(_cleaned(frame.function), _cleaned(frame.file or "") or None, frame.line, frame.is_user)
    for stack in samples.stacks:
        yield _Stack(stack.frames, _written(stack.by_state), stack.is_fetching, stack.is_waiting, stack.is_beside)
    yield _Other(_written(samples.other))
    for call in samples.only_calls[:MOST_CALLS]:
        texts = {name: _cleaned(getattr(call, name)) for name in ("file", "function", "name")}
        yield msgspec.convert(asdict(call) | texts, _Call)
    for first in range(0, len(samples.timed), SAMPLES_PER_LINE):
        yield _times(samples.timed[first : first + SAMPLES_PER_LINE])


def _times(timed: Sequence[TimedSample]) -> _Times:
    start_us = last_us = timed[0].at_ns // 1000
    rows: list[tuple[int, int, int, int]] = []
    for one in timed:
        at_us = one.at_ns // 1000
        rows.append((at_us - last_us, one.stack, one.time_ns // 1000, one.cpu_ns // 1000))
        last_us = at_us
    return _Times(start_us * 1000, tuple(rows))


def _timed(record: _Times, stacks: int) -> Iterator[TimedSample]:
    """The single samples of a line; raises ValueError for impossible ones."""
    at_ns = record.start_ns
    for passed_us, stack, *times_us in record.samples:
        at_ns += passed_us * 1000
        time_ns, cpu_ns = (1000 * one for one in times_us)
        if not (-1 <= stack < stacks and all(0 <= one < MOST_NS for one in (at_ns, passed_us, time_ns, cpu_ns))):
            raise ValueError("an impossible sample")
        yield TimedSample(at_ns, stack, time_ns, cpu_ns)


_cleaned = lru_cache(maxsize=1 << 12)(clean)
"""Stacks are written again and again while a script runs."""


def _written(tallies: Tallies) -> _Written:
    return {_KEYS[state]: (one.time_ns, one.count) for state, one in tallies.items()}


def read_stacks(path: Path) -> tuple[StackSamples | None, tuple[HealthNote, ...]]:
    """Read the samples, and notes on what could not be read; None if nothing could."""
    read = _Reading()
    try:
        if path.stat().st_size > LARGEST_STACKS_BYTES:
            message = f"{path.name} was not read: it is larger than a capture writes it."
            return None, (HealthNote("stacks-too-large", message, degrades=False),)
        with path.open("rb") as file:
            for line in iter(lambda: file.readline(LONGEST_LINE), b""):
                read.line(line)
    except OSError as error:
        message = f"{path.name} could not be read: {error.strerror}."
        return read.samples(), (HealthNote("stacks-dropped", message, degrades=False),)
    message = f"{read.broken} of {read.lines} lines of {path.name} could not be read."
    notes = (HealthNote("stacks-dropped", message, degrades=False),) if read.broken else ()
    return read.samples(), notes


@dataclass(slots=True)
class _Reading:
    """Content of the lines so far."""

    header: _Header | None = None
    frames: list[SampledFrame | None] = field(default_factory=list)
    """None for an impossible one, so that those after it keep their numbers."""

    stacks: list[SampledStack] = field(default_factory=list)
    other: Tallies = field(default_factory=dict)
    calls: list[OnlyCall] = field(default_factory=list)
    timed: list[TimedSample] = field(default_factory=list)
    lines: int = 0
    broken: int = 0

    def line(self, line: bytes) -> None:
        """Take a line; one that a capture does not write is counted."""
        self.lines += 1
        try:
            self._take(decode_record(line))
        except ValueError:
            self.broken += 1
            if is_frame(line):
                self.frames.append(None)

    def _take(self, record: StackRecord) -> None:
        match record:
            case _Header():
                if self.header or not all(0 <= one < MOST_NS**2 for one in _figures(record)):
                    raise ValueError("an impossible header")
                self.header = record
            case _Frame():
                possible = record.line is None or 0 <= record.line < MOST_NS
                if not possible or len(self.frames) >= MOST_FRAMES:
                    raise ValueError("an impossible frame")
                file = record.file and record.file[:LONGEST_TEXT]
                self.frames.append(SampledFrame(record.function[:LONGEST_TEXT], file, record.line, record.user))
            case _Stack():
                self._take_stack(record)
            case _Other():
                self.other = _read(record.samples)
            case _Call():
                self.calls.append(_only_call(record))
            case _Times():
                self.timed += _timed(record, len(self.stacks)) if len(self.timed) < MOST_TIMED else ()

    def _take_stack(self, record: _Stack) -> None:
        if len(record.frames) > MOST_DEPTH or len(self.stacks) >= MOST_STACKS:
            raise ValueError("an impossible stack")
        if any(not 0 <= place < len(self.frames) or self.frames[place] is None for place in record.frames):
            raise ValueError("a stack with an unknown frame")
        tallies = _read(record.samples)
        self.stacks.append(SampledStack(record.frames, tallies, record.fetching, record.waiting, record.beside))

    def samples(self) -> StackSamples | None:
        """The samples; None without a header or without samples."""
        if self.header is None:
            return None
        frames = tuple(frame or SampledFrame("") for frame in self.frames)
        figures = _figures(self.header)
        timed = () if self.broken else tuple(self.timed)  # they name stacks by place
        found = StackSamples(frames, tuple(self.stacks), self.other, *figures, tuple(self.calls), timed)
        return found if found.time_ns else None


def _figures(header: _Header) -> tuple[float, int, int, int]:
    return header.squares_ns2, header.late_ns, header.late_by_ns, header.cpu_ns


def _only_call(record: _Call) -> OnlyCall:
    """The call; raises ValueError for an impossible one."""
    if not 0 <= record.first_line <= record.line <= record.last_line < MOST_NS:
        raise ValueError("an impossible call")
    return msgspec.convert(msgspec.structs.asdict(record), OnlyCall)


def _read(written: _Written) -> Tallies:
    """The tallies; raises ValueError for impossible ones."""
    if any(not (0 <= time_ns < MOST_NS and 0 <= count < MOST_NS) for time_ns, count in written.values()):
        raise ValueError("an impossible time")
    return {_STATES[key]: Sampled(*one) for key, one in written.items()}
