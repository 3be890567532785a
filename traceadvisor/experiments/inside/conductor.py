"""Conducts an experiment from inside the training loop: each batch that the loop asks for is one of a block.

The procedure is a generator of batches. It is resumed by the loop's request for the next one, which is where a step
ends. So it reads as a program that runs steps, although the script runs them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeAlias

import torch._dynamo.config

from traceadvisor.errors import named
from traceadvisor.experiments.curves import are_enough
from traceadvisor.experiments.inside.blocks import START, Block, Blocks, NoBatchError, NoStepError, OutOfBudgetError
from traceadvisor.experiments.inside.edited import ReadFiles, loaded_elsewhere
from traceadvisor.experiments.inside.evidence import Witness
from traceadvisor.experiments.inside.global_flags import set_at_start
from traceadvisor.experiments.inside.guard import LossGuard, WeightGuard, finite, saved_state
from traceadvisor.experiments.inside.loop import Found, LoopWatcher
from traceadvisor.experiments.inside.sources import NO_LOADER, own_settings
from traceadvisor.experiments.journal import (
    Begin,
    Ended,
    Facts,
    Failed,
    Finished,
    FirstLosses,
    Journal,
    KeptApart,
    Note,
    Rate,
    Round,
    Void,
    facts_of,
    left_out,
    rounds_of,
)
from traceadvisor.experiments.next_experiment import experiments_after, next_experiment
from traceadvisor.experiments.plan import AS_IT_IS, SAME_AGAIN, Experiment, Plan
from traceadvisor.experiments.settings import BATCH_SIZE, CACHED, Settings
from traceadvisor.model.patch import Apart
from traceadvisor.statistics import FEWEST_ROUNDS
from traceadvisor.system import clocks

TRIED_STEPS = 4
"""Steps that give the first idea of a step's length in an arm."""

FEW_TRIED = 0.5
"""Share of these whose optimizer steps may be missing: later blocks show more."""

GRAPHS_OF_AN_ARM = 4
"""Graphs that an arm may need of code that the script compiles: of training and validation, for one batch size and for
any."""

COMPARED_STEPS = 12
"""Steps of changed code whose losses are compared with those of the script as it is."""

FIRST_STEPS = 12
"""Steps that give the first idea of a step's length."""

RESERVE = 1.2
"""Factor on the estimated time of an experiment: first steps tell the later ones roughly."""

Served: TypeAlias = Generator[Any, None, Block | None]
"""Gives the loop batches, and returns a block if one was measured."""


class Conductor:
    """Runs all experiments of a plan, and writes what it measures into a journal."""

    def __init__(self, plan: Plan, journal: Journal, *, now_s: Callable[[], float] = clocks.monotonic) -> None:
        self._plan, self._journal, self._now_s = plan, journal, now_s
        self._chance = random.Random()  # noqa: S311  # orders of blocks are no secret
        self._blocks: Blocks
        self._is_leading = False
        self._lost_once: set[tuple[str, str]] = set()
        self._read = ReadFiles(plan.code)
        set_at_start(plan.arm or {})
        self.watcher = LoopWatcher(self._begin, self._asked)
        self.watcher.disturbed = self.disturbed
        self.watcher.refused = self._refused
        self.watcher.only_loaders = journal.of_loop != journal.rows
        if plan.copy:
            self.watcher.losses = []

    def close(self) -> None:
        """Restore torch and end workers."""
        if self._is_leading:
            self._blocks.close()
        self.watcher.remove()

    def disturbed(self) -> None:
        """The script does something else than training: it does not count."""
        if self._is_leading:
            self._blocks.disturbed()

    def _refused(self, why: str) -> None:
        """No step can be measured, or the script has left the loop that was found for one over a loader."""
        has_rounds = any(isinstance(row, Round) for row in self._journal.rows)
        reason = "script" if has_rounds else "other" if self.watcher.beside else "refused"
        self._journal.add(Ended(reason, why))

    # -- called by the watcher ---------------------------------------------------------------------------------------

    def _begin(self, found: Found) -> Iterator[Any]:
        self._found = found
        steps = sum(row.steps for row in self._journal.rows if isinstance(row, Round))
        self._blocks = Blocks(self._plan, found, steps=steps, now_s=self._now_s, read=self._read)
        self._trial = _Trial(self._blocks)
        self._is_leading = True
        self._guard = LossGuard(found, self.watcher)
        self._note_apart()
        return self._procedure()

    def _note_apart(self) -> None:
        """Write down why changed code cannot alternate in this process, if it cannot."""
        edited = self._blocks.switches.edited
        if edited and (why := edited.apart):
            self._journal.add(KeptApart(why.reason, why.at))

    def _asked(self, *, new_loop: bool, last: bool) -> None:
        self._blocks.asked(new_loop=new_loop, last=last)

    # -- the procedure -----------------------------------------------------------------------------------------------

    def _procedure(self) -> Iterator[Any]:
        try:
            facts = yield from self._first_facts()
            if self._plan.arm is not None:
                yield from self._one_arm(Settings.of(self._plan.arm))
            else:
                while experiment := next_experiment(self._plan, self._journal.rows, facts):
                    yield from self._run(experiment, facts)
            self._end("done")
        except OutOfBudgetError:
            self._end("budget")
        except NoBatchError as error:  # under the script's own settings
            self._end("failed", str(error))
        except NoStepError as error:
            self._refused(str(error))
        finally:
            self._blocks.leave()
            self._blocks.switches.switch(Settings())

    def _end(self, reason: str, detail: str = "") -> None:
        edited = self._blocks.switches.edited
        if edited and not edited.apart and edited.uses_other():
            self._note_apart()
        if problem := self._found.schedule_problem:
            text = f"The learning-rate schedule refused a step, which was skipped: {problem}."
            self._journal.add(Note(text))
        self._journal.add(Ended(reason, detail))

    def _first_facts(self) -> Generator[Any, None, Facts]:
        """Steps under the script's own settings, timed; returns the facts."""
        self._journal.add(Begin("start", AS_IT_IS))
        blocks = self._blocks
        try:
            blocks.enter(Settings())
        except Exception as error:  # a loader of another kind, such as a subclass with arguments of its own
            raise NoBatchError(f"its DataLoader cannot be made again: {named(error)}"[:300]) from error
        yield from self._trial.own()
        self._first_step_s = yield from blocks.timed(FIRST_STEPS)
        blocks.arm_step_s = {START: self._first_step_s}
        blocks.trained.are_own()
        use = blocks.memory.use()
        if (facts := facts_of(self._journal.rows)) is None:
            share = (yield from self._loader_share()) if self._plan.by_importance and not blocks.is_unfed else None
            facts = blocks.facts(self._first_step_s, share, use)
            self._journal.add(facts)
        return facts

    def _loader_share(self) -> Generator[Any, None, float]:
        """The share of the script's own step that cached batches save."""
        blocks = self._blocks
        blocks.enter(Settings.of({CACHED: True}))
        yield from blocks.settled(Settings.of({CACHED: True}))
        cached_s = yield from blocks.timed(FIRST_STEPS)
        blocks.enter(Settings())
        return max(1 - cached_s / self._first_step_s, 0.0)

    def _run(self, experiment: Experiment, facts: Facts) -> Iterator[Any]:
        """All rounds of an experiment; none if the time left is too short for it."""
        is_first = not any(isinstance(row, Finished) for row in self._journal.rows)
        if self._plan.by_importance and not is_first and self._least_s(experiment) > self._left_s:
            self._journal.add(Finished(experiment.name))
            return
        self._blocks.share_s = self._left_s / (1 + experiments_after(self._plan, experiment, facts))
        self._blocks.arms = len(self._arms(experiment))
        self._blocks.arm_step_s = {START: self._first_step_s}
        self._blocks.taken_s = {}
        begin_s = self._now_s()
        self._separate = any(one.of_loader() for one in experiment.arms.values())
        yield from self._tried(experiment)
        self._rates(experiment)
        if self._plan.by_importance:
            self._leave_out_slowest(experiment)
        yield from self._guarded(experiment)
        longest_s = 0.0
        while not self._is_enough(experiment, self._now_s() - begin_s, longest_s):
            round_begin_s = self._now_s()
            yield from self._round(experiment)
            longest_s = max(longest_s, self._now_s() - round_begin_s)
            self._leave_out_slowest(experiment)
        self._journal.add(Finished(experiment.name))

    @property
    def _left_s(self) -> float:
        return self._plan.deadline_s - self._now_s()

    def _least_s(self, experiment: Experiment) -> float:
        """Estimate the time until the arms that still count have the fewest rounds."""
        rounds = max(FEWEST_ROUNDS - len(rounds_of(self._journal.rows, experiment.name)), 0)
        return RESERVE * rounds * sum(self._blocks.least_s(experiment, arm) for arm in self._arms(experiment))

    def _leave_out_slowest(self, experiment: Experiment) -> None:
        """Leave out arms until the fewest rounds fit into the time left: the ceilings first, then by their first steps.

        The choice looks at steps that are not part of any round, so that it does not bias the verdicts.
        """

        def is_slower(arm: str) -> tuple[bool, float]:
            settings = experiment.settings(arm)
            return bool(settings[CACHED]), self._blocks.arm_step_s[arm] / (settings.count(BATCH_SIZE) or 1)

        while self._least_s(experiment) > self._left_s:
            others = [
                arm for arm in self._arms(experiment) if arm in experiment.arms and arm in self._blocks.arm_step_s
            ]
            if len(others) < 2:
                return
            reason = "the time was too short for all settings, and its first steps were slower"
            self._journal.add(Void(experiment.name, max(others, key=is_slower), reason, for_time=True))

    def _is_enough(self, experiment: Experiment, spent_s: float, longest_s: float) -> bool:
        """Whether no more rounds are needed or affordable."""
        rounds = rounds_of(self._journal.rows, experiment.name)
        arms = self._arms(experiment)
        if len(arms) <= 2:
            return True
        if len(rounds) < FEWEST_ROUNDS:
            return False
        is_spent = spent_s + longest_s > self._blocks.share_s
        return is_spent or are_enough(self._plan, rounds, experiment.counted(arms))

    def _arms(self, experiment: Experiment) -> list[str]:
        """The arms that still count. Where a batch size runs out of memory, larger ones do not either."""
        out = left_out(self._journal.rows, experiment.name)
        failed = [row for row in self._journal.rows if isinstance(row, Failed) and row.experiment == experiment.name]
        too_large = [experiment.settings(row.arm).count(BATCH_SIZE) for row in failed if row.out_of_memory]
        limit = min((size for size in too_large if size is not None), default=None)

        def counts(arm: str) -> bool:
            size = experiment.settings(arm).count(BATCH_SIZE)
            return arm not in out and (limit is None or size is None or size < limit)

        return [arm for arm in experiment.all_arms if counts(arm)]

    def _tried(self, experiment: Experiment) -> Iterator[Any]:
        """Run each arm once in ascending order, and look for evidence that its settings are in force."""
        self._weights = WeightGuard(self._found)
        for arm in self._arms(experiment):
            if reason := self._blocks.switches.refused(experiment.settings(arm)):
                self._journal.add(Void(experiment.name, arm, reason))
            elif arm != SAME_AGAIN and arm in self._arms(experiment):
                yield from self._serving(experiment, arm, self._try(experiment, arm))
                self._weights.restore()

    def _serving(self, experiment: Experiment, arm: str, steps: Generator[Any, None, Block | None]) -> Served:
        """Run the steps of an arm; an arm whose loader gives no batch has failed, and gives None."""
        self._journal.add(Begin(experiment.name, arm))
        block = None
        try:
            if self._entered(experiment, arm):
                block = yield from steps
        except NoBatchError as error:
            if arm in (AS_IT_IS, SAME_AGAIN):
                raise
            self._journal.add(Failed(experiment.name, arm, str(error)))
            self._blocks.leave()
        if self._separate:
            self._blocks.leave()
        return block

    def _try(self, experiment: Experiment, arm: str) -> Generator[Any, None, None]:
        """The first steps of an arm."""
        blocks, settings = self._blocks, experiment.settings(arm)
        torch._dynamo.config.recompile_limit += GRAPHS_OF_AN_ARM  # torch runs code uncompiled beyond it, silently
        yield from self._trial.begin(settings)
        blocks.arm_step_s[arm] = yield from blocks.timed(blocks.whole(TRIED_STEPS))
        if reason := blocks.trained.lost(at_least=FEW_TRIED):
            self._skipped(experiment, arm, reason)
        elif reason := self._trial.void(experiment, arm):
            self._journal.add(Void(experiment.name, arm, reason))
            self._note_apart()

    def _skipped(self, experiment: Experiment, arm: str, reason: str) -> None:
        """An arm whose steps the script skips has failed."""
        if arm not in (AS_IT_IS, SAME_AGAIN):
            self._journal.add(Failed(experiment.name, arm, reason, self._blocks.trained.ran_out_of_memory))

    def _counts(self, experiment: Experiment, arm: str) -> bool:
        """Whether the block that ended was trained. An arm may once have one that was not, by chance."""
        trained = self._blocks.trained
        if arm in (AS_IT_IS, SAME_AGAIN):
            trained.are_own()
        elif reason := trained.lost():
            if trained.ran_out_of_memory or (experiment.name, arm) in self._lost_once:
                self._skipped(experiment, arm, reason)
            self._lost_once.add((experiment.name, arm))
            return False
        return True

    def _entered(self, experiment: Experiment, arm: str) -> bool:
        """Switch to an arm; False if torch or the dataset refuses, which is noted."""
        try:
            self._blocks.enter(experiment.settings(arm))
        except Exception as error:  # noqa: BLE001  # whatever it is, the other arms are worth measuring
            self._journal.add(Failed(experiment.name, arm, named(error)[:300]))
            self._blocks.switches.switch(Settings())
            return False
        return True

    def _round(self, experiment: Experiment) -> Iterator[Any]:
        arms = self._arms(experiment)
        blocks: dict[str, Block] = {}
        before = self._blocks.steps
        for arm in self._chance.sample(arms, len(arms)):
            begin_s = self._now_s()
            block = yield from self._serving(experiment, arm, self._blocks.block(experiment, arm))
            self._blocks.taken_s[arm] = self._now_s() - begin_s
            if block is None or not self._counts(experiment, arm):
                return
            self._weights.restore_numbers()
            blocks[arm] = block
        self._journal.add(_round_row(experiment.name, blocks, self._blocks.steps - before))

    def _rates(self, experiment: Experiment) -> None:
        """Measure loaders alone."""
        known = {row.arm for row in self._journal.rows if isinstance(row, Rate) and row.experiment == experiment.name}
        for arm, settings in experiment.rates.items():
            if arm in known or (arm in experiment.arms and arm not in self._arms(experiment)):
                continue
            try:
                batches_per_s, samples_per_s = self._blocks.rate(experiment.base.having(settings))
            except OutOfBudgetError:
                raise
            except Exception as error:  # noqa: BLE001  # whatever it is, the other arms are worth measuring
                self._journal.add(Failed(experiment.name, arm, named(error)[:300]))
            else:
                self._journal.add(Rate(experiment.name, arm, batches_per_s, samples_per_s))

    def _guarded(self, experiment: Experiment) -> Iterator[Any]:
        """Compare the losses of arms that change what a step computes."""
        if self._plan.code:
            yield from self._losses_of_code(experiment)
            return
        arms = [
            arm
            for arm in self._arms(experiment)
            if arm not in (AS_IT_IS, SAME_AGAIN)
            and (changed := experiment.arms[arm]) != changed.of_loader()
            and changed[BATCH_SIZE] is None
        ]
        if not arms or self._guard.is_done(self._journal.rows, experiment.name):
            return
        blocks = self._blocks
        if blocks.is_unfed:
            self._journal.add(Note(f"The losses were not compared: {NO_LOADER}, so no batch can be repeated."))
            return
        if not self._entered(experiment, AS_IT_IS):
            return
        assert blocks.source is not None  # noqa: S101  # entered
        batches = [blocks.source.next() for _ in range(self._guard.batches)]
        prefix = blocks.whole(1 + blocks.ahead) + blocks.batches_per_step

        def switch(arm: str) -> None:
            self._journal.add(Begin(experiment.name, arm))
            blocks.switches.switch(experiment.settings(arm))

        for batch in self._guard.compare(experiment.name, arms, batches, prefix, switch, self._journal):
            blocks.check_budget()
            yield batch
        blocks.switches.switch(Settings())

    def _losses_of_code(self, experiment: Experiment) -> Iterator[Any]:
        """The losses of each arm from one state of weights and random numbers, with a loader of its own."""
        blocks, arms = self._blocks, self._arms(experiment)
        if len(arms) <= 2 or (saved := saved_state(self._found)) is None:
            return
        prefix = blocks.whole(1 + blocks.ahead) + blocks.batches_per_step
        try:
            for arm in arms:
                blocks.leave()
                saved.restore()
                if self._entered(experiment, arm):
                    yield from blocks.steps_of(prefix)
                    saved.restore()
                    self.watcher.losses = []
                    yield from blocks.steps_of(blocks.whole(COMPARED_STEPS))
                    self._add_losses(experiment.name, arm)
        finally:
            self.watcher.losses = None
            saved.restore()

    def _add_losses(self, experiment: str, arm: str) -> None:
        """Write the losses down that the steps had since their list began."""
        losses, self.watcher.losses = self.watcher.losses or [], None
        self._journal.add(FirstLosses(experiment, arm, tuple(map(finite, losses[:COMPARED_STEPS]))))

    def _one_arm(self, settings: Settings) -> Iterator[Any]:
        """For interleaved processes: one block of one arm, long enough for a process."""
        name, blocks = self._plan.arm_name, self._blocks
        if self._plan.copy:
            self._add_losses("process", name)
            if file := loaded_elsewhere(self._plan.changed, self._plan.copy):
                self._journal.add(KeptApart(Apart.NOT_LOADED, file))
                self._journal.add(Void("process", name, f"{file} was not loaded from the copy"))
                return
        blocks.share_s = self._plan.block_s * FEWEST_ROUNDS * 4
        experiment = Experiment("process", "", Settings(), {name: settings})
        self._journal.add(Begin(experiment.name, name))
        if reason := blocks.switches.refused(settings):
            self._journal.add(Void(experiment.name, name, reason))
            return
        blocks.enter(settings)
        yield from self._trial.begin(settings)
        block = yield from blocks.block(experiment, name)
        if reason := blocks.trained.lost() or self._trial.void(experiment, name):
            self._journal.add(Void(experiment.name, name, reason))
        self._journal.add(_round_row(experiment.name, {name: block}, blocks.steps))


def _round_row(experiment: str, blocks: dict[str, Block], steps: int) -> Round:
    return Round(
        experiment,
        seconds={arm: one.step_s / one.samples for arm, one in blocks.items()},
        step_s={arm: one.step_s for arm, one in blocks.items()},
        samples={arm: one.samples for arm, one in blocks.items()},
        peak_bytes={arm: one.peak_bytes for arm, one in blocks.items() if one.peak_bytes is not None},
        steps=steps,
        retries={arm: one.retries for arm, one in blocks.items() if one.retries},
        gpu_shares={arm: one.gpu.busy_share for arm, one in blocks.items() if one.gpu.busy_share is not None},
        cpu_s={arm: one.cpu_s / one.samples for arm, one in blocks.items() if one.cpu_s},
        others={arm: one.others_share for arm, one in blocks.items() if one.others_share is not None},
        watts={arm: one.gpu.power_watts for arm, one in blocks.items() if one.gpu.power_watts is not None},
    )


class _Trial:
    """The first steps of each arm, beside those of the script as it is."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._own = self._now = Witness()

    def own(self) -> Generator[Any, None, None]:
        """The first steps of the script as it is."""
        yield from self.begin(Settings())
        self._own = self._now

    def begin(self, settings: Settings) -> Generator[Any, None, None]:
        """The first steps of an arm that was entered; none of them counts."""
        blocks, self._now = self._blocks, Witness()
        seen = blocks.whole(1 + blocks.ahead) + blocks.batches_per_step
        with self._now:
            yield from blocks.steps_of(seen)
        yield from blocks.settled(settings, seen)

    def void(self, experiment: Experiment, arm: str) -> str | None:
        """Why the arm that began last cannot count: a setting did not take effect, or none changes anything."""
        blocks, switches = self._blocks, self._blocks.switches
        if arm in (AS_IT_IS, SAME_AGAIN):
            return None
        assert blocks.source is not None  # noqa: S101  # entered
        reason = blocks.source.void(blocks.last_batch) or switches.void(experiment.settings(arm), self._now)
        if reason or experiment.axis or not experiment.arms[arm]:  # an axis has own values, too; env: is set outside
            return reason
        own = own_settings(blocks.loader) | experiment.base.document()
        values = dict(experiment.arms[arm].values)
        acting = experiment.arms[arm].without(*(name for name, value in values.items() if own.get(name) == value))
        return switches.idle(acting, self._now, self._own) if acting else "the script has these settings already"
