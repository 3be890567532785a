"""Loops over small operators: of parts of tensors, and of functions that make a scalar for each part of a batch."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from traceadvisor.analysis.operators.forward import forward_operators, with_backward
from traceadvisor.analysis.operators.inputs import tensor_shapes
from traceadvisor.analysis.operators.looped_operators import (
    FEWEST_CALLS,
    LoopedOperators,
    calling_share,
    looping_library,
    outermost_forward,
)
from traceadvisor.analysis.operators.user_functions import UserFunction, user_functions
from traceadvisor.analysis.sampled.shares import (
    SampledShare,
    call_in_training,
    in_backward,
    own_lines_of,
    share_in_function,
    share_of_steps,
)
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Effort, Estimate, Evidence, Fix, Location, Method, Unit
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Category, Facts, Outcome, finding_of, frozen
from traceadvisor.rules.operator_sizes import MOST_APART_NS, MOST_USUAL_US, operators_in, usual_ns
from traceadvisor.savings.interval import most_undisturbed_ns

CELLS = re.compile(r"aten::(?:lstm_cell|gru_cell|rnn_tanh_cell|rnn_relu_cell)$")
"""Operators of one time step of a recurrent layer."""

COMPUTES = re.compile(
    r"aten::(?:\w*mm|matmul|einsum|linear|softmax|scaled_dot_product_attention|argmax|multinomial|topk)$"
)
"""Operators of an attention, of an output layer, and of what draws the next input from it."""

TAKES = re.compile(r"aten::(?:select|slice|narrow|unbind|index|index_select)$")
"""Operators that take a part of a tensor, such as an input from a whole sequence."""

FEWEST_PER_CALL = 20
"""Operators and nodes per call of a function, from which one call for all parts has far fewer."""

_REDUCES = re.compile(r"aten::(?:sum|mean|amax|amin|max|min|logsumexp|select|dot|\w*norm|\w*_loss\w*)$")
"""Operators that make a scalar of a vector."""

MOST_OF_OPERATORS = 0.75
"""Share of the operators outside the backward pass that begin in one function of the script, from which the operators
are its own: the rest of the step stays as it is."""


UNKNOWN_LOOP = "how long each operator takes on all parts at once is unknown"
OF_BATCH_NORM = "In one call, batch normalization takes its statistics over all parts at once."
TITLE_OF_LOOP = "A loop calls the same small operators again and again"

OF_CELLS = (
    "If this loop is a recurrent cell, run all time steps with torch.nn.LSTM, GRU or RNN. Otherwise compute what needs "
    "no earlier step, such as the products of the inputs, for all steps before the loop"
)
OF_MODULE = (
    "If no call in the loop needs the result of another, fold what the loop goes over into the batch and make one call "
    "(x.flatten(0, 1), then unflatten). Otherwise compute before the loop, for all iterations, what needs none of them"
)
OF_TENSORS = (
    "If no iteration of the loop needs the result of another, compute all with one operator each on whole tensors, by "
    "broadcasting. Otherwise compute before the loop, for all iterations, what needs none of them"
)

_GATES = ("aten::sigmoid", "aten::tanh")
_DRAWS = re.compile(r"aten::(?:argmax|multinomial|topk|bernoulli\w*|item|_local_scalar_dense)$")
"""Operators from whose result a loop may compute its next input."""

_LAYERS = re.compile(
    r"aten::(?:\w*mm|linear|matmul|einsum|conv\w*|scaled_dot_product_attention|argmax|multinomial|topk|\w*_cell)$"
)
"""Operators of layers, and of what draws their next input."""

_TAKES_APART = re.compile(r"aten::(?:unbind|chunk|\w*split\w*)$")
_NORMALIZES = re.compile(r"aten::\w*batch_norm$")

MOSTLY_CALLING = 0.35
"""Share of a loop's time in calling its operators, from which one call for all iterations is much shorter. It was 0.37
in three recurrent layers by hand, of which ``torch.nn.LSTM`` spared 45%."""

LEAST_OF_LOOP = 0.1
"""Time of operators alike, relative to those that take most, from which their number tells that of iterations."""

LOOP_SHARE = 0.6
"""Share of the time of small operators in one loop, from which its remedy is the one for all."""

TAKEN_SHARE = 0.5
"""Parts of tensors that a loop takes in each iteration, from which it goes over them."""

LINE_SHARE = 0.3
"""Share of the samples of a function from which its line is named."""


@frozen(eq=False)
class Loop:
    """A loop over small operators that goes over parts of tensors."""

    claims: SpanSet
    saved_share: float
    """Share of the recorded step that calling its operators takes, without that of one iteration."""

    calls: int
    way: str
    """A remedy for each condition."""

    evidence: Evidence
    locations: tuple[Location, ...]
    has_batch_norm: bool


def loop_of(facts: Facts, chained: SpanSet) -> Loop | None:
    """The loop over small operators that takes the most of the training passes; None without one."""
    passes = facts.claim(Category.FORWARD, Category.OTHER_HOST) - chained
    found = outermost_forward(facts.observation, facts.tree, passes)
    own, repeats = _repeated(facts, found)
    is_looped = repeats >= FEWEST_CALLS
    library = looping_library(facts.observation, found, MOST_OF_OPERATORS * max(int(is_looped.sum()), 1))
    if not is_looped.any() or (library and not (own and own.spans.total_ns < library[1].total_ns)):
        return None
    calls, iterations = _iterations(facts, found, repeats)
    if not _goes_over_parts(facts, found, is_looped, own, iterations):
        return None
    rows = found.rows[is_looped]
    claims = _with_backward(facts, rows, found.rows) & (passes | (facts.claim(Category.BACKWARD) - chained))
    inner = operators_in(facts, claims)
    in_operators = min(int(facts.trace.events.duration_ns[inner].sum()) / max(claims.total_ns, 1), 1.0)
    calling = 1 - in_operators * (1 - calling_share(facts.observation, facts.tree, inner))
    if calling < MOSTLY_CALLING:
        return None
    lines = own_lines_of(facts.run.stack_samples, own.location, LINE_SHARE) if own else most_of(facts, rows)
    looped = _names(facts, rows)
    has_gates = all(name in looped for name in _GATES) and any(map(COMPUTES.match, looped))
    is_module = np.unique(found.module_calls[is_looped & (found.module_calls != NONE)]).size >= iterations
    return Loop(
        claims,
        facts.share(claims) * calling * (1 - 1 / calls),
        calls,
        OF_CELLS if has_gates else OF_MODULE if is_module else OF_TENSORS,
        Evidence("calls of each operator in this loop", calls, Unit.COUNT),
        lines[:1] or ((own.location,) if own else ()),
        any(map(_NORMALIZES.match, looped)),
    )


def _names(facts: Facts, rows: Int64) -> list[str]:
    return [facts.trace.names[one] for one in facts.trace.events.name_id[rows].tolist()]


def _repeated(facts: Facts, found: LoopedOperators) -> tuple[UserFunction | None, Int64]:
    """The innermost function that repeats most of the operators, and how often each is repeated in a call of it.

    Every operator that the same module calls with the same shapes is of one loop. Without such a function, in a pass.
    """
    starts_ns = facts.trace.events.start_ns[found.rows]
    everywhere = np.arange(found.rows.size)
    repeats = found.repeats(np.zeros_like(everywhere), everywhere)
    is_repeated = repeats >= FEWEST_CALLS
    least = MOST_OF_OPERATORS * max(int(is_repeated.sum()), 1)
    for one in sorted(functions_of(facts), key=lambda one: one.spans.total_ns):
        if (one.spans.contains(starts_ns) & is_repeated).sum() >= least:  # calls of a function only divide them further
            here = found.repeated_in(one.spans, starts_ns)
            if (here >= FEWEST_CALLS).sum() >= least:
                return one, here
    return None, repeats


def _iterations(facts: Facts, found: LoopedOperators, repeats: Int64) -> tuple[int, int]:
    """How often a call of the loop repeats its operators, and how often all calls do."""
    is_looped = repeats >= FEWEST_CALLS
    durations_ns = facts.trace.events.duration_ns[found.rows[is_looped]]
    alike_ns = np.bincount(found.alike[is_looped], durations_ns, int(found.alike.max()) + 1)
    is_usual = is_looped & (alike_ns >= LEAST_OF_LOOP * alike_ns.max())[found.alike]
    is_usual &= repeats == repeats[is_usual].min()
    return int(repeats[is_usual][0]), int(np.bincount(found.alike[is_usual]).max())


def _goes_over_parts(
    facts: Facts, found: LoopedOperators, is_looped: Mask, own: UserFunction | None, iterations: int
) -> bool:
    """Whether a loop takes parts of tensors, and none of its operators draws or is a whole recurrent cell."""
    looped = _names(facts, found.rows[is_looped])
    if any(_DRAWS.match(name) or CELLS.match(name) for name in looped):
        return False
    if sum(TAKES.match(name) is not None for name in looped) >= TAKEN_SHARE * iterations:
        return True
    around = facts.trace.events.within(own.spans, found.rows) if own else found.rows[:0]
    return any(map(_TAKES_APART.match, _names(facts, around)))


def _with_backward(facts: Facts, rows: Int64, around: Int64) -> SpanSet:
    """The time of some operators and of the Python up to the next one around, with their part of the backward pass."""
    events = facts.trace.events
    starts_ns, ends_ns = events.start_ns[rows], events.end_ns[rows]
    others_ns = np.append(events.start_ns[around], ends_ns[-1:])
    next_ns = others_ns[np.searchsorted(others_ns[:-1], starts_ns, side="right")]
    spans = SpanSet.union_of(starts_ns, np.maximum(ends_ns, np.minimum(next_ns, ends_ns + MOST_APART_NS)))
    links = forward_operators(facts.trace, facts.tree)
    return with_backward(facts.trace, facts.tree, spans, links, facts.steps.typical_windows)


def most_of_loop_ns(facts: Facts, loop: Loop) -> float:
    """The largest part of an undisturbed step that all iterations but one can be."""
    return (1 - 1 / loop.calls) * most_undisturbed_ns(facts, facts.per_step_ns(loop.claims), loop.claims)


def finding_of_loop(facts: Facts, loop: Loop) -> Outcome:
    """A finding on a loop whose operators are larger, but take most of their time to be called."""
    most_ns = most_of_loop_ns(facts, loop)
    expected_ns = loop.saved_share * (facts.step_ns or 0.0)
    label = "time of this loop, with its part of the backward pass"
    return finding_of(
        facts,
        claims=loop.claims,
        title=TITLE_OF_LOOP,
        fix=Fix.conditional(loop.way),
        saving=Estimate(0.0, min(expected_ns, most_ns), most_ns, Method.BOUND, of_the_fix(UNKNOWN_LOOP)),
        effort=Effort.REFACTOR,
        evidence=(
            loop.evidence,
            facts.time_per_step(label, loop.claims),
        ),
        locations=loop.locations,
        caveats=(OF_BATCH_NORM,) if loop.has_batch_norm else (),
    )


OF_PARTS = (
    "If no call of {name} needs the result of another, compute all parts in one call, padded and with a mask where "
    "their sizes differ. Loop only over what needs the one before, such as time"
)


def _of_parts(facts: Facts, own: UserFunction, claims: SpanSet, most_share: float) -> Outcome:
    """A finding on a function that is called for each part; ``most_share``: of undisturbed steps in it."""
    calls = len(own.spans) / facts.step_count
    called = calling_share(facts.observation, facts.tree, operators_in(facts, claims)) * (1 - 1 / calls)
    call = call_in_training(facts.run.stack_samples, own.location)
    most_ns = most_share * called * (facts.step_ns or 0.0)
    return finding_of(
        facts,
        claims=claims,
        title="A loop calls small operators for each part of the batch",
        fix=Fix.conditional(OF_PARTS.format(name=own.location.function)),
        saving=Estimate(0.0, most_ns / 2, most_ns, Method.BOUND, of_the_fix(UNKNOWN_LOOP)),
        effort=Effort.REFACTOR,
        evidence=(
            Evidence("calls of this function per step", round(calls), Unit.COUNT),
            Evidence("share of undisturbed steps in this function, at most", most_share, Unit.SHARE),
            facts.time_per_step("time of this loop, with its part of the backward pass", claims),
        ),
        locations=(*((call,) if call else ()), own.location),
    )


def _makes_scalars(facts: Facts, own: UserFunction) -> bool:
    """Whether most calls of a function take parts of tensors, and end with a scalar, which the next has no use for.

    Where they multiply matrices, as layers do, or draw, nothing tells.
    """
    details, texts = facts.trace.details, facts.trace.texts
    rows = outermost_forward(facts.observation, facts.tree, facts.steps.typical_windows).rows
    names, starts_ns = _names(facts, rows), facts.trace.events.start_ns[rows]
    begins, ends = (np.searchsorted(starts_ns, at).tolist() for at in (own.spans.starts_ns, own.spans.ends_ns))
    scalars = takes = 0
    for before, begin, end in zip([begins[0], *ends[:-1]], begins, ends, strict=True):
        if any(map(_LAYERS.match, names[begin:end])):
            return False
        takes += any(map(TAKES.match, names[before:end]))
        dims = int(details.dims_id.at(rows[end - 1 : end], np.int32(NONE))[0]) if end > begin else NONE
        most = max(map(len, tensor_shapes(texts[dims])), default=0) if dims != NONE else 2
        scalars += most == 0 or (most == 1 and _REDUCES.match(names[end - 1]) is not None)
    return min(scalars, takes) > TAKEN_SHARE * len(begins)


def over_parts(facts: Facts, passes: SpanSet, least_share: float) -> Outcome | None:
    """A finding on the function that takes most among those that make a scalar for each part of the batch."""
    found = [
        (one, high)
        for one in functions_of(facts)
        if one.backward
        and len(one.spans) >= FEWEST_CALLS * facts.step_count
        and operators_in(facts, passes & one.whole).size >= FEWEST_PER_CALL * len(one.spans)
        and min(facts.share(passes & one.whole), sampled_share(facts, one, lambda share: share.share) or 0.0)
        >= least_share
        and usual_ns(facts, passes & one.whole) < MOST_USUAL_US * 1e3
        and _makes_scalars(facts, one)
        and (high := sampled_share(facts, one, lambda share: share.high)) is not None
    ]
    own, high = max(found, key=lambda one: (passes & one[0].whole).total_ns, default=(None, 0.0))
    return _of_parts(facts, own, passes & own.whole, high) if own else None


def functions_of(facts: Facts) -> list[UserFunction]:
    """The functions of the script in typical steps."""
    return user_functions(facts.observation, facts.tree, facts.steps.typical_windows)


def sampled_share(facts: Facts, own: UserFunction, pick: Callable[[SampledShare], float]) -> float | None:
    """The share of undisturbed steps in a function and in its part of the backward pass; None if not sampled.

    A recording makes small operators longer than all others.

    ``pick``: which end of the share in the function.
    """
    samples, passes = facts.run.stack_samples, facts.claim(Category.BACKWARD)
    inside, backward = share_in_function(samples, own.location), share_of_steps(samples, in_backward)
    if inside is None:
        return None
    part = (own.backward & passes).total_ns / max(passes.total_ns, 1)
    return min(pick(inside) + (backward.share * part if backward else 0.0), 1.0) * facts.timing.rest_share


def most_of(facts: Facts, rows: Int64) -> tuple[Location, ...]:
    """The line of the user's code that most time of some operators comes from; none without recorded stacks."""
    times_ns: dict[Location, int] = {}
    for at, length_ns in zip(facts.stacks.locations(rows), facts.trace.events.duration_ns[rows].tolist(), strict=True):
        if at:
            times_ns[at] = times_ns.get(at, 0) + length_ns
    most = max(times_ns, key=lambda one: times_ns[one], default=None)
    return (most,) if most else ()
