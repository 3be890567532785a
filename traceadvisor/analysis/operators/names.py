"""Select events by name; each distinct name is tested once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traceadvisor.model.arrays import Int64, Mask, numbers_in
from traceadvisor.model.events import Kind
from traceadvisor.model.once import once
from traceadvisor.model.trace import Trace

BACKWARD_PREFIX = "autograd::engine::evaluate_function"
"""Prefix of the autograd engine's backward nodes."""


def name_mask(names: tuple[str, ...], matches: Callable[[str], bool]) -> Mask:
    """Return whether each name matches; index it with ``EventTable.name_id``."""
    return np.fromiter(map(matches, names), dtype=np.bool_, count=len(names))


def rows_named(trace: Trace, kind: Kind, matches: Callable[[str], bool]) -> Int64:
    """Return rows of one kind whose name matches, ascending."""
    rows, used = trace.events.rows(kind), _names_of(trace, kind)
    chosen = np.zeros(len(trace.names), dtype=np.bool_)
    chosen[[name for name in used if matches(trace.names[name])]] = True
    return rows[chosen[trace.events.name_id[rows]]] if chosen.any() else rows[:0]


@once
def _names_of(trace: Trace, kind: Kind) -> list[int]:
    return numbers_in(trace.events.name_id[trace.events.rows(kind)])


def rows_with_prefix(trace: Trace, kind: Kind, *prefixes: str) -> Int64:
    """Return rows of one kind whose name starts with one of the prefixes, ascending."""
    return rows_named(trace, kind, lambda name: name.startswith(prefixes))
