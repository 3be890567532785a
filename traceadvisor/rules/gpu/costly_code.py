"""Places of the script that take much of a step without a GPU in operators, each with the sign of why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from traceadvisor.analysis.operators.forward import forward_operators
from traceadvisor.analysis.operators.inputs import Inputs, Shape, read_inputs
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, name_mask, rows_named
from traceadvisor.analysis.operators.user_functions import UserFunction, user_functions
from traceadvisor.analysis.sampled.shares import in_own_function, share_of_steps
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Evidence, Fix, Location, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Facts, Part, frozen

UNKNOWN = "the time of the other code is unknown"

OF_PARAMETRIZATIONS = Fix(
    "Compute each parametrized weight once per step: it stays the same until the optimizer steps",
    "import torch.nn.utils.parametrize as parametrize\n\n"
    "with parametrize.cached():  # around the forward and the backward pass\n"
    "    loss = criterion(model(x), y)\n"
    "    loss.backward()",
    not_replayed=UNKNOWN,
    needs=frozenset({Part.BACKWARD, Part.LOOP, Part.MODEL}),
)
OF_DECOMPOSITIONS = Fix.conditional(
    "If the matrix changes little from step to step, compute this decomposition less often. If only values are needed, "
    "use svdvals or eigvalsh; if only the largest, svd_lowrank; for a solution, a Cholesky factor",
)
OF_SPARSE = Fix.conditional(
    "If this sparse tensor stays the same, make it once, before the training, and keep it: no gradient goes through "
    "this function, and no data loader feeds it",
)
OF_INTERMEDIATES = Fix.conditional(
    "If this computes distances, do it without the large tensor in between, by torch.cdist or a matrix product; if "
    "sums of products, by einsum. If it needs all elements, work in parts that fit into the CPU's caches",
)

OF_FUNCTIONS = Fix(
    "Compute in this autograd.Function with operators on tensors of the whole batch, or compile its loops: the time is "
    "that of its Python code",
    not_replayed=UNKNOWN,
)

_LISTS = re.compile(r"nn\.Module: ParametrizationList_\d+$")
_AROUND_LISTS = re.compile(r"torch/nn/utils/parametrize\.py\(\d+\): get_parametrized$")
_DECOMPOSES = re.compile(
    r"aten::(?:linalg_(?:svd|eigh?|qr|pinv|lstsq|matrix_exp)|svd|symeig|qr|pinverse|matrix_exp)$"
    rf"|{BACKWARD_PREFIX}: (?:LinalgSvd|LinalgEigh?|LinalgQr|LinalgLstsq|LinalgMatrixExp)\w*Backward\d+$"
)
_SORTS_INDICES = re.compile(r"aten::_?coalesce$")
_MAKES_SPARSE_GRADIENTS = re.compile(r"aten::.*sparse_backward$")
_OWN = re.compile(r"[A-Za-z_]\w*$")
"""An operator that the script defines, by its class; most of torch's have the name of their library in front."""

_OF_TORCH = frozenset({"CheckpointFunction", "CompiledFunction", "_DDPSink"})
"""Classes of torch, without it."""

_WIDENS = re.compile(r"aten::(?:sub|repeat)$")
_ACTIVATES = re.compile(
    r"aten::(?:tanh|relu|sigmoid|gelu|silu|softplus|exp|sin|cos|leaky_relu|elu|(?:log_)?softmax)_?$"
)
_OF_LAYERS = re.compile(r"aten::\w*(?:mm|conv|linear|matmul|norm|attention|embedding|loss|dropout|lstm|gru|rnn)")

_ORDERS = re.compile(r"aten::(?:\w*sort|topk|\w*unique\w*|kthvalue|\w*median|searchsorted)$")
"""Operators that need all elements at once, in whatever form they come."""

LEAST_STRETCH_NS = 100_000
"""Python code of a function of the script without an operator of torch. Calls of operators are closer to each other."""

LEAST_GROWTH = 8
"""Elements of a tensor over those of the largest one that it is made of, from which it is large."""

LEAST_ELEMENTS = 1 << 18
"""Elements of a large tensor: in 32 bits, 1 MiB, about the cache of a core."""

MOST_ELEMENTS = 1 << 40
"""Elements that no tensor has."""

LEAST_PART = 0.1
"""Duration of an operator on the large tensor, over that of the one that makes it, at least."""


@frozen(eq=False)
class Cost:
    """A place that takes much of the step."""

    fix: Fix
    claims: SpanSet
    evidence: tuple[Evidence, ...]
    locations: tuple[Location, ...]
    most_share: float | None = None
    """The largest share of undisturbed steps that samples show for it; None if they do not tell."""


def costs(facts: Facts) -> Iterator[Cost]:
    """Yield the costs of typical steps of a training without a GPU."""
    functions = user_functions(facts.observation, facts.tree, facts.steps.typical_windows)
    backward = backward_of(facts)
    yield from _parametrizations(facts, functions, backward)
    yield from _decompositions(facts)
    yield from _sparse(facts, functions)
    yield from _intermediates(facts, functions, backward)
    yield from _own_functions(facts, functions)


Backward = Callable[[SpanSet], SpanSet]


def backward_of(facts: Facts) -> Backward:
    """Return what finds the backward pass of operators that begin in some spans."""
    events, tree = facts.trace.events, facts.tree
    nodes, forward = forward_operators(facts.trace, tree)
    linked = np.flatnonzero(forward != NONE)
    node, first = np.unique(nodes[linked], return_index=True)
    made_ns, rows = tree.start_ns[forward[linked][first]], tree.rows[node]
    return lambda spans: events.spans(rows[spans.contains(made_ns)])


def _parametrizations(facts: Facts, functions: list[UserFunction], backward: Backward) -> Iterator[Cost]:
    """Calls of parametrizations that compute a weight again in the same step, with their backward pass."""
    calls, windows = facts.trace.python_calls, facts.steps.typical_windows
    rows, outer = (_calls(facts, names) for names in (_LISTS, _AROUND_LISTS))
    step = np.searchsorted([one.start_ns for one in facts.steps.typical], calls.start_ns[rows], side="right")
    _, first = np.unique(step * len(facts.trace.names) + calls.name_id[rows], return_index=True)
    again = np.delete(rows, first)
    around = np.append(outer, NONE)[np.searchsorted(calls.start_ns[outer], calls.start_ns[again], side="right") - 1]
    whole = np.where((around != NONE) & (calls.end_ns[around] >= calls.end_ns[again]), around, again)
    spans = SpanSet.union_of(calls.start_ns[whole], calls.end_ns[whole])
    if spans:
        evidence = (
            facts.count_per_step("computations of parametrized weights", rows.size),
            facts.count_per_step("parametrized weights", first.size),
        )
        found = _innermost(spans, functions)
        yield Cost(OF_PARAMETRIZATIONS, (spans | backward(spans)) & windows, evidence, found)


def _decompositions(facts: Facts) -> Iterator[Cost]:
    """Decompositions of matrices, with their backward pass."""
    rows = facts.operators(_DECOMPOSES.match)
    if rows.size:
        events, names = facts.trace.events, facts.trace.names
        made = rows[[not names[name].startswith(BACKWARD_PREFIX) for name in events.name_id[rows].tolist()]]
        evidence = (facts.count_per_step("decompositions of matrices", made.size),)
        yield Cost(OF_DECOMPOSITIONS, events.spans(rows), evidence, facts.locations(made))


def _sparse(facts: Facts, functions: list[UserFunction]) -> Iterator[Cost]:
    """Functions without gradients that sort indices of sparse tensors in each step, which no data loader feeds.

    Gradients may be such tensors, and differ from step to step.
    """
    rows, is_fed = facts.operators(_SORTS_INDICES.match), facts.observation.loader or facts.settings.loader
    if is_fed or not rows.size or facts.operators(_MAKES_SPARSE_GRADIENTS.match).size:
        return
    events = facts.trace.events
    for one in reversed(functions):
        mine = events.within(one.spans, rows)
        if not one.backward and 2 * mine.size > rows.size and mine.size >= facts.step_count:
            evidence = (facts.count_per_step("sparse tensors whose indices are sorted", mine.size),)
            yield Cost(OF_SPARSE, one.spans, evidence, (line_in(facts, one.location, mine),))
            return


def _intermediates(facts: Facts, functions: list[UserFunction], backward: Backward) -> Iterator[Cost]:
    """Functions whose operators mostly work on a tensor far larger than those that it is made of."""
    events, widening = facts.trace.events, facts.operators(_WIDENS.match)
    sizes = _sizes(facts, widening)
    widening = widening[[made >= LEAST_ELEMENTS and made >= LEAST_GROWTH * most for made, most in sizes]]
    largest = max((made for made, most in sizes if made >= LEAST_GROWTH * most), default=0)
    for one in reversed(functions):
        mine = events.within(one.spans, widening)
        if not mine.size:
            continue
        rows = outermost_in(facts, one.spans)
        rows = rows[_follows(one.spans, events.start_ns[mine], events.start_ns[rows])]
        rows = rows[events.duration_ns[rows] >= LEAST_PART * float(np.median(events.duration_ns[mine]))]
        names = [facts.trace.names[name] for name in events.name_id[rows].tolist()]
        if not any(map(_ACTIVATES.match, names)):
            orders = np.array([_ORDERS.match(name) is not None for name in names], np.bool_)
            stays = orders | [_OF_LAYERS.match(name) is not None for name in names]
            spans, ordering = events.spans(rows[~stays]), events.spans(rows[orders])
            if ordering.total_ns > spans.total_ns / 4:
                continue
            rows = rows[~stays]
            evidence = (
                Evidence("elements of the largest tensor in between", largest, Unit.COUNT),
                facts.count_per_step("operators on it", rows.size),
            )
            yield Cost(OF_INTERMEDIATES, spans | backward(spans), evidence, facts.locations(mine))
        return


def _own_functions(facts: Facts, functions: list[UserFunction]) -> Iterator[Cost]:
    """Python code of the script inside of the operators that it defines, forward and backward."""
    events = facts.trace.events
    inner = rows_named(facts.trace, Kind.OPERATOR, lambda name: name.startswith("aten::"))
    inside = events.spans(facts.operators(_is_own))
    python = SpanSet.union_all(one.spans for one in functions if not one.spans - inside)
    spans = (python - events.spans(inner)).lasting(LEAST_STRETCH_NS)
    sampled = share_of_steps(facts.run.stack_samples, in_own_function)
    if spans:
        evidence = (facts.count_per_step("stretches of Python code in its own operators", len(spans)),)
        most_share = sampled.high * facts.timing.rest_share if sampled else None
        yield Cost(OF_FUNCTIONS, spans, evidence, _innermost(spans, functions), most_share)


def _is_own(name: str) -> bool:
    return _OWN.match(name) is not None and name.removesuffix("Backward") not in _OF_TORCH


def _follows(spans: SpanSet, firsts_ns: Int64, instants_ns: Int64) -> Mask:
    """Whether some instants inside of spans come behind the first one of others in the same span."""
    first_ns = np.full(len(spans), np.iinfo(np.int64).max)
    np.minimum.at(first_ns, np.searchsorted(spans.starts_ns, firsts_ns, side="right") - 1, firsts_ns)
    follows: Mask = instants_ns >= first_ns[np.searchsorted(spans.starts_ns, instants_ns, side="right") - 1]
    return follows


def _calls(facts: Facts, names: re.Pattern[str]) -> Int64:
    """Python calls of the training thread of some names in typical steps."""
    calls, windows = facts.trace.python_calls, facts.steps.typical_windows
    is_named = name_mask(facts.trace.names, names.match)
    rows = np.flatnonzero(is_named[calls.name_id] & (calls.thread == facts.observation.thread))
    chosen: Int64 = rows[windows.contains(calls.start_ns[rows])]
    return chosen


def outermost_in(facts: Facts, spans: SpanSet) -> Int64:
    """Return the operators of the training thread in some spans, without those inside others."""
    return facts.trace.events.within(spans, facts.tree.rows[facts.tree.tops(facts.observation.thread)])


def line_in(facts: Facts, function: Location, rows: Int64) -> Location:
    """Return the line of a function that makes the longest of some calls; the function where no line was recorded."""
    longest = rows[[int(facts.trace.events.duration_ns[rows].argmax())]]
    lines = (at for at in facts.locations(longest) if at.is_line and at.file == function.file)
    return next((at for at in lines if at.function == function.function), function)


def _innermost(spans: SpanSet, functions: list[UserFunction]) -> tuple[Location, ...]:
    """The innermost function of the user around most of some spans."""
    around = (one.location for one in reversed(functions) if 2 * (one.spans & spans).total_ns > spans.total_ns)
    return tuple(location for location, _ in zip(around, range(1), strict=False))


def _sizes(facts: Facts, rows: Int64) -> list[tuple[float, float]]:
    """Return for each operator the elements of what it makes, and those of its largest input."""
    details, texts = facts.trace.details, facts.trace.texts
    ids = np.stack([one.at(rows, np.int32(NONE)) for one in (details.dims_id, details.concrete_id)])
    distinct, places = np.unique(ids, axis=1, return_inverse=True)
    dims, concrete = ([texts[one] if one != NONE else "" for one in row.tolist()] for row in distinct)
    known = [_made_of(read_inputs(shapes, "", values)) for shapes, values in zip(dims, concrete, strict=True)]
    return [known[place] for place in places.reshape(-1).tolist()]


def _made_of(inputs: Inputs) -> tuple[float, float]:
    """Elements of what an operator makes, and those of its largest input; as if none were large beyond all memory."""
    shapes = [shape for shape in inputs.shapes if shape]
    most = max(map(_elements, shapes), default=0.0)
    repeats = inputs.value(1)
    if len(shapes) == 1 and isinstance(repeats, list) and all(isinstance(one, int) and one > 0 for one in repeats):
        made = most * _elements(repeats)
    else:
        made = _elements(_broadcast(shapes)) if len(shapes) > 1 else most
    return (made, most) if made < MOST_ELEMENTS else (most, most)


def _elements(sizes: Sequence[int]) -> float:
    """Return the product of sizes, of which a damaged file may have any."""
    return float(np.prod([min(size, MOST_ELEMENTS) for size in sizes], dtype=np.float64))


def _broadcast(shapes: list[Shape]) -> list[int]:
    width = max(map(len, shapes))
    padded = [(1,) * (width - len(shape)) + shape for shape in shapes]
    return [max(sizes) for sizes in zip(*padded, strict=True)]
