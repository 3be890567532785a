"""Popular fixes that would gain next to nothing in a recording: worth as much to a reader as the findings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from traceadvisor.facts import FEWEST_STEPS, Facts
from traceadvisor.model.findings import Clear, Finding, Found, Method, RuleOutcome, Unit
from traceadvisor.model.report import NotWorthDoing, OutcomeRow, Recording
from traceadvisor.replay.what_if import Edit, Scenario
from traceadvisor.rules.base import Rule

WORTH_DOING_SHARE = 0.02
"""A fix that can gain less than this at most is said not to be worth doing."""

NOTICED_SHARE = 0.0005
"""Less is shown as less than 0.1% of the step."""

REPLAYED_SAVING = "saving of the fix, replayed"

LITTLE_OF_IT = 0.25
"""Of the time that a fix is about, below which other work must have taken the place of what it removes."""

_TAKEN_OVER = "other work takes the place of what it removes"


def tried(rule: Rule, facts: Facts, outcome: RuleOutcome) -> RuleOutcome:
    """An outcome with what the replay says of the rule's popular fix.

    A finding whose fix would gain next to nothing is none; where nothing was found, the most that the fix would gain is
    told, or why it was not replayed. What cannot cost anything is not replayed.
    """
    match outcome:
        case Found(finding) if rule.popular_fix:
            return _small(facts, finding) or outcome
        case Clear(what_if=Edit() as edit):
            return _with_saving(facts, replace(outcome, what_if=None), edit)
    return outcome


def _with_saving(facts: Facts, clear: Clear, edit: Edit) -> Clear:
    if clear.value <= 0:
        return clear
    if (doubt := facts.doubt(edit)) or facts.replay is None:
        return replace(clear, not_replayed=doubt)
    return replace(clear, saving_share=max(facts.replay.saving_share((edit,), Scenario.HIGH), 0.0))


def _small(facts: Facts, finding: Finding) -> Clear | None:
    """That all is well; None where the fix may be worth doing."""
    share = finding.saving.high_ns / facts.step_ns if facts.step_ns else 1.0
    if finding.saving.method is not Method.REPLAY or share >= WORTH_DOING_SHARE:
        return None
    return Clear(REPLAYED_SAVING, share, WORTH_DOING_SHARE, Unit.SHARE, _TAKEN_OVER, saving_share=share)


def not_worth_doing(
    catalogue: Iterable[Rule], outcomes: Iterable[OutcomeRow], recordings: Iterable[Recording]
) -> tuple[NotWorthDoing, ...]:
    """Popular fixes that could gain something, but next to nothing, by the most they could gain anywhere.

    Nothing is said of recordings of a step or two, nor of a fix where what it is about was found, with more insight.
    """
    popular = {rule.meta.id: rule.popular_fix for rule in catalogue if rule.popular_fix}
    rows = tuple(outcomes)
    found = {(row.recording_ids[0], row.rule) for row in rows if isinstance(row.outcome, Found)}
    contradicted = {(recording, refined) for recording, rule in found for refined in rule.refines}
    told = {one.id for one in recordings if sum(row.step.kept for row in one.steps) >= FEWEST_STEPS}
    with_findings = {recording for recording, rule in found if not rule.umbrella}
    small: dict[str, list[tuple[float, str, str]]] = {}
    for row in rows:
        recording = row.recording_ids[0]
        if not isinstance(row.outcome, Clear) or row.rule.id not in popular or recording not in told:
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
    """The most that the fix could save of the step; None where there is nothing to save, or that is not known."""
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
