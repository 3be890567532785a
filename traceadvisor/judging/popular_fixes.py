"""Popular fixes that would save less than 2% of the step: worth as much to a reader as the findings."""

from __future__ import annotations

from collections.abc import Iterable

from traceadvisor.facts import Facts
from traceadvisor.model.findings import FEWEST_STEPS, Clear, Found, Method, RuleOutcome, Unit
from traceadvisor.model.report import NotWorthDoing, OutcomeRow, Recording
from traceadvisor.rules.base import Rule

WORTH_DOING_SHARE = 0.02
"""A fix that can save less than this at most is not worth doing."""

NOTICED_SHARE = 0.0005
"""Less is shown as no saving."""

REPLAYED_SAVING = "saving of the fix, replayed"

LITTLE_OF_IT = 0.25
"""Saving as a share of the removed time, below which other work takes the place of what the fix removes."""

_TAKEN_OVER = "other work takes the place of what it removes"


def with_fix_replayed(rule: Rule, facts: Facts, outcome: RuleOutcome) -> RuleOutcome:
    """The outcome; clear where the rule has a popular fix that, simulated, saves less than 2% of the step."""
    if not rule.popular_fix or not isinstance(outcome, Found):
        return outcome
    saving = outcome.finding.saving
    share = saving.high_ns / facts.step_ns if facts.step_ns else 1.0
    if saving.method is not Method.REPLAY or share >= WORTH_DOING_SHARE:
        return outcome
    return Clear(REPLAYED_SAVING, share, WORTH_DOING_SHARE, Unit.SHARE, _TAKEN_OVER, saving_share=share)


def not_worth_doing(
    catalogue: Iterable[Rule], outcomes: Iterable[OutcomeRow], recordings: Iterable[Recording]
) -> tuple[NotWorthDoing, ...]:
    """Popular fixes that could save something, but less than 2% of the step, with the most they could save anywhere.

    Left out are recordings of one or two steps, and fixes for time that a more specific finding accounts for.
    """
    rules = {rule.meta.id: rule for rule in catalogue}
    popular = {rule_id: rule.popular_fix for rule_id, rule in rules.items() if rule.popular_fix}
    rows = tuple(outcomes)
    found = {(row.recording_ids[0], row.rule.id) for row in rows if isinstance(row.outcome, Found)}
    contradicted = {(recording, refined) for recording, rule_id in found for refined in rules[rule_id].refines}
    long_enough = {one.id for one in recordings if sum(row.step.kept for row in one.steps) >= FEWEST_STEPS}
    with_findings = {recording for recording, rule_id in found if not rules[rule_id].umbrella}
    small: dict[str, list[tuple[float, str, str]]] = {}
    for row in rows:
        recording = row.recording_ids[0]
        if not isinstance(row.outcome, Clear) or row.rule.id not in popular or recording not in long_enough:
            continue
        share = _most_share(row.outcome)
        if share is not None and share < WORTH_DOING_SHARE and (recording, row.rule.id) not in contradicted:
            reason = _why_small(row.outcome, has_findings=recording in with_findings)
            small.setdefault(row.rule.id, []).append((share, reason, recording))
    return tuple(_as_one(popular[rule_id], cases) for rule_id, cases in small.items())


def _as_one(fix: str, cases: list[tuple[float, str, str]]) -> NotWorthDoing:
    share, reason, _ = max(cases, key=lambda case: case[0])
    return NotWorthDoing(fix, share, reason, tuple(recording for _, _, recording in cases))


def _most_share(clear: Clear) -> float | None:
    """The most that the fix could save of the step; None where there is nothing to save, or it is not known."""
    if clear.saving_share is not None:
        return clear.saving_share
    return clear.value if clear.unit is Unit.SHARE and clear.value > 0 else None


def _why_small(clear: Clear, *, has_findings: bool) -> str:
    """In sentences."""
    if clear.saving_share is None:
        why_not = f" Not replayed: {clear.not_replayed}." if clear.not_replayed else ""
        return f"Only this much of a step is there for it to remove: {clear.label}.{why_not}"
    replayed = (
        f"Replayed with this change, the step is {'hardly' if clear.saving_share >= NOTICED_SHARE else 'no'} shorter"
    )
    if not _is_taken_over(clear):
        return f"{replayed}."
    later = " It may be worth doing once the findings are dealt with." if has_findings else ""
    return f"{replayed}: {_TAKEN_OVER}.{later}"


def _is_taken_over(clear: Clear) -> bool:
    """Whether there is something to remove, and the step is no shorter for it."""
    if clear.remark == _TAKEN_OVER:
        return True
    there = clear.value if clear.unit is Unit.SHARE else 0.0
    return there >= WORTH_DOING_SHARE and (clear.saving_share or 0.0) < LITTLE_OF_IT * there
