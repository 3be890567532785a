"""Replays a history of allocations with changes: what the peak would be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from traceadvisor.analysis.memory.allocations import MemoryHistory, held_bytes
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64, Int64


def _nothing() -> Int64:
    return np.zeros((0, 3), np.int64)


@frozen(eq=False)
class MemoryChange:
    """The effect of a fix on the allocations of one device. Instants are those of :class:`MemoryHistory`."""

    rows: Int64
    """Allocations that get another size."""

    factor: Float64 | float = 0.0
    """Factor of their sizes; 0 removes them."""

    pieces: Int64 = field(default_factory=_nothing)
    """Lifetimes that replace those of some allocations; shape ``(n, 3)``: row, start, end. A row may have several."""

    added: Int64 = field(default_factory=_nothing)
    """Further allocations; shape ``(n, 3)``: start, end, bytes."""


def replayed(history: MemoryHistory, changes: Sequence[MemoryChange]) -> Int64:
    """Return the requested bytes at each instant with some changes made.

    Changed sizes multiply. Of two changes of one allocation's lifetime, the first holds.
    """
    rows = history.allocations
    sizes = rows.size_bytes.astype(np.float64)
    is_whole = np.ones(len(rows), dtype=np.bool_)
    pieces = []
    for change in changes:
        sizes[change.rows] *= change.factor
        fresh = change.pieces[is_whole[change.pieces[:, 0]]]
        is_whole[fresh[:, 0]] = False
        pieces.append(fresh)
    whole = np.flatnonzero(is_whole)
    cut = np.concatenate([_nothing(), *pieces])
    added = np.concatenate([_nothing(), *(change.added for change in changes)])
    return held_bytes(
        np.concatenate((rows.start[whole], cut[:, 1], added[:, 0])),
        np.concatenate((rows.end[whole], cut[:, 2], added[:, 1])),
        np.concatenate((sizes[whole], sizes[cut[:, 0]], added[:, 2])).astype(np.int64),
        history.instants,
    )


def saved_bytes(history: MemoryHistory, *changes: MemoryChange) -> int:
    """Return by how much changes lower the peak; negative where they raise it."""
    return history.peak_bytes - int(replayed(history, changes).max())
