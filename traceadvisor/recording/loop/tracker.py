"""Finds the boundaries of training steps from fetches and optimizer steps alone.

In a loop that a loader feeds, an optimizer's step completes the training step, and the next fetch starts a new one:
all optimizer steps between two fetches are one step. Without a fetch, the pattern of the optimizers tells: each
repetition is a step, which ends where its last optimizer returns. Fetches without an optimizer's step are no training
step: they are validation, or the rest of an epoch that accumulation left over. Neither is the time from the end of one
loop over a loader to the start of the next.

The pattern is known after some optimizer steps. Until then no step is logged; then all of them are, as if the pattern
had been known from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from traceadvisor.bundle.layout import Note
from traceadvisor.bundle.steps import StepLog, Times
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.recording.loop.optimizer_pattern import FEWEST_STEPS, MOST_STEPS, OptimizerPattern
from traceadvisor.recording.loop.period import Period, long_steps
from traceadvisor.recording.loop.window import Window
from traceadvisor.system import clocks

_MOST_REPEATS = 16
"""Repetitions after which a pattern is trusted, however late the first recording is due."""

_MOST_HELD = 4096
"""Optimizer steps that are held until a pattern is known."""

_CHECKS = 32
"""After this many optimizer steps, a pattern is looked for each time their number has grown by that part of itself."""

_MOST_LOADERS = 64
"""Training loaders to remember."""

_MANY_NEW_LOADERS = 3
"""New loaders that proved to be for training, after which another one is no sign of validation."""

_LOADER_LOST = 4
"""How many times more optimizer steps than ever between two fetches show that the loader no longer feeds the loop."""

BY_BATCH = -1
"""In place of the id of an optimizer, for an iteration of inference."""

_MARK_STEPS = "Mark the end of each iteration: call traceadvisor.step() there."


def _never() -> tuple[int, int]:
    return 0, 0


class LoopTracker:
    """Turns the events of the training thread into steps; fills the step log and advances the window."""

    def __init__(
        self,
        window: Window,
        log: StepLog,
        *,
        trained: Callable[[Hashable | None], None],
        clock: Callable[[], int] = clocks.perf_counter_ns,
        wall_clock: Callable[[], int] = clocks.time_ns,
    ) -> None:
        self._window = window
        self._log = log
        self._trained = trained
        """Called once with the loader of the first training step, when that step has ended."""
        self._clock = clock
        self._wall_clock = wall_clock
        self.compiled_ns: Callable[[], int] = lambda: 0
        """Returns the time in which torch compiled: that makes steps long, too."""
        self.looked_ns: Callable[[], tuple[int, int]] = _never
        """Returns from when to when the capture looked at each operator: that does, too."""
        self._is_manual = False
        """Whether the script marks the end of each step."""
        self._period: Period | None = None
        self._number = 0
        self._training: set[Hashable] = set()
        self._training_grad = True
        self._new_loaders = 0
        """Loaders that seemed to be for validation, and were for training."""
        self._fetch_ns = 0
        self._pattern: OptimizerPattern | None = None
        """Pattern of the optimizers in a step; None before it is known."""
        self._is_unfed = False
        """Whether the pattern was learned where no loader fed the loop."""
        self._first_of_pattern = 0
        """First step that follows the pattern."""
        self._fed_in_a_row = 0
        self._most_batches = 1
        self._most_optimizer_steps = 0
        """In a step that a loader fed."""
        self._is_uncertain = False
        self.most_loops = 0
        """Loops of the script around an optimizer step. Within a single one, each iteration makes one."""
        self._saves: list[tuple[int, int]] = []
        """Checkpoints since the last step: when each was saved, and how long it took."""
        self.latest: TimedStep | None = None
        """The step that ended last."""
        self.untimed_steps = 0
        """The first step of a loop without a loader: nothing shows where it began, so the log lacks it."""
        self.notes: list[Note] = []

    def fetch_begins(self, loader: Hashable, *, grad: bool, loader_start_ns: int = 0, restarted: bool = False) -> None:
        """The training thread asks a loader for a batch.

        ``grad``: whether gradients are enabled. ``loader_start_ns``: at the first fetch of a loop, how long it took to
        start the loop; otherwise 0. ``restarted``: whether a ``DataLoader`` began that loop, and not only a feed that
        takes the next batches from a loop that goes on.
        """
        now, period = self._clock(), self._period
        if not self._is_manual and (period is None or self._ends_at(period, loader, grad=grad)):
            if period and not (self._feeds(period) and period.is_fed):
                takes_single_batches = self._feeds(period) and period.ran_out_ns is None
                self._settle(period, fewest=FEWEST_STEPS if takes_single_batches else 2)
            period = self._turn_over(now, suspected=self._is_suspect(loader, grad=grad))
        if period:
            period.loader_start_ns += loader_start_ns
            if not period.batches:
                period.grad = grad
            period.restarted |= restarted and period.seen.keys() <= {loader}
        self._fetch_ns = self._clock()

    def fetch_ended(self, loader: Hashable, *, got_batch: bool, loader_start_ns: int = 0) -> None:
        """The loader returned a batch, or has none left; ``loader_start_ns`` of this fetch started a loop inside it."""
        period = self._period
        if period is None:
            return
        now = self._clock()
        period.loader_ns += now - self._fetch_ns - loader_start_ns
        period.loader_start_ns += loader_start_ns
        period.restarted |= loader_start_ns > 0 and period.seen.keys() <= {loader}
        if got_batch:
            period.batches += 1
            period.seen[loader] = period.seen.get(loader, 0) + 1
            period.exhausted.discard(loader)
            period.ran_out_ns = None
            if not self._is_manual and (period.suspected or period.batches > self._most_batches):
                self._window.untrained_batch()
            return
        period.exhausted.add(loader)
        if not period.is_fed and period.done_ns is None and not self._is_manual:
            period.ran_out_ns = now
            if period.batches and period.suspected:
                self._turn_over(now, suspected=True)

    def loader_left(self, loader: Hashable) -> None:
        """The script dropped its loop over a loader. May be called in any thread."""
        if period := self._period:
            period.exhausted.add(loader)

    def optimizer_stepped(self, optimizer: int, *, at_ns: int | None = None) -> None:
        """An optimizer's step returned, or a gradient scaler skipped it; ``at_ns``: when, if not now."""
        now, period = at_ns or self._clock(), self._period
        if period is None:
            period = self._begin(suspected=False)
            period.is_start_known = False
        period.done_ns = now
        if self._is_manual:
            return
        if len(period.stepped) <= max(_MOST_HELD, self._most_between_fetches):
            period.stepped.append((optimizer, now))
        if self._feeds(period) and period.ran_out_ns is None:
            if not period.suspected:
                self._trains_on(period)
                self._training_grad = period.grad
            self._notice_unfed(period)
        elif self._pattern is None:
            self._learn(period)
        else:
            is_end = self._pattern.ends_step(optimizer)
            later = self._pattern.successor() if self._is_unfed else None
            if later and not later.ends_as(self._pattern):
                self._succeed(period, later)
                return
            self._pattern = later or self._pattern
            if is_end:
                self._turn_over(now, suspected=False)

    def batch_used(self) -> None:
        """The script is done with its latest batch, and nothing trains: that was an iteration of inference."""
        period = self._period
        if period and period.batches and not self._is_manual:
            self._trains_on(period)
            self._training_grad = period.grad
            self.optimizer_stepped(BY_BATCH)

    def forget(self) -> None:
        """Discard all steps so far: they were no optimizer steps."""
        self._reject_steps(0)
        if self._period:
            self._period.stepped.clear()
            self._period.done_ns, self._period.is_start_known = None, not self._is_unfed
        self._pattern, self._is_unfed, self._is_uncertain = None, False, False
        self._training.clear()

    def saved(self, took_ns: int) -> None:
        """The training thread saved a checkpoint."""
        if self._period:
            self._saves.append((self._clock(), took_ns))

    @property
    def checkpoint_after_ns(self) -> int:
        """Time to save checkpoints after the last step; complete once the script ended."""
        return sum(took_ns for _, took_ns in self._saves)

    def interrupted(self, end: Callable[[], None]) -> None:
        """Something ends the recording within a step, by a function of the window: the step is not recorded."""
        was_recording = self._window.recording
        end()
        if was_recording and not self._window.recording and self._period:
            self._period.state = StepState.STALLED

    def step(self) -> None:
        """The script marks the end of a step."""
        now = self._clock()
        if not self._is_manual:
            self._is_manual = True
            if self._number:
                self._reject_steps(0)
        if self._period:
            self._period.done_ns = now
        self._turn_over(now, suspected=False)

    def finish(self) -> None:
        """The script ended. A step without a following fetch ends with its optimizer's step."""
        if self._period:
            self._settle(self._period, fewest=2)
        period = self._period
        if period and period.done_ns is None:
            if period.batches or self._window.recording:
                self._close(period, self._clock())
        elif period and period.done_ns is not None:
            if self._window.recording:
                period.state = StepState.STALLED
            period.is_mixed |= bool(self._is_unfed and self._pattern and self._pattern.is_within)
            self._close(period, period.done_ns)
        self._period = None
        self._note_doubts()

    # -- periods ------------------------------------------------------------------------------------------------

    def _turn_over(self, now_ns: int, *, suspected: bool) -> Period:
        if self._period:
            self._close(self._period, now_ns)
        return self._begin(suspected=suspected)

    def _begin(self, *, suspected: bool) -> Period:
        state = self._window.begins(self._number, trains=not suspected)
        self._period = Period(self._clock(), self._wall_clock(), state, suspected)
        return self._period

    def _close(self, period: Period, end_ns: int) -> None:
        if not period.is_start_known:
            self.untimed_steps = int(period.done_ns is not None)
            return
        if self._has_trained(period):
            if self._window.plan is None:
                self._trained(next(iter(period.seen), None) if self._feeds(period) else None)
            self._trains_on(period)
            if period.restarted:
                self._window.loader_restarted()
            if not self._is_manual and period.stepped and self._feeds(period):
                self._learn_from_fed(period)
            self._add(period, end_ns, period.state)
        elif period.batches and period.ran_out_ns is not None:
            self._add(period, period.ran_out_ns, StepState.OTHER)
            if end_ns > period.ran_out_ns:
                self._add(period.rest(period.ran_out_ns), end_ns, StepState.OTHER)
        else:
            self._add(period, end_ns, StepState.OTHER)

    def _add(self, period: Period, end_ns: int, state: StepState) -> None:
        duration_ns = max(end_ns - period.start_ns, 1)
        saved_ns = 0
        if self._saves:
            saved_ns = sum(took_ns for at_ns, took_ns in self._saves if period.start_ns < at_ns <= end_ns)
            self._saves = [save for save in self._saves if save[0] > end_ns]
        looked_from_ns, looked_until_ns = self.looked_ns()
        if state is StepState.PLAIN and period.start_ns < looked_until_ns and end_ns > looked_from_ns:
            state = StepState.STALLED
        step = TimedStep(
            index=self._number,
            start_ns=period.wall_ns,
            duration_ns=duration_ns,
            loader_ns=period.loader_ns,
            fetches=period.fetches,
            state=state,
            loader_start_ns=period.loader_start_ns,
            clock_ns=period.start_ns,
            checkpoint_ns=min(saved_ns, duration_ns),
        )
        self._log.add(step)
        self._window.ended(step)
        self.latest = step
        self._number += 1

    # -- steps like the one before ------------------------------------------------------------------------------

    @property
    def footing(self) -> Hashable:
        """State that decides, besides later events, which steps follow; None where none begins, or after a rare event.

        From one footing to the same, the same events make the same steps.
        """
        period, pattern, step = self._period, self._pattern, self.latest
        if self._saves or self._is_manual or not (period and step and step.state is StepState.PLAIN):
            return None
        parts = (period.footing, pattern.footing if pattern else ())
        if None in parts:
            return None
        loaders = (frozenset(self._training), self._training_grad, self._new_loaders, self._most_batches)
        return (*parts, *loaders, self._is_unfed, self._fed_in_a_row, self._most_optimizer_steps)

    @property
    def latest_times(self) -> Times | None:
        """The times of the latest step."""
        step = self.latest
        if step is None or step.clock_ns is None:
            return None
        return step.clock_ns, step.clock_ns + step.duration_ns, step.loader_ns

    @property
    def repetitions(self) -> int:
        """Repetitions of the pattern so far."""
        return self._pattern.repetitions if self._pattern else 0

    def repeat(self, times: Sequence[Times], repetitions: int) -> None:
        """Steps followed with the footing of the latest one: all times of each, and its repetitions of the pattern."""
        period, step = self._period, self.latest
        if period is None or step is None:  # there was no footing
            return
        self.latest = self._log.add_like(step, times)
        self._window.ended_alike([(end_ns - start_ns, loader_ns) for start_ns, end_ns, loader_ns in times])
        self._number += len(times)
        if self._pattern and repetitions:
            self._pattern.repeated(repetitions * len(times))
        start_ns = times[-1][1]
        if not self._is_unfed:
            self._fetch_ns = start_ns
        period.wall_ns += start_ns - period.start_ns
        period.start_ns = start_ns

    def _has_trained(self, period: Period) -> bool:
        """Whether a period is a training step.

        Fetches in a loop without a loader are validation. If each step has some, the loop has a loader after all.
        """
        if period.done_ns is None or period.is_mixed:
            return False
        if self._is_manual or not period.seen or self._feeds(period):
            self._fed_in_a_row = 0
            return True
        self._fed_in_a_row += 1
        self._is_unfed = self._fed_in_a_row == 1
        return not self._is_unfed

    # -- loops that loaders feed --------------------------------------------------------------------------------

    def _feeds(self, period: Period) -> bool:
        """Whether the loaders of a period are those that training takes its batches from."""
        if not period.seen or not self._training.isdisjoint(period.seen):
            return bool(period.seen)
        return period.grad and not self._is_unfed

    def _trains_on(self, period: Period) -> None:
        """The loaders of a period feed training. A script that makes many is known by the latest."""
        if self._training.issuperset(period.seen):
            return
        self._new_loaders += period.suspected
        if len(self._training) > _MOST_LOADERS:
            self._training.clear()
        self._training.update(period.seen)

    def _ends_at(self, period: Period, loader: Hashable, *, grad: bool) -> bool:
        """Whether a fetch from a loader ends the period."""
        if period.done_ns is not None or not period.batches or not period.is_fed:
            return True
        return loader not in period.seen and self._is_another_loop(period, loader, grad=grad)

    def _is_another_loop(self, period: Period, loader: Hashable, *, grad: bool) -> bool:
        """Whether a loader that is new to the period belongs to another loop than the period's loaders.

        Loaders of one loop return one batch each in turn. Several batches from one loader are a loop of its own.
        """
        if not self._training:
            return period.grad != grad or max(period.seen.values()) > 1
        back_to_training = loader in self._training and self._training.isdisjoint(period.seen)
        return back_to_training or period.grad != grad

    def _is_suspect(self, loader: Hashable, *, grad: bool) -> bool:
        if not self._training:
            return self._is_unfed
        is_new = loader not in self._training and self._new_loaders < _MANY_NEW_LOADERS
        return is_new or grad != self._training_grad

    def _learn_from_fed(self, period: Period) -> None:
        """The optimizers of a step tell where a step ends once the loader has no further batch."""
        order = tuple(period.order)
        if self._pattern is None or self._pattern.pattern != order:
            self._pattern = OptimizerPattern(order)
        self._pattern.restart()
        self._is_unfed = False
        self._most_batches = max(self._most_batches, period.batches)
        self._most_optimizer_steps = max(self._most_optimizer_steps, len(order))

    @property
    def _most_between_fetches(self) -> int:
        """Optimizer steps between two fetches; more of them show that no loader feeds the loop any longer."""
        return max(MOST_STEPS, _LOADER_LOST * self._most_optimizer_steps)

    def _notice_unfed(self, period: Period) -> None:
        """A loader fed the loop only once, or no longer, if the optimizers go on without a fetch."""
        count = len(period.stepped)
        is_lost = count > self._most_between_fetches
        if self._pattern is None and (is_lost or not period.is_fed):
            self._learn(period)
        elif self._pattern and (is_lost or (not period.is_fed and count >= 2 * len(self._pattern.pattern))):
            self._adopt(period, OptimizerPattern(self._pattern.pattern), is_now=True)

    # -- loops without a loader ---------------------------------------------------------------------------------

    def _learn(self, period: Period) -> None:
        """Learn the pattern from the optimizer steps of a period, once it is certain."""
        count = len(period.stepped)
        if count < FEWEST_STEPS or count % (count // _CHECKS or 1):
            return
        order = period.order
        repeats = max(2, min(self._window.first_wait, _MOST_REPEATS)) if count < MOST_STEPS else 2
        pattern = OptimizerPattern.of(order, repeats=repeats)
        if pattern is None and count >= max(MOST_STEPS, min(3 * len(set(order)), _MOST_HELD)):
            pattern = OptimizerPattern()
        if pattern:
            self._adopt(period, pattern, is_now=True)

    def _settle(self, period: Period, *, fewest: int) -> None:
        """Split a period whose pattern is not known yet: there may be no more optimizer steps for long."""
        is_open = self._pattern is None and not self._is_manual and len(period.stepped) >= fewest
        if is_open and (pattern := OptimizerPattern.of(period.order)):
            self._adopt(period, pattern, is_now=False)

    def _adopt(self, period: Period, pattern: OptimizerPattern, *, is_now: bool) -> None:
        """Follow a pattern, and split the period into the steps that it holds.

        ``is_now``: whether the last optimizer step of the period has just returned.
        """
        self._training.difference_update(period.seen)
        self._pattern, self._is_unfed, self._first_of_pattern = pattern, True, self._number
        ends_ns = [period.stepped[place][1] for place in pattern.follow(period.order)]
        if period.state is not StepState.PLAIN:
            period.is_mixed = True
            ends_ns = ends_ns[-1:]
        if period.ran_out_ns is not None and period.batches:
            if period.is_start_known:
                self._add(period, period.ran_out_ns, StepState.OTHER)
            period = period.rest(period.ran_out_ns)
        for end_ns in ends_ns:
            rest = period.rest(end_ns)
            self._close(replace(period, stepped=[], done_ns=end_ns, seen={}, batches=0), end_ns)
            period = rest
        self._period = period
        if is_now and not period.stepped:
            self._begin(suspected=False)

    def _succeed(self, period: Period, later: OptimizerPattern) -> None:
        """Another pattern follows. If its steps hold several of those so far, these were parts of steps."""
        if self._pattern and later.holds_several(self._pattern):
            self._reject_steps(self._first_of_pattern)
        elif self._window.recording:
            self._window.cut("the optimizers stepped in another order")
            period.state = StepState.STALLED
        self._is_uncertain = True
        if len(period.stepped) > len(later.pattern):
            self._adopt(period, OptimizerPattern(later.pattern), is_now=True)
        else:
            self._pattern, self._first_of_pattern = later, self._number
            period.is_mixed = True
            if not later.is_within and period.done_ns:
                self._turn_over(period.done_ns, suspected=False)

    # -- doubts -------------------------------------------------------------------------------------------------

    def _reject_steps(self, first: int) -> None:
        """The steps from the first on were not steps: they do not count, and what was recorded of them neither."""
        self._log.reject(first)
        if not first:
            self.untimed_steps = 0
        self._window.restart()
        if self._period and self._period.state is not StepState.PLAIN:
            self._period.state = StepState.STALLED

    def _note_doubts(self) -> None:
        if self._is_manual:
            return
        if self._is_unfed and (self._is_uncertain or (self._pattern and self._pattern.is_uncertain)):
            what = "changed their pattern during the run" if self._is_uncertain else "have no stable pattern"
            self._note_uncertain(
                f"No data loader feeds the loop, and the calls of its optimizers or models {what}, so steps may begin "
                "and end at the wrong place."
            )
            return
        times_ns = self._log.undisturbed_ns()
        if self.most_loops > 1 and 2 * self.compiled_ns() < sum(times_ns.values()) and (found := long_steps(times_ns)):
            self._note_uncertain(
                f"One step in {found.every} takes most of the time: the mean step takes {found.mean_ns / 1e6:.1f} ms, "
                f"the median step {found.median_ns / 1e6:.1f} ms. An iteration of the training loop may hold "
                f"{found.every} of these steps."
            )

    def _note_uncertain(self, message: str) -> None:
        self.notes.append(Note("steps-uncertain", f"{message} {_MARK_STEPS}"))
