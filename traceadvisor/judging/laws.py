"""Laws that every finding obeys, whoever wrote its rule.

A finding that breaks one is changed to what the law allows, and a caveat says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from traceadvisor.analysis.recording_health import unread_sentence
from traceadvisor.analysis.steps.breakdown import DEVICE_PRECEDENCE
from traceadvisor.facts import Facts
from traceadvisor.hardware.profiler_names import names
from traceadvisor.model.arrays import among, grouped
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Clear, Effort, Finding, Method, Outcome, Silenced, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.workload import Part
from traceadvisor.replay.fixes.spared_work import ClaimedTimeGone
from traceadvisor.replay.step_graph import chosen_steps
from traceadvisor.replay.what_if import Edit, Scenario
from traceadvisor.rules.base import Rule
from traceadvisor.savings.estimates import bound, stretch

NOISE_SHARE = 0.02
"""Share of the step by which a simulation may differ from the recording and still be trusted."""

LEAST_SAVING_SHARE = 0.001
"""Share of the step. Reports print a smaller saving as 0%, which nobody acts on."""

NO_SAVING = "expected saving of the fix"
"""Label of a passed check whose cause is there, but whose fix would save nothing."""

MOST_ROUNDS = 8
"""Rounds after which all time that operations share is left out."""

WHOLLY_CLAIMED_SHARE = 0.99
"""A GPU operation is claimed if at least this share of its time alone is. All others go on beside it."""

LEAST_SIMULATED_SHARE = 0.8
"""Claimed time of a simulated step, relative to typical steps. With less, the simulation leaves out the claims."""

TAKEN_OVER = "other work takes the place of the removed time"
SHARED_TIME = "Time in which other GPU operations run, too, was left out of it."
LONGER_THAN_REST = "The saving was limited to the step without the kernels that stay."
OTHER_TIME = "Time that this check may not claim was left out of it: {}."
LONGER_THAN_STEP = "The saving was limited to the step."
LONGER_THAN_CLAIM = "The saving was limited to the time that the finding claims."

OTHER_PARTS = "The limit was raised to all time that the fix makes shorter."

OF_ANOTHER = "This check is about what CUDA devices have. The recording is of {} devices."

_OF_CUDA = re.compile(names().cuda)

T = TypeVar("T", Finding, Clear, Skipped, Clear | Skipped)

Law = Callable[[Finding, Rule, Facts], Finding | Clear | Skipped]


def lawful(finding: Finding, rule: Rule, facts: Facts) -> tuple[Finding | Clear | Skipped, tuple[Silenced, ...]]:
    """The finding, cut down to what the laws allow, and what each law took from it."""
    silenced: list[Silenced] = []
    for law, applied in _LAWS.items():
        allowed = applied(finding, rule, facts)
        silenced += _taken(law, finding, allowed, facts)
        if not isinstance(allowed, Finding):
            return allowed, tuple(silenced)
        finding = allowed
    return finding, tuple(silenced)


def _taken(law: str, before: Finding, allowed: Outcome, facts: Facts) -> Iterator[Silenced]:
    """Parts of a finding that a law took: the finding with its saving, or a part of its saving or of its claim."""
    after = allowed if isinstance(allowed, Finding) else None
    figures = {
        "saving": (before.saving.high_ns, after.saving.high_ns if after else 0.0),
        "claimed time": (facts.per_step_ns(before.claims), facts.per_step_ns(after.claims) if after else 0.0),
    }
    for figure, (before_ns, after_ns) in figures.items():
        if before_ns - after_ns > LEAST_SAVING_SHARE * (facts.step_ns or 0.0) or (not after and figure == "saving"):
            yield Silenced(before.rule.id, facts.recording_id, before.fix.summary, law, figure, before_ns, after_ns)


def fitting(outcome: T, rule: Rule, facts: Facts) -> T | Skipped:
    """The outcome; a skipped check if it speaks of what the recorded accelerator does not have."""
    if facts.accelerator is None or facts.is_cuda or not any(map(_OF_CUDA.search, filter(None, _texts(outcome, rule)))):
        return outcome
    return Skipped(OF_ANOTHER.format(facts.accelerator.name))


def _texts(outcome: Outcome, rule: Rule) -> Iterator[str | None]:
    yield from (rule.meta.title, rule.popular_fix)
    match outcome:
        case Skipped(reason=reason):
            yield reason
        case Clear(label=label, remark=remark):
            yield from (label, remark)
        case Finding(fix=fix):
            yield from (fix.summary, fix.change, *(row.label for row in outcome.evidence), *outcome.caveats)


def _is_understood(finding: Finding, rule: Rule, facts: Facts) -> Finding | Skipped:  # noqa: ARG001  # a law
    is_claim = facts.observation.is_unread and finding.saving.high_ns
    return Skipped(unread_sentence(facts.observation)) if is_claim else finding


def _fits_the_program(finding: Finding, rule: Rule, facts: Facts) -> Finding:  # noqa: ARG001  # a law
    """The finding in words for what the program has; no line to change where the script has no loop."""
    has_loop = Part.LOOP in facts.program or finding.effort is not Effort.LINE
    effort = finding.effort if has_loop else Effort.REFACTOR
    return replace(finding, fix=finding.fix.fitting(facts.program), effort=effort)


def _fits_the_accelerator(finding: Finding, rule: Rule, facts: Facts) -> Finding | Skipped:
    return fitting(finding, rule, facts)


def _saves_something(finding: Finding, rule: Rule, facts: Facts) -> Finding | Clear:
    saving, step_ns = finding.saving, facts.step_ns
    if step_ns and saving.high_ns and not rule.umbrella and saving.expected_ns < LEAST_SAVING_SHARE * step_ns:
        share = saving.expected_ns / step_ns
        return Clear(NO_SAVING, share, LEAST_SAVING_SHARE, Unit.SHARE)
    return finding


def _claims_its_own_time(finding: Finding, rule: Rule, facts: Facts) -> Finding:
    """Claims lie in the recorded steps, in the categories that the rule may claim, and hold no wait for other ranks."""
    claims = finding.claims & facts.steps.kept_windows
    if facts.rank_waits:
        claims -= facts.rank_waits & facts.partition.get(Category.COMMUNICATION, SpanSet.empty())
    foreign = {
        category: time
        for category in Category
        if category not in rule.claims and (time := claims & facts.partition.get(category, SpanSet.empty()))
    }
    if not foreign:
        return finding if claims.total_ns == finding.claims.total_ns else replace(finding, claims=claims)
    named = ", ".join(category.value for category in foreign)
    claims = claims - SpanSet.union_all(list(foreign.values()))
    return replace(finding, claims=claims, caveats=(*finding.caveats, OTHER_TIME.format(named)))


def _claims_exclusive_time(finding: Finding, rule: Rule, facts: Facts) -> Finding:  # noqa: ARG001  # a law
    """No claim is time in which operations run that the finding does not claim: they go on.

    An operation may no longer be claimed as a whole once time beside others is left out, so this is done again.
    """
    claims = finding.claims
    for _ in range(MOST_ROUNDS):
        fewer = _alone(claims, facts)
        if fewer.total_ns == claims.total_ns:
            break
        claims = fewer
    else:
        claims -= facts.shared_time.spans
    if claims.total_ns == finding.claims.total_ns:
        return finding
    return replace(finding, claims=claims, caveats=(*finding.caveats, SHARED_TIME))


def _alone(claims: SpanSet, facts: Facts) -> SpanSet:
    """Claims without the time in which an operation runs that is not claimed as a whole."""
    shared = facts.shared_time
    together = claims & shared.spans
    if not together:
        return claims
    events = facts.trace.events
    rows = shared.rows[events.time_in(together, shared.rows) > 0]
    stays = np.ones(rows.size, dtype=np.bool_)
    for category, kinds in DEVICE_PRECEDENCE:
        exposed = facts.partition[category] & facts.steps.kept_windows
        alone_ns = events.time_in(exposed - shared.spans, rows)
        own_ns = np.where(alone_ns > 0, alone_ns, np.maximum(events.time_in(exposed, rows), 1))
        claimed_alone_ns = events.time_in((exposed & claims) - shared.spans, rows)
        claimed_ns = np.where(alone_ns > 0, claimed_alone_ns, events.time_in(exposed & claims, rows))
        stays &= ~(np.isin(events.kind[rows], kinds) & (claimed_ns >= WHOLLY_CLAIMED_SHARE * own_ns))
    return claims - events.spans(rows[stays])


def _leaves_unclaimed_kernels(finding: Finding, rule: Rule, facts: Facts) -> Finding:
    """A stream stays busy with the kernels that a finding does not claim, unless their simulation says otherwise."""
    if not rule.also_saves or finding.of_run or finding.saving.method is Method.REPLAY or facts.is_distorted:
        return finding
    events, rows = facts.trace.events, facts.trace.events.rows(Kind.KERNEL)
    rows = rows[among(rows, facts.launches.work_rows)]
    if not rows.size or not facts.step_ns or not facts.typical:
        return finding
    left_ns = events.time_in(facts.steps.typical_windows - finding.claims, rows)
    _, stream = grouped(events.stream[rows])
    busiest_ns = float(np.bincount(stream, weights=left_ns).max()) / facts.step_count
    most_ns = (1 + NOISE_SHARE - busiest_ns / max(facts.typical.duration_ns, 1.0)) * facts.step_ns
    return _limited(finding, max(most_ns, 0.0), LONGER_THAN_REST)


def _saves_no_more_than_the_step(finding: Finding, rule: Rule, facts: Facts) -> Finding:  # noqa: ARG001  # a law
    return _limited(finding, finding.whole_ns or facts.step_ns, LONGER_THAN_STEP)


def _saves_no_more_than_its_claims(finding: Finding, rule: Rule, facts: Facts) -> Finding:
    """An upper limit is at most the claimed time, unless the fix makes something else shorter too.

    The simulation does not know of waits for other ranks: what shortens communication saves at most its claim.
    """
    is_limit = finding.saving.method is Method.BOUND or (facts.rank_waits and rule.claims == {Category.COMMUNICATION})
    if rule.also_saves or finding.of_run or not is_limit:
        return finding
    claimed_ns = facts.per_step_ns(finding.claims | finding.also_shortens) * stretch(facts)
    if finding.saving.high_ns <= claimed_ns + NOISE_SHARE * (facts.step_ns or 0.0):
        return finding
    return _limited(finding, claimed_ns, LONGER_THAN_CLAIM)


def _includes_all_that_it_shortens(finding: Finding, rule: Rule, facts: Facts) -> Finding:  # noqa: ARG001  # a law
    """An upper limit includes all time that the fix makes shorter: the time of one part alone is a lower bound."""
    saving = finding.saving
    if not finding.also_shortens or finding.of_run or saving.method is not Method.BOUND:
        return finding
    whole_ns = facts.per_step_ns(finding.claims | finding.also_shortens)
    least = bound(facts, whole_ns, saving.reason or "", finding.claims)
    if saving.high_ns >= least.high_ns * (1 - 1e-9):
        return finding
    return replace(finding, saving=replace(saving, high_ns=least.high_ns), caveats=(*finding.caveats, OTHER_PARTS))


def _is_waited_for(finding: Finding, rule: Rule, facts: Facts) -> Finding | Clear:
    """The finding; a passed check if the simulated step loses nothing without the claimed time."""
    gone, replay = without_claims(finding, rule, facts, SpanSet.empty()), facts.replay
    if gone is None or replay is None:
        return finding
    share = max(replay.saving_share((gone,), Scenario.EXPECTED), 0.0)
    if share + abs(replay.gate.error_share) >= LEAST_SAVING_SHARE:
        return finding
    return Clear(NO_SAVING, share, LEAST_SAVING_SHARE, Unit.SHARE, TAKEN_OVER, saving_share=share)


def without_claims(finding: Finding, rule: Rule, facts: Facts, operators: SpanSet) -> Edit | None:
    """The step without the time that an upper limit claims: the fix saves no more, whatever else then takes its place.

    ``operators``: those that are gone with the operations that they launch.

    Returns:
        None if the fix makes other time shorter, too, or the simulation is not trusted, or hardly holds this time.
    """
    claims, replay = finding.claims, facts.replay if finding.claims else None
    if rule.also_saves or finding.of_run or finding.saving.method is not Method.BOUND or replay is None:
        return None
    steps = chosen_steps(facts.steps)[1:-1]  # the first and the last only stand around the others
    simulated = claims & SpanSet.of(*((step.start_ns, step.end_ns) for step in steps))
    per_step_ns = simulated.total_ns / max(len(steps), 1)
    if replay.gate.doubt or per_step_ns < LEAST_SIMULATED_SHARE * facts.per_step_ns(claims):
        return None
    on_device = claims & SpanSet.union_all(
        facts.partition.get(category, SpanSet.empty()) for category, _ in DEVICE_PRECEDENCE
    )
    return ClaimedTimeGone(facts.trace.events, on_device, claims - on_device, operators)


def _limited(finding: Finding, most_ns: float | None, caveat: str) -> Finding:
    """The finding with a saving of at most so much per step; None for no limit."""
    saving = finding.saving
    if most_ns is None or saving.high_ns <= most_ns * (1 + 1e-9):
        return finding
    return replace(finding, saving=saving.part(most_ns / saving.high_ns), caveats=(*finding.caveats, caveat))


_LAWS: Mapping[str, Law] = {
    "Beside an accelerator whose work is not understood, nothing is claimed": _is_understood,
    "A fix names what its program has": _fits_the_program,
    "Advice fits the accelerator": _fits_the_accelerator,
    "A finding claims recorded time of its own categories, without waits for other ranks": _claims_its_own_time,
    "GPU time is claimed where no other GPU operation runs": _claims_exclusive_time,
    "An upper limit includes all time that the fix makes shorter": _includes_all_that_it_shortens,
    "A saving is at most the step": _saves_no_more_than_the_step,
    "An upper limit is at most the claimed time": _saves_no_more_than_its_claims,
    "Kernels that are not claimed stay": _leaves_unclaimed_kernels,
    "An upper limit is at most what the step loses without the claimed time": _is_waited_for,
    "A fix saves at least 0.1% of the step": _saves_something,
}
"""By the sentence that reports show."""
