"""IDLE018: a loop calls a recurrent layer for one position at a time, although it knows the next input before."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.chained_calls import product_shape
from traceadvisor.analysis.operators.forward import forward_operators, with_backward
from traceadvisor.analysis.operators.inputs import Shape, tensor_shapes
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX
from traceadvisor.analysis.operators.python_frames import frame_of
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.analysis.sampled.shares import line_calling
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, Option, Skipped, Unit
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.savings.interval import most_undisturbed_ns

FEWEST = 8
"""Calls of a layer per step that are a loop."""

_RECURRENT = re.compile(r"aten::(?:gru|lstm|rnn_tanh|rnn_relu)$")

_DRAWS = re.compile(
    r"aten::(?:argmax|argsort|max|min|sort|topk|multinomial|bernoulli\w*|_local_scalar_dense|item|is_nonzero|equal"
    r"|copy_|index_put_|index_copy_?|scatter_?|masked_fill_|masked_scatter_|where)$"
)
"""Operators by which the next input, or the choice of it, may depend on an output: they draw, read or store one."""

_READS = frozenset({"item", "tolist", "numpy", "cpu", "__array__", "__bool__", "__float__", "__int__", "__index__"})
"""Functions written in C that give the values of a tensor to Python."""

_PASSES_ON = re.compile(
    r"aten::(?:\w*view|reshape|\w*squeeze|expand|permute|transpose|t|to|contiguous|detach|clone|dropout|relu)$"
)
_TABLE = "aten::embedding"
_TO_LOSS = re.compile(r"aten::(?:\w*softmax|\w*_loss\w*)$")
"""Operators between an output and its loss."""

_GRU = "aten::gru"
MOST_OF_GRU = 0.7
"""Share of these iterations that one call saves at most, where the layer is a GRU. Measured (torch 2.13, CPU time of
one thread, 1 to 50 sequences, 32 to 256 units, 20 to 200 positions): 42% to 64% of them, with an RNN 52% to 85%, with
an LSTM, which torch then gives to oneDNN, 65% to 96%."""

DOUBT = "how long each operator takes on all positions is unknown"

WHOLE = Fix(
    "Run the recurrent layer once for all positions, and what follows it on all of its outputs: every input is known "
    "before the loop",
    "# in place of a loop over the positions: the inputs, one position later than what is to be predicted\n"
    "inputs = torch.cat([start, targets[:, :-1]], 1)\n"
    "outputs, hidden = rnn(embedding(inputs), hidden)",
    needs=frozenset({Part.MODEL}),
    not_replayed=DOUBT,
)


@frozen
class SinglePositions(Rule):
    """A recurrent layer runs for one position at a time, although its inputs do not depend on its outputs.

    What it finds: Without a GPU, calls of ``torch.nn.GRU``, ``LSTM`` or ``RNN`` with one position, in a loop, as in a
        decoder that gets the right words (teacher forcing). Each input comes from an embedding table, while between
        two calls nothing draws from an output, reads or stores values, or makes another state.
    Why it costs time: Each call, and each layer behind it, reads all weights for few rows, and the backward pass adds
        to the gradients of all weights once for each position.
    How to fix it: Shift the targets by one position, run the layer once over the whole sequence, and run the layers
        behind it on all of its outputs.
    How the saving is estimated: Upper limit: the time of these iterations, with their part of the backward pass, but
        one of each loop; 0.7 of it for a GRU, which runs position by position in one call, too. Half is expected.
    When it may be wrong: The script may compute an input from an output in a way that no operator shows. Wide layers
        with many sequences at once compute for about as long in one call.
    """

    meta = RuleMeta("IDLE018", "single-positions", "A recurrent layer runs for one position at a time")
    needs = frozenset({Input.STEPS})
    refines = frozenset({"IDLE004"})
    claims = frozenset({Category.FORWARD, Category.BACKWARD, Category.OTHER_HOST})

    min_share: float = 0.1
    """Share of the step that the fix may save. Less is not worth the change."""

    most_rows: int = 32
    """Sequences at once, above which matrix products use the weights often enough for each time that they are read,
    unless they are small. A decoder of 16 sequences took half as long in one call."""

    most_products: float = 4e6
    """Multiplications per call of a layer, above which these rows take most of its time. With 3 million, for 50
    sequences of 100 units, one call took half as long; with 6 million as long."""

    def check(self, facts: Facts) -> Outcome:
        if facts.observation.has_device:
            return Skipped("The run uses a GPU.")
        if not facts.trace.python_calls.start_ns.size:
            return Skipped(facts.unknown_without("Whether the script reads outputs is unknown", Option.STACKS))
        begins_ns = np.array([step.start_ns for step in facts.steps.typical], dtype=np.int64)
        found = _single_positions(facts.observation, facts.tree, facts.steps.typical_windows, begins_ns)
        if found is None:
            return Clear("calls for one position with known inputs", 0, FEWEST, Unit.PER_STEP)
        claims = found.spans & facts.claim(Category.FORWARD, Category.BACKWARD, Category.OTHER_HOST)
        share = facts.share(claims)
        if found.positions > self.most_rows and found.products > self.most_products:
            return Clear("sequences in a call", found.positions, self.most_rows, Unit.COUNT)
        if share < self.min_share:
            return Clear("time of calls for one position", share, self.min_share, Unit.SHARE)
        names = {facts.trace.names[one] for one in facts.trace.events.name_id[found.rows].tolist()}
        most = MOST_OF_GRU if names == {_GRU} else 1.0
        high_ns = most * most_undisturbed_ns(facts, facts.per_step_ns(claims), claims)
        line = line_calling(facts.run.stack_samples, "torch/nn/modules/rnn.py", "forward")
        return finding_of(
            facts,
            claims=claims,
            fix=WHOLE,
            saving=Estimate(0.0, high_ns / 2, high_ns, Method.BOUND, of_the_fix(DOUBT)),
            effort=Effort.REFACTOR,
            evidence=(
                facts.count_per_step("calls for one position, with a known input", found.rows.size),
                Evidence("sequences in a call", found.positions, Unit.COUNT),
                facts.time_per_step("time of these iterations", claims),
            ),
            locations=(line,) if line else facts.locations(found.rows),
            caveats=("If the script gives outputs back as inputs, each call needs the one before.",),
        )


@frozen(eq=False)
class _Iterations:
    """Iterations of loops over the positions of sequences that are known before the loop."""

    spans: SpanSet
    """These iterations, with their part of the backward pass."""

    rows: Int64
    """The operators of the recurrent layer that end these iterations."""

    positions: int
    """Sequences that one call computes a position of, at most."""

    products: int
    """Multiplications of one call in its first layer, at most."""


def _single_positions(
    observation: Observation, tree: OperatorTree, windows: SpanSet, begins_ns: Int64
) -> _Iterations | None:
    """Return the loops whose recurrent layer gets inputs that need no output; None without recorded shapes and calls.

    An input is known if it comes from a table by indices while, between two calls, nothing draws, reads or stores what
    the layer made, and no operator makes a tensor like its state of it, but for the output of a loss. Inputs that are
    numbers may be parts of an output.

    ``begins_ns``: when the steps begin, ascending.
    """
    trace, step_count = observation.trace, max(begins_ns.size, 1)
    if not (trace.python_calls.start_ns.size and any(map(_RECURRENT.match, trace.names))):
        return None
    at = tree.tops(observation.thread)
    at = at[windows.contains(tree.start_ns[at])]
    names = [trace.names[one] for one in trace.events.name_id[tree.rows[at]].tolist()]
    dims = trace.details.dims_id.at(tree.rows[at], np.int32(NONE)).tolist()
    shapes = [tensor_shapes(trace.texts[one]) if one != NONE else () for one in dims]
    calls = [place for place, name in enumerate(names) if _RECURRENT.match(name) and _is_single(shapes[place])]
    if len(calls) < FEWEST * step_count:
        return None
    starts_ns, breaks_ns = tree.start_ns[at], np.sort(np.concatenate((begins_ns, _reads_ns(observation))))
    ends: list[int] = []
    spans: list[SpanSet] = []
    for before, call in pairwise(calls):
        begin_ns, end_ns = int(starts_ns[before]), int(starts_ns[call])
        between = list(zip(names[before + 1 : call], shapes[before + 1 : call], strict=True))
        is_cut = breaks_ns.searchsorted(end_ns, "right") > breaks_ns.searchsorted(begin_ns, "right")
        if not is_cut and shapes[before] == shapes[call] and _is_known(between, shapes[call]):
            ends.append(call)
            spans.append(SpanSet.of((begin_ns, end_ns)))
    if len(ends) < (FEWEST - 1) * step_count:
        return None
    whole = with_backward(trace, tree, SpanSet.union_all(spans), forward_operators(trace, tree), windows)
    sequences, products = zip(*(_size(shapes[end]) for end in set(ends)), strict=True)
    return _Iterations(whole, tree.rows[at[ends]], max(sequences), max(products))


def _size(shapes: Sequence[Shape]) -> tuple[int, int]:
    """The sequences of a call for one position, and the multiplications by the weights of its first layer."""
    rows = prod(shapes[0][:2])
    weights = [shape for shape in shapes[1:] if len(shape) == 2][:2]
    return rows, rows * sum(map(prod, weights))


def _is_single(shapes: Sequence[Shape]) -> bool:
    """Whether a recurrent layer gets one position of each sequence, and a state."""
    return len(shapes) > 1 and len(shapes[0]) == 3 and 1 in shapes[0][:2] and len(shapes[1]) == 3


def _is_known(between: Sequence[tuple[str, tuple[Shape, ...]]], call: tuple[Shape, ...]) -> bool:
    """Whether the operators between two calls of a layer make its next input of nothing that the call before made."""
    if any(_DRAWS.match(name) or name.startswith(BACKWARD_PREFIX) for name, _ in between):
        return False
    if _makes_state(between, {call[1], call[1][1:]}):
        return False
    for name, _ in reversed(between):
        if name == _TABLE or not _PASSES_ON.match(name):
            return name == _TABLE
    return False


def _makes_state(between: Sequence[tuple[str, tuple[Shape, ...]]], states: set[Shape]) -> bool:
    """Whether operators make a tensor like the state of it: more than one output layer whose output has a loss."""
    made = 0
    is_output = False
    for name, shapes in between:
        if not states.intersection(shapes) or name == _TABLE or _PASSES_ON.match(name):
            continue
        if _TO_LOSS.match(name):
            is_output |= made == 1 and "_loss" in name
        elif (product := product_shape(name, shapes)) is None or product in states:
            made += 1 if product else 2
    return made > is_output


def _reads_ns(observation: Observation) -> Int64:
    """Return when Python reads values of tensors, ascending."""
    trace, calls = observation.trace, observation.trace.python_calls
    reads = [name for name in np.unique(calls.name_id).tolist() if _is_read(trace.names[name])]
    return np.sort(calls.start_ns[np.isin(calls.name_id, reads) & (calls.thread == observation.thread)])


def _is_read(name: str) -> bool:
    frame = frame_of(name)
    return frame.file is None and frame.function.rpartition(".")[2] in _READS
