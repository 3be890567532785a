"""Samples of the Python stack in loader workers, while they make batches.

A worker keeps its samples until its next batch is complete. They travel to the training process with the batch's index,
like the clock reads. So the number of workers, and how they start and end, makes no difference.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from traceadvisor.bundle.stacks import MOST_STACKS
from traceadvisor.model.samples import (
    NOTHING_SAMPLED,
    Sampled,
    SampledFrame,
    SampledStack,
    StackSamples,
    StepState,
    Tallies,
)
from traceadvisor.recording.stacks.frames import called_at, frame_of, is_own
from traceadvisor.recording.stacks.sampler import ThreadSampler
from traceadvisor.recording.stacks.tally import Raw

MOST_OF_A_BATCH = 64
"""Samples that travel with one batch, the latest ones."""

_LOOP = "_worker_loop"
"""The function of torch below everything that a worker runs."""

_MOST_KNOWN = 1 << 12

Sample = tuple[int, bool, bool, tuple[tuple[str, str | None, int | None, bool], ...]]
"""The time that it stands for, whether the thread waited, whether it did beside other threads that computed, and the
fields of its frames, outermost first: those of the
user, what the innermost of them calls, and the innermost of all."""


class WorkerStacks:
    """Samples the thread that makes it, in all batches but the first, which imports libraries and opens files."""

    def __init__(self, is_loading: Callable[[], bool]) -> None:
        self._waiting: deque[Sample] = deque(maxlen=MOST_OF_A_BATCH)
        self._known: dict[tuple[object, ...], tuple[tuple[str, str | None, int | None, bool], ...]] = {}
        self._has_batch = False
        self._sampler = ThreadSampler(self, thread=threading.get_ident(), is_fetching=is_loading)
        self._sampler.start()

    def add(  # noqa: PLR0913  # see Samples
        self,
        raw: Raw,
        *,
        at_ns: int,
        weight_ns: int,
        is_fetching: bool,
        is_in_call: bool,
        is_waiting: bool,
        is_beside: bool,
    ) -> None:
        """Take a sample, in the sampling thread."""
        del at_ns
        if not is_fetching:
            return
        inside = raw[: next((place for place, (code, _) in enumerate(raw) if code.co_name == _LOOP), len(raw))]
        key = (is_in_call, *inside)
        if key not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = _frames(inside, is_in_call=is_in_call)
        self._waiting.append((weight_ns, is_waiting, is_beside, self._known[key]))

    def taken(self) -> tuple[Sample, ...]:
        """The samples since the last call; none for the first batch."""
        found = tuple(self._waiting.popleft() for _ in range(len(self._waiting)))
        had_batch, self._has_batch = self._has_batch, True
        return found if had_batch else ()

    def stop(self) -> None:
        """Sample no more."""
        self._sampler.stop()


def _frames(raw: Raw, *, is_in_call: bool) -> tuple[tuple[str, str | None, int | None, bool], ...]:
    frames = [frame_of(code, at) for code, at in raw if not is_own(code)]
    if is_in_call and frames and frames[0].is_user and not is_own(raw[0][0]) and (callee := called_at(*raw[0])):
        frames.insert(0, SampledFrame(callee))
    called = next((place for place, frame in enumerate(frames) if frame.is_user), 0) - 1
    shown = [frame for place, frame in enumerate(frames) if frame.is_user or place in {0, called}]
    return tuple((frame.function, frame.file, frame.line, frame.is_user) for frame in reversed(shown))


class LoaderSamples:
    """The samples of all workers of a loader, in the training process. One thread adds, any thread may read."""

    def __init__(self) -> None:
        self._sums: dict[tuple[bool, bool, tuple[SampledFrame, ...]], Sampled] = {}
        self._other = NOTHING_SAMPLED
        self._squares_ns2 = 0.0

    def add(self, samples: tuple[Sample, ...]) -> None:
        """Add the samples of a batch."""
        for weight_ns, is_waiting, is_beside, frames in samples:
            key = is_waiting, is_beside, tuple(SampledFrame(*frame) for frame in frames)
            self._squares_ns2 += float(weight_ns) ** 2
            if key in self._sums or len(self._sums) < MOST_STACKS:
                self._sums[key] = _more(self._sums.get(key, NOTHING_SAMPLED), weight_ns)
            else:
                self._other = _more(self._other, weight_ns)

    def samples(self) -> StackSamples:
        """All samples so far. Those of workers count as in undisturbed steps: no profiler runs there."""
        numbers: dict[SampledFrame, int] = {}
        stacks = [
            SampledStack(
                tuple(numbers.setdefault(frame, len(numbers)) for frame in frames),
                {StepState.PLAIN: sampled},
                is_fetching=True,
                is_waiting=is_waiting,
                is_beside=is_beside,
            )
            for (is_waiting, is_beside, frames), sampled in list(self._sums.items())
        ]
        other: Tallies = {StepState.PLAIN: self._other} if self._other.count else {}
        return StackSamples(tuple(numbers), tuple(stacks), other, self._squares_ns2)


def _more(before: Sampled, weight_ns: int) -> Sampled:
    return Sampled(before.time_ns + weight_ns, before.count + 1)
