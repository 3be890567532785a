"""Many small operators in the forward and backward pass of a training without a GPU, and the Python between them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from traceadvisor.analysis.idle.places import Place, recurring_places
from traceadvisor.analysis.operators.call_sites import CallSite, LeftOut, call_sites, holds_steps, named_as
from traceadvisor.analysis.operators.composites import composite_spans
from traceadvisor.analysis.operators.forward import backward_rows, forward_operators
from traceadvisor.analysis.operators.looped_operators import called_by_layers, calling_share
from traceadvisor.analysis.operators.metric_modules import metric_calls
from traceadvisor.analysis.operators.names import usual_durations
from traceadvisor.analysis.operators.python_frames import frame_of
from traceadvisor.analysis.operators.user_functions import UserFunction
from traceadvisor.analysis.sampled.shares import call_in_training, line_of_call
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Effort, Estimate, Evidence, Fix, Location, Method, Unit
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.workload import Workload
from traceadvisor.rules.base import Category, Facts, Outcome, Part, finding_of, frozen
from traceadvisor.rules.idle.operator_loops import (
    CELLS,
    COMPUTES,
    LOOP_SHARE,
    MOST_OF_OPERATORS,
    TAKES,
    Loop,
    finding_of_loop,
    functions_of,
    loop_of,
    most_of,
    most_of_loop_ns,
    over_parts,
    sampled_share,
)
from traceadvisor.rules.operator_sizes import MOST_USUAL_US, operators_in, outermost_operators, usual_ns

UNKNOWN_PYTHON = "how much Python remains between larger operators is unknown"

FEWER = "Run fewer, larger operators"

BETWEEN = Fix(
    f"{FEWER}: replace Python loops by operators on whole tensors, compile the model, or use fused layers",
    not_replayed=UNKNOWN_PYTHON,
    needs=frozenset({Part.MODEL}),
)

WHOLE_SEQUENCE = replace(
    BETWEEN,
    summary="Run all time steps with one operator: torch.nn.LSTM, GRU or RNN in place of a loop over cells, where no "
    "step needs what the script computes from the one before",
)

_PASSES_ON = re.compile(
    r"aten::(?:\w*view|reshape|\w*squeeze|expand|permute|transpose|t|to|contiguous|detach|clone|linear|embedding"
    r"|dropout|relu|tanh)$"
)
FEEDING_SHARE = 0.25
"""Share of the ways from one cell to the next that compute the next input. An encoder may come before such a decoder,
and layers of a stack have one operator between all their steps."""

FEWEST_OPERATORS = 200
"""Such operators per step: fewer take little time, whatever they are."""

FASTER_REST = 0.4
"""Part of the rest of the step that may go where calling operators takes all of it, else less in proportion: calls, and
a capture at each step, leave it less of the CPU's caches. In one training of little else 0.7 stayed."""

OVER_BESIDE = 2.0
"""Time of small operators over that of code beside the training, from which they are named: a line of that code can be
left out, and nothing shows how much larger operators save."""

MOST_OF_LAYERS = 0.5
"""Share of the operators that layers of torch call, up to which the script's own code is worth another form."""


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
        freeing_share = 0.0
        if own:
            outside = facts.claim(Category.OTHER_HOST) & most - SpanSet.union_all(
                [one.whole for one in functions_of(facts)]
            )
            freeing_share = facts.share(outside) * _operators_share(facts, most, own.whole)
            most, claims, between = (spans & own.whole for spans in (most, claims, between))
        loop = loop_of(facts, chained)
        is_whole = loop is not None and (loop.claims & claims).total_ns >= LOOP_SHARE * claims.total_ns
        is_small = (is_most or own is not None) and (is_whole or _is_of_script(facts, passes - beside, own))
        is_loop = loop is not None and loop.saved_share >= max(self.min_between_share, beside_share)
        if loop and is_loop and not (is_small and is_whole):
            return finding_of_loop(facts, loop)
        if not is_small:
            return over_parts(facts, passes, self.min_share)
        if _cells_need_the_step_before(facts, own):
            return None
        rows = operators_in(facts, most)
        computing = 1 - calling_share(facts.observation, facts.tree, rows)
        most_share = facts.share(most) - computing * facts.share(facts.trace.events.spans(rows) & most) + freeing_share
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
            for one in functions_of(facts)
            if facts.share(spans := passes & one.whole) >= least_share  # more when it is recorded than else
            and operators_in(facts, spans).size >= least
            and usual_ns(facts, spans) < MOST_USUAL_US * 1e3
            and (sampled_share(facts, one, lambda share: share.share) or 0.0) >= self.min_between_share
        ]
        most = max((spans for _, spans in small), key=lambda spans: spans.total_ns, default=None)
        return _own_function(facts, most) if most else None


def _operators_share(facts: Facts, passes: SpanSet, inside: SpanSet) -> float:
    """The operators in a part of some time, relative to all in it: theirs may be so much of the Python outside of it.

    Outside of a function, results are freed, and the backward pass counts the nodes before it runs the first.
    """
    return operators_in(facts, passes & inside).size / max(operators_in(facts, passes).size, 1)


def _own_function(facts: Facts, passes: SpanSet) -> UserFunction | None:
    """The function of the script that takes least time among those with nearly all operators of the forward pass."""
    starts_ns = facts.trace.events.start_ns
    rows = operators_in(facts, passes)
    rows = rows[~np.isin(rows, backward_rows(facts.trace))]
    if not rows.size:
        return None
    found = functions_of(facts)
    own = [one for one in found if one.spans.contains(starts_ns[rows]).sum() >= MOST_OF_OPERATORS * rows.size]
    return min(reversed(own), key=lambda one: one.spans.total_ns, default=None)


def _is_of_script(facts: Facts, passes: SpanSet, own: UserFunction | None) -> bool:
    """Whether the script calls many of the operators itself, or cells in a loop: of layers, it cannot call fewer."""
    rows = operators_in(facts, passes)
    rows = rows[~np.isin(rows, backward_rows(facts.trace))]
    of_layers = called_by_layers(facts.observation, rows)
    return of_layers.sum() <= MOST_OF_LAYERS * rows.size or _is_loop(facts, _most_in_forward(facts, own))


def _undisturbed(facts: Facts) -> float:
    """Undisturbed step over a recorded one; at most 1."""
    recorded_ns = facts.typical.duration_ns if facts.typical else 1.0
    return min((facts.step_ns or recorded_ns) / recorded_ns, 1.0)


def _of_small_operators(  # noqa: PLR0913, PLR0917  # what was found of them
    facts: Facts, between: SpanSet, claims: SpanSet, most_share: float, own: UserFunction | None, loop: Loop | None
) -> Outcome:
    """A finding on many small operators, and the Python between them; ``own``: the function that has nearly all."""
    events, rows = facts.trace.events, outermost_operators(facts)
    most = _most_in_forward(facts, own)
    is_loop = _is_loop(facts, most)
    is_of_passes, looped = claims.total_ns > between.total_ns, most_of(facts, most)
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
    own_places, sampled = ((own.location,), sampled_share(facts, own, lambda share: share.high)) if own else ((), None)
    if sampled is not None:
        most_ns, expected_ns = min(most_ns, sampled * step_ns), min(expected_ns, sampled * step_ns / 2)
    if loop:
        most_ns = min(most_ns, most_of_loop_ns(facts, loop))
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
    is_taken = last is not None and _is_named(facts, last[None], TAKES)[0]
    return not is_taken and any(_is_named(facts, rows, COMPUTES))


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
    less than the operators that it runs is theirs. Inference updates nothing. No step can do without a library's
    function that the backward pass goes back through, such as a solver.
    """
    sites = [one for one in sites if one.callee is None or not _has_gradient(facts, one.callee)]
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


def _has_gradient(facts: Facts, callee: str) -> bool:
    """Whether the backward pass goes back through operators in most calls of a function that holds no whole step."""
    calls, tree = facts.trace.python_calls, facts.tree
    if holds_steps(facts.trace, facts.observation.thread, callee, facts.steps.typical):
        return False
    rows = np.flatnonzero(np.isin(calls.name_id, named_as(facts.trace, callee)))
    _, forward = forward_operators(facts.trace, tree)
    made_ns = np.sort(tree.start_ns[forward[forward != NONE]])
    first, last = (made_ns.searchsorted(at) for at in (calls.start_ns[rows], calls.end_ns[rows]))
    return 2 * int((last > first).sum()) > rows.size
