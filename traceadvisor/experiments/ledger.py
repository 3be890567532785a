"""Predicted beside measured, for the fixes of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from traceadvisor.model.experiment import LedgerRow, Section, SettingValue


@dataclass(frozen=True, slots=True)
class Proposal:
    """A fix of a report as settings, with what the report predicts."""

    fix: str
    title: str
    settings: dict[str, SettingValue]
    low: float | None
    """Step time with the fix over that without it."""

    expected: float | None
    high: float | None


def ledger(
    proposals: Sequence[Proposal], sections: Sequence[Section], unavailable: Mapping[str, str]
) -> tuple[LedgerRow, ...]:
    """A row for each proposal, with what was measured for it or why nothing was."""
    arms = {arm.name: arm for section in sections for arm in section.arms}
    rows = []
    for one in proposals:
        arm = arms.get(one.fix)
        reasons = [unavailable[name] for name in one.settings if name in unavailable]
        problem = arm.problem if arm else (reasons[0] if reasons else "the budget was spent before it was measured")
        rows.append(
            LedgerRow(
                fix=one.fix,
                title=one.title,
                settings=one.settings,
                predicted_low=one.low,
                predicted=one.expected,
                predicted_high=one.high,
                measured=arm.measured if arm and not arm.problem else None,
                problem=problem,
            )
        )
    return tuple(rows)
