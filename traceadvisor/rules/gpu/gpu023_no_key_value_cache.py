"""GPU023: generation computes the whole sequence again for each token."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import groupby, pairwise

import numpy as np

from traceadvisor.analysis.operators.inputs import decoded
from traceadvisor.analysis.operators.names import rows_named
from traceadvisor.analysis.steps.inference_workload import has_training
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen

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

KEEP = Fix(
    "Keep the keys and values of each attention layer, by use_cache=True of Transformers or a cache of your own, and "
    "run only the new token",
    not_replayed="the time of each operator on one token is unknown",
)


@frozen
class NoKeyValueCache(Rule):
    """Each new token runs the model on the whole sequence again, because no keys and values are kept.

    What it finds: Matrix products of a recording without a training, on a sequence that is one longer in each
        iteration, 6 times or more, of which one text has at least 3 in a row, and an operator that appends one place to
        a sequence of each such length. Recorded shapes show it, whoever made the recording.
    Why it costs time: Each token costs the time of the whole text before it: a text of twice the length takes four
        times as long or more.
    How to fix it: Pass ``use_cache=True`` to ``generate`` of Transformers. In code of your own, let each attention
        layer return its keys and values, and give it those of the tokens before. Then feed only the new token, at its
        position, to attention without a causal mask.
    How the saving is estimated: Upper limit: the time of kernels, or without a GPU of operators, times the share of
        positions that were computed before. Small operators take as long for one token, so short texts save less.
    When it may be wrong: The tokens before must not change: attention has to be causal, and positions absolute. Caches
        take memory for each layer and token.
    """

    meta = RuleMeta("GPU023", "no-key-value-cache", "Each token computes the whole sequence again")
    needs = frozenset({Input.STEPS, Input.SHAPES})
    claims = frozenset({Category.KERNEL, Category.FORWARD})

    min_share: float = 0.1
    """Share of the iteration. Less is not worth the changes of a model."""

    def check(self, facts: Facts) -> Outcome:
        if has_training(facts.trace):
            return Skipped("The recording shows training.")
        found = _growing_prefix(facts.trace, facts.steps.kept_windows)
        if found is None:
            return Clear("lengths in a row of a sequence that grows by one", 0, FEWEST, Unit.COUNT)
        claims = facts.claim(Category.KERNEL if facts.observation.has_device else Category.FORWARD)
        again = 1 - 1 / float(np.mean(found.lengths))
        share = again * facts.share(claims)
        if share < self.min_share:
            return Clear("time of positions that were computed before", share, self.min_share, Unit.SHARE)
        return finding_of(
            facts,
            claims=claims,
            fix=KEEP,
            most_share=share,
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("lengths in a row of a sequence that grows by one", len(found.lengths), Unit.COUNT),
                Evidence("longest of them", found.lengths[-1], Unit.COUNT),
                facts.count_per_step("matrix products of the whole sequence", found.rows.size),
                Evidence("share of positions that were computed before", again, Unit.SHARE),
            ),
            locations=facts.locations(found.appended),
            caveats=("Attention must be causal: then the keys and values of earlier tokens stay the same.",),
        )


@frozen(eq=False)
class _GrowingPrefix:
    """Layers that are called with a sequence that grows by one token per call."""

    rows: Int64
    """Matrix products of the whole sequence, but for the first length: a cache has to be filled once."""

    appended: Int64
    """Calls that append a token."""

    lengths: tuple[int, ...]


def _growing_prefix(trace: Trace, windows: SpanSet) -> _GrowingPrefix | None:
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
    return _GrowingPrefix(rows, np.array(appending, dtype=np.int64), tuple(lengths))


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
    rows = trace.events.within(windows, rows)
    rows = rows[np.argsort(trace.events.start_ns[rows], kind="stable")]
    ids = trace.details.dims_id.at(rows, np.int32(NONE)).tolist()
    known = {one: decoded(trace.texts[one]) for one in set(ids) if one != NONE}
    return [(row, known[one]) for row, one in zip(rows.tolist(), ids, strict=True) if one != NONE]
