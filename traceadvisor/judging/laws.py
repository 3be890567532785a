"""Laws that every finding obeys, whoever wrote its rule.

A finding that breaks one is changed to what the law allows, and a caveat says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from traceadvisor.analysis.recording_health import unread_sentence
from traceadvisor.analysis.steps.breakdown import DEVICE_PRECEDENCE
from traceadvisor.facts import Facts
from traceadvisor.frozen import replace
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Effort, Finding, Outcome, Silenced, Skipped
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.workload import Part
from traceadvisor.rules.base import Rule

LEAST_SHOWN_SHARE = 0.001
"""Share of the step. Reports print less as 0%, which nobody acts on."""

MOST_ROUNDS = 8
"""Rounds after which all time that operations share is left out."""

WHOLLY_CLAIMED_SHARE = 0.99
"""A GPU operation is claimed if at least this share of its time alone is. All others go on beside it."""

SHARED_TIME = "Time in which other GPU operations run, too, was left out of it."
OTHER_TIME = "Time that this check may not claim was left out of it: {}."

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
    if allowed is before:
        return
    after = allowed if isinstance(allowed, Finding) else None
    id_, recording, fix = before.rule.id, facts.recording_id, before.fix.summary
    if after is None:
        yield Silenced(id_, recording, fix, law, "saving", before.most_ns or before.saving.high_ns, 0.0)
    before_ns, after_ns = facts.per_step_ns(before.claims), facts.per_step_ns(after.claims) if after else 0.0
    if before_ns - after_ns > LEAST_SHOWN_SHARE * (facts.step_ns or 0.0):
        yield Silenced(id_, recording, fix, law, "claimed time", before_ns, after_ns)


def _is_understood(finding: Finding, rule: Rule, facts: Facts) -> Finding | Skipped:  # noqa: ARG001  # a law
    is_claim = facts.observation.is_unread and (finding.most_ns or finding.saving.high_ns)
    return Skipped(unread_sentence(facts.observation)) if is_claim else finding


def _fits_the_program(finding: Finding, rule: Rule, facts: Facts) -> Finding:  # noqa: ARG001  # a law
    """The finding in words for what the program has; no line to change where the script has no loop."""
    has_loop = Part.LOOP in facts.program or finding.effort is not Effort.LINE
    effort = finding.effort if has_loop else Effort.REFACTOR
    return replace(finding, fix=finding.fix.fitting(facts.program), effort=effort)


def _claims_its_own_time(finding: Finding, rule: Rule, facts: Facts) -> Finding:
    """Claims lie in the recorded steps, in the categories that the rule may claim, and hold no wait for other ranks."""
    claims = finding.claims & facts.steps.kept_windows
    if facts.rank_waits:
        claims -= facts.rank_waits & facts.partition.get(Category.COMMUNICATION, SpanSet.empty())
    beyond = claims - SpanSet.union_all(facts.partition.get(one, SpanSet.empty()) for one in rule.claims)
    foreign = {
        category: time
        for category in (Category if beyond else ())
        if category not in rule.claims and (time := beyond & facts.partition.get(category, SpanSet.empty()))
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


_LAWS: Mapping[str, Law] = {
    "Beside an accelerator whose work is not understood, nothing is claimed": _is_understood,
    "A fix names what its program has": _fits_the_program,
    "A finding claims recorded time of its own categories, without waits for other ranks": _claims_its_own_time,
    "GPU time is claimed where no other GPU operation runs": _claims_exclusive_time,
}
"""By the sentence that reports show."""
