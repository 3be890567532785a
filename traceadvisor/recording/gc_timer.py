"""The time of Python's garbage collections."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType

from traceadvisor.model.run import Pause, PauseKind
from traceadvisor.recording.pauses import LongestPauses
from traceadvisor.system import clocks

LONG_PAUSE_NS = 10_000_000
"""A shorter collection is not worth a look at its callers."""

MOST_LONG = 3
"""Long collections whose steps are kept."""

PROFILER = "traceadvisor.recording.loop.profiler"
"""The module that records."""


def _is_recording(frame: FrameType | None) -> bool:
    """Whether a recording starts, ends or is written: the script does not collect then."""
    while frame and frame.f_globals.get("__name__") != PROFILER:
        frame = frame.f_back
    return frame is not None


class GcTimer:
    """Times Python's garbage collections, in any thread: all of them stop the interpreter. Two clock reads each."""

    def __init__(self, clock: Callable[[], int] = clocks.perf_counter_ns, step: Callable[[], int] = lambda: 0) -> None:
        self._clock, self._step = clock, step
        self._started_ns: int | None = None
        self._stopped_ns: int | None = None
        self._begun_ns: int | None = None
        self._total_ns = self._longest_ns = self._long_ns = self.long_count = 0
        self.long_steps: tuple[int, ...] = ()
        """Steps of the first long collections: how often the optimizer had stepped before."""
        self.pauses = LongestPauses()
        """The long collections."""

    def start(self) -> None:
        """Start at the first step: imports and building the model collect garbage, too."""
        self._started_ns = self._clock()
        gc.callbacks.append(self._collecting)

    def stop(self) -> None:
        """Stop, if started."""
        if self._started_ns is not None and self._stopped_ns is None:
            self._stopped_ns = self._clock()
            if self._collecting in gc.callbacks:
                gc.callbacks.remove(self._collecting)

    @property
    def share(self) -> float | None:
        """Share of the time since the start; None before it."""
        return self._share_of(self._total_ns)

    @property
    def long_share(self) -> float | None:
        """Share of the same time in collections of 10 ms or longer; None before the start."""
        return self._share_of(self._long_ns)

    def _share_of(self, part_ns: int) -> float | None:
        if self._started_ns is None:
            return None
        return part_ns / max((self._stopped_ns or self._clock()) - self._started_ns, 1)

    @property
    def longest_ns(self) -> int | None:
        """The longest collection since the start; None before it."""
        return None if self._started_ns is None else self._longest_ns

    def _collecting(self, phase: str, info: dict[str, int]) -> None:  # noqa: ARG002  # as gc calls it
        if phase == "start":
            self._begun_ns = self._clock()
        elif self._begun_ns is not None:
            end_ns = self._clock()
            pause_ns, self._begun_ns = end_ns - self._begun_ns, None
            if pause_ns >= LONG_PAUSE_NS:
                if _is_recording(sys._getframe()):
                    return
                self._long_ns += pause_ns
                self.pauses.add(Pause(PauseKind.COLLECTION, end_ns - pause_ns, pause_ns))
                self.long_count += 1
                self.long_steps = (*self.long_steps, self._step())[:MOST_LONG]
            self._total_ns += pause_ns
            self._longest_ns = max(self._longest_ns, pause_ns)
