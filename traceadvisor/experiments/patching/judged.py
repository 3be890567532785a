"""Judges changed code by rows and results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from statistics import fmean
from typing import Any

from traceadvisor.experiments.journal import AnyRow, Failed, FirstLosses, KeptApart, Void
from traceadvisor.experiments.next_experiment import CODE
from traceadvisor.experiments.plan import AS_IT_IS, SAME_AGAIN
from traceadvisor.model.experiment import ExperimentResult, MeasuredArm
from traceadvisor.model.patch import Apart, LossMatch, PatchOutcome
from traceadvisor.model.verdict import Verdict

_ROUNDING = 0.01
"""Relative difference of mean losses that is always allowed, as in the guard of settings."""

_BY_VERDICT = {Verdict.FASTER.value: PatchOutcome.FASTER, Verdict.SLOWER.value: PatchOutcome.SLOWER}


def code_arm(result: ExperimentResult) -> MeasuredArm | None:
    """The measurement of changed code; None without one."""
    return next((arm for section in result.sections if section.name == CODE for arm in section.arms), None)


def kept_apart(rows: Sequence[AnyRow]) -> KeptApart | None:
    """Why the code cannot alternate, or did not run."""
    return next((row for row in rows if isinstance(row, KeptApart)), None)


def outcome_of(arm: MeasuredArm | None, loss: LossMatch, rows: Sequence[AnyRow]) -> PatchOutcome:
    """How changed code fared."""
    if any(isinstance(row, KeptApart) and row.reason is Apart.NOT_LOADED for row in rows):
        return PatchOutcome.NOT_IN_FORCE
    if arm and arm.problem and arm.measured is None:
        return PatchOutcome.FAILED if _has_failed(arm, rows) else PatchOutcome.NOT_RUN
    if arm is None or arm.measured is None:
        return PatchOutcome.NOT_RUN
    if arm.problem:
        return PatchOutcome.FAILED
    if loss is LossMatch.DIFFERS:
        return PatchOutcome.LOSS_DIFFERS
    return _BY_VERDICT.get(arm.measured.verdict, PatchOutcome.NOT_SHOWN)


def _has_failed(arm: MeasuredArm, rows: Sequence[AnyRow]) -> bool:
    return any(isinstance(row, Failed | Void) and row.arm == arm.name for row in rows)


def losses_of(rows: Sequence[AnyRow]) -> dict[str, Any]:
    """How the losses of changed code compare with those of the script as it is, by the names of ``CodeChange``."""
    found = [row for row in rows if isinstance(row, FirstLosses) and row.losses]
    own = [row.losses for row in found if row.arm in (AS_IT_IS, SAME_AGAIN)]
    changed = [row.losses for row in found if row.arm not in (AS_IT_IS, SAME_AGAIN)]
    if not own or not changed:
        return {}
    count = min(map(len, (*own, *changed)))
    own, changed = [one[:count] for one in own], [one[:count] for one in changed]
    if any(value is None for one in own for value in one):
        return {}
    before, after = _mean(own), _mean(changed)
    if {*own} == {*changed} and len({*own}) == 1:
        match = LossMatch.IDENTICAL
    else:
        match = LossMatch.WITHIN if abs(after - before) <= _allowed(own, before) else LossMatch.DIFFERS
    return {
        "loss": match,
        "losses": count,
        "loss_before": before,
        "loss_after": after if after < inf else None,
    }


def _mean(losses: Sequence[Sequence[float | None]]) -> float:
    return fmean(inf if value is None else value for one in losses for value in one)


def _allowed(own: Sequence[Sequence[float | None]], mean: float) -> float:
    """By how much other batches, or the same script again, change a loss."""
    steps = [abs(float(a or 0) - float(b or 0)) for one in own for a, b in pairwise(one)]
    again = [
        abs(float(a or 0) - float(b or 0)) for one, other in pairwise(own) for a, b in zip(one, other, strict=True)
    ]
    return max([_ROUNDING * abs(mean), *steps, *again])
