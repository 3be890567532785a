"""Read a file of ``torch.cuda.memory._dump_snapshot``, of any version of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from traceadvisor.errors import InputError
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.model.location import Frame
from traceadvisor.model.memory_snapshot import (
    Action,
    Blocks,
    BlockState,
    MemoryEvents,
    MemoryRange,
    MemorySnapshot,
    Segments,
)
from traceadvisor.parsing.exceeded_limits import describe_excess, remedy_for
from traceadvisor.parsing.input_bytes import open_bytes
from traceadvisor.parsing.snapshot.plain_pickle import Dicts, NotPlainError, Plain, read_plain, whole_values

T = TypeVar("T")

EXPECTED = "a CUDA memory snapshot, as torch.cuda.memory._dump_snapshot writes it"
WRITE_ANEW = "Copy the file again, or record again and call torch.cuda.memory._dump_snapshot(FILE)."

_ACTIONS = {action.name.lower(): int(action) for action in Action if action is not Action.OTHER}
_STATES = {
    "active_allocated": int(BlockState.ALLOCATED),
    "active_awaiting_free": int(BlockState.AWAITING_FREE),
    "active_pending_free": int(BlockState.AWAITING_FREE),
    "inactive": int(BlockState.INACTIVE),
}


def read_snapshot(path: Path, limits: Limits = LIMITS) -> MemorySnapshot:
    """Read a snapshot, gzipped or plain.

    Raises:
        InputError: the file cannot be read, is damaged, or holds something else.
    """
    return _read(path, limits, lambda data: _snapshot(path, read_plain(data), limits))


def read_whole(path: Path, limits: Limits = LIMITS) -> object:
    """Read a snapshot into Python objects; errors as above."""
    return _read(path, limits, whole_values)


def _read(path: Path, limits: Limits, read: Callable[[bytes], T]) -> T:
    try:
        return read(_content(path, limits))
    except NotPlainError as error:
        raise InputError(path, f"is a pickle, but {error}", expected=EXPECTED, remedy=WRITE_ANEW) from error


def _content(path: Path, limits: Limits) -> bytes:
    content = bytearray()
    with open_bytes(path, limits) as stream:
        for piece in stream.pieces():
            content += piece
            if len(content) > limits.snapshot_bytes:
                found = f"is larger than {limits.snapshot_bytes >> 20} MiB unpacked"
                remedy = (
                    "Record with a smaller max_entries, or raise the limit for files that you trust: see --trusted."
                )
                raise InputError(path, found, expected=EXPECTED, remedy=remedy)
        if stream.excess is not None:
            raise InputError(
                path, describe_excess(stream.excess, limits), expected=EXPECTED, remedy=remedy_for(stream.excess)
            )
        if stream.ended_early:
            raise InputError(path, "its gzip data is damaged or cut off", expected=EXPECTED, remedy=WRITE_ANEW)
    return bytes(content)


def _snapshot(path: Path, plain: Plain, limits: Limits) -> MemorySnapshot:
    root = plain.root
    if type(root) is list:  # torch before 2.0 returned the segments only
        root = {"segments": root, "device_traces": []}
    if type(root) is not dict or not {"segments", "device_traces"} <= root.keys():
        raise NotPlainError("it holds no segments and device_traces")
    traces = root["device_traces"]
    if type(traces) is not list:
        raise NotPlainError("its device_traces are no list")
    devices = [(device, plain.dicts(trace)) for device, trace in enumerate(traces)]
    segments = list(plain.dicts(root["segments"]))
    annotations = list(plain.dicts(root.get("external_annotations") or []))
    times_us = _joined(one.numbers("time_us") for _, one in devices)
    known_us = times_us[times_us != NONE]
    start_us = min(
        [
            int(known_us.min()) if known_us.size else 1 << 62,
            *(_whole(one.get("time_us"), 1 << 62) for one in annotations),
        ],
        default=0,
    )
    events, blocks = _events(devices, times_us, start_us), _blocks(segments, plain)
    stacks, frames = _stacks(plain, limits)  # all that the others name
    return MemorySnapshot(
        path,
        events,
        Segments(*(_column(segments, key) for key in ("device", "address", "total_size", "stream"))),
        blocks,
        frames,
        stacks,
        tuple(_ranges(annotations, start_us, limits)),
        _settings(plain, root.get("allocator_settings")),
        has_times=bool(known_us.size),
        host_events=_host_events(root),
    )


def _host_events(root: dict[str, Any]) -> int:
    """Return the number of events of pinned memory, which torch 2.15 records on request; else that of its segments."""
    traces, segments = (
        value if type(value := root.get(key)) is list else [] for key in ("host_traces", "host_segments")
    )
    return sum(len(one) if type(one) is list else 1 for one in traces) or len(segments)


def _joined(arrays: Iterable[Int64]) -> Int64:
    return np.concatenate([np.empty(0, np.int64), *arrays])


_MOST_BYTES = 1 << 50
"""Largest size of one allocation: sums of a million stay exact."""


def _sizes(arrays: Iterable[Int64]) -> Int64:
    return np.clip(_joined(arrays), 0, _MOST_BYTES)


def _events(devices: Sequence[tuple[int, Dicts]], times_us: Int64, start_us: int) -> MemoryEvents:
    addresses = _joined(one.numbers("addr") for _, one in devices)
    free = _joined(one.numbers("device_free") for _, one in devices)
    return MemoryEvents(
        _joined(np.full(len(one), device, np.int64) for device, one in devices),
        _joined(one.words("action", _ACTIONS, int(Action.OTHER)) for _, one in devices),
        np.where(times_us == NONE, NONE, (times_us - start_us) * 1000),
        np.where(addresses == NONE, free, addresses),
        _sizes(one.numbers("size") for _, one in devices),
        _joined(one.numbers("stream") for _, one in devices),
        _joined(one.lists("frames") for _, one in devices),
    )


def _whole(value: object, otherwise: int = NONE) -> int:
    return value if type(value) is int and abs(value) < 1 << 62 else otherwise


def _column(segments: Sequence[dict[str, Any]], key: str) -> Int64:
    values = np.array([_whole(one.get(key), 0) for one in segments], np.int64)
    return np.clip(values, 0, _MOST_BYTES) if key == "total_size" else values


def _blocks(segments: Sequence[dict[str, Any]], plain: Plain) -> Blocks:
    """The blocks of all segments. torch before 2.1 gives no address, and the rest in a list of the block's past."""
    lists = [plain.dicts(one.get("blocks") or []) for one in segments]
    segment = np.repeat(np.arange(len(segments)), [len(one) for one in lists])
    sizes, addresses = _sizes(one.numbers("size") for one in lists), _joined(one.numbers("address") for one in lists)
    starts, devices = (_column(segments, key)[segment] for key in ("address", "device"))
    before = np.cumsum(sizes) - sizes
    inside = before - before[np.searchsorted(segment, segment)]
    requested = _joined(one.numbers("requested_size") for one in lists)
    stack = _joined(one.lists("frames") for one in lists)
    for row, past in enumerate(_joined(one.lists("history") for one in lists).tolist()):
        if past != NONE and plain.lists[past]:
            newest = plain.dicts(plain.lists[past][:1])
            requested[row], stack[row] = newest.numbers("real_size")[0], newest.lists("frames")[0]
    return Blocks(
        devices,
        segment,
        np.where(addresses == NONE, starts + inside, addresses),
        sizes,
        requested.clip(NONE, _MOST_BYTES),
        _joined(one.words("state", _STATES, int(BlockState.INACTIVE)) for one in lists),
        stack,
    )


def _stacks(plain: Plain, limits: Limits) -> tuple[tuple[tuple[int, ...], ...], tuple[Frame, ...]]:
    """Each list of dicts as rows of distinct frames, and those."""
    numbers: dict[Frame, int] = {}
    seen: dict[int, int] = {}

    def number(one: object) -> int:
        key = one if type(one) is int else -id(one)  # a row, or a dict that the lists keep alive
        found = seen.get(key)
        if found is None:
            found = seen[key] = numbers.setdefault(_frame(plain.single(one), limits), len(numbers))
        return found

    stacks = tuple(tuple(map(number, one)) for one in plain.lists)
    return stacks, tuple(numbers)


def _frame(one: dict[str, Any], limits: Limits) -> Frame:
    name, file, line = one.get("name"), one.get("filename"), one.get("line")
    return Frame(_text(name, limits), _text(file, limits) or None, _whole(line) if _whole(line) > 0 else None)


def _text(value: object, limits: Limits) -> str:
    return value[: limits.text_length] if isinstance(value, str) else ""


def _ranges(annotations: Sequence[dict[str, Any]], start_us: int, limits: Limits) -> Iterator[MemoryRange]:
    """Pair starts and ends of the same name and device, the last start first."""
    begun: dict[tuple[str, int], list[int]] = {}
    found: list[MemoryRange] = []
    for one in annotations:
        name, device, time_ns = _text(one.get("name"), limits), _whole(one.get("device"), 0), _whole(one.get("time_us"))
        time_ns = (time_ns - start_us) * 1000
        if one.get("stage") == "START":
            begun.setdefault((name, device), []).append(time_ns)
        elif begun.get((name, device)):
            found.append(MemoryRange(name, device, begun[name, device].pop(), time_ns))
    yield from sorted(found, key=lambda one: one.start_ns)


_ROUNDED = "roundup_power2_divisions"


def _settings(plain: Plain, value: object) -> dict[str, str | int | float | bool] | None:
    """The settings of the allocator; those of rounding as text, if any is on."""
    if not value:
        return None
    settings = plain.single(value)
    found = {
        str(key): one
        for key, one in settings.items()
        if isinstance(one, str | int) or (isinstance(one, float) and isfinite(one))
    }
    if _ROUNDED in settings:
        rounded = plain.single(settings[_ROUNDED]).items()
        found[_ROUNDED] = ", ".join(f"{size}: {parts}" for size, parts in rounded if parts)
    return found
