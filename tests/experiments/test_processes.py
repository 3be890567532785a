"""Rounds of processes, each of which takes a given time."""

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.experiments.building import plan_in, round_of
from traceadvisor.experiments.journal import Journal
from traceadvisor.experiments.plan import Axis, Plan
from traceadvisor.experiments.processes import Interleaved

PROCESS_S = 0.05


def _measured_within(seconds: float, folder: Path, budget_s: float = 0.0) -> str | None:
    def run(plan: Plan, variables: Mapping[str, str]) -> int:
        time.sleep(PROCESS_S)
        if time.monotonic() < plan.deadline_s:
            Journal(plan.journal).add(round_of("processes", {plan.arm_name: 1.0}))
        return 0

    deadline_s = time.monotonic() + seconds
    folder.mkdir(exist_ok=True)
    plan = plan_in(folder, deadline_s=deadline_s, budget_s=budget_s, switches=(Axis("env:EXTRA", ("1",)),))
    return Interleaved(plan, run).measure()


@pytest.mark.parametrize(("processes", "rounds"), [(0.5, 0), (4.5, 1)])
def test_a_time_too_short_for_five_rounds_is_a_message_with_the_time_that_is_needed(
    tmp_path: Path, processes: float, rounds: int
) -> None:
    problem = _measured_within(processes * PROCESS_S, tmp_path)
    assert problem is not None
    assert problem.startswith(f"The time was too short: {rounds} of at least 5 rounds were measured. A round has 3 ")
    assert "processes of 0 s: use --minutes 1, or more." in problem
    assert ("no training loop was found" in problem) is (rounds == 0)


def test_the_needed_time_counts_what_other_measurements_take(tmp_path: Path) -> None:
    found = [_measured_within(4.5 * PROCESS_S, tmp_path / str(part), 600.0 * part) or "" for part in (0, 1)]
    assert "use --minutes 1, or more" in found[0]
    assert "use --minutes 1, or more" not in found[1], "the processes had a small part of ten minutes"


def test_enough_time_is_no_problem(tmp_path: Path) -> None:
    assert _measured_within(600, tmp_path) is None
