"""Decides when to record: which steps pass first, and which count.

Starting the profiler and exporting a trace stall the loop. Meanwhile the loader's workers refill their queue. So after
each stall, as many steps pass unrecorded as the queue can hold batches. A new loop over the loader ends that: its queue
begins empty, whatever happened before.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum, auto
from math import ceil
from statistics import fmean
from typing import TYPE_CHECKING

from traceadvisor.bundle.layout import Note, Schedule
from traceadvisor.errors import named
from traceadvisor.frozen import frozen
from traceadvisor.model.run import StepState, TimedStep

if TYPE_CHECKING:
    from traceadvisor.recording.job_store import SamePhases
    from traceadvisor.recording.loop.bounds import Reached
    from traceadvisor.recording.loop.profiler import TorchRecorder
    from traceadvisor.recording.requests import Requests

SHORTEST_WINDOW = 8
"""Fewer steps do not show the spread."""

NOTICEABLE_STALL_SHARE = 0.1
"""A delay of more than this share of a step counts as a stall."""

SLOWEST_DRAIN = 4
"""Longest time to wait for a queue to drain, in multiples of its length; a slower one hardly makes the loop wait."""

MOST_SETTLING = 0.5
"""Largest part of what a recording may hold that the steps before the recorded ones may take."""

EXTRA_ATTEMPTS = 2
"""How often to record again after something cut a window short."""

UNTRAINED_BATCHES = 8
"""Largest number of validation batches in a recording, per step to record. Without a backward pass, a batch takes about
a third of a step, so a recording with that many is about four times as large."""


_NOT_ASKED = "No recording was asked for: steps were timed. While it runs, `traceadvisor record` asks for one."


@frozen
class Plan:
    """Number of steps in each phase, for a given loader."""

    first_wait: int
    wait: int
    settle: int
    """Batches that the loader's workers can have ready."""

    warmup: int
    active: int

    @classmethod
    def of(cls, schedule: Schedule, workers: int, prefetch: int, batches: int | None = None) -> Plan:
        """The requested schedule, lengthened until the loader's queue settles; ``batches`` of a loop over the loader.

        Of more workers than batches, only as many get one to load.
        """
        most = sys.maxsize if batches is None else max(batches, 1)
        workers, settle = min(workers, most), min(workers * prefetch, most)
        return cls(
            first_wait=schedule.skip_first + schedule.wait,
            wait=schedule.wait,
            settle=settle,
            warmup=max(schedule.warmup, settle, 1),
            active=_whole_bursts(max(schedule.active, SHORTEST_WINDOW), workers),
        )

    @property
    def shortest(self) -> int:
        """Steps of a window without a wait before it: warm-up, one step to settle, the window, and its end."""
        return self.warmup + 1 + self.active + 1


def _whole_bursts(steps: int, workers: int) -> int:
    """Steps rounded up to whole bursts: workers deliver a batch each at about the same time."""
    return ceil(steps / workers) * workers if workers else steps


class _Phase(IntEnum):
    WAITING = auto()
    WARMUP = auto()
    SETTLING = auto()
    RECORDING = auto()
    RECOVERING = auto()
    DONE = auto()


_STATES = {
    _Phase.WAITING: StepState.PLAIN,
    _Phase.WARMUP: StepState.WARMUP,
    _Phase.SETTLING: StepState.SETTLING,
    _Phase.RECORDING: StepState.RECORDED,
    _Phase.RECOVERING: StepState.SETTLING,
    _Phase.DONE: StepState.PLAIN,
}


def _nothing() -> None:
    pass


class Window:
    """Moves the recorder through its phases as steps start and end."""

    def __init__(
        self,
        schedule: Schedule,
        recorder: TorchRecorder,
        ranks: SamePhases | None = None,
        requests: Requests | None = None,
    ) -> None:
        """``requests``: record only on request; by default as the schedule says."""
        self._schedule = schedule
        self._recorder = recorder
        self._ranks = ranks
        self._requests = requests
        self._phase = _Phase.DONE if requests else _Phase.WAITING
        self._phases = 0
        """Phases that have started."""
        self._length = self._left = schedule.skip_first + schedule.wait
        """Steps of this phase, and those that are left."""
        self._given_way = False
        self.prepares: Callable[[], None] = _nothing
        """Called when a recording is prepared, in the training thread."""
        self._cycle = 0
        self._whole_windows = 0
        self._attempts_left = schedule.repeat + EXTRA_ATTEMPTS
        self._recorded = self._settled = 0
        """Steps of the current recording: recorded ones, and those after the pause of its start."""
        self.saved_steps = 0
        """Recorded steps whose recording is written."""
        self.counted_late = 0
        """The last steps that were to settle the queue: they are recorded ones, because the script ended after them."""
        self._untrained = 0
        """Batches without training in the current recording."""
        self._cuts: list[str] = []
        """Why recordings ended early, each with its number of steps."""
        self._stretch = 0
        """Training steps since the last long validation."""
        self._last_stretch: int | None = None
        """Training steps between the two before; None before the first."""
        self._just_saved = False
        self._full_for = 0
        """Steps from the latest preparation on for which the loader's queue is fuller than usual."""
        self._times_ns: deque[tuple[int, int]] = deque(maxlen=32)
        """Duration and time in the loader of recent steps."""
        self.plan: Plan | None = None
        self.is_late = False
        """Whether the steps are over when they begin and end here: then nothing may start."""
        self.training_steps = 0
        self._notes: list[Note] = []

    @property
    def notes(self) -> list[Note]:
        """Remarks for the report."""
        return [*self._notes, *self._cut_notes()]

    @property
    def recording(self) -> bool:
        """Whether a trace is being recorded."""
        return self._phase is _Phase.SETTLING or self._phase is _Phase.RECORDING

    @property
    def idle_steps(self) -> int:
        """Training steps that may be told late, because nothing is to be decided in them."""
        is_pending = self._requests is not None and self._requests.is_pending
        if self.plan is None or is_pending or self._phase not in {_Phase.WAITING, _Phase.DONE}:
            return 0
        return sys.maxsize if self._phase is _Phase.DONE else self._left - 1

    @property
    def complete(self) -> bool:
        """Whether the last recording is saved."""
        is_last = self._whole_windows >= self._schedule.repeat or self._attempts_left <= 0
        return is_last and self._cycle > 0 and self._phase in {_Phase.RECOVERING, _Phase.DONE}

    @property
    def first_wait(self) -> int:
        """Steps before the first warm-up."""
        return self._schedule.skip_first + self._schedule.wait

    def settle_for(self, workers: int, prefetch: int, batches: int | None = None) -> None:
        """Make the plan for the training loader, when the first training step has ended."""
        self.plan = Plan.of(self._schedule, workers, prefetch, batches)

    def loader_restarted(self) -> None:
        """The training step that ends began a loop over its loader: earlier stalls have left nothing in the queue.

        Other ranks may begin their loops in other steps.
        """
        passed = self._length - self._left
        if not passed or (self._ranks and self._ranks.are_connected):
            return  # without steps before it, the stall came after the loop began, and filled its queue
        if self._phase is _Phase.WARMUP:
            self._full_for = 0
            self._left = min(self._left, max(self._schedule.warmup - passed, 1))
        elif self._phase in {_Phase.SETTLING, _Phase.RECOVERING}:
            self._left = min(self._left, 1)

    def begins(self, step: int, *, trains: bool) -> StepState:
        """A step starts; ``trains`` if it is probably a training step. Returns its state."""
        if not self.is_late and not self._recorder.is_blocked:
            self.renew()
            self._keep_bounds()
            if self._requests and self._phase is _Phase.DONE:
                self._hear(self._requests)
            while self._left <= 0 and self._may_advance(trains=trains):
                self._lengthen()
                if self._left <= 0:
                    try:
                        self._advance()
                    except Exception as error:  # noqa: BLE001  # of the profiler, of whatever kind
                        self._fail(error)
        if self.recording:
            self._recorder.mark(step)
        if self._just_saved:
            self._just_saved = False
            return StepState.STALLED
        return _STATES[self._phase]

    def _hear(self, requests: Requests) -> None:
        """Begin a recording if one is asked for."""
        if self.plan is None or not requests.is_due(self.training_steps):
            return
        if self._given_way:
            requests.answer()
            return
        self._whole_windows, self._attempts_left = 0, 1 + EXTRA_ATTEMPTS
        self._enter(_Phase.WAITING, 0)

    def ended(self, step: TimedStep) -> None:
        """A step ended; its state is final."""
        if step.state is StepState.OTHER:
            self._just_saved = False  # the pause lay in it
            if step.fetches > self._most_untrained:
                self._last_stretch, self._stretch = self._stretch, 0
            return
        self.training_steps += 1
        self._stretch += 1
        self._times_ns.append((step.duration_ns, step.loader_ns))
        self._left -= 1
        self._recorded += step.state is StepState.RECORDED
        self._settled += step.state is StepState.SETTLING

    def ended_alike(self, times_ns: Sequence[tuple[int, int]]) -> None:
        """Plain training steps ended, while nothing is to be decided: their durations and times in the loader."""
        self.training_steps += len(times_ns)
        self._stretch += len(times_ns)
        self._times_ns.extend(times_ns)
        self._left -= len(times_ns)

    def untrained_batch(self) -> None:
        """A batch was fetched that is probably not for training: validation. Much of it ends a recording."""
        if self.recording:
            self._untrained += 1
            if self._untrained > self._most_untrained:
                self.cut("validation began")

    def cut(self, why: str) -> None:
        """The steps to record were interrupted: end the recording, keep its whole steps, and try again later."""
        if not self.recording or self._recorder.is_blocked:
            return
        if self._recorded:
            self._cuts.append(f"after {self._recorded} steps because {why}")
        self._save_or_discard(whole=False)

    def interrupt(self, why: str) -> None:
        """Another profiler is about to run for a moment: end the recording or its warm-up, and try again later."""
        if self._phase is _Phase.WARMUP:
            self._recorder.discard()
            self._recover()
            if self._attempts_left <= 0 and not self._cycle:
                self._cuts.append(f"before it began because {why}")
        elif self.recording and not self._recorded:
            self._cuts.append(f"before its first step because {why}")
            self._save_or_discard(whole=False)
        else:
            self.cut(why)

    def end_at_once(self) -> None:
        """The recording is twice as large as it may be: do not wait for the end of the step."""
        reached = self._recorder.reached
        if not self.recording or self._recorder.is_blocked or not (reached and reached.at_once):
            return
        if not self._recorded:
            self._attempts_left = 0
        self._end_bounded(reached)

    def restart(self) -> None:
        """The steps so far were not steps: record others."""
        if self._given_way or self.plan is None:
            return
        if self.recording or self._phase is _Phase.WARMUP:
            self._recorder.discard()
            self._attempts_left -= 1
        self._whole_windows = self.training_steps = self._stretch = 0
        self._last_stretch = None
        self._times_ns.clear()
        more = self._attempts_left > 0
        self._enter(_Phase.WAITING if more else _Phase.DONE, max(self.plan.wait, 1))

    def give_way(self, code: str, message: str) -> None:
        """Drop the current recording, and never record again."""
        if self._phase is not _Phase.DONE:
            self._note(code, message)
        is_in_use = self.recording or self._phase is _Phase.WARMUP
        self._phase = _Phase.DONE
        self._given_way = True
        if is_in_use:
            self._recorder.discard()

    def finish(self, *, failed: bool = False) -> None:
        """The script ended, perhaps with an error: save the recording, and note what is missing."""
        settled = self._settled - 1  # a pause lay in the first
        if self.recording and not self._recorded and not self._cycle and settled > 0 and self.plan:
            self._recorded = min(settled, self.plan.active)
            steps = "one step" if settled == 1 else f"{settled} steps"
            self._unsettled(f"The script ended {steps} after a pause of the profiler. Train for longer.")
            self._save_or_discard(whole=False)
            self.counted_late = self.saved_steps
        elif self.recording and self._recorded:
            wanted = self.plan.active if self.plan else 0
            self._note(
                "window-incomplete",
                f"The script ended after {self._recorded} of the {wanted} steps to record. {self._remedy()}",
            )
            self._save_or_discard(whole=False)
        elif self.recording or self._phase is _Phase.WARMUP:
            self._recorder.discard()
        if self._requests and not self._cycle and self.training_steps:
            self._note("not-asked", _NOT_ASKED, degrades=False)
        elif not self._cycle and not self._given_way and not self.notes:
            self._note("window-not-reached", self._not_reached(failed=failed))
        self._phase = _Phase.DONE

    def renew(self) -> None:
        """Record again if need be: a recording from before the training used a device shows only a part of it."""
        if self._given_way or not self._recorder.is_outdated:
            return
        if self.recording:
            self._whole_windows = 0
            self.cut("the training began to use another device")
        elif self._whole_windows and not self._requests:
            self._whole_windows = 0
            if self._phase is _Phase.DONE and self.plan:
                self._enter(_Phase.WAITING, self.plan.wait)
            self._note(
                "device-later",
                "The training began to use another device after a recording, so another one was begun.",
                degrades=False,
            )
        self._attempts_left = max(self._attempts_left, 1)

    def _keep_bounds(self) -> None:
        """End a recording that is as large as it may be; with one step in it at least."""
        reached = self._recorder.reached if self.recording else None
        if reached and self._recorded:
            self._end_bounded(reached)
        elif (
            self._phase is _Phase.SETTLING
            and self._left > 0
            and self._recorder.used >= MOST_SETTLING
            and not (reached and reached.at_once)
        ):
            self._unsettled(
                f"The steps before the recorded ones took {self._recorder.used:.0%} of what a recording may hold."
            )
            self._enter(_Phase.RECORDING, self.plan.active if self.plan else 1)

    def _end_bounded(self, reached: Reached) -> None:
        wanted = self.plan.active if self.plan else 0
        if self._recorded < wanted:
            self._note(
                "window-bounded",
                f"The recording ended after {self._recorded} of the {wanted} steps to record: {reached.text}.",
            )
        self._whole_windows += 1
        self._save_or_discard(whole=True)

    def _may_advance(self, *, trains: bool) -> bool:
        if self._phase is _Phase.DONE or self.plan is None:
            return False
        if self._phase is _Phase.RECORDING:
            return True
        return trains and not self._is_better_later(self.plan)

    def _is_better_later(self, plan: Plan) -> bool:
        """Whether a whole window fits between two long validations, but no longer before the next one."""
        still = {_Phase.WAITING: plan.warmup + 1 + plan.active, _Phase.WARMUP: 1 + plan.active}.get(self._phase, 0)
        last = self._last_stretch
        return last is not None and still <= last and last - still < self._stretch < last

    @property
    def _most_untrained(self) -> int:
        return UNTRAINED_BATCHES * (self.plan.active if self.plan else SHORTEST_WINDOW)

    def _advance(self) -> None:
        assert self.plan  # noqa: S101  # _may_advance checks it
        match self._phase:
            case _Phase.WAITING:
                self.prepares()
                self._full_for = self._drain_after(self._recorder.prepare())
                self._enter(_Phase.WARMUP, self.plan.warmup)
            case _Phase.WARMUP:
                drain = max(self._drain_after(self._recorder.start()), self._full_for - self._length)
                self._recorded = self._untrained = self._settled = 0
                self._enter(_Phase.SETTLING, 1 + drain)
            case _Phase.SETTLING:
                self._enter(_Phase.RECORDING, self.plan.active)
            case _Phase.RECORDING:
                self._whole_windows += 1
                self._save_or_discard(whole=True)
            case _Phase.RECOVERING:
                more = self._whole_windows < self._schedule.repeat and self._attempts_left > 0
                self._enter(_Phase.WAITING if more else _Phase.DONE, self.plan.wait)
            case _Phase.DONE:
                pass

    def _enter(self, phase: _Phase, steps: int) -> None:
        self._phase, self._length, self._left = phase, steps, steps
        self._phases += 1
        if self._ranks:
            self._ranks.starts(self._phases, steps)
        if self._requests and phase is _Phase.DONE:
            self._requests.answer()

    def _lengthen(self) -> None:
        """Go on with this phase as long as another rank needs."""
        if self._ranks and self._phases:
            longest = self._ranks.longest(self._phases, self._length)
            self._left += longest - self._length
            self._length = longest

    def _save_or_discard(self, *, whole: bool) -> None:
        self._just_saved = True
        if self._recorded:
            try:
                if self._recorder.save(self._cycle, whole=whole):
                    self.saved_steps += self._recorded
            except Exception as error:  # noqa: BLE001  # of the device or the profiler
                self._fail(error)
                return
            self._cycle += 1
        else:
            self._recorder.discard()
        self._recover()

    def _fail(self, error: Exception) -> None:
        """The device or the profiler failed: steps are still timed, and nothing is recorded any more."""
        self.give_way("capture-failed", f"Recording ended early: {named(error)}")

    def _recover(self) -> None:
        self._attempts_left -= 1
        self._just_saved = True
        self._enter(_Phase.RECOVERING, 1 + self._drain())

    def _drain_after(self, stall_ns: int) -> int:
        noticeable = NOTICEABLE_STALL_SHARE * fmean(duration for duration, _ in self._times_ns)
        return self._drain() if stall_ns > noticeable else 0

    def _drain(self) -> int:
        """Steps until a queue that a stall has filled is back to its usual length.

        While the loop takes batches without waiting, workers prepare new ones as slowly as ever. So in each step the
        queue shrinks by the share of a step that the loop used to wait.
        """
        settle = self.plan.settle if self.plan else 0
        whole = sum(duration for duration, _ in self._times_ns)
        waited = sum(loader for _, loader in self._times_ns)
        slowest = settle * SLOWEST_DRAIN
        return min(slowest, ceil(settle * whole / waited)) if waited else slowest

    def _unsettled(self, why: str) -> None:
        effect = "The loader may have had more batches ready than usual: a step may wait longer than shown."
        self._note("window-unsettled", f"{why} {effect}")

    def _note(self, code: str, message: str, *, degrades: bool = True) -> None:
        self._notes.append(Note(code, message, degrades=degrades))

    def _cut_notes(self) -> list[Note]:
        """Bounds that cut recordings short; a later whole one makes up for it."""
        if not self._cuts:
            return []
        cuts = f"{len(self._cuts)} recordings" if len(self._cuts) > 1 else "A recording"
        why = "; ".join(dict.fromkeys(self._cuts))
        rest = f" {self._whole_windows} other{' is' if self._whole_windows == 1 else 's are'} whole."
        return [
            Note(
                "window-cut",
                f"{cuts} ended early: {why}.{rest if self._whole_windows else ''}",
                degrades=not self._whole_windows,
            )
        ]

    def _not_reached(self, *, failed: bool) -> str:
        steps = self.training_steps
        if not steps and failed:
            return "The script ended with an error before its first step."
        if not steps:
            return (
                "No step was found: in the main thread, no optimizer stepped, no backward pass ran, and no model was "
                "called in a loop. To mark steps, call traceadvisor.step() at the end of each iteration."
            )
        return (
            f"The script ended after {steps} training steps: they were timed, but none was recorded. {self._remedy()}"
        )

    def _remedy(self) -> str:
        if not self.plan:
            return ""
        whole = self.plan.first_wait + self.plan.shortest
        if self.training_steps >= whole:
            return "Train for longer, or with fewer validations and checkpoints."
        if self.training_steps >= self.plan.shortest:
            return f"Train {whole} steps, or use `--skip-first 0 --wait 0`."
        return (
            f"Train {whole} steps, or {self.plan.shortest} with `--skip-first 0 --wait 0"
            f"{' --warmup 1' if self._schedule.warmup > max(self.plan.settle, 1) else ''}`."
        )
