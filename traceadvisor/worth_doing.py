"""Popular fixes that would gain next to nothing in a recording: worth as much to a reader as the findings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from traceadvisor.facts import Facts
from traceadvisor.model.findings import Clear, Finding, Found, Method, RuleOutcome, Unit
from traceadvisor.model.report import NotWorthDoing, OutcomeRow
from traceadvisor.replay.what_if import Edit, Scenario
from traceadvisor.rules.base import Rule

WORTH_DOING_SHARE = 0.02
"""A fix that can gain less than this at most is said not to be worth doing."""

REPLAYED_SAVING = "saving of the fix, replayed"

_BY_ITSELF = "by itself; other work takes the place of what it removes"


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
    return Clear(REPLAYED_SAVING, share, WORTH_DOING_SHARE, Unit.SHARE, _BY_ITSELF, saving_share=share)


def not_worth_doing(catalogue: Iterable[Rule], outcomes: Iterable[OutcomeRow]) -> tuple[NotWorthDoing, ...]:
    """Popular fixes that could gain something, but next to nothing, by the most they could gain anywhere."""
    popular = {rule.meta.id: rule.popular_fix for rule in catalogue if rule.popular_fix}
    small: dict[str, list[tuple[Clear, float, str]]] = {}
    for row in outcomes:
        if isinstance(row.outcome, Clear) and row.rule.id in popular:
            share = _most_share(row.outcome)
            if share is not None and share < WORTH_DOING_SHARE:
                small.setdefault(row.rule.id, []).append((row.outcome, share, row.recording_ids[0]))
    return tuple(
        NotWorthDoing(
            popular[rule_id],
            max(share for _, share, _ in found),
            _why_small(max(found, key=lambda one: one[1])[0]),
            tuple(recording for _, _, recording in found),
        )
        for rule_id, found in small.items()
    )


def _most_share(clear: Clear) -> float | None:
    """The most that the fix could save of the step; None where there is nothing to save, or that is not known."""
    if clear.saving_share is not None:
        return clear.saving_share
    return clear.value if clear.unit is Unit.SHARE and clear.value > 0 else None


def _why_small(clear: Clear) -> str:
    if clear.saving_share is not None:
        return f"the step was replayed with it{f': {_BY_ITSELF}' if clear.remark == _BY_ITSELF else ''}"
    reason = f"; not replayed: {clear.not_replayed}" if clear.not_replayed else ""
    return f"all of the {clear.label} together is what it could save{reason}"
