"""Counts sampled stacks in bounded memory, split by the steps that they fall into."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import CodeType

from traceadvisor.bundle.stacks import MOST_DEPTH, MOST_FRAMES, MOST_STACKS
from traceadvisor.bundle.steps import StepLog
from traceadvisor.model.run import StepState
from traceadvisor.model.samples import (
    NOTHING_SAMPLED,
    OWN_WORK,
    OnlyCall,
    Sampled,
    SampledFrame,
    SampledStack,
    Tallies,
    TimedSample,
)
from traceadvisor.recording.stacks.frames import called_at, frame_of, is_own, is_own_work, is_user, only_calls
from traceadvisor.system import clocks

MOST_WHOLE_STACKS = MOST_STACKS // 2
"""Stacks that are kept whole. Of later ones only the user's frames and the innermost are kept."""

_MOST_KNOWN = 4 * MOST_FRAMES
"""Instructions and stacks that are remembered. Then they are looked up again."""

_SHORT = 3
"""Outermost and innermost user frames of a stack that is not kept whole."""

MOST_SINGLE = 1 << 18
"""Single samples that are kept, in 8 MB, to assign them again if steps prove to be none, and to tell when each was
taken: those of a week."""

_MOST_ATTEMPTS, _ATTEMPT_S = 100, 0.001

OTHER = 0
"""Number of all stacks that are not kept."""

Tallied = tuple[tuple[SampledFrame, ...], tuple[SampledStack, ...], Tallies, tuple[TimedSample, ...]]

Raw = Sequence[tuple[CodeType, int]]
"""Code and instruction of each frame, innermost first."""


@dataclass(slots=True)
class _Kept:
    """A stack as it is kept."""

    frames: tuple[int, ...]
    is_fetching: bool
    is_waiting: bool = False
    is_beside: bool = False


@dataclass(slots=True)
class _Samples:
    """Single samples, in order of time."""

    at_ns: array[int] = field(default_factory=lambda: array("q"))
    stack: array[int] = field(default_factory=lambda: array("q"))
    weight_ns: array[int] = field(default_factory=lambda: array("q"))
    cpu_ns: array[int] = field(default_factory=lambda: array("q"))

    @property
    def columns(self) -> tuple[array[int], ...]:
        """All columns."""
        return self.at_ns, self.stack, self.weight_ns, self.cpu_ns

    def forget(self, count: int) -> None:
        """Forget the first samples."""
        for column in self.columns:
            del column[:count]


class StackTally:
    """The distinct stacks of a run with their samples. One thread adds, any thread may read."""

    def __init__(self, log: StepLog) -> None:
        self._log = log
        self._changes_of_steps = 0
        self._step = self._first_step = 0
        """The first step that ends after the samples in the sums; the same for those before the single samples."""
        self._frames: list[SampledFrame] = []
        self._frame_of: dict[SampledFrame, int] = {}
        self._frame_at: dict[tuple[int, int], int | None] = {}
        """Number of the frame by code and instruction; None for a frame of this package."""
        self._codes: dict[int, CodeType] = {}
        """Keeps the numbers of code objects from being used again."""
        self._only_calls: tuple[OnlyCall, ...] = ()
        self._looked_up = 0
        """Number of functions that these are of."""
        self._stacks: list[_Kept] = [_Kept((), is_fetching=False)]
        self._stack_of: dict[tuple[object, ...], int] = {}
        self._stack_at: dict[tuple[object, ...], int] = {}
        self._sums: _Sums = {}
        self._first_sums: _Sums = {}
        """The sums of samples that are no longer kept as single ones."""
        self._single = _Samples()
        self._settled = 0
        """Number of single samples that are in the sums."""
        self._changes = 0
        """Odd while sums and single samples are changed."""

    def add(  # noqa: PLR0913  # a sample has this many parts
        self,
        raw: Raw,
        *,
        at_ns: int,
        weight_ns: int,
        is_fetching: bool,
        is_in_call: bool,
        is_waiting: bool = False,
        is_beside: bool = False,
        cpu_ns: int = 0,
    ) -> None:
        """Add a sample.

        Args:
            raw: the stack.
            at_ns: steady clock.
            weight_ns: the time that the sample stands for.
            is_fetching: whether the thread was getting a batch.
            is_in_call: whether it was inside a function written in C.
            is_waiting: whether it waited for something other than a core.
            is_beside: whether it waited while other threads of the process computed.
            cpu_ns: its CPU time since the sample before.
        """
        key = (is_fetching, is_in_call, is_waiting, is_beside, *(part for code, at in raw for part in (id(code), at)))
        stack = self._stack_at.get(key)
        if stack is None:
            kept = _Kept((), is_fetching, is_waiting, is_beside)
            stack = self._find(raw, kept, is_in_call=is_in_call)
            if len(self._stack_at) >= _MOST_KNOWN // 16:
                self._stack_at.clear()
            self._stack_at[key] = stack
        self._changes += 1
        single = self._single
        for column, value in zip(single.columns, (at_ns, stack, weight_ns, cpu_ns), strict=True):
            column.append(value)
        self._settle()
        self._changes += 1

    def samples(self) -> Tallied:
        """The frames, the stacks, the samples of those that were not kept, and single samples.

        Samples in the first step, and in one that has not ended, count as outside of steps.
        """
        sums, settled, single = self._snapshot()
        for _, stack, weight_ns, _ in single[settled:]:
            _count(sums, (stack, None), weight_ns)
        by_stack: dict[int, dict[StepState | None, Sampled]] = {}
        for (stack, state), sampled in sums.items():
            by_stack.setdefault(stack, {})[state] = sampled
        other = by_stack.pop(OTHER, {})
        kept = tuple(self._stacks)
        stacks = tuple(
            SampledStack((one := kept[stack]).frames, tallies, one.is_fetching, one.is_waiting, one.is_beside)
            for stack, tallies in by_stack.items()
        )
        place = {stack: at for at, stack in enumerate(by_stack)}
        timed = (TimedSample(at_ns, place.get(stack, -1), ns, cpu) for at_ns, stack, ns, cpu in single)
        return tuple(self._frames), stacks, other, tuple(timed)

    def only_calls(self) -> tuple[OnlyCall, ...]:
        """The names that sampled functions of the user call at one place; looked up anew after new functions."""
        codes = tuple(code for code in self._codes.copy().values() if is_user(code))
        if len(codes) != self._looked_up:
            self._looked_up, self._only_calls = len(codes), tuple(only_calls(codes))
        return self._only_calls

    def _snapshot(self) -> tuple[_Sums, int, list[tuple[int, ...]]]:
        """The sums, the number of single samples in them, and all of these; a lock could block a forked child."""
        attempt = 0
        while True:
            before, single, settled = self._changes, self._single, self._settled
            sums, every = dict(self._sums), list(zip(*(column[:] for column in single.columns), strict=False))
            if (before == self._changes and not before % 2) or attempt == _MOST_ATTEMPTS:
                return sums, settled, every
            attempt += 1
            clocks.sleep(_ATTEMPT_S)

    def _settle(self) -> None:
        """Assign samples to the steps that have ended; both are in order of time."""
        log, single = self._log, self._single
        if log.changes != self._changes_of_steps:  # of what these steps are: assign their samples again
            self._changes_of_steps = log.changes
            self._sums, self._step, self._settled = dict(self._first_sums), self._first_step, 0
        while self._settled < len(single.at_ns):
            at_ns = single.at_ns[self._settled]
            while self._step < len(log) and log.end_clock_ns(self._step) <= at_ns:
                self._step += 1
            if self._step == len(log):
                break
            is_inside = self._step > 0 and log.clock_ns(self._step) <= at_ns  # the first step is start-up
            state = log.state(self._step) if is_inside else None
            _count(self._sums, (single.stack[self._settled], state), single.weight_ns[self._settled])
            self._settled += 1
        if len(single.at_ns) > MOST_SINGLE and self._settled:
            single.forget(self._settled)
            self._first_sums, self._first_step, self._settled = dict(self._sums), self._step, 0

    def _find(self, raw: Raw, kept: _Kept, *, is_in_call: bool) -> int:
        """The number of a stack; a new one where there is room. ``kept``: what is kept of it, without frames."""
        if len(self._codes) >= _MOST_KNOWN or len(self._frame_at) >= _MOST_KNOWN:
            self._stack_at.clear()
            self._frame_at.clear()
            self._codes.clear()
        work = _own_work(raw)
        found = [self._frame(code, at) for code, at in raw[work:]]
        frames = [frame for frame in found if frame is not None]
        if work:
            frames.insert(0, self._intern(OWN_WORK))
            kept, is_in_call = _Kept((), is_fetching=False), False
        if OTHER_FRAME in frames:
            return OTHER
        if is_in_call and frames and found[0] == frames[0] and self._frames[frames[0]].is_user:
            callee = called_at(*raw[0])
            inner = self._intern(SampledFrame(callee)) if callee else OTHER_FRAME
            frames = frames if inner == OTHER_FRAME else [inner, *frames]
        frames.reverse()
        if len(self._stacks) >= MOST_WHOLE_STACKS or len(frames) > MOST_DEPTH:
            frames = self._short(frames)
        key = (kept.is_fetching, kept.is_waiting, kept.is_beside, *frames)
        number = self._stack_of.get(key)
        if number is None:
            if len(self._stacks) >= MOST_STACKS:
                return OTHER
            number = self._stack_of[key] = len(self._stacks)
            self._stacks.append(replace(kept, frames=tuple(frames)))
        return number

    def _short(self, frames: list[int]) -> list[int]:
        """The outermost and innermost user frames, and the innermost frame."""
        users = [place for place, frame in enumerate(frames) if self._frames[frame].is_user]
        places = sorted({*users[:_SHORT], *users[-_SHORT:], len(frames) - 1})
        return [frames[place] for place in places if place >= 0]

    def _frame(self, code: CodeType, instruction: int) -> int | None:
        key = (id(code), instruction)
        if key not in self._frame_at:
            self._codes[id(code)] = code
            self._frame_at[key] = None if is_own(code) else self._intern(frame_of(code, instruction))
        return self._frame_at[key]

    def _intern(self, frame: SampledFrame) -> int:
        number = self._frame_of.get(frame)
        if number is None:
            if len(self._frames) >= MOST_FRAMES:
                return OTHER_FRAME
            number = self._frame_of[frame] = len(self._frames)
            self._frames.append(frame)
        return number


def _own_work(raw: Raw) -> int:
    """Number of the innermost frames that do work of this package, among them what it calls."""
    count = 0
    for place, (code, _) in enumerate(raw, start=1):
        if is_own_work(code):
            count = place
        elif is_user(code):
            break
    return count


OTHER_FRAME = -1
"""Number of all frames that are not kept."""


_Sums = dict[tuple[int, StepState | None], Sampled]


def _count(sums: _Sums, key: tuple[int, StepState | None], weight_ns: int) -> None:
    before = sums.get(key, NOTHING_SAMPLED)
    sums[key] = Sampled(before.time_ns + weight_ns, before.count + 1)
