"""Many small operators in the forward and backward pass of a training without a GPU, and the Python between them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from traceadvisor.analysis.idle.places import Place, recurring_places
from traceadvisor.analysis.operators.call_sites import CallSite, LeftOut, call_sites
from traceadvisor.analysis.operators.composites import composite_spans
from traceadvisor.analysis.operators.forward import backward_rows, forward_operators, with_backward
from traceadvisor.analysis.operators.inputs import tensor_shapes
from traceadvisor.analysis.operators.looped_operators import (
    FEWEST_CALLS,
    LoopedOperators,
    called_by_layers,
    calling_share,
    outermost_forward,
)
from traceadvisor.analysis.operators.metric_modules import metric_calls
from traceadvisor.analysis.operators.names import usual_durations
from traceadvisor.analysis.operators.python_frames import frame_of
from traceadvisor.analysis.operators.user_functions import UserFunction, user_functions
from traceadvisor.analysis.sampled.shares import (
    SampledShare,
    call_in_training,
    in_backward,
    line_of_call,
    own_lines_of,
    share_in_function,
    share_of_steps,
)
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Effort, Estimate, Evidence, Fix, Location, Method, Unit
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.workload import Workload
from traceadvisor.rules.base import Category, Facts, Outcome, Part, finding_of, frozen
from traceadvisor.rules.operator_sizes import (
    MOST_APART_NS,
    MOST_USUAL_US,
    operators_in,
    outermost_operators,
    usual_ns,
)
from traceadvisor.savings.interval import most_undisturbed_ns

UNKNOWN_PYTHON = "how much Python remains between larger operators is unknown"

FEWER = "Run fewer, larger operators"

BETWEEN = Fix(
    f"{FEWER}: replace Python loops by operators on whole tensors, compile the model, or use fused layers",
    not_replayed=UNKNOWN_PYTHON,
    needs=frozenset({Part.MODEL}),
)


CELLS = re.compile(r"aten::(?:lstm_cell|gru_cell|rnn_tanh_cell|rnn_relu_cell)$")
"""Operators of one time step of a recurrent layer."""

WHOLE_SEQUENCE = replace(
    BETWEEN,
    summary="Run all time steps with one operator: torch.nn.LSTM, GRU or RNN in place of a loop over cells, where no "
    "step needs what the script computes from the one before",
)

_COMPUTES = re.compile(
    r"aten::(?:\w*mm|matmul|einsum|linear|softmax|scaled_dot_product_attention|argmax|multinomial|topk)$"
)
"""Operators of an attention, of an output layer, and of what draws the next input from it."""

_PASSES_ON = re.compile(
    r"aten::(?:\w*view|reshape|\w*squeeze|expand|permute|transpose|t|to|contiguous|detach|clone|linear|embedding"
    r"|dropout|relu|tanh)$"
)
_TAKES = re.compile(r"aten::(?:select|slice|narrow|unbind|index|index_select)$")
"""Operators between taking an input from a whole sequence, and the cell."""

FEEDING_SHARE = 0.25
"""Share of the ways from one cell to the next that compute the next input. An encoder may come before such a decoder,
and layers of a stack have one operator between all their steps."""

FEWEST_OPERATORS = 200
"""Such operators per step: fewer take little time, whatever they are."""

FASTER_REST = 0.4
"""Part of the rest of the step that may go where calling operators takes all of it, else less in proportion: calls, and
a capture at each step, leave it less of the CPU's caches. In one training of little else 0.7 stayed."""


FEWEST_PER_CALL = 20
"""Operators and nodes per call of a function, from which one call for all samples has far fewer."""

_REDUCES = re.compile(r"aten::(?:sum|mean|amax|amin|max|min|logsumexp|select|dot|\w*norm|\w*_loss\w*)$")
"""Operators that make a scalar of a vector."""

OVER_BESIDE = 2.0
"""Time of small operators over that of code beside the training, from which they are named: a line of that code can be
left out, and nothing shows how much larger operators save."""

MOST_OF_LAYERS = 0.5
"""Share of the operators that layers of torch call, up to which the script's own code is worth another form."""

MOST_OF_OPERATORS = 0.75
"""Share of the operators outside the backward pass that begin in one function of the script, from which the operators
are its own: the rest of the step stays as it is."""


@frozen
class SmallOperators:
    """Thresholds for small operators in the forward and backward pass, without a GPU."""

    min_between_share: float
    max_small_us: float
    min_small_share: float
    min_share: float

    def check(self, facts: Facts, beside: SpanSet, chained: SpanSet) -> Outcome | None:
        """Find small operators, if they and the Python between them take twice the time of code beside the training.

        ``chained``: calls that need what the one before made, which no larger operators replace.
        """
        kept = beside | chained | composite_spans(facts.observation, facts.tree)
        between = facts.claim(Category.OTHER_HOST) - kept
        passes = between | (facts.claim(Category.FORWARD, Category.BACKWARD) - kept)
        claims = passes if self._are_small(facts, passes) else between
        beside_share = facts.share(beside)
        least = max(self.min_between_share, OVER_BESIDE * beside_share)
        is_most = facts.share(claims) >= least
        own = _own_function(facts, passes) if is_most else self._small_function(facts, passes, least)
        most, claims = (
            passes | (beside & facts.claim(Category.OTHER_HOST, Category.FORWARD)),
            claims if is_most else passes,
        )
        if own:
            most, claims, between = (spans & own.whole for spans in (most, claims, between))
        loop = _loop(facts, chained)
        is_whole = loop is not None and (loop.claims & claims).total_ns >= LOOP_SHARE * claims.total_ns
        is_small = (is_most or own is not None) and (is_whole or _is_of_script(facts, passes - beside, own))
        is_loop = loop is not None and loop.saved_share >= max(self.min_between_share, beside_share)
        if loop and is_loop and not (is_small and is_whole):
            return _of_loop(facts, loop)
        if not is_small:
            return self._per_sample(facts, passes)
        if _cells_need_the_step_before(facts, own):
            return None
        rows = operators_in(facts, most)
        computing = 1 - calling_share(facts.observation, facts.tree, rows)
        most_share = facts.share(most) - computing * facts.share(facts.trace.events.spans(rows) & most)
        return _of_small_operators(facts, between, claims, most_share, own, loop if is_whole else None)

    def _are_small(self, facts: Facts, passes: SpanSet) -> bool:
        """Whether operators of the training passes do little besides being called."""
        events, rows = facts.trace.events, outermost_operators(facts)
        count = int(passes.contains(events.start_ns[rows]).sum())
        if not count or facts.share(passes) < self.min_small_share or facts.typical is None:
            return False
        is_short = passes.total_ns * _undisturbed(facts) / count < self.max_small_us * 1000
        return is_short or (
            count >= FEWEST_OPERATORS * facts.step_count and usual_ns(facts, passes) < MOST_USUAL_US * 1e3
        )

    def _small_function(self, facts: Facts, passes: SpanSet, least_share: float) -> UserFunction | None:
        """The function of the script that takes most among those with many operators that do little else.

        The rest of the step may be anything. Samples of undisturbed steps must show the function, too.
        """
        least = FEWEST_OPERATORS * facts.step_count
        small = [
            (one, spans)
            for one in _functions(facts)
            if facts.share(spans := passes & one.whole) >= least_share  # more when it is recorded than else
            and operators_in(facts, spans).size >= least
            and usual_ns(facts, spans) < MOST_USUAL_US * 1e3
            and (_sampled(facts, one, lambda share: share.share) or 0.0) >= self.min_between_share
        ]
        most = max((spans for _, spans in small), key=lambda spans: spans.total_ns, default=None)
        return _own_function(facts, most) if most else None

    def _per_sample(self, facts: Facts, passes: SpanSet) -> Outcome | None:
        """A finding on the function that takes most among those that make a scalar for each sample."""
        found = [
            (one, high)
            for one in _functions(facts)
            if one.backward
            and len(one.spans) >= FEWEST_CALLS * facts.step_count
            and operators_in(facts, passes & one.whole).size >= FEWEST_PER_CALL * len(one.spans)
            and min(facts.share(passes & one.whole), _sampled(facts, one, lambda share: share.share) or 0.0)
            >= self.min_share
            and usual_ns(facts, passes & one.whole) < MOST_USUAL_US * 1e3
            and _makes_scalars(facts, one)
            and (high := _sampled(facts, one, lambda share: share.high)) is not None
        ]
        own, high = max(found, key=lambda one: (passes & one[0].whole).total_ns, default=(None, 0.0))
        return _of_samples(facts, own, passes & own.whole, high) if own else None


def _functions(facts: Facts) -> list[UserFunction]:
    return user_functions(facts.observation, facts.tree, facts.steps.typical_windows)


def _own_function(facts: Facts, passes: SpanSet) -> UserFunction | None:
    """The function of the script that takes least time among those with nearly all operators of the forward pass."""
    starts_ns = facts.trace.events.start_ns
    rows = operators_in(facts, passes)
    rows = rows[~np.isin(rows, backward_rows(facts.trace))]
    if not rows.size:
        return None
    found = _functions(facts)
    own = [one for one in found if one.spans.contains(starts_ns[rows]).sum() >= MOST_OF_OPERATORS * rows.size]
    return min(reversed(own), key=lambda one: one.spans.total_ns, default=None)


def _is_of_script(facts: Facts, passes: SpanSet, own: UserFunction | None) -> bool:
    """Whether the script calls many of the operators itself, or cells in a loop: of layers, it cannot call fewer."""
    rows = operators_in(facts, passes)
    rows = rows[~np.isin(rows, backward_rows(facts.trace))]
    of_layers = called_by_layers(facts.observation, rows)
    return of_layers.sum() <= MOST_OF_LAYERS * rows.size or _is_loop(facts, _most_in_forward(facts, own))


def _sampled(facts: Facts, own: UserFunction, pick: Callable[[SampledShare], float]) -> float | None:
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


def _undisturbed(facts: Facts) -> float:
    """Undisturbed step over a recorded one; at most 1."""
    recorded_ns = facts.typical.duration_ns if facts.typical else 1.0
    return min((facts.step_ns or recorded_ns) / recorded_ns, 1.0)


def _of_small_operators(  # noqa: PLR0913, PLR0917  # what was found of them
    facts: Facts, between: SpanSet, claims: SpanSet, most_share: float, own: UserFunction | None, loop: _Loop | None
) -> Outcome:
    """A finding on many small operators, and the Python between them; ``own``: the function that has nearly all."""
    events, rows = facts.trace.events, outermost_operators(facts)
    most = _most_in_forward(facts, own)
    is_loop = _is_loop(facts, most)
    is_of_passes, looped = claims.total_ns > between.total_ns, _most_of(facts, most)
    sites = own_sites(facts, between)[:MOST_SITES]
    between_at = [at for site in sites for at in site.locations]
    places = [] if sites else python_places(facts, between, 0)
    step_ns = facts.step_ns or 0.0
    outside = 1 - facts.share(facts.claim(Category.DATA_WAIT))  # the loader was timed in undisturbed steps, too
    rest_ns = facts.distortion.undisturbed_rest_ns if facts.distortion else outside * step_ns
    called = most_share / outside
    most_ns = (1 - (1 - FASTER_REST * called) * (1 - called)) * rest_ns
    expected_ns = min(facts.share(claims), most_share) * step_ns / 2
    loop_places = loop.locations if loop else ()
    own_places, sampled = ((own.location,), _sampled(facts, own, lambda share: share.high)) if own else ((), None)
    if sampled is not None:
        most_ns, expected_ns = min(most_ns, sampled * step_ns), min(expected_ns, sampled * step_ns / 2)
    if loop:
        most_ns = min(most_ns, _most_of_loop_ns(facts, loop))
    return finding_of(
        facts,
        claims=claims,
        fix=WHOLE_SEQUENCE if is_loop else replace(BETWEEN, summary=f"{FEWER}. {loop.way}") if loop else BETWEEN,
        saving=Estimate(0.0, min(expected_ns, most_ns), most_ns, Method.BOUND, of_the_fix(UNKNOWN_PYTHON)),
        effort=Effort.REFACTOR,
        evidence=(
            facts.time_per_step("Python code between operators", between),
            facts.count_per_step("operators without those inside others", rows.size),
            Evidence("median operator", float(np.median(events.duration_ns[rows])), Unit.NS) if rows.size else None,
            facts.known("share of undisturbed steps in this function, at most", sampled, Unit.SHARE),
            loop.evidence if loop else None,
            *facts.times_at(places or sites),
        ),
        locations=tuple(dict.fromkeys((*loop_places, *own_places, *(looped if is_of_passes else ()), *between_at)))
        or looped,
        caveats=("The profiler adds a few microseconds to each operator. Without it, this share is smaller.",),
    )


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
class _Loop:
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


def _loop(facts: Facts, chained: SpanSet) -> _Loop | None:
    """The loop over small operators that takes the most of the training passes; None without one."""
    passes = facts.claim(Category.FORWARD, Category.OTHER_HOST) - chained
    found = outermost_forward(facts.observation, facts.tree, passes)
    own, repeats = _repeated(facts, found)
    is_looped = repeats >= FEWEST_CALLS
    if not is_looped.any():
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
    lines = own_lines_of(facts.run.stack_samples, own.location, LINE_SHARE) if own else _most_of(facts, rows)
    looped = _names(facts, rows)
    has_gates = all(name in looped for name in _GATES) and any(map(_COMPUTES.match, looped))
    is_module = np.unique(found.module_calls[is_looped & (found.module_calls != NONE)]).size >= iterations
    return _Loop(
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
    for one in sorted(_functions(facts), key=lambda one: one.spans.total_ns):
        is_inside = one.spans.contains(starts_ns)
        if (is_inside & is_repeated).sum() >= least:  # calls of a function only divide them further
            inside, here = np.flatnonzero(is_inside), np.zeros_like(repeats)
            here[inside] = found.repeats(one.spans.starts_ns.searchsorted(starts_ns[inside], side="right"), inside)
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
    if sum(_TAKES.match(name) is not None for name in looped) >= TAKEN_SHARE * iterations:
        return True
    around = found.rows[own.spans.contains(facts.trace.events.start_ns[found.rows])] if own else found.rows[:0]
    return any(map(_TAKES_APART.match, _names(facts, around)))


def _with_backward(facts: Facts, rows: Int64, around: Int64) -> SpanSet:
    """The time of some operators and of the Python up to the next one around, with their part of the backward pass."""
    events = facts.trace.events
    starts_ns, ends_ns = events.start_ns[rows], events.end_ns[rows]
    others_ns = np.append(events.start_ns[around], ends_ns[-1:])
    next_ns = others_ns[np.searchsorted(others_ns[:-1], starts_ns, side="right")]
    spans = SpanSet.union_of(starts_ns, np.maximum(ends_ns, np.minimum(next_ns, ends_ns + MOST_APART_NS)))
    links = forward_operators(facts.trace, facts.tree)
    return with_backward(facts.tree, spans, links, facts.steps.typical_windows)


def _most_of_loop_ns(facts: Facts, loop: _Loop) -> float:
    """The largest part of an undisturbed step that all iterations but one can be."""
    return (1 - 1 / loop.calls) * most_undisturbed_ns(facts, facts.per_step_ns(loop.claims), loop.claims)


def _of_loop(facts: Facts, loop: _Loop) -> Outcome:
    """A finding on a loop whose operators are larger, but take most of their time to be called."""
    most_ns = _most_of_loop_ns(facts, loop)
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


OF_SAMPLES = (
    "If no call of {name} needs the result of another, compute all parts in one call, padded and with a mask where "
    "their sizes differ. Loop only over what needs the one before, such as time"
)


def _of_samples(facts: Facts, own: UserFunction, claims: SpanSet, most_share: float) -> Outcome:
    """A finding on a function that is called for each sample; ``most_share``: of undisturbed steps in it."""
    calls = len(own.spans) / facts.step_count
    called = calling_share(facts.observation, facts.tree, operators_in(facts, claims)) * (1 - 1 / calls)
    call = call_in_training(facts.run.stack_samples, own.location)
    most_ns = most_share * called * (facts.step_ns or 0.0)
    return finding_of(
        facts,
        claims=claims,
        title="A loop calls small operators for each part of the batch",
        fix=Fix.conditional(OF_SAMPLES.format(name=own.location.function)),
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
        takes += any(map(_TAKES.match, names[before:end]))
        dims = int(details.dims_id.at(rows[end - 1 : end], np.int32(NONE))[0]) if end > begin else NONE
        most = max(map(len, tensor_shapes(texts[dims])), default=0) if dims != NONE else 2
        scalars += most == 0 or (most == 1 and _REDUCES.match(names[end - 1]) is not None)
    return min(scalars, takes) > TAKEN_SHARE * len(begins)


FEWEST_CELLS = 8
"""Cells per step that are a loop over time."""


def _is_loop(facts: Facts, rows: Int64) -> bool:
    """Whether operators of one name are cells of a loop over time."""
    return rows.size >= FEWEST_CELLS * facts.step_count and _is_named(facts, rows[:1], CELLS)[0]


def _cells_need_the_step_before(facts: Facts, own: UserFunction | None) -> bool:
    """Whether the operators of a loop over cells compute each input from the cell before: no operator replaces it."""
    passes = facts.claim(Category.FORWARD, Category.OTHER_HOST)
    rows = operators_in(facts, passes & own.spans if own else passes)
    rows = rows[np.argsort(facts.trace.events.start_ns[rows], kind="stable")]
    at = np.flatnonzero(_is_named(facts, rows, CELLS))
    if at.size < max(FEWEST_CELLS * facts.step_count, FEWEST_CELLS):
        return False
    between = [rows[first + 1 : last] for first, last in pairwise(at.tolist())]
    return sum(_computes_input(facts, one) for one in between) >= FEEDING_SHARE * len(between)


def _computes_input(facts: Facts, rows: Int64) -> bool:
    """Whether operators between two cells compute, and the second cell's input is not taken as it is."""
    before = (row for row in rows[::-1] if not _is_named(facts, row[None], _PASSES_ON)[0])
    last = next(before, None)
    is_taken = last is not None and _is_named(facts, last[None], _TAKES)[0]
    return not is_taken and any(_is_named(facts, rows, _COMPUTES))


def _is_named(facts: Facts, rows: Int64, names: re.Pattern[str]) -> list[bool]:
    """Whether operators have some names."""
    return [names.match(facts.trace.names[one]) is not None for one in facts.trace.events.name_id[rows].tolist()]


def _most_in_forward(facts: Facts, own: UserFunction | None) -> Int64:
    """Operators of the name that takes the most time of the forward pass, by the usual one; none without any.

    ``own``: the function whose operators count; all by default.
    """
    passes = facts.claim(Category.FORWARD, Category.OTHER_HOST)
    events, rows = facts.trace.events, operators_in(facts, passes & own.spans if own else passes)
    usual = usual_durations(events, rows)
    most = usual.name_ids[np.argmax(usual.totals_ns)] if rows.size else NONE
    chosen: Int64 = rows[events.name_id[rows] == most]
    return chosen


def _most_of(facts: Facts, rows: Int64) -> tuple[Location, ...]:
    """The line of the user's code that most time of some operators comes from; none without recorded stacks."""
    times_ns: dict[Location, int] = {}
    for at, length_ns in zip(facts.stacks.locations(rows), facts.trace.events.duration_ns[rows].tolist(), strict=True):
        if at:
            times_ns[at] = times_ns.get(at, 0) + length_ns
    most = max(times_ns, key=lambda one: times_ns[one], default=None)
    return (most,) if most else ()


MOST_SITES = 5

_TRAINING = re.compile(
    r"(?:<traceadvisor[^>]{0,40}>|traceadvisor/recording/[\w/]{1,60}\.py)(?!\(\d+\): save$)|nn\.Module:"
    r"|torch/(?:optim/(?!lr_scheduler\.py|swa_utils\.py)|autograd/|amp/|cuda/|profiler/|distributed/|nn/parallel/|utils/data/"
    r"|_dynamo/|_inductor/|_functorch/|fx/|_tensor\.py\(\d+\): backward$)"
)
"""Training code that the script, a framework or a capture calls, also where it runs no operator: calls of modules, the
backward pass, optimizers, the compiler, the loader, and waits for other ranks and the GPU. Time in it belongs to
PyTorch, or is a wait for a busy core. A capture only times the saving."""

_OF_TORCH = re.compile(
    r"torch/(?!serialization\.py|utils/tensorboard/|nn/parameter\.py|_tensor_str\.py|functional\.py|optim/"
    r"|_tensor\.py\(\d+\): (?:__deepcopy__|__repr__|__format__|norm|split|unique)$)"
)
"""Other code of torch: it is training if it computes. Walks over modules, parameters and hooks do not, such as
``model.train()``. Saving, copying and printing tensors is no training. Nor are functions of torch written in Python,
where the training does not need their operators, schedules and averages of weights."""


def python_places(facts: Facts, spans: SpanSet, least_ns: float) -> list[Place]:
    """Places that the median step passes."""
    return recurring_places(facts.observation, facts.tree, spans, facts.steps.typical, least_ns)


def lines_of(facts: Facts, site: CallSite) -> tuple[Location, ...]:
    """The line of the call, if samples show it, and that of its function; of a function's own work, only the latter."""
    if len(site.locations) > 1 or (site.callee is None and site.locations[0].is_line):
        return site.locations
    found = line_of_call(facts.run.stack_samples, site.locations[0], site.callee)
    if not found.is_line and site.callee:
        known = facts.run.exact_lines.exact(replace(found, owner=frame_of(site.callee)))
        found = known if known.is_line else found
    call = call_in_training(facts.run.stack_samples, found)
    if call and site.callee is None:
        return (call,)
    return (found, replace(call, owner=None)) if call else (found,)


def some_of(by_step_ns: Sequence[int], most_ns: int) -> str:
    """The number of steps that lose at least half as much time as the one that loses most, as words."""
    return f"{sum(2 * ns >= most_ns for ns in by_step_ns)} of {len(by_step_ns)}"


def own_sites(facts: Facts, lost: SpanSet) -> list[CallSite]:
    """Lines where the script's own code runs, without PyTorch and the capture."""
    trace, thread = facts.trace, facts.observation.thread
    rows = trace.events.rows(Kind.OPERATOR, Kind.RUNTIME)
    starts_ns = trace.events.start_ns[rows[trace.events.thread[rows] == thread]]
    kept_ns = frozenset(trace.python_calls.start_ns[metric_calls(trace)].tolist())
    return call_sites(trace, facts.tree, thread, lost, without=LeftOut(_TRAINING, _OF_TORCH, starts_ns, kept_ns))


def beside_work(facts: Facts, sites: list[CallSite]) -> list[CallSite]:
    """The sites that are not code around operators that no backward pass tells apart from the training.

    Without a backward pass, any operators may make the update, as where random directions are tried: code that takes
    less than the operators that it runs is theirs. Inference updates nothing.
    """
    if facts.observation.has_device or facts.workload is Workload.INFERENCE or backward_rows(facts.trace).size:
        return sites
    operators = facts.trace.events.spans(outermost_operators(facts))
    worked_ns = Counter[tuple[str, str | None, str | None]]()
    for site in call_sites(facts.trace, facts.tree, facts.observation.thread, operators):
        file, function = site.locations[0].file, site.locations[0].function
        worked_ns[file, function, site.callee] += site.spans.total_ns
        worked_ns[file, function, None] += site.spans.total_ns if site.callee else 0
    return [
        one
        for one in sites
        if one.spans.total_ns > worked_ns[one.locations[0].file, one.locations[0].function, one.callee]
    ]
