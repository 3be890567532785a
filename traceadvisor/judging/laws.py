"""Laws that every finding obeys, whoever wrote its rule.

A finding that breaks one is cut down to what the law allows, and a caveat says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from traceadvisor.analysis.recording_health import unread_sentence
from traceadvisor.facts import Facts
from traceadvisor.hardware.accelerators import names
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Effort, Finding, Method, Outcome, Silenced, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.workload import Part
from traceadvisor.rules.base import Rule

NOISE_SHARE = 0.02
"""Share of the step by which a simulation may differ from the recording and still be trusted."""

LEAST_SAVING_SHARE = 0.001
"""Share of the step. Reports print a smaller saving as 0%, which nobody acts on."""

NO_SAVING = "expected saving of the fix"
"""What was measured of a finding whose cause is there, but whose fix would save nothing."""

OTHER_TIME = "Time that this check may not claim was left out of it: {}."
LONGER_THAN_STEP = "The saving was limited to the step."
LONGER_THAN_CLAIM = "The saving was limited to the time that the finding claims."

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
    """What a law took: the finding with its saving, or a part of its saving or of its claim."""
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


def _saves_no_more_than_the_step(finding: Finding, rule: Rule, facts: Facts) -> Finding:  # noqa: ARG001  # a law
    return _limited(finding, facts.step_ns, LONGER_THAN_STEP)


def _saves_no_more_than_its_claims(finding: Finding, rule: Rule, facts: Facts) -> Finding:
    """An upper limit is at most the claimed time, unless the fix makes something else shorter too.

    The simulation does not know of waits for other ranks: what shortens communication saves at most its claim.
    """
    is_limit = finding.saving.method is Method.BOUND or (facts.rank_waits and rule.claims == {Category.COMMUNICATION})
    if rule.also_saves or finding.of_run or not is_limit:
        return finding
    step_ns, recorded_ns = facts.step_ns, facts.typical.duration_ns if facts.typical else 0.0
    # Claims of distorted steps are not scaled down: they may be parts that recording did not make longer.
    scale = step_ns / recorded_ns if step_ns and recorded_ns and not facts.is_distorted else 1.0
    claimed_ns = facts.per_step_ns(finding.claims) * scale
    if finding.saving.high_ns <= claimed_ns + NOISE_SHARE * (step_ns or 0.0):
        return finding
    return _limited(finding, claimed_ns, LONGER_THAN_CLAIM)


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
    "A saving is at most the step": _saves_no_more_than_the_step,
    "An upper limit is at most the claimed time": _saves_no_more_than_its_claims,
    "A fix saves at least 0.1% of the step": _saves_something,
}
"""By the sentence that reports show."""
