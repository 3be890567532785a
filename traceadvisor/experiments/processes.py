"""Measures each setting in processes of its own, interleaved in random order, for what cannot be switched at run time.

Each process runs the script until one block is measured. A round has one process of every arm, as a round of blocks
has one block. Processes differ from one another for no reason, so only larger changes become visible.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from traceadvisor.experiments.curves import are_enough
from traceadvisor.experiments.journal import (
    AnyRow,
    Begin,
    Ended,
    Facts,
    Failed,
    Finished,
    FirstLosses,
    Journal,
    KeptApart,
    Round,
    Void,
    facts_of,
    left_out,
    read,
    rounds_of,
)
from traceadvisor.experiments.next_experiment import in_processes
from traceadvisor.experiments.patching.copies import Copy, copied
from traceadvisor.experiments.plan import AS_IT_IS, LONGEST_GRACE_S, SAME_AGAIN, STEPS_TO_FIND, Experiment, Plan
from traceadvisor.experiments.settings import ENVIRONMENT
from traceadvisor.statistics import FEWEST_ROUNDS
from traceadvisor.text.ranges import between

NO_LOOP = (
    f"no training loop was found. TraceAdvisor looks for {STEPS_TO_FIND} steps of a torch optimizer "
    "in the main thread of the script's own process"
)
CUT_TIMES = 2.0
"""Assumed length of a process that the end of the time cut off, over what it had."""

BLOCK_S = 1.5
"""Time of the measured steps of a process, at least."""

OneProcess = Callable[[Plan, dict[str, str]], int]
"""Runs a plan with more environment variables; returns the exit code."""


class Interleaved:
    """The rounds of processes."""

    def __init__(self, plan: Plan, run: OneProcess, *, chance: random.Random | None = None) -> None:
        self._plan, self._run = plan, run
        self._chance = chance or random.Random()  # noqa: S311  # orders are no secret
        self._journal = Journal(plan.journal)
        self._number = 0
        self._times_s: list[float] = []
        self._cut_s = self._given_s = 0.0

    def measure(self) -> str | None:
        """Run rounds until they are enough; returns why less was measured than planned."""
        experiment = in_processes(self._plan)
        self._given_s = max(self._plan.deadline_s - time.monotonic(), 0.0)
        while not self._is_enough(experiment):
            if time.monotonic() + self._round_s(experiment) > self._plan.deadline_s:
                return self._spent(experiment)
            if problem := self._round(experiment):
                return problem
        self._journal.add(Finished(experiment.name))
        return None

    def _round_s(self, experiment: Experiment) -> float:
        """Time of a round, by the longest process so far."""
        return self._process_s()[1] * len(self._arms(experiment))

    def _process_s(self) -> tuple[float, float]:
        """The mean and the longest time of a process; of one that was cut off, at least what it had."""
        if not self._times_s:
            return self._cut_s, CUT_TIMES * self._cut_s
        return sum(self._times_s) / len(self._times_s), max(*self._times_s, self._cut_s)

    def _spent(self, experiment: Experiment) -> str:
        """The time that is needed for everything: these processes may have a part of it, such as half."""
        done = len(rounds_of(self._journal.rows, experiment.name))
        if done >= FEWEST_ROUNDS:
            return "The budget was spent. Raise --minutes to measure more."
        times = self._plan.budget_s / self._given_s if self._given_s else 1.0
        arms, ends_s = len(self._arms(experiment)), self._process_s()
        needed_s = (FEWEST_ROUNDS * arms * one + LONGEST_GRACE_S for one in ends_s)
        minutes = (f"{math.ceil(one * max(times, 1.0) / 60)}" for one in needed_s)
        return (
            f"The time was too short: {done} of at least {FEWEST_ROUNDS} rounds were measured. "
            f"A round has {arms} processes of {between(*(f'{one:.0f}' for one in ends_s))} s: "
            f"use --minutes {between(*minutes)}, or more."
        )

    def _is_enough(self, experiment: Experiment) -> bool:
        rounds, arms = rounds_of(self._journal.rows, experiment.name), self._arms(experiment)
        return len(arms) <= 2 or are_enough(self._plan, rounds, experiment.counted(arms))

    def _arms(self, experiment: Experiment) -> list[str]:
        out = left_out(self._journal.rows, experiment.name)
        return [arm for arm in experiment.all_arms if arm not in out]

    def _round(self, experiment: Experiment) -> str | None:
        """One process of each arm; returns why no more can be measured."""
        arms = self._arms(experiment)
        found: dict[str, Round] = {}
        for arm in self._chance.sample(arms, len(arms)):
            self._journal.add(Begin(experiment.name, arm))
            code, rows = self._process(experiment, arm)
            measured = next((row for row in rows if isinstance(row, Round)), None)
            if facts_of(self._journal.rows) is None and (facts := facts_of(rows)):
                self._journal.add(facts)
            for row in rows:
                if isinstance(row, FirstLosses | KeptApart):
                    self._journal.add(row)
            if voids := [row for row in rows if isinstance(row, Void)]:
                self._journal.add(Void(experiment.name, arm, voids[0].reason))
            elif measured:
                found[arm] = measured
                continue
            elif time.monotonic() > self._plan.deadline_s:
                is_found = facts_of(self._journal.rows) or any(isinstance(row, Begin) for row in rows)
                spent = self._spent(experiment)
                return spent if is_found else f"{spent} So far, {NO_LOOP}."
            else:
                self._journal.add(Failed(experiment.name, arm, _reason(rows, code)))
            if arm in (AS_IT_IS, SAME_AGAIN):
                if not code and facts_of(rows):
                    return "With its own settings, the script ended before it was measured: train for more steps."
                return f"The script failed with its own settings: {_reason(rows, code)}."
        self._journal.add(_merged(experiment.name, found))
        return None

    def _process(self, experiment: Experiment, arm: str) -> tuple[int, list[AnyRow]]:
        self._number += 1
        folder = Path(self._plan.folder, "processes", f"{self._number:03d}")
        folder.mkdir(parents=True)
        settings = experiment.settings(arm)
        variables = {
            name.removeprefix(ENVIRONMENT): str(value)
            for name, value in self._plan.real(settings).values
            if name.startswith(ENVIRONMENT)
        }
        kept = {name: value for name, value in settings.values if not name.startswith(ENVIRONMENT)}
        plan = replace(self._plan, folder=str(folder), arm=kept, arm_name=arm, block_s=max(self._plan.block_s, BLOCK_S))
        if arm in plan.copies:
            copy = Copy(Path(plan.copies[arm]))
            plan = replace(plan, copy=plan.copies[arm], script=(copied(copy, plan.script[0]), *plan.script[1:]))
        begin_s = time.monotonic()
        code = self._run(plan, variables)
        end_s = time.monotonic()
        if end_s > self._plan.deadline_s:
            self._cut_s = end_s - begin_s
        else:
            self._times_s.append(end_s - begin_s)
        return code, read(plan.journal)


def _reason(rows: list[AnyRow], code: int) -> str:
    ended = next((row for row in reversed(rows) if isinstance(row, Ended)), None)
    if ended and ended.detail:
        return ended.detail
    if not any(isinstance(row, Facts) for row in rows):
        return NO_LOOP
    return f"exit code {code}"


_BY_ARM = tuple(name for name in Round.__struct_fields__ if name not in ("experiment", "steps"))
"""Figures that a round has for each arm."""


def _merged(experiment: str, found: dict[str, Round]) -> Round:
    """One round of those of the processes, each with its arm."""
    by_arm = {
        name: {arm: getattr(row, name)[arm] for arm, row in found.items() if arm in getattr(row, name)}
        for name in _BY_ARM
    }
    return Round(experiment, steps=sum(row.steps for row in found.values()), **by_arm)
