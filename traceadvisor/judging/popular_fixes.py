"""Lists popular fixes that would save less than 2% of the step. Readers need these as well as the findings."""

from __future__ import annotations

from collections.abc import Iterable

from traceadvisor.facts import Facts
from traceadvisor.judging.laws import TAKEN_OVER
from traceadvisor.judging.run_rule import Judged
from traceadvisor.model.findings import FEWEST_STEPS, WHOLE_SHARE, Clear, Found, Method, RuleOutcome, Unit
from traceadvisor.model.report import NotWorthDoing, Recording
from traceadvisor.rules.base import Rule

WORTH_DOING_SHARE = 0.02
"""A fix is not worth doing if its highest saving is below this share of the step."""

NOTICED_SHARE = 0.0005
"""A smaller share of the step counts as no saving."""

REPLAYED_SAVING = "simulated saving of the fix"

LITTLE_OF_IT = 0.25
"""Saving as a share of the removed time, below which other work takes the place of what the fix removes."""


def with_fix_replayed(rule: Rule, facts: Facts, outcome: RuleOutcome) -> RuleOutcome:
    """The outcome; clear if the simulation shows that the fix saves nothing, or less than 2% for a popular fix."""
    if rule.umbrella or not isinstance(outcome, Found):
        return outcome
    saving = outcome.finding.saving
    share = saving.high_ns / facts.step_ns if facts.step_ns else 1.0
    least_share = WORTH_DOING_SHARE if rule.popular_fix else NOTICED_SHARE
    if saving.method is not Method.REPLAY or share >= least_share:
        return outcome
    if not rule.popular_fix:
        return Clear(REPLAYED_SAVING, share, NOTICED_SHARE, Unit.SHARE, TAKEN_OVER)
    return Clear(REPLAYED_SAVING, share, WORTH_DOING_SHARE, Unit.SHARE, TAKEN_OVER, saving_share=share)


def not_worth_doing(
    catalogue: Iterable[Rule], outcomes: Iterable[Judged], recordings: Iterable[Recording]
) -> tuple[NotWorthDoing, ...]:
    """Popular fixes that save something, but less than 2% of the step in every recording; each with its highest saving.

    Recordings of one or two steps are ignored. So are fixes for time that a more specific finding claims.
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
    """Upper limit of the saving as a share of the step; None if nothing can be saved, or the limit is unknown.

    Kernels that could not be judged may hold more, so their check sets no limit.
    """
    if clear.judged_share is not None and clear.judged_share < WHOLE_SHARE:
        return None
    if clear.saving_share is not None:
        return clear.saving_share
    return clear.value if clear.unit is Unit.SHARE and clear.value > 0 else None


def _why_small(clear: Clear, *, has_findings: bool) -> str:
    """Why the fix saves little, in sentences."""
    if clear.saving_share is None:
        why_not = f" Not simulated: {clear.not_replayed}." if clear.not_replayed else ""
        return f"The fix removes at most this share of the step: {clear.label}.{why_not}"
    by_little = f"shortens the step by less than {WORTH_DOING_SHARE:.0%}"
    effect = by_little if clear.saving_share >= NOTICED_SHARE else "does not shorten the step"
    simulated = f"In the simulation, this fix {effect}"
    if not _is_taken_over(clear):
        return f"{simulated}."
    later = " Check it again after fixing the findings." if has_findings else ""
    return f"{simulated}: {TAKEN_OVER}.{later}"


def _is_taken_over(clear: Clear) -> bool:
    """Whether the fix removes time, but hardly shortens the step."""
    if clear.remark == TAKEN_OVER:
        return True
    there = clear.value if clear.unit is Unit.SHARE else 0.0
    return there >= WORTH_DOING_SHARE and (clear.saving_share or 0.0) < LITTLE_OF_IT * there
