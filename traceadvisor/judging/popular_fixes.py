"""Popular fixes that are not worth doing, over all recordings of a report."""

from __future__ import annotations

from collections.abc import Iterable

from traceadvisor.judging.run_rule import Judged
from traceadvisor.judging.worth import NOTICED_SHARE, WORTH_DOING_SHARE
from traceadvisor.model.findings import FEWEST_STEPS, WHOLE_SHARE, Clear, ClearedBecause, Unit
from traceadvisor.model.report import NotWorthDoing, Recording, SmallBecause, SmallSaving
from traceadvisor.rules.base import Rule

_LITTLE_OF_IT = 0.25
"""Saving as a share of the removed time, below which other work takes the place of what the fix removes."""


def not_worth_doing(
    catalogue: Iterable[Rule], outcomes: Iterable[Judged], recordings: Iterable[Recording]
) -> tuple[NotWorthDoing, ...]:
    """Popular fixes that save something, but less than 2% of the step in every recording; each with its highest saving.

    Recordings of one or two steps are ignored. So are fixes for time that a more specific finding claims.
    """
    rules = {rule.meta.id: rule for rule in catalogue}
    popular = {rule_id: rule.popular_fix for rule_id, rule in rules.items() if rule.popular_fix}
    rows = tuple(outcomes)
    found = {(row.recording_ids[0], row.rule_id) for row in rows if row.is_found}
    contradicted = {(recording, refined) for recording, rule_id in found for refined in rules[rule_id].refines}
    long_enough = {one.id for one in recordings if sum(row.step.kept for row in one.steps) >= FEWEST_STEPS}
    with_findings = {recording for recording, rule_id in found if not rules[rule_id].umbrella}
    small: dict[str, list[tuple[float, SmallSaving, str]]] = {}
    for row in rows:
        recording = row.recording_ids[0]
        if not isinstance(row.outcome, Clear) or row.rule_id not in popular or recording not in long_enough:
            continue
        share = _most_share(row.outcome)
        if share is not None and share < WORTH_DOING_SHARE and (recording, row.rule_id) not in contradicted:
            reason = _why_small(row.outcome, has_findings=recording in with_findings)
            small.setdefault(row.rule_id, []).append((share, reason, recording))
    return tuple(_as_one(popular[rule_id], cases) for rule_id, cases in small.items())


def _as_one(fix: str, cases: list[tuple[float, SmallSaving, str]]) -> NotWorthDoing:
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


def _why_small(clear: Clear, *, has_findings: bool) -> SmallSaving:
    """Why the fix saves little."""
    if clear.saving_share is None:
        return SmallSaving(SmallBecause.SMALL_SHARE, clear.label, clear.doubt)
    if _is_taken_over(clear):
        return SmallSaving(SmallBecause.TAKEN_OVER, has_findings=has_findings)
    shortens = clear.saving_share >= NOTICED_SHARE
    return SmallSaving(SmallBecause.SIMULATED_LITTLE if shortens else SmallBecause.SIMULATED_NOTHING)


def _is_taken_over(clear: Clear) -> bool:
    """Whether the fix removes time, but hardly shortens the step."""
    if clear.because is ClearedBecause.TAKEN_OVER:
        return True
    there = clear.value if clear.unit is Unit.SHARE else 0.0
    return there >= WORTH_DOING_SHARE and (clear.saving_share or 0.0) < _LITTLE_OF_IT * there
