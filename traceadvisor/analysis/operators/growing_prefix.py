"""Recognises generation that computes the whole sequence anew for each token: no keys and values are kept."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import groupby, pairwise

import msgspec
import numpy as np

from traceadvisor.analysis.operators.names import rows_named
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

FEWEST = 6
"""Lengths, each one longer than the one before. Batches sorted by length rarely have as many in a row."""

FEWEST_OF_A_TEXT = 3
"""The same within one text, where the recorded time has several."""

SHORTEST = 16
"""Tokens from which on keeping keys and values pays for its copies."""

_ATTENDS = re.compile(r"aten::_?scaled_dot_product")
_RECURS = re.compile(r"aten::(?:lstm|gru|rnn_tanh|rnn_relu)(?:_cell)?$")
_SOFTMAX = frozenset({"aten::softmax", "aten::_softmax", "aten::_safe_softmax"})
_PROJECTS, _APPENDS = frozenset({"aten::mm", "aten::addmm"}), frozenset({"aten::cat"})


@frozen(eq=False)
class GrowingPrefix:
    """Layers that are called with a sequence that grows by one token per call."""

    rows: Int64
    """Matrix products of the whole sequence, but for the first length: a cache has to be filled once."""

    appended: Int64
    """Calls that append a token."""

    lengths: tuple[int, ...]


def growing_prefix(trace: Trace, windows: SpanSet) -> GrowingPrefix | None:
    """Return the calls in some time whose sequence grows by one, with the ones that append its tokens; None without."""
    appended = {positions: (length, row) for row, length, positions in _appended(trace, windows)}
    by_size: dict[tuple[int, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row, shapes in _shapes(trace, _PROJECTS, windows):
        match [shape for shape in shapes if isinstance(shape, list) and len(shape) == 2]:
            case [[int(positions), int(width)], [_, int(outer)], *_] if positions in appended:
                by_size[width, outer][appended[positions][0]].append(row)
            case _:
                pass
    found = [(text, rows) for rows in by_size.values() for text in _texts(rows)]
    lengths = sorted({length for text, _ in found for length in text})
    if not found or not _attends(trace, windows, set(lengths)):
        return None
    rows = np.sort([row for text, calls in found for length in text[1:] for row in calls[length]]).astype(np.int64)
    appending = sorted(row for length, row in appended.values() if length in lengths)
    return GrowingPrefix(rows, np.array(appending, dtype=np.int64), tuple(lengths))


def _attends(trace: Trace, windows: SpanSet, lengths: set[int]) -> bool:
    """Whether attention runs over these lengths, and no recurrent layer, which keeps a state instead."""
    if any(_RECURS.match(name) for name in trace.names):
        return False
    softmax = (shapes[0] for _, shapes in _shapes(trace, _SOFTMAX, windows) if shapes)
    is_by_hand = any(isinstance(one, list) and len(one) >= 3 and one[-1] in lengths for one in softmax)
    return is_by_hand or any(_ATTENDS.match(name) for name in trace.names)


def _texts(rows: dict[int, list[int]]) -> list[list[int]]:
    """Return the lengths of each text, which follow each other by one; empty if they are few, or not in order.

    Within the time, one text may end and another begin.
    """
    every = sorted(length for length in rows if length >= SHORTEST)
    parts = [[length for _, length in part] for _, part in groupby(enumerate(every), key=lambda one: one[1] - one[0])]
    texts = [part for part in parts if len(part) >= FEWEST_OF_A_TEXT]
    is_in_order = all(rows[a][0] < rows[b][0] for text in texts for a, b in pairwise(text))
    counts = {len(rows[length]) for text in texts for length in text}
    is_one = is_in_order and len(counts) <= 2  # the last one may be cut off
    return texts if is_one and sum(map(len, texts)) >= FEWEST else []


def _appended(trace: Trace, windows: SpanSet) -> list[tuple[int, int, int]]:
    """Return the calls that append one place to sequences, each with their length before or after, and all places."""
    found = []
    for row, shapes in _shapes(trace, _APPENDS, windows):
        match shapes:
            case [[[int(batch), int(length), *rest], [int(other), 1, *others]], *_] if (batch, rest) == (other, others):
                found += [(row, one, batch * one) for one in (length, length + 1)]
            case _:
                pass
    return found


def _shapes(trace: Trace, names: frozenset[str], windows: SpanSet) -> list[tuple[int, list[object]]]:
    """Return the calls of operators in some time with the shapes of their inputs, in order."""
    rows = rows_named(trace, Kind.OPERATOR, names.__contains__)
    rows = rows[windows.contains(trace.events.start_ns[rows])]
    rows = rows[np.argsort(trace.events.start_ns[rows], kind="stable")]
    ids = trace.details.dims_id.at(rows, np.int32(NONE)).tolist()
    known = {one: _decoded(trace.texts[one]) for one in set(ids) if one != NONE}
    return [(row, known[one]) for row, one in zip(rows.tolist(), ids, strict=True) if one != NONE]


def _decoded(text: str) -> list[object]:
    try:
        return msgspec.json.decode(text, type=list[object])
    except (ValueError, RecursionError):
        return []
