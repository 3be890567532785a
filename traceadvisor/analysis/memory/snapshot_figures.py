"""Figures of a memory snapshot: the peak, what it consists of, and whose it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from traceadvisor.analysis.memory.allocations import MemoryHistory, held_bytes
from traceadvisor.analysis.memory.call_stacks import CallStacks
from traceadvisor.analysis.memory.classes import EVIDENCE, KINDS, Classes
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.model.arrays import Int64
from traceadvisor.model.location import Frame, Location
from traceadvisor.model.memory_figures import (
    ClassBytes,
    ClassesOverTime,
    DeviceMemoryFigures,
    LargeBlock,
    LineBytes,
    MemoryClass,
    MemoryEvidence,
    MemoryPlace,
    OutOfMemory,
    SnapshotFigures,
)
from traceadvisor.model.memory_snapshot import Action, MemorySnapshot

MOST_LINES = 25
MOST_BLOCKS = 10
MOST_INSTANTS = 300
"""Two per slot, as many as a chart can show."""


def snapshot_figures(snapshot: MemorySnapshot, facts: Sequence[SnapshotFacts]) -> SnapshotFigures:
    """Return the figures of all devices that held memory."""
    devices = tuple(_device(snapshot, one) for one in facts)
    return SnapshotFigures(
        snapshot.path,
        devices,
        len(snapshot.events),
        snapshot.has_times,
        snapshot.settings,
        has_stacks=any(snapshot.stacks),
        host_events=snapshot.host_events,
    )


def _device(snapshot: MemorySnapshot, facts: SnapshotFacts) -> DeviceMemoryFigures:
    history, stacks, found = facts.history, facts.stacks, facts.found
    peak, alive = history.peak, facts.peak_rows
    return DeviceMemoryFigures(
        device=history.device,
        peak_bytes=history.peak_bytes,
        peak_instant=peak,
        peak_ns=_time(history, peak) if snapshot.has_times else None,
        instants=history.instants,
        before_bytes=history.before_bytes,
        final_bytes=history.final_bytes,
        unmatched=history.unmatched,
        reserved_at_peak_bytes=int(history.reserved_bytes[peak]),
        peak_reserved_bytes=int(history.reserved_bytes.max()),
        classes=tuple(_by_class(history, found, alive)),
        lines=_by_line(history, found, stacks, alive),
        blocks=tuple(_largest(snapshot, history, found, stacks, alive)),
        over_time=_over_time(snapshot, history, found),
        out_of_memory=_out_of_memory(snapshot, history),
        peak_pass=facts.pass_at(peak),
    )


def _out_of_memory(snapshot: MemorySnapshot, history: MemoryHistory) -> OutOfMemory | None:
    """The last time that memory ran out; an event of it has the free bytes in place of an address."""
    events = snapshot.events
    failed = np.flatnonzero(events.action[history.rows] == Action.OOM)
    if not failed.size:
        return None
    at = int(failed[-1])
    row = history.rows[at]
    free = int(events.address[row])
    return OutOfMemory(
        int(events.size_bytes[row]),
        free if free >= 0 else None,
        int(history.requested_bytes[at]),
        int(history.reserved_bytes[at]),
        int(failed.size),
    )


def _time(history: MemoryHistory, instant: int) -> int:
    return int(history.time_ns[instant])


def _by_class(history: MemoryHistory, found: Classes, alive: Int64) -> Iterator[ClassBytes]:
    """The classes of the peak, the largest first, and what the allocator holds beyond them."""
    size, kind, evidence = history.allocations.size_bytes[alive], found.kind[alive], found.evidence[alive]
    parts = []
    for place, one in enumerate(KINDS):
        mine = kind == place
        if mine.any():
            by_evidence = np.bincount(evidence[mine], size[mine], minlength=len(EVIDENCE)).astype(np.int64).tolist()
            named = {name: held for name, held in zip(EVIDENCE, by_evidence, strict=True) if held}
            parts.append(ClassBytes(one, int(size[mine].sum()), int(mine.sum()), named))
    yield from sorted(parts, key=lambda part: -part.requested_bytes)
    overhead = int(history.reserved_bytes[history.peak]) - history.peak_bytes
    if overhead > 0:
        yield ClassBytes(MemoryClass.OVERHEAD, overhead, 0, {MemoryEvidence.NONE: overhead})


_Key = tuple[Location | None, Frame | None, Location | None, str | None, int]


def _key(place: MemoryPlace | None, kind: int) -> _Key:
    """Allocations with the same key are one row: the node of the backward pass counts only without a line."""
    if place is None:
        return None, None, None, None, kind
    return place.line, place.owner, next(iter(place.callers), None), None if place.line else place.operator, kind


def _by_line(history: MemoryHistory, found: Classes, stacks: CallStacks, alive: Int64) -> tuple[LineBytes, ...]:
    held: dict[_Key, list[int]] = {}
    largest: dict[_Key, tuple[int, MemoryPlace | None]] = {}
    rows = history.allocations
    for stack, kind, size in zip(
        rows.stack[alive].tolist(), found.kind[alive].tolist(), rows.size_bytes[alive].tolist(), strict=True
    ):
        place = stacks.places[stack]
        key = _key(place, kind)
        held.setdefault(key, []).append(size)
        if size > largest.get(key, (-1, None))[0]:
            largest[key] = size, place
    lines = (LineBytes(largest[key][1], KINDS[key[-1]], sum(sizes), len(sizes)) for key, sizes in held.items())
    return tuple(sorted(lines, key=lambda line: -line.requested_bytes)[:MOST_LINES])


def _largest(
    snapshot: MemorySnapshot, history: MemoryHistory, found: Classes, stacks: CallStacks, alive: Int64
) -> Iterator[LargeBlock]:
    rows = history.allocations
    alike: dict[tuple[int, _Key], list[int]] = {}
    for row in alive[np.argsort(-rows.size_bytes[alive], kind="stable")].tolist():
        key = int(rows.size_bytes[row]), _key(stacks.places[rows.stack[row]], int(found.kind[row]))
        if key not in alike and len(alike) == MOST_BLOCKS:
            if key[0] < min(size for size, _ in alike):
                break
            continue
        alike.setdefault(key, []).append(row)
    for (size, (*_, kind)), members in alike.items():
        start, end = int(rows.start[members].min()), int(rows.end[members].max())
        yield LargeBlock(
            size,
            KINDS[kind],
            stacks.places[rows.stack[members[0]]],
            _time(history, start) if start and snapshot.has_times else None,
            _time(history, end) if end < history.instants and snapshot.has_times else None,
            len(members),
        )


def _over_time(snapshot: MemorySnapshot, history: MemoryHistory, found: Classes) -> ClassesOverTime | None:
    """Bytes by class at the extremes of each slot of time, or of order where times were not recorded."""
    if history.instants < 3:
        return None
    position = history.time_ns if snapshot.has_times else np.arange(history.instants)
    chosen = _extremes(position, history.requested_bytes, history.peak)
    rows = history.allocations
    by_class = {}
    for place, kind in enumerate(KINDS):
        mine = found.kind == place
        if mine.any():
            held = held_bytes(rows.start[mine], rows.end[mine], rows.size_bytes[mine], history.instants)
            by_class[kind] = held[chosen]
    time_ns = history.time_ns[chosen] if snapshot.has_times else None
    return ClassesOverTime(chosen, time_ns, by_class, history.reserved_bytes[chosen])


def _extremes(position: Int64, level: Int64, peak: int) -> Int64:
    """The first and last instant, the peak, and the lowest and highest level of each slot."""
    slots = np.linspace(position[0], position[-1], MOST_INSTANTS // 2 + 1)[1:-1]
    edges = np.unique(np.append(0, np.searchsorted(position, slots)))
    edges = edges[edges < position.size]
    parts = np.split(np.arange(position.size), edges[1:])
    kept = [int(part[pick(level[part])]) for part in parts for pick in (np.argmin, np.argmax)]
    return np.unique(np.array([0, position.size - 1, peak, *kept], np.int64))
