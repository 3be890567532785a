"""How much of a model's time goes with the positions of its samples, by the shapes of its operators."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set

import numpy as np

from traceadvisor.analysis.operators.forward import forward_operators
from traceadvisor.analysis.operators.inputs import read_inputs
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.run import Padding
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Facts

_SIZE = re.compile(r"\d+")

MOST_STEPS = 16
"""Steps whose sizes are compared: by then, batches of other lengths have come."""

REPEATED = 0.5
"""Times per step that an operator runs, relative to the positions, from which it runs once for each of them."""


MOST_AT_POSITION = 4.0
"""Times that a recurrence runs an operator with equal shapes for each position: two layers in both directions."""


def share_by_position(facts: Facts, padding: Padding, within: SpanSet) -> float:
    """Return the share of the model's time in operators on each position; 1 where no shapes were recorded.

    A layer on the mean of all positions has none of their sizes, and takes as long whatever their number. Where batches
    differ in length, sizes that not every step has may be their positions, too.

    Args:
        facts: of the recording.
        padding: of its batches.
        within: the spans of operators that count.
    """
    tree = facts.tree
    dims = facts.trace.details.dims_id.at(tree.rows, np.int32(NONE)).astype(np.int64)
    known = (dims != NONE) & within.contains(tree.start_ns)
    if not known.any():
        return 1.0
    sizes = {one: frozenset(map(int, _SIZE.findall(facts.trace.texts[one]))) for one in np.unique(dims[known]).tolist()}
    steps = np.array([step.start_ns for step in facts.steps.typical])
    follows = _follows(facts, padding, _by_step(tree.start_ns[known], dims[known], steps, sizes))
    chosen = known & np.isin(dims, [one for one, found in sizes.items() if found & follows])
    convolves = name_mask(facts.trace.names, lambda name: "conv" in name)[facts.trace.events.name_id[tree.rows]]
    texts = ((one, facts.trace.texts[one]) for one in np.unique(dims[chosen & convolves]).tolist())
    chosen &= ~(convolves & np.isin(dims, [one for one, text in texts if not follows & _places(text)]))
    kinds = np.unique(
        np.stack([facts.trace.events.name_id[tree.rows].astype(np.int64), dims]), axis=1, return_inverse=True
    )[1].reshape(-1)
    _, forward = forward_operators(facts.trace, tree)

    def with_backward(these: Mask) -> Mask:
        found: Mask = tree.nearest(these | ((forward != NONE) & np.append(these, False)[forward])) != NONE
        return found

    longer = with_backward(_longer(kinds, tree.outermost(), MOST_AT_POSITION * padding.longest))
    chosen = with_backward(chosen | _repeated(kinds, known & ~longer, REPEATED * padding.longest * steps.size))
    if facts.observation.has_device:
        launched = map(facts.launched_by, (tree.rows[chosen], tree.rows))
        part_ns, whole_ns = (facts.trace.events.spans(each).total_ns for each in launched)
        return part_ns / max(whole_ns, 1)
    own_ns = tree.self_time_ns()
    return int(own_ns[known & chosen].sum()) / max(int(own_ns[known].sum()), 1)


def _places(dims: str) -> frozenset[int]:
    """Sizes of the inputs of a convolution behind samples and channels."""
    return frozenset(size for shape in read_inputs(dims, "", "").shapes for size in shape[2:])


def _by_step(
    start_ns: Int64, dims: Int64, steps_ns: Int64, sizes: dict[int, frozenset[int]]
) -> Iterable[frozenset[int]]:
    """The sizes in the operators of each step."""
    step = steps_ns.searchsorted(start_ns, side="right") - 1
    for number in range(min(steps_ns.size, MOST_STEPS)):
        yield frozenset().union(*(sizes[one] for one in np.unique(dims[step == number]).tolist()))


def _follows(facts: Facts, padding: Padding, steps: Iterable[frozenset[int]]) -> Set[int]:
    """Sizes that follow the positions: these, those of whole batches, and those that not every step has."""
    lengths = range(max(padding.longest - 1, 2), padding.longest + 2)  # a model may cut off the first, or add one
    batch, by_step = facts.run.batch_size or 1, [one for one in steps if one and padding.varies]
    every = frozenset.intersection(*by_step) if by_step else frozenset()
    most = lengths[-1]  # larger sizes are those of other inputs, such as the sounds of a text
    varying = (one for one in frozenset().union(*by_step) - every if one <= most or not one % batch)
    return {*lengths, *(batch * length for length in lengths), *(one for one in varying if one <= batch * most)}


def _repeated(kinds: Int64, known: Mask, fewest: float) -> Mask:
    """Operators of a kind, which is a name with shapes, that runs so many times."""
    found: Mask = known & (np.bincount(kinds, known)[kinds] >= max(fewest, 2))
    return found


def _longer(kinds: Int64, outermost: Int64, most: float) -> Mask:
    """Operators within one that runs any kind more often than this, as a recurrence over another, longer input does."""
    inner = outermost != np.arange(outermost.size)
    pairs, count = np.unique(np.stack([outermost[inner], kinds[inner]]), axis=1, return_counts=True)
    found: Mask = inner & np.isin(outermost, pairs[0][count > most])
    return found
