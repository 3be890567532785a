"""Large traces to read: a real recording repeated, every time, id and step number moved on with each repetition.

    python -m benchmarks.workloads [--trace FILE] [--cache DIR]

A workload is written a repetition at a time and kept in the cache, so a gigabyte is made once. What a recording has
once it has once here as well: names of processes and threads, and the profiler's own span, which is stretched.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from tests.shared import NO_WORKERS, SHARED_TRACES
from traceadvisor.model.arrays import Int64

DEFAULT_TRACE = SHARED_TRACES / NO_WORKERS
DEFAULT_CACHE = Path(tempfile.gettempdir()) / "traceadvisor-benchmarks"

SMALL_BYTES = 100_000_000
"""Of JSON, at least: the small workload."""

LARGE_FACTOR = 10
"""The large workload is exactly this many times the small one, so that growth can be told."""

HUGE_FACTOR = 5
"""The huge workload is this many times the large one."""

GZIP_LEVEL = 9
"""As torch packs a trace."""

WRITER = b"1"
"""Changes with what is written, and with it the names in the cache."""

_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[\s*')
_BETWEEN = re.compile(r"\s*,\s*")
_TIME = r'"(?:ts|external ts)"\s*:\s*'
_ID = r'"(?:correlation|[Ee]xternal id|id|Sequence number)"\s*:\s*'
_STEP = "ProfilerStep#"
_MOVED = re.compile(rf"({_TIME}|{_ID}|{_STEP})(\d+)")
"""Numbers that differ between repetitions; the decimals of a time stay. Within a text these quotes are escaped."""


class Framing(Enum):
    """What stands around and between the events."""

    RECORDED = "recorded"
    """An object, with the line breaks and indentation of the recording itself."""

    ONE_LINE = "one-line"
    """An object without line breaks."""

    BARE_ARRAY = "bare-array"
    """The events alone, with the line breaks and indentation of the recording itself."""


@dataclass(frozen=True, slots=True)
class Template:
    """A recording taken apart, to be written any number of times over."""

    head: str
    repeated: tuple[str, ...]
    once: tuple[str, ...]
    between: str
    tail: str
    period_us: int
    """How far repetitions lie apart: none begins before the one before it has ended."""

    def event_count(self, repeats: int) -> int:
        """Members of ``traceEvents``."""
        return repeats * len(self.repeated) + len(self.once)

    def pieces(self, repeats: int) -> Iterator[bytes]:
        """The text of a workload, a repetition at a time."""
        yield self.head.encode()
        for number, repetition in enumerate(self._repetitions(repeats)):
            yield (self.between * (number > 0) + repetition).encode()
        for raw in self.once:
            yield (self.between + _stretched(raw, (repeats - 1) * self.period_us)).encode()
        yield self.tail.encode()

    def _repetitions(self, repeats: int) -> Iterator[str]:
        *parts, last = _MOVED.split(self.between.join(self.repeated))
        literals, keys, digits = parts[::3], parts[1::3], parts[2::3]
        numbers = np.array(digits, dtype=np.int64)
        strides = _strides(keys, numbers, self.period_us)
        for number in range(repeats):
            moved = map(str, (numbers + number * strides).tolist())
            yield "".join(piece for triple in zip(literals, keys, moved, strict=True) for piece in triple) + last


def _strides(keys: list[str], numbers: Int64, period_us: int) -> Int64:
    """By how much each number grows from one repetition to the next; an id of 0 is none and stays."""
    is_step = np.array([key == _STEP for key in keys])
    is_time = np.array([bool(re.match(_TIME, key)) for key in keys])
    is_id = ~is_step & ~is_time & (numbers > 0)
    steps, ids = numbers[is_step], numbers[is_id]
    step_stride = int(np.ptp(steps)) + 1 if steps.size else 0
    return np.select([is_step, is_time, is_id], [step_stride, period_us, ids.max(initial=0)])


def template(trace: Path, framing: Framing = Framing.RECORDED) -> Template:
    """Take a recording apart, gzipped or plain."""
    content = trace.read_bytes()
    content = gzip.decompress(content) if trace.suffix == ".gz" else content
    if framing is Framing.ONE_LINE:
        content = msgspec.json.format(content, indent=0)
    head, events, between, tail = _taken_apart(content.decode())
    if framing is Framing.BARE_ARRAY:
        head, tail = "[", "]"
    repeated = [(event, raw) for event, raw in events if not _is_once(event)]
    return Template(
        head,
        tuple(raw for _, raw in repeated),
        tuple(raw for event, raw in events if _is_once(event)),
        between,
        tail,
        _period_us([event for event, _ in repeated]),
    )


def _taken_apart(text: str) -> tuple[str, list[tuple[Mapping[str, Any], str]], str, str]:
    """What stands before the first event, the events decoded and raw, what stands between two, and behind the last."""
    start = _EVENTS.search(text)
    if not start:
        raise click.ClickException("The recording is no object with traceEvents.")
    events: list[tuple[Mapping[str, Any], str]] = []
    between, at, decode = ",", start.end(), json.JSONDecoder().raw_decode
    while True:
        event, end = decode(text, at)
        events.append((event, text[at:end]))
        comma = _BETWEEN.match(text, end)
        if not comma:
            return text[: start.end()], events, between, text[end:]
        between, at = comma.group(), comma.end()


def _is_once(event: Mapping[str, Any]) -> bool:
    """Whether a recording has such an event once: metadata, and marks of the recording as a whole."""
    marks = ("Iteration Start: PyTorch Profiler", "Record Window End")
    return event.get("ph") == "M" or event.get("cat") == "Trace" or event.get("name") in marks


def _period_us(events: list[Mapping[str, Any]]) -> int:
    timed = [event for event in events if "ts" in event]
    end = max(float(event["ts"]) + float(event.get("dur", 0)) for event in timed)
    return math.ceil(end - min(float(event["ts"]) for event in timed)) + 1


def _stretched(raw: str, by_us: int) -> str:
    """An event that is there once: the profiler's span goes on to the end, and so the mark of the end moves."""
    key = '"dur"' if '"dur"' in raw else '"ts"' if '"Record Window End"' in raw else None
    if key is None:
        return raw
    return re.sub(rf"({key}\s*:\s*)(\d+)", lambda match: f"{match[1]}{int(match[2]) + by_us}", raw)


def json_bytes(path: Path) -> int:
    """How long a trace is once unpacked: the last four bytes of a gzip file tell, up to 4 GB."""
    return int.from_bytes(path.read_bytes()[-4:], "little") if path.suffix == ".gz" else path.stat().st_size


def repeats_for(trace: Path, wanted_bytes: int) -> int:
    """How many repetitions of a recording make so many bytes of JSON, rounded up."""
    return math.ceil(wanted_bytes / json_bytes(trace))


def build(trace: Path, repeats: int, cache: Path, framing: Framing = Framing.RECORDED, *, packed: bool = True) -> Path:
    """The path of a workload, made unless the cache has it."""
    key = hashlib.sha256(trace.read_bytes() + WRITER).hexdigest()[:8]
    path = cache / f"{key}-{framing.value}-x{repeats}.pt.trace.json{'.gz' * packed}"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(path.name + ".unfinished")
        with gzip.open(unfinished, "wb", GZIP_LEVEL) if packed else unfinished.open("wb") as file:
            file.writelines(template(trace, framing).pieces(repeats))
        unfinished.replace(path)
    return path


@click.command()
@click.option("--trace", type=click.Path(path_type=Path, exists=True), default=DEFAULT_TRACE, show_default=True)
@click.option("--cache", type=click.Path(path_type=Path), default=DEFAULT_CACHE, show_default=True)
def main(trace: Path, cache: Path) -> None:
    """Make the workloads that the benchmarks read, and print where they lie."""
    repeats = repeats_for(trace, SMALL_BYTES)
    for framing in Framing:
        for packed in (True, False):
            click.echo(build(trace, repeats, cache, framing, packed=packed))
    click.echo(build(trace, repeats * LARGE_FACTOR, cache))


if __name__ == "__main__":
    main()
