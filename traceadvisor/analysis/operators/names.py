"""Select events by name; each distinct name is tested once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64, Int64, Mask, numbers_in
from traceadvisor.model.events import EventTable, Kind
from traceadvisor.model.once import once
from traceadvisor.model.trace import Trace

BACKWARD_PREFIX = "autograd::engine::evaluate_function"
"""Prefix of the autograd engine's backward nodes."""


def name_mask(names: tuple[str, ...], matches: Callable[[str], object]) -> Mask:
    """Return whether each name matches, as ``Pattern.match`` says; index it with ``EventTable.name_id``."""
    return np.fromiter(map(matches, names), dtype=np.bool_, count=len(names))


def rows_named(trace: Trace, kind: Kind, matches: Callable[[str], object]) -> Int64:
    """Return rows of one kind whose name matches, ascending."""
    rows = trace.events.rows(kind)
    found = [name for name in _names_of(trace, kind) if matches(trace.names[name])]
    if not found:
        return rows[:0]
    chosen = np.zeros(len(trace.names), dtype=np.bool_)
    chosen[found] = True
    return rows[chosen[trace.events.name_id[rows]]]


@once
def _names_of(trace: Trace, kind: Kind) -> list[int]:
    return numbers_in(trace.events.name_id[trace.events.rows(kind)])


def rows_with_prefix(trace: Trace, kind: Kind, *prefixes: str) -> Int64:
    """Return rows of one kind whose name starts with one of the prefixes, ascending."""
    return rows_named(trace, kind, lambda name: name.startswith(prefixes))


@frozen
class UsualDurations:
    """Median duration of the events of each name, or of each name and shapes. Arrays have one element for each."""

    name_ids: Int64
    counts: Int64
    usual_ns: Float64

    @property
    def totals_ns(self) -> Float64:
        """Duration of all events of each name, if each took the median."""
        return self.counts * self.usual_ns

    @property
    def total_ns(self) -> float:
        """Duration of all events, if each took the median of its name."""
        return float(self.totals_ns.sum())


def usual_durations(events: EventTable, rows: Int64, shapes: Int64 | None = None) -> UsualDurations:
    """Return the usual duration of each name, with one sort for all names.

    ``shapes``: tells events of one name apart whose inputs differ; as long as ``rows``. All by default count as equal.
    """
    shapes = np.zeros(rows.size, np.int64) if shapes is None else shapes
    order = np.lexsort((events.duration_ns[rows], shapes, events.name_id[rows]))
    rows, shapes = rows[order], shapes[order]
    names, ordered_ns = events.name_id[rows], events.duration_ns[rows]
    begins = np.append(True, (names[1:] != names[:-1]) | (shapes[1:] != shapes[:-1]))[: rows.size]
    first = np.flatnonzero(begins)
    counts = np.diff(first, append=rows.size)
    middle_ns = (ordered_ns[first + (counts - 1) // 2] + ordered_ns[first + counts // 2]) / 2
    return UsualDurations(names[first].astype(np.int64), counts.astype(np.int64), middle_ns)
