"""A million spans drawn in a thousand slots without lying about their share.

Drawing every span at least one slot wide makes a stream of tiny kernels look
fully busy. Instead each slot takes one kind, and what the choice got wrong is
carried to the next slot (error diffusion, as printers do with grey): the ink of
each kind over any stretch equals its time to within a slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from traceadvisor.model.arrays import Float64, Int64
from traceadvisor.model.spans import SpanSet

K = TypeVar("K")

Run = tuple[int, int]
"""First slot, and the one after the last."""


def runs_by_layer(layers: Sequence[SpanSet], start_ns: int, end_ns: int, slots: int) -> tuple[tuple[Run, ...], ...]:
    """For each layer the runs of slots it is seen in; later layers cover earlier ones."""
    if end_ns <= start_ns:
        return tuple(() for _ in layers)
    seen = np.array([_covered(spans, start_ns, end_ns, slots) for spans in _uncovered(layers)])
    chosen = _diffused(seen.reshape(len(layers), slots))
    return tuple(_runs(chosen == layer) for layer in range(len(layers)))


def shares(layers: Mapping[K, SpanSet], start_ns: int, end_ns: int) -> dict[K, float]:
    """The share of the stretch that each layer is seen in."""
    seen = _uncovered(list(layers.values()))
    length = max(1, end_ns - start_ns)
    return {key: spans.clip(start_ns, end_ns).total_ns / length for key, spans in zip(layers, seen, strict=True)}


def _uncovered(layers: Sequence[SpanSet]) -> list[SpanSet]:
    """Each layer without what later layers cover."""
    above = SpanSet.empty()
    seen: list[SpanSet] = []
    for spans in reversed(layers):
        seen.append(spans - above)
        above = above | spans
    return seen[::-1]


def _covered(spans: SpanSet, start_ns: int, end_ns: int, slots: int) -> Float64:
    """The share of each slot that is covered, shape ``(slots,)``."""
    edges = start_ns + np.linspace(0, end_ns - start_ns, slots + 1)
    before = np.concatenate(([0.0], np.cumsum(spans.ends_ns - spans.starts_ns)))
    opened = np.searchsorted(spans.starts_ns, edges, side="right")
    last_start = spans.starts_ns[np.maximum(opened - 1, 0)] if spans else np.zeros(slots + 1)
    last_length = np.diff(before)[np.maximum(opened - 1, 0)] if spans else np.zeros(slots + 1)
    inside = np.where(opened > 0, np.minimum(edges - last_start, last_length), 0.0)
    covered_until: Float64 = before[np.maximum(opened - 1, 0)] + inside
    return np.diff(covered_until) * slots / (end_ns - start_ns)


def _diffused(seen: Float64) -> Int64:
    """The layer each slot takes, or the number of layers where it stays empty; shape ``(slots,)``."""
    shares_and_rest = np.vstack([seen, np.maximum(0.0, 1.0 - seen.sum(axis=0))])
    owed = [0.0] * len(shares_and_rest)
    chosen: list[int] = []
    for here in shares_and_rest.T.tolist():  # a few numbers at a time, for which numpy would take ten times as long
        pick, most = 0, -np.inf
        for layer, share in enumerate(here):
            owed[layer] += share
            if share > 0 and owed[layer] > most:
                pick, most = layer, owed[layer]
        owed[pick] -= 1.0
        chosen.append(pick)
    return np.array(chosen, dtype=np.int64)


def _runs(marked: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> tuple[Run, ...]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], marked, [False])).astype(np.int8)))
    return tuple(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
