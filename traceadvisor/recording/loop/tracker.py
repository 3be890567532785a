"""Finds the boundaries of training steps from fetches and optimizer steps alone.

An optimizer's step completes the training step, and the next fetch from a loader starts a new one. Fetches without an
optimizer's step are not a training step: they are validation, or the rest of an epoch that accumulation left over.
Without a loader, the boundary is the return of the optimizer's step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum, auto

from traceadvisor.bundle.steps import StepLog
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.recording.loop.window import Window


class _Mode(Enum):
    UNKNOWN = auto()
    LOADER = auto()
    NO_LOADER = auto()
    MANUAL = auto()
    """The script marks the end of each step."""


@dataclass(slots=True)
class _Period:
    """A part of the run that may prove to be a training step."""

    start_ns: int
    wall_ns: int
    state: StepState
    suspected: bool
    """Whether it is probably not a training step."""

    seen: dict[Hashable, int] = field(default_factory=dict)
    """Number of batches by loader, in the order of their first batch."""

    exhausted: set[Hashable] = field(default_factory=set)
    """Loaders without further batches."""

    steppers: set[int] = field(default_factory=set)
    """Optimizers that stepped."""

    batches: int = 0
    loader_ns: int = 0
    loader_start_ns: int = 0
    grad: bool = True
    """Whether gradients were enabled at the first fetch."""

    done_ns: int | None = None
    """When the last optimizer step returned."""

    fetched_ns: int = 0
    """When the last fetch returned."""

    checkpoint_ns: int = 0
    """Time to save checkpoints while the period may go on."""

    later_checkpoint_ns: int = 0
    """Time to save checkpoints after the last optimizer step, or after the last batch of a loop without one."""

    def trained(self, now_ns: int) -> None:
        """An optimizer's step returned, or the script marks the end of the step."""
        self.done_ns = now_ns
        self.checkpoint_ns += self.later_checkpoint_ns
        self.later_checkpoint_ns = 0

    @property
    def fetches(self) -> int:
        """Batches of the first loader, which is the one described if several feed a step."""
        return next(iter(self.seen.values()), 0)

    @property
    def is_fed(self) -> bool:
        """Whether a loader of the period may have more batches."""
        return not self.seen.keys() <= self.exhausted


class LoopTracker:
    """Turns the events of the training thread into steps; fills the step log and advances the window."""

    def __init__(
        self,
        window: Window,
        log: StepLog,
        *,
        trained: Callable[[Hashable | None], None],
        clock: Callable[[], int] = time.perf_counter_ns,
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._window = window
        self._log = log
        self._trained = trained
        """Called once with the loader of the first training step, when that step has ended."""
        self._clock = clock
        self._wall_clock = wall_clock
        self._mode = _Mode.UNKNOWN
        self._period: _Period | None = None
        self._number = 0
        self._training: set[Hashable] = set()
        self._training_grad = True
        self._fetch_ns = 0
        self._turn: list[tuple[int, int, int]] = []
        """Optimizer steps before the first known boundary: the optimizer, and both clocks at its return."""
        self._last_in_turn = 0
        self._fed_in_a_row = 0
        self.checkpoint_after_ns = 0
        """Time to save checkpoints after the last step; complete once the script ended."""

    def fetch_begins(self, loader: Hashable, *, grad: bool, loader_start_ns: int = 0) -> None:
        """The training thread asks a loader for a batch.

        ``grad``: whether gradients are enabled. ``loader_start_ns``: at the first fetch of a loop, how long it took to
        start the loop; otherwise 0.
        """
        now, period = self._clock(), self._period
        if self._mode is _Mode.UNKNOWN:
            self._mode = _Mode.LOADER
        if self._mode is not _Mode.MANUAL and (period is None or self._ends_at(period, loader, grad=grad)):
            period = self._turn_over(now, suspected=self._is_suspect(loader, grad=grad))
        elif period and not period.batches:
            period.suspected = self._is_suspect(loader, grad=grad) and self._mode is not _Mode.MANUAL
        if period:
            period.loader_start_ns += loader_start_ns
            if not period.batches:
                period.grad = grad
            if period.suspected and period.batches > self._window.longest_interlude:
                self._window.cut()
        self._fetch_ns = self._clock()

    def fetch_ended(self, loader: Hashable, *, got_batch: bool) -> None:
        """The loader returned a batch, or has none left."""
        period = self._period
        if period is None:
            return
        period.fetched_ns = self._clock()
        period.loader_ns += period.fetched_ns - self._fetch_ns
        if got_batch:
            period.batches += 1
            period.seen[loader] = period.seen.get(loader, 0) + 1
            period.exhausted.discard(loader)
        else:
            period.exhausted.add(loader)

    def optimizer_stepped(self, optimizer: int) -> None:
        """An optimizer's step returned, or a gradient scaler skipped it."""
        now, period = self._clock(), self._period
        if self._mode is _Mode.UNKNOWN:
            self._learn_turn(optimizer, now)
            return
        if period is None:
            return
        repeated = optimizer in period.steppers
        period.steppers.add(optimizer)
        period.trained(now)
        if self._mode is _Mode.LOADER and not period.suspected:
            self._training.update(period.seen)
            self._training_grad = period.grad
        if self._mode is _Mode.LOADER and repeated and not period.is_fed:
            self._mode = _Mode.NO_LOADER  # the loader belonged to an earlier loop
        if self._mode is _Mode.NO_LOADER and (optimizer == self._last_in_turn or repeated):
            self._last_in_turn = optimizer
            self._turn_over(now, suspected=False)

    def saved(self, took_ns: int) -> None:
        """The training thread saved a checkpoint."""
        period = self._period
        if period is None:
            return
        if period.done_ns is None and period.is_fed:
            period.checkpoint_ns += took_ns
        else:
            period.later_checkpoint_ns += took_ns

    def step(self) -> None:
        """The script marks the end of a step."""
        now = self._clock()
        self._mode = _Mode.MANUAL
        if self._period:
            self._period.trained(now)
        self._turn_over(now, suspected=False)

    def finish(self) -> None:
        """The script ended. What no fetch follows ends with its optimizer's step, or with the end of its loader."""
        period = self._period
        if period is None:
            return
        if period.done_ns is None:
            ended = bool(period.batches) and not period.is_fed
            if ended or not period.batches:
                self.checkpoint_after_ns, period.later_checkpoint_ns = period.later_checkpoint_ns, 0
            if period.batches or self._window.recording:
                self._close(period, period.fetched_ns if ended else self._clock())
        else:
            if self._window.recording:
                period.state = StepState.STALLED
            self.checkpoint_after_ns, period.later_checkpoint_ns = period.later_checkpoint_ns, 0
            self._close(period, period.done_ns)
        self._period = None

    def _turn_over(self, now_ns: int, *, suspected: bool) -> _Period:
        if self._period:
            self._close(self._period, now_ns)
        state = self._window.begins(self._number, trains=not suspected)
        self._period = _Period(self._clock(), self._wall_clock(), state, suspected)
        return self._period

    def _close(self, period: _Period, end_ns: int) -> None:
        trained = period.done_ns is not None
        if self._mode is _Mode.NO_LOADER:
            trained = self._trained_without_loader(period)
        duration = end_ns - period.start_ns
        state = period.state if trained else StepState.OTHER
        if trained and self._window.plan is None:
            self._trained(next(iter(period.seen), None))
        self._training.update(period.seen if trained else ())
        step = TimedStep(
            index=self._number,
            start_ns=period.wall_ns,
            duration_ns=duration,
            loader_ns=period.loader_ns,
            fetches=period.fetches,
            state=state,
            loader_start_ns=period.loader_start_ns,
            clock_ns=period.start_ns,
            checkpoint_ns=period.checkpoint_ns + period.later_checkpoint_ns,
        )
        self._log.add(step)
        self._window.ended(duration, period.loader_ns, state)
        self._number += 1

    def _ends_at(self, period: _Period, loader: Hashable, *, grad: bool) -> bool:
        """Whether a fetch from a loader ends the period."""
        if self._mode is _Mode.NO_LOADER:
            return not period.is_fed
        if period.done_ns is not None or not period.batches:
            return period.done_ns is not None
        return not period.is_fed or (loader not in period.seen and self._is_another_loop(period, loader, grad=grad))

    def _is_another_loop(self, period: _Period, loader: Hashable, *, grad: bool) -> bool:
        """Whether a loader that is new to the period belongs to another loop than the period's loaders.

        Loaders of one loop return one batch each in turn. Several batches from one loader are a loop of its own.
        """
        if not self._training:
            return period.grad != grad or period.batches > 1
        back_to_training = loader in self._training and self._training.isdisjoint(period.seen)
        return back_to_training or period.grad != grad

    def _is_suspect(self, loader: Hashable, *, grad: bool) -> bool:
        if self._mode is _Mode.NO_LOADER:
            return True
        return bool(self._training) and (loader not in self._training or grad != self._training_grad)

    def _trained_without_loader(self, period: _Period) -> bool:
        """Whether a period trained, in a loop without a loader.

        Fetches in such a loop are validation. If they recur with each step, the loop has a loader after all.
        """
        if period.done_ns is None:
            return False
        if not period.batches:
            self._fed_in_a_row = 0
            return True
        self._fed_in_a_row += 1
        if self._fed_in_a_row > 1:
            self._mode = _Mode.LOADER
        return False

    def _learn_turn(self, optimizer: int, now_ns: int) -> None:
        """Without a loader, a step is one turn of the optimizers. The start of the first turn is unknown."""
        turn = self._turn
        if not turn or turn[0][0] != optimizer:
            turn.append((optimizer, now_ns, self._wall_clock()))
            return
        self._mode = _Mode.NO_LOADER
        self._last_in_turn, start_ns, wall_ns = turn[-1]
        self._period = _Period(start_ns, wall_ns, self._window.begins(0, trains=True), suspected=False)
        self.optimizer_stepped(optimizer)
