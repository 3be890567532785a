"""A telemetry file to :class:`~traceadvisor.model.telemetry.Telemetry`, whatever state it is in."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from traceadvisor.bundle.telemetry_rows import EXPECTED, REMEDY, Clock, Lines, Rows, number
from traceadvisor.errors import InputError
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

FORMAT = "traceadvisor.telemetry/1"

MOST_ROWS = 2_000_000
"""Rows of figures of all things together: some 250 MB of columns, and a run of weeks on eight devices."""

MOST_DEVICES = 256
MOST_HEADERS = 16
MOST_WORKERS = 4096
"""Different children over the run; a loader that starts its workers anew each epoch has many."""

LONGEST_TEXT = 200
EARLIEST_NS = 10**18
"""September 2001: what is before it is no wall clock."""

LATEST_NS = 2**63 - 1
LARGEST_GAP_SHARE = 0.1
"""Of the time sampled; gaps that take more cast doubt on the figures."""

Object = Mapping[str, object]


@dataclass(slots=True)
class _Content:
    """What was read so far."""

    headers: list[Object] = field(default_factory=list)
    header_count: int = 0
    time_ns: array[int] = field(default_factory=lambda: array("q"))
    interval_ns: array[float] = field(default_factory=lambda: array("d"))
    devices: dict[str, Rows] = field(default_factory=dict)
    workers: dict[int, Rows] = field(default_factory=dict)
    worker_names: dict[int, str | None] = field(default_factory=dict)
    node: Rows = field(default_factory=lambda: Rows(NodeColumn))
    processes: Rows = field(default_factory=lambda: Rows(ProcessColumn))
    rows: int = 0
    dropped: int = 0
    """Objects that are neither header nor sample, or samples without a time."""

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
        self.interval_ns.append(number(found.get("interval_s")) * 1e9)
        processes = _object(found.get("processes"))
        self.node.add(place, _object(found.get("node")))
        self.processes.add(place, processes)
        self.rows += 2
        for uuid, figures in _object(found.get("devices")).items():
            if (rows := self._device(uuid)) is not None:
                self.rows += 1
                rows.add(place, _object(figures))
        self._add_workers(place, processes.get("busiest"))

    def _device(self, uuid: str) -> Rows | None:
        if uuid not in self.devices:
            if len(self.devices) == MOST_DEVICES:
                self.cut = True
                return None
            self.devices[uuid] = Rows(DeviceColumn)
        return self.devices[uuid]

    def _add_workers(self, place: int, busiest: object) -> None:
        for worker in map(_object, busiest if isinstance(busiest, list) else ()):
            pid = _integer(worker.get("pid"))
            if pid is None:
                continue
            if pid not in self.workers:
                if len(self.workers) == MOST_WORKERS:
                    self.cut = True
                    continue
                self.workers[pid] = Rows(WorkerColumn)
                self.worker_names[pid] = _text(worker.get("name"))
            self.rows += 1
            self.workers[pid].add(place, worker)


def read_telemetry(path: Path) -> tuple[Telemetry, tuple[HealthNote, ...]]:
    """Read what can be read, and tell what could not.

    Raises:
        InputError: the file cannot be read or holds no telemetry.
    """
    lines, content = Lines(path), _Content()
    for found in lines:
        content.add(found)
        if content.rows >= MOST_ROWS:
            content.cut = True
            break
    if not content.headers and not content.time_ns:
        raise InputError(path, "holds no telemetry", expected=EXPECTED, remedy=REMEDY)
    clock = Clock.of(
        np.array(content.time_ns, dtype=np.int64),
        np.array(content.interval_ns, dtype=np.float64),
    )
    telemetry = _telemetry(path, content, clock)
    return telemetry, (*_notes_of_reading(lines, content), *_notes_of_sampling(telemetry, content, clock))


def _telemetry(path: Path, content: _Content, clock: Clock) -> Telemetry:
    header = content.headers[0] if content.headers else {}
    about = {str(device.get("uuid")): device for header in content.headers for device in _objects(header, "devices")}
    uuids = list(dict.fromkeys([*list(about)[:MOST_DEVICES], *content.devices]))
    return Telemetry(
        host=_text(header.get("host")) or _host_of(path),
        devices=tuple(_device(uuid, about.get(uuid, {}), content, clock) for uuid in uuids),
        node=content.node.series(clock),
        processes=content.processes.series(clock),
        cpu_count=_integer(header.get("cpu_count")),
        cpu_quota=_finite(header.get("cpu_quota")),
        cpu_affinity=_integer(header.get("cpu_affinity")),
        memory_bytes=_integer(header.get("memory_bytes")),
        group_memory_limit_bytes=_integer(header.get("group_memory_limit_bytes")),
        workers=tuple(
            WorkerTelemetry(pid, content.worker_names[pid], rows.series(clock)) for pid, rows in content.workers.items()
        ),
        devices_missing=_text(header.get("nvml_unavailable")),
    )


def _device(uuid: str, about: Object, content: _Content, clock: Clock) -> DeviceTelemetry:
    generation, width = _integer(about.get("max_link_generation")), _integer(about.get("max_link_width"))
    visible = about.get("visible")
    return DeviceTelemetry(
        uuid=_clean(uuid),
        name=_text(about.get("name")),
        index=_integer(about.get("index")),
        memory_bytes=_integer(about.get("memory_bytes")),
        power_limit_watts=_finite(about.get("power_limit_watts")),
        max_link=None if generation is None or width is None else (generation, width),
        series=content.devices.get(uuid, Rows(DeviceColumn)).series(clock),
        visible=visible if isinstance(visible, bool) else None,
        cuda_index=_integer(about.get("cuda_index")),
        max_sm_clock_mhz=_integer(about.get("max_sm_clock_mhz")),
        slowdown_celsius=_integer(about.get("slowdown_celsius")),
        default_power_limit_watts=_finite(about.get("default_power_limit_watts")),
        max_power_limit_watts=_finite(about.get("max_power_limit_watts")),
    )


def _notes_of_reading(lines: Lines, content: _Content) -> Iterator[HealthNote]:
    if lines.truncated:
        message = (
            "The telemetry ends in the middle of a sample, as when a run is killed; what stands before it was read."
        )
        yield HealthNote("telemetry-truncated", message, degrades=False)
    if dropped := lines.dropped + content.dropped:
        message = f"{dropped} lines of the telemetry could not be read and were left out."
        yield HealthNote("telemetry-dropped", message)
    if lines.cut or content.cut:
        yield HealthNote("telemetry-cut", "The telemetry is larger than is read; its later part was left out.")
    if not content.headers:
        message = "The telemetry lacks its first line: what the devices are called and can do is not known."
        yield HealthNote("telemetry-no-header", message)
    elif (written := content.headers[0].get("format")) != FORMAT:
        message = f"The telemetry is of format '{_text(written)}', not '{FORMAT}'; what is known of it was read."
        yield HealthNote("telemetry-format", message)
    if content.header_count > 1:
        message = f"The telemetry was started {content.header_count} times."
        yield HealthNote("telemetry-restarted", message, degrades=False)


def _notes_of_sampling(telemetry: Telemetry, content: _Content, clock: Clock) -> Iterator[HealthNote]:
    if not content.time_ns:
        yield HealthNote("telemetry-empty", "The telemetry holds no sample.")
    if telemetry.devices_missing is not None:
        message = f"No device was sampled: {telemetry.devices_missing}."
        yield HealthNote("telemetry-no-devices", message, degrades=False)
    if doubtful := int((clock.stray | clock.uncertain).sum()):
        message = (
            f"The clock went back while telemetry was sampled: {doubtful} samples are of no certain time, left out."
        )
        yield HealthNote("telemetry-clock-back", message)
    if clock.gaps_ns.size:
        message = f"The telemetry has {clock.gaps_ns.size} gaps, {clock.gap_total_ns / 1e9:.1f} s in all."
        yield HealthNote("telemetry-gaps", message, degrades=clock.gap_total_ns > LARGEST_GAP_SHARE * clock.span_ns)
    for device in telemetry.devices:
        if _fell_silent(device.series):
            message = f"Device {device.uuid} stopped giving figures while telemetry was sampled."
            yield HealthNote("telemetry-device-lost", message)


def _fell_silent(series: Series) -> bool:
    """Whether there are figures in the beginning and none in the last two samples."""
    known = np.zeros(series.time_ns.size, dtype=np.bool_)
    for figures in series.figures.values():
        known |= np.isfinite(figures)
    return bool(known.any() and known.size > 2 and not known[-2:].any())


def _host_of(path: Path) -> str:
    """The host by the file's name, ``telemetry.<host>.jsonl``."""
    return path.name.removeprefix("telemetry.").removesuffix(".jsonl")[:LONGEST_TEXT]


def _object(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def _objects(holder: Object, key: str) -> list[Object]:
    value = holder.get(key)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return _clean(value) if isinstance(value, str) else None


def _clean(text: str) -> str:
    """No longer than a name is, and without lone surrogates, which cannot be written again."""
    return text[:LONGEST_TEXT].encode(errors="replace").decode()


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LATEST_NS else None


def _finite(value: object) -> float | None:
    figure = number(value)
    return None if np.isnan(figure) else figure
