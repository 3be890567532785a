"""Correct impossible times: events years away from all others, and overlapping operations on one stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import DEVICE_WORK, NONE, EventTable, Sparse
from traceadvisor.model.health import Health, HealthNote
from traceadvisor.model.trace import AllocatorSamples, Details, PythonCalls

Table = TypeVar("Table", EventTable, PythonCalls, AllocatorSamples)

LONGEST_PAUSE_NS = 3_600 * 10**9
"""No recording pauses for an hour; events further away come from another clock (``ts: 0``, kineto#109)."""

JITTER_NS = 1_000
"""Older profilers round times to microseconds."""


@frozen(eq=False)
class Tables:
    """The columns of one trace file."""

    events: EventTable
    details: Details
    python_calls: PythonCalls
    memory: AllocatorSamples
    zero_ns: int
    """The absolute time that all other times count from."""

    @property
    def row_count(self) -> int:
        """Number of events."""
        return len(self.events) + self.python_calls.start_ns.size


@frozen
class Corrections:
    """Number of corrected times, by kind."""

    strays: int = 0
    """Events left out."""

    endless: int = 0
    """Events that outlasted the recording."""

    overruns: int = 0
    """Device operations that outlasted what followed them."""

    def added_to(self, health: Health) -> Health:
        """Return the health with these corrections added to its counts and notes."""
        return replace(
            health,
            events_dropped=health.events_dropped + self.strays,
            events_repaired=health.events_repaired + self.endless + self.overruns,
            notes=(*health.notes, *self._notes()),
        )

    def _notes(self) -> Iterator[HealthNote]:
        if self.strays:
            yield HealthNote(
                "stray-events", f"{self.strays} events were more than an hour away from all others and were left out."
            )
        if self.endless:
            yield HealthNote(
                "endless-events",
                f"{self.endless} events lasted more than an hour beyond the end of the recording and were cut there.",
            )
        if self.overruns:
            yield HealthNote(
                "overruns",
                f"{self.overruns} GPU operations were recorded as ending after later operations on their stream. "
                "A stream runs one operation at a time, so they were cut where the next one began.",
            )


def with_sound_times(tables: Tables) -> tuple[Tables, Corrections]:
    """Return the tables with impossible times corrected; nothing is copied if all are sound."""
    read = tables.row_count
    if not read:
        return tables, Corrections()
    tables = _without_strays(tables)
    strays = read - tables.row_count
    events, overruns = _without_overruns(tables.events)
    tables, endless = _without_endless(replace(tables, events=events))
    return tables, Corrections(strays, endless, overruns)


# -- events away from all others ------------------------------------------------------------------------------------


def _without_strays(tables: Tables) -> Tables:
    """Keep the group of events without a long pause that has most kinds of them, timed from its first event."""
    starts = [column for column in (tables.events.start_ns, tables.python_calls.start_ns) if column.size]
    first, last = min(int(column[0]) for column in starts), max(int(column[-1]) for column in starts)
    if last - first > LONGEST_PAUSE_NS:
        return _between(tables, *_main_cluster(tables, np.sort(np.concatenate(starts))))
    near = _near(tables.memory.time_ns, first, last)
    return tables if near.all() else replace(tables, memory=_rows(tables.memory, near))


def _main_cluster(tables: Tables, starts_ns: Int64) -> tuple[int, int]:
    """Return the first and last start of the group without a long pause that has most kinds of events.

    Steps, operators, calls and kernels make a recording; events with a wrong clock are many of one kind. Of groups with
    as many kinds, it is the largest.
    """
    begins = np.concatenate(([0], np.flatnonzero(np.diff(starts_ns) > LONGEST_PAUSE_NS) + 1))
    sizes = np.diff(np.append(begins, starts_ns.size))
    events = tables.events
    group = np.searchsorted(starts_ns[begins], events.start_ns, side="right") - 1
    kinds = np.unique(np.stack((group, events.kind.astype(np.int64))), axis=1)[0]
    variety = np.bincount(kinds, minlength=begins.size)
    chosen = int(np.lexsort((np.arange(0, -begins.size, -1), sizes, variety))[-1])  # the first of equal ones
    begin, size = int(begins[chosen]), int(sizes[chosen])
    return int(starts_ns[begin]), int(starts_ns[begin + size - 1])


def _between(tables: Tables, first_ns: int, last_ns: int) -> Tables:
    events, calls, memory = tables.events, tables.python_calls, tables.memory
    kept = (events.start_ns >= first_ns) & (events.start_ns <= last_ns)
    kept_calls = (calls.start_ns >= first_ns) & (calls.start_ns <= last_ns)
    return Tables(
        _rows(events, kept, start_ns=first_ns),
        _details(tables.details, np.flatnonzero(kept)),
        _rows(calls, kept_calls, start_ns=first_ns, end_ns=first_ns),
        _rows(memory, _near(memory.time_ns, first_ns, last_ns), time_ns=first_ns),
        tables.zero_ns + first_ns,
    )


def _near(times_ns: Int64, first_ns: int, last_ns: int) -> Mask:
    near: Mask = (times_ns >= first_ns - LONGEST_PAUSE_NS) & (times_ns <= last_ns + LONGEST_PAUSE_NS)
    return near


def _rows(table: Table, kept: Mask, **less: int) -> Table:
    """Return some rows of a table, with offsets subtracted from the named columns."""
    columns = {
        field.name: getattr(table, field.name)[kept] - less.get(field.name, 0) for field in fields(table) if field.init
    }
    return replace(table, **columns)


def _details(details: Details, rows: Int64) -> Details:
    def of(sparse: Sparse[Any]) -> Sparse[Any]:
        kept = np.isin(sparse.rows, rows)
        return Sparse(np.searchsorted(rows, sparse.rows[kept]), sparse.values[kept])

    return Details(**{field.name: of(getattr(details, field.name)) for field in fields(details)})


# -- ends that others prove wrong -----------------------------------------------------------------------------------


def _without_overruns(events: EventTable) -> tuple[EventTable, int]:
    """Cut GPU operations that end after later ones on their stream; return the events and the number cut.

    A stream runs one operation at a time: one that has not ended when a later one has is wrong (TraceLens#669). It is
    cut where trace viewers cut it. Operations of one graph launch share its correlation id and may run in parallel.
    """
    rows = events.rows(*DEVICE_WORK)
    rows = rows[(events.stream[rows] != NONE) & (events.duration_ns[rows] > 0)]
    lanes = _lanes(events, rows)
    order = np.argsort(lanes, kind="stable")
    rows, lanes = rows[order], lanes[order]
    ends_ns = events.end_ns[rows]
    if not ((lanes[1:] == lanes[:-1]) & (ends_ns[:-1] > ends_ns[1:] + JITTER_NS)).any():
        return events, 0
    _, number, count = np.unique(events.correlation[rows], return_inverse=True, return_counts=True)
    alone = (count[number] == 1) | (events.correlation[rows] == NONE)
    rows = rows[alone]
    if not rows.size:
        return events, 0
    wrong, durations_ns = _overruns(lanes[alone], events.start_ns[rows], ends_ns[alone])
    corrected = events.duration_ns.copy()
    corrected[rows[wrong]] = durations_ns[wrong]
    return replace(events, duration_ns=corrected), int(wrong.sum())


def _lanes(events: EventTable, rows: Int64) -> Int64:
    """Number each device and stream; in 16 bits if possible, which numpy sorts fastest."""
    lanes = events.device[rows].astype(np.int64) * (1 + int(events.stream.max(initial=0))) + events.stream[rows]
    lanes -= lanes.min(initial=0)
    return lanes.astype(np.int16) if lanes.max(initial=0) <= np.iinfo(np.int16).max else lanes


def _overruns(lanes: Int64, starts_ns: Int64, ends_ns: Int64) -> tuple[Mask, Int64]:
    """Return whether each operation ends after a later one on its lane, and the time until the next."""
    size = lanes.size
    new_lane = np.append(True, lanes[1:] != lanes[:-1])  # a value, not a flag
    lane = np.cumsum(new_lane) - 1
    new_start = new_lane | np.append(True, starts_ns[1:] != starts_ns[:-1])
    later = np.append(np.flatnonzero(new_start), size)[np.cumsum(new_start)]
    is_last = (later == size) | (lane[later % size] != lane)
    later[is_last] = 0
    by_end = np.argsort(ends_ns, kind="stable")
    key = np.empty(size, np.int64)
    key[by_end] = np.arange(size)
    key += lane * size  # all of a lane's are below those of the next, so that the minimum begins anew with each lane
    earliest = np.minimum.accumulate(key[::-1])[::-1] - lane * size
    wrong: Mask = ~is_last & (ends_ns > ends_ns[by_end[earliest[later]]] + JITTER_NS)
    return wrong, starts_ns[later] - starts_ns


def _without_endless(tables: Tables) -> tuple[Tables, int]:
    """Cut events that last hours beyond the last start; return the tables and the number cut."""
    events, calls = tables.events, tables.python_calls
    last = max(int(column[-1]) for column in (events.start_ns, calls.start_ns) if column.size)
    latest = last + LONGEST_PAUSE_NS
    endless, endless_calls = events.end_ns > latest, calls.end_ns > latest
    count = int(endless.sum() + endless_calls.sum())
    if not count:
        return tables, 0
    sane = np.concatenate(([last], events.end_ns[~endless], calls.end_ns[~endless_calls]))
    durations_ns = np.where(endless, sane.max() - events.start_ns, events.duration_ns)
    ends_ns = np.where(endless_calls, sane.max(), calls.end_ns)
    corrected = replace(events, duration_ns=durations_ns)
    return replace(tables, events=corrected, python_calls=replace(calls, end_ns=ends_ns)), count
