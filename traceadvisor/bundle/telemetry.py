"""Reads ``telemetry.<host>.jsonl`` in any state: truncated, damaged, or with a clock that went back.

:class:`~traceadvisor.bundle.layout.Sample` describes its lines.
"""

from __future__ import annotations

import json
import stat
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, get_type_hints

import msgspec
import numpy as np

from traceadvisor.bundle.layout import TELEMETRY_FORMAT, flag
from traceadvisor.errors import InputError
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64, Int64, Mask
from traceadvisor.model.health import HealthNote
from traceadvisor.model.telemetry import (
    DeviceColumn,
    DeviceTelemetry,
    NodeColumn,
    ProcessColumn,
    Series,
    Telemetry,
    WorkerColumn,
    WorkerTelemetry,
)

MOST_ROWS = 2_000_000
"""For all devices and processes together: some 250 MB of columns, or weeks of a run on eight devices."""

MOST_DEVICES = 256
MOST_HEADERS = 16
MOST_WORKERS = 4096
"""Different children over the run; a loader that restarts its workers each epoch has many."""

LONGEST_TEXT = 200
LONGEST_LINE_BYTES = 1 << 20
LARGEST_FILE_BYTES = 1 << 30
EARLIEST_NS = 10**18
"""September 2001: wall clocks are later."""

LATEST_NS = 2**63 - 1
GAP_INTERVALS = 5
"""A gap takes at least this many sampling intervals ..."""

SHORTEST_GAP_NS = 1_000_000_000
"""... and at least this long: a busy interpreter delays a thread for a while."""

EXPECTED = "telemetry as a capture writes it (telemetry.<host>.jsonl)"
REMEDY = "Give the folder that `traceadvisor capture` wrote, or capture the run again."

_LARGEST = 1e18
"""An exabyte: real figures are far smaller, and sums of smaller ones cannot overflow."""

Object: TypeAlias = Mapping[str, object]


def read_telemetry(path: Path) -> tuple[Telemetry, tuple[HealthNote, ...]]:
    """Read what can be read, and note what could not.

    Raises:
        InputError: the file cannot be read or holds no telemetry.
    """
    lines, content = _Lines(path), _Content()
    for found in lines:
        content.add(found)
        if content.rows >= MOST_ROWS:
            content.cut = True
            break
    if not content.headers and not content.time_ns:
        raise InputError(path, "holds no telemetry", expected=EXPECTED, remedy=REMEDY)
    clock = _Clock.of(np.array(content.time_ns, dtype=np.int64), np.array(content.interval_ns, dtype=np.float64))
    telemetry = _telemetry(path, content, clock)
    return telemetry, (*_notes_of_reading(lines, content), *_notes_of_sampling(telemetry, content, clock))


@dataclass(slots=True)
class _Lines:
    """Reads a file's objects, and counts the other lines."""

    path: Path
    dropped: int = 0
    """Lines that hold no JSON object."""

    truncated: bool = False
    """Whether the file ends in the middle of a line."""

    cut: bool = False
    """Whether the end of the file was left out for its size."""

    def __iter__(self) -> Iterator[Object]:
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

    def _objects(self, file: BinaryIO) -> Iterator[Object]:
        while line := file.readline(LONGEST_LINE_BYTES):
            whole = line.endswith(b"\n")
            found = decoded_line(line) if whole or len(line) < LONGEST_LINE_BYTES else None
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


def decoded_line(line: bytes) -> Object | None:
    """The object in a line, with null for bare ``NaN`` and ``Infinity``; None without one."""
    try:
        found = msgspec.json.decode(line)
    except (ValueError, RecursionError):  # also for bytes that are not UTF-8
        try:
            found = json.loads(line.decode(errors="replace"), parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def _skip_to_line_end(file: BinaryIO, line: bytes) -> None:
    while line and not line.endswith(b"\n"):
        line = file.readline(LONGEST_LINE_BYTES)


@frozen(eq=False)
class _Clock:
    """The times of all samples of a file, and which of them are plausible."""

    time_ns: Int64
    """As recorded; shape ``(samples,)``."""

    stray: Mask
    """Times out of order with both neighbours, whose samples are left out."""

    uncertain: Mask
    """Times that the clock passed twice because it went back; their samples keep no figures."""

    gaps_ns: Int64
    """A moment within each gap, ascending."""

    gap_total_ns: int

    @classmethod
    def of(cls, time_ns: Int64, interval_ns: Float64) -> _Clock:
        """Check the times; ``interval_ns`` is when the next sample was due after each, NaN if unknown."""
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


def _strays(time_ns: Int64) -> Mask:
    """Times out of order with both neighbours, which are in order with one another."""
    stray = np.zeros(time_ns.size, dtype=np.bool_)
    if time_ns.size >= 3:
        before, middle, after = time_ns[:-2], time_ns[1:-1], time_ns[2:]
        stray[1:-1] = (before <= after) & ((middle < before) | (middle > after))
    return stray


def _out_of_order(time_ns: Int64) -> Mask:
    """Times later than a following one, or earlier than a preceding one."""
    if not time_ns.size:
        return np.zeros(0, dtype=np.bool_)
    latest_before = np.maximum.accumulate(time_ns)
    earliest_after = np.minimum.accumulate(time_ns[::-1])[::-1]
    return np.asarray((time_ns < latest_before) | (time_ns > earliest_after))


class _Rows:
    """Figures of one device, node or process: a row for each sample that holds it."""

    def __init__(self, names: Iterable[str]) -> None:
        self._sample = array("q")
        self._columns = {str(name): array("d") for name in names}

    def add(self, sample: int, figures: Object) -> None:
        """Add the row of one sample, given by its position in the file; NaN for missing and impossible figures."""
        self._sample.append(sample)
        for name, column in self._columns.items():
            column.append(_number(figures.get(name)))

    def series(self, clock: _Clock) -> Series:
        """The rows by time. Where sampling paused there is one row of NaN, however many gaps it had."""
        samples = np.array(self._sample, dtype=np.int64)
        rows = np.flatnonzero(~clock.stray[samples])
        samples = samples[rows]
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


@dataclass(slots=True)
class _Content:
    """Content that was read so far."""

    headers: list[Object] = field(default_factory=list)
    header_count: int = 0
    time_ns: array[int] = field(default_factory=lambda: array("q"))
    interval_ns: array[float] = field(default_factory=lambda: array("d"))
    devices: dict[str, _Rows] = field(default_factory=dict)
    workers: dict[int, _Rows] = field(default_factory=dict)
    worker_names: dict[int, str | None] = field(default_factory=dict)
    node: _Rows = field(default_factory=lambda: _Rows(NodeColumn))
    processes: _Rows = field(default_factory=lambda: _Rows(ProcessColumn))
    rows: int = 0
    dropped: int = 0
    """Objects that are neither header nor sample, and samples without a time."""

    cut: bool = False

    def add(self, found: Object) -> None:
        """Take one line's object."""
        match found.get("record"):
            case "header":
                self.header_count += 1
                if len(self.headers) < MOST_HEADERS:
                    self.headers.append(found)
            case "sample":
                self._add_sample(found)
            case _:
                self.dropped += 1

    def _add_sample(self, found: Object) -> None:
        time_ns = found.get("time_ns")
        if not isinstance(time_ns, int) or not EARLIEST_NS <= time_ns <= LATEST_NS:
            self.dropped += 1
            return
        place = len(self.time_ns)
        self.time_ns.append(time_ns)
        self.interval_ns.append(_number(found.get("interval_s")) * 1e9)
        processes = _object(found.get("processes"))
        self.node.add(place, _object(found.get("node")))
        self.processes.add(place, processes)
        self.rows += 2
        for uuid, figures in _object(found.get("devices")).items():
            if (rows := self._device(uuid)) is not None:
                self.rows += 1
                rows.add(place, _object(figures))
        for worker in _objects(processes, "busiest"):
            self._add_worker(place, worker)

    def _device(self, uuid: str) -> _Rows | None:
        if uuid not in self.devices:
            if len(self.devices) == MOST_DEVICES:
                self.cut = True
                return None
            self.devices[uuid] = _Rows(DeviceColumn)
        return self.devices[uuid]

    def _add_worker(self, place: int, worker: Object) -> None:
        pid = _integer(worker.get("pid"))
        if pid is None:
            return
        if pid not in self.workers:
            if len(self.workers) == MOST_WORKERS:
                self.cut = True
                return
            self.workers[pid] = _Rows(WorkerColumn)
            self.worker_names[pid] = _text(worker.get("name"))
        self.rows += 1
        self.workers[pid].add(place, worker)


def _telemetry(path: Path, content: _Content, clock: _Clock) -> Telemetry:
    header = content.headers[0] if content.headers else {}
    about = {str(device.get("uuid")): device for header in content.headers for device in _objects(header, "devices")}
    uuids = list(dict.fromkeys([*list(about)[:MOST_DEVICES], *content.devices]))
    given: dict[str, Any] = {
        "host": _text(header.get("host")) or path.name.removeprefix("telemetry.").removesuffix(".jsonl")[:LONGEST_TEXT],
        "devices": tuple(_device(uuid, about.get(uuid, {}), content, clock) for uuid in uuids),
        "node": content.node.series(clock),
        "processes": content.processes.series(clock),
        "workers": tuple(
            WorkerTelemetry(pid, content.worker_names[pid], rows.series(clock)) for pid, rows in content.workers.items()
        ),
        "devices_missing": _text(header.get("nvml_unavailable")),
    }
    return Telemetry(**_known(Telemetry, header) | given)


def _device(uuid: str, about: Object, content: _Content, clock: _Clock) -> DeviceTelemetry:
    generation, width = _integer(about.get("max_link_generation")), _integer(about.get("max_link_width"))
    rows = content.devices.get(uuid) or _Rows(DeviceColumn)
    return DeviceTelemetry(
        uuid=known_name(uuid),
        max_link=None if generation is None or width is None else (generation, width),
        series=rows.series(clock),
        **_known(DeviceTelemetry, {**about, "cuda_index": None}),  # of each rank's own settings
    )


def _known(kind: type, found: Object) -> dict[str, Any]:
    """The plain fields of a model type as an object holds them; None for missing and impossible values."""
    return {name: _READ[hint](found.get(name)) for name, hint in get_type_hints(kind).items() if hint in _READ}


def _notes_of_reading(lines: _Lines, content: _Content) -> Iterator[HealthNote]:
    if lines.truncated:
        message = "The telemetry ends in the middle of a sample, as if the run was killed; earlier samples were read."
        yield HealthNote("telemetry-truncated", message, degrades=False)
    if dropped := lines.dropped + content.dropped:
        message = f"{dropped} lines of the telemetry could not be read and were left out."
        yield HealthNote("telemetry-dropped", message)
    if lines.cut or content.cut:
        yield HealthNote("telemetry-cut", "The telemetry is too large; its later part was left out.")
    if not content.headers:
        message = "The telemetry lacks its first line, so the names and limits of the devices are unknown."
        yield HealthNote("telemetry-no-header", message)
    elif (written := content.headers[0].get("format")) != TELEMETRY_FORMAT:
        message = (
            f"The telemetry has the format '{_text(written)}', not '{TELEMETRY_FORMAT}'; its known parts were read."
        )
        yield HealthNote("telemetry-format", message)
    if content.header_count > 1:
        message = f"The telemetry was started {content.header_count} times."
        yield HealthNote("telemetry-restarted", message, degrades=False)


def _notes_of_sampling(telemetry: Telemetry, content: _Content, clock: _Clock) -> Iterator[HealthNote]:
    if not content.time_ns:
        yield HealthNote("telemetry-empty", "The telemetry holds no sample.")
    if telemetry.devices_missing is not None:
        message = f"No GPU was sampled: {telemetry.devices_missing}."
        yield HealthNote("telemetry-no-devices", message, degrades=False)
    if doubtful := int((clock.stray | clock.uncertain).sum()):
        message = f"The clock went back during sampling: {doubtful} samples of uncertain time were left out."
        yield HealthNote("telemetry-clock-back", message)
    if clock.gaps_ns.size:
        gaps = "1 gap" if clock.gaps_ns.size == 1 else f"{clock.gaps_ns.size} gaps"
        message = f"The telemetry has {gaps}, {clock.gap_total_ns / 1e9:.1f} s in total."
        yield HealthNote("telemetry-gaps", message, degrades=False)
    for device in telemetry.devices:
        if _fell_silent(device.series):
            message = f"GPU {device.uuid} stopped reporting figures during sampling."
            yield HealthNote("telemetry-device-lost", message)


def _fell_silent(series: Series) -> bool:
    """Whether there are figures at the beginning, but none in the last two samples."""
    known = np.zeros(series.time_ns.size, dtype=np.bool_)
    for figures in series.figures.values():
        known |= np.isfinite(figures)
    return bool(known.any() and known.size > 2 and not known[-2:].any())


def _object(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def _objects(holder: Object, key: str) -> list[Object]:
    value = holder.get(key)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _number(value: object) -> float:
    """A figure of a file; NaN for null, for other types, and for numbers outside the possible range."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _LARGEST:
        return float(value)
    return float("nan")


def _text(value: object) -> str | None:
    return known_name(value) if isinstance(value, str) else None


def known_name(text: str) -> str:
    """A name of limited length without lone surrogates, which cannot be written again."""
    return text[:LONGEST_TEXT].encode(errors="replace").decode()


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LATEST_NS else None


def _finite(value: object) -> float | None:
    figure = _number(value)
    return None if np.isnan(figure) else figure


_READ: Mapping[Any, Any] = {str | None: _text, int | None: _integer, float | None: _finite, bool | None: flag}
"""Readers of the header's values, by the type of the model's field."""
