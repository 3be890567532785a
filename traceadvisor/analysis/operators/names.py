"""Select events by name; each distinct name is tested once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import Kind
from traceadvisor.model.trace import Trace

BACKWARD_PREFIX = "autograd::engine::evaluate_function"
"""Prefix of the autograd engine's backward nodes."""


def name_mask(names: tuple[str, ...], matches: Callable[[str], bool]) -> Mask:
    """Return whether each name matches; index it with ``EventTable.name_id``."""
    return np.fromiter(map(matches, names), dtype=np.bool_, count=len(names))


def rows_named(trace: Trace, kind: Kind, matches: Callable[[str], bool]) -> Int64:
    """Return rows of one kind whose name matches, ascending."""
    rows = trace.events.rows(kind)
    return rows[name_mask(trace.names, matches)[trace.events.name_id[rows]]]


def rows_with_prefix(trace: Trace, kind: Kind, *prefixes: str) -> Int64:
    """Return rows of one kind whose name starts with one of the prefixes, ascending."""
    return rows_named(trace, kind, lambda name: name.startswith(prefixes))
