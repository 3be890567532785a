"""GPU025: a step computes again what an earlier call computed."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.launches import work_within
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, Skipped, Unit
from traceadvisor.model.run import SameResults as Found
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.gpu.costly_code import backward_of

AT_TWO_LINES = "Keep the result of {0} at the first of these lines, and use it at the second"
IN_A_LOOP = "Call {0} once per step at this line, and pass its result on"
BEFORE = "Compute the result of {0} once, before the training, and keep it: it is the same in each step"

LEAST_OF_PLACE = 0.01
"""Share of the step; what takes less is not worth a change of its own."""


@frozen(eq=False)
class _Cost:
    """The time of repeated calls at one place."""

    found: Found
    rows: Int64
    """First operators of these calls."""

    forward: SpanSet
    backward: SpanSet


@frozen
class SameResults(Rule):
    """A step computes again what an earlier call computed, from the same inputs and weights.

    What it finds: Modules and operators that run again on what torch's profiler knows as the same tensors, which
        nothing changed meanwhile, or on results that are the same for this reason. Random numbers, dropout, and batch
        norm that updates its statistics make results differ; an optimizer makes the weights differ. ``traceadvisor
        capture`` looks for this in its first recording: a trace alone names no tensors.
    Why it costs time: Each call takes as long as the first one, and with gradients its backward pass runs again.
    How to fix it: Keep the result until its inputs or weights change. Of a generator that runs for its discriminator
        and then for itself, ``detach()`` the kept result for the discriminator. What is the same in each step belongs
        in front of the loop.
    How the saving is estimated: Without a GPU, the time of all of these calls but the first one, and up to their part
        of the backward pass where gradients go through both results. With a GPU, a simulation leaves out their kernels.
    When it may be wrong: A kept result takes memory until it is used. A script that trains on one batch only, as to
        measure itself, may show results that are the same in each step.
    """

    meta = RuleMeta("GPU025", "same-results", "A step computes again what an earlier call computed")
    needs = frozenset({Input.STEPS})
    claims = frozenset({Category.FORWARD, Category.BACKWARD, Category.OTHER_HOST, Category.KERNEL})

    min_share: float = 0.05
    """Share of the step. Masks and positions that each layer makes for itself take less."""

    def check(self, facts: Facts) -> Outcome:
        places = facts.settings.same_results
        if places is None or facts.trace.origin.cycle:
            if facts.run.captured:
                return Skipped(
                    "The capture did not look for results that are computed again: an earlier version, few steps, a "
                    "later recording, or one without Python stacks, shapes or memory."
                )
            return Skipped(facts.unknown_without("Whether calls have the same inputs is unknown", Option.CAPTURE))
        costs = sorted((_cost(facts, one) for one in places), key=lambda one: one.forward.total_ns, reverse=True)
        mine = [one for one in costs if one.found.is_constant == costs[0].found.is_constant]  # none without costs
        mine = [one for one in mine if facts.share(one.forward | one.backward) >= LEAST_OF_PLACE]
        forward = SpanSet.union_all([one.forward for one in mine]) if mine else facts.claim()
        backward = SpanSet.union_all([one.backward for one in mine]) if mine else facts.claim()
        share = facts.share(forward | backward)
        if share < self.min_share:
            return Clear("time in calls that compute the same again", share, self.min_share, Unit.SHARE)
        claims, fix = forward | backward, _fix(mine[0].found)
        saving: Estimate | None = _measured(facts, forward, backward)
        if facts.observation.has_device:
            rows = np.concatenate([one.rows for one in mine])
            work = work_within(facts.trace.events, facts.launches, rows, facts.steps.typical_windows).work_rows
            claims, fix, saving = facts.exposed(work, Category.KERNEL), _fix(mine[0].found, SparedWork(work)), None
        return finding_of(
            facts,
            claims=claims,
            fix=fix,
            saving=saving,
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("time in calls that compute the same again", forward),
                facts.time_per_step("their part of the backward pass", backward) if backward else None,
                facts.count_per_step("calls that compute the same again", sum(one.rows.size for one in mine)),
                Evidence("steps with such calls", mine[0].found.step_count, Unit.COUNT),
            ),
            locations=tuple(place for one in mine for place in (one.found.again, one.found.first)),
            caveats=(
                ("A script that trains on one batch only, as to measure itself, shows this as well.",)
                if mine[0].found.is_constant
                else ("Where a use needs no gradients, give it the kept result with detach().",)
            ),
        )


def _cost(facts: Facts, found: Found) -> _Cost:
    """The time of these calls in typical steps."""
    windows, backward_in = facts.steps.typical_windows, backward_of(facts)
    ids = np.array(found.operators, dtype=np.int64).reshape(-1, 4)
    rows, again = _calls(facts, ids[:, :2])
    _, before = _calls(facts, ids[:, 2:])
    forward = again & windows
    backward = backward_in(forward) if backward_in(before) else SpanSet.empty()
    return _Cost(
        found, rows[windows.contains(facts.trace.events.start_ns[rows])], forward, (backward & windows) - forward
    )


def _calls(facts: Facts, ids: Int64) -> tuple[Int64, SpanSet]:
    """Return the first operator of each call, and the time from its begin to the end of the last.

    ``ids``: first and last id of the operators of each call, shape ``(n, 2)``.
    """
    events = facts.trace.events
    rows = events.rows(Kind.OPERATOR)
    rows = rows[np.argsort(events.external_id[rows], kind="stable")]
    first = events.external_id[rows].searchsorted(ids[:, 0])
    last = events.external_id[rows].searchsorted(ids[:, 1], side="right")
    calls = [rows[low:high] for low, high in zip(first.tolist(), last.tolist(), strict=True) if high > low]
    spans = [events.spans(one) for one in calls]
    whole = SpanSet.of(*((int(one.starts_ns[0]), int(one.ends_ns[-1])) for one in spans if one))
    return np.array([one[0] for one in calls], dtype=np.int64), whole


def _fix(found: Found, what_if: SparedWork | None = None) -> Fix:
    name = found.module or "these operators"
    words = BEFORE if found.is_constant else IN_A_LOOP if found.first == found.again else AT_TWO_LINES
    return Fix(
        words.format(name), what_if=what_if, not_replayed=None if what_if else "time of the CPU is not simulated"
    )


def _measured(facts: Facts, forward: SpanSet, backward: SpanSet) -> Estimate:
    """The saving: the backward pass of the second use may have to stay, where gradients of both differ."""
    step_ns = facts.step_ns or 0.0
    calls_ns, all_ns = (facts.share(one) * step_ns for one in (forward, forward | backward))
    return Estimate(0.7 * calls_ns, 0.5 * (calls_ns + all_ns), min(1.1 * all_ns, step_ns), Method.MODEL)
