"""One line on how far an experiment is."""

from __future__ import annotations

from traceadvisor.experiments.journal import AnyRow, Begin, rounds_of
from traceadvisor.experiments.plan import AS_IT_IS, SAME_AGAIN, Plan
from traceadvisor.statistics import FEWEST_ROUNDS

_NAMES = {AS_IT_IS: "as it is", SAME_AGAIN: "as it is, again"}


def progress_line(plan: Plan, rows: list[AnyRow], now_s: float) -> str:
    """What is measured now, and the time left at most."""
    left_s = max(int(plan.deadline_s - now_s), 0)
    left = f"at most {left_s // 60}:{left_s % 60:02d} left"
    last = next((row for row in reversed(rows) if isinstance(row, Begin)), None)
    if last is None:
        return f"The script starts, {left}"
    done = len(rounds_of(rows, last.experiment))
    arm = _NAMES.get(last.arm, last.arm)
    if last.experiment == "start":
        return f"The first steps, {left}"
    return (
        f"Measuring {last.experiment.removeprefix('set:')}, "
        f"round {done + 1} (at least {FEWEST_ROUNDS}, at most {plan.most_rounds}), {arm}, {left}"
    )
