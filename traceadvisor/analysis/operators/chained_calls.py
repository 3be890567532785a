"""Calls of one module of which each needs what the call before made, such as those of a solver or a decoder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.forward import forward_operators, with_backward
from traceadvisor.analysis.operators.innermost import positions_by
from traceadvisor.analysis.operators.inputs import Shape, tensor_shapes
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, name_mask
from traceadvisor.analysis.operators.python_frames import MODULE_PREFIX
from traceadvisor.analysis.operators.tree import OperatorTree, parents_of
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.spans import SpanSet

FEWEST_CALLS = 8
"""Calls of a module per step that are a loop."""

_PRODUCT = re.compile(r"aten::(?:linear|matmul|einsum|\w*mm)$")
_TAKES = re.compile(r"aten::(?:select|slice|narrow|unbind|index|index_select|chunk|\w*split\w*|gather)$")
"""Operators that take a part of a tensor: what a call needs may have been there before the loop."""

_TAKES_APART = re.compile(r"aten::(?:unbind|chunk|\w*split\w*)$")
"""Operators that make all parts of a tensor, such as a loop over it does."""

_DRAWS = re.compile(r"aten::(?:argmax|multinomial|topk)$")
"""Operators that draw the next input from an output."""

_BREAKS = re.compile(f"{BACKWARD_PREFIX}|{_PRODUCT.pattern}|{_TAKES_APART.pattern}")
_LINEAR = "aten::linear"


@frozen(eq=False)
class _Loop:
    """Outermost operators of the training thread, in order of time; positions of some of them, ascending."""

    names: list[str]
    shapes: list[tuple[Shape, ...]]
    starts_ns: Int64
    has_input_gradient: dict[int, bool]
    """For matrix products that the backward pass goes back through."""

    products: Int64
    takes: Int64
    draws: Int64
    others: Int64
    """Matrix products, nodes of the backward pass, and what takes tensors apart."""

    def pairs(self, calls: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Return the time of each two calls of a module of which the second needs what the first made.

        None does in a loop over the parts of a tensor, which are made right before it.
        """
        parts = self._follows_parts(calls[0][0])
        for before, call in pairwise(calls):
            if self._within(self.others, before[1], call[0]).size:
                parts = self._follows_parts(call[0])
            if not parts and self._is_chained(before, call):
                yield before[0], call[1]

    def _is_chained(self, before: tuple[int, int], call: tuple[int, int]) -> bool:
        """Whether a call of a module needs what the call before made.

        An output that the next input is drawn from does. Else a call takes a tensor of the shape that the one before
        made, or the operator right before it does, no part of another tensor is taken between, and gradients go
        back to the input. Without gradients, some operator has to make that input: nothing tells calls that follow each
        other at once from a loop over a list.
        """
        products, made_by = self._within(self.products, *call), self._within(self.products, *before)
        if not products.size or not made_by.size or self._has_backward(before[1], call[0]):
            return False
        takes, draws = (self._within(which, before[1], call[0]) for which in (self.takes, self.draws))
        if draws.size:
            return not takes.size or bool(draws[-1] > takes[-1])
        first, last = int(products[0]), int(made_by[-1])
        made, has_gradient = product_shape(self.names[last], self.shapes[last]), self.has_input_gradient.get(first)
        after, begin = self.starts_ns.searchsorted((before[1], call[0])).tolist()
        if has_gradient and begin > after and not self._within(self.products, before[1], call[0]).size:
            begin -= 1
        given = {shape for at in range(begin, first + 1) for shape in self.shapes[at]}
        is_made = has_gradient if has_gradient is not None else begin > after
        return made in given and not takes.size and is_made

    def _within(self, which: Int64, start_ns: int, end_ns: int) -> Int64:
        """Which operators start in some time."""
        return which[slice(*which.searchsorted(self.starts_ns.searchsorted((start_ns, end_ns))))]

    def _has_backward(self, start_ns: int, end_ns: int) -> bool:
        return any(self.names[at].startswith(BACKWARD_PREFIX) for at in self._within(self.others, start_ns, end_ns))

    def _follows_parts(self, start_ns: int) -> bool:
        """Whether tensors are taken apart before an instant, after the last matrix product and backward pass."""
        before = self.others[: self.others.searchsorted(self.starts_ns.searchsorted(start_ns))]
        return bool(before.size) and _TAKES_APART.match(self.names[before[-1]]) is not None


def chained_calls(observation: Observation, tree: OperatorTree, windows: SpanSet, step_count: int) -> SpanSet:
    """Return the time of calls of one module that need each other's output, and of their part of the backward pass.

    Of modules within each other, the outermost that runs in a loop counts. Empty without recorded Python calls or
    shapes.
    """
    loops = list(_loops(observation, windows, FEWEST_CALLS * step_count))
    if not loops:
        return SpanSet.empty()
    nodes, forward = forward_operators(observation.trace, tree)
    loop = _loop(observation, tree, windows, nodes, forward)
    pairs = [SpanSet.of(pair) for calls in loops for pair in loop.pairs(calls)]
    return with_backward(observation.trace, tree, SpanSet.union_all(pairs) & windows, (nodes, forward), windows)


def _loops(observation: Observation, windows: SpanSet, fewest: int) -> Iterator[list[tuple[int, int]]]:
    """Return the calls of each module that is called often, without those within calls of others."""
    trace, calls = observation.trace, observation.trace.python_calls
    rows = np.flatnonzero((calls.thread == observation.thread) & windows.contains(calls.start_ns))
    counts = np.bincount(calls.name_id[rows], minlength=len(trace.names))
    many = [name for name in np.flatnonzero(counts >= fewest).tolist() if trace.names[name].startswith(MODULE_PREFIX)]
    rows = rows[np.isin(calls.name_id[rows], many)]
    rows = rows[np.lexsort((-calls.end_ns[rows], calls.start_ns[rows]))]
    rows = rows[parents_of(calls.start_ns[rows], calls.end_ns[rows], calls.thread[rows]) == NONE]
    for places in positions_by(calls.name_id[rows]).values():
        if places.size >= fewest:
            mine = rows[places]
            yield list(zip(calls.start_ns[mine].tolist(), calls.end_ns[mine].tolist(), strict=True))


def _loop(observation: Observation, tree: OperatorTree, windows: SpanSet, nodes: Int64, forward: Int64) -> _Loop:
    trace = observation.trace
    positions = tree.tops(observation.thread)
    positions = positions[windows.contains(tree.start_ns[positions])]
    name_id = trace.events.name_id[tree.rows]
    ids = trace.details.dims_id.at(tree.rows, np.int32(NONE))
    known = {one: tensor_shapes(trace.texts[one]) for one in np.unique(ids[ids != NONE]).tolist()}
    shapes = [known.get(one, ()) for one in ids.tolist()]

    def named(pattern: re.Pattern[str]) -> Mask:
        return name_mask(trace.names, pattern.match)[name_id]

    is_product, place = named(_PRODUCT), np.full(tree.rows.size, NONE, dtype=np.int64)
    place[positions] = np.arange(positions.size)
    outermost, has_gradient = tree.outermost(), dict[int, bool]()
    for at in np.flatnonzero(is_product & (nodes != NONE) & (forward != NONE)).tolist():
        if made := product_shape(trace.names[name_id[forward[at]]], shapes[forward[at]]):
            product = int(place[outermost[forward[at]]])
            has_gradient[product] = has_gradient.get(product, False) or shapes[at][:1] == (made,)
    return _Loop(
        [trace.names[one] for one in name_id[positions].tolist()],
        [shapes[at] for at in positions.tolist()],
        tree.start_ns[positions],
        has_gradient,
        *(np.flatnonzero(named(which)[positions]) for which in (_PRODUCT, _TAKES, _DRAWS, _BREAKS)),
    )


def product_shape(name: str, shapes: tuple[Shape, ...]) -> Shape | None:
    """Return the shape of what a matrix product makes; None if unknown, or for another operator."""
    if not _PRODUCT.match(name):
        return None
    match [shape for shape in shapes if len(shape) > 1]:
        case [(*rows, _), other]:
            return *rows, other[0 if name == _LINEAR else -1]
        case _:
            return None
