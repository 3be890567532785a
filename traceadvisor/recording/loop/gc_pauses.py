"""How long Python's garbage collector holds up a run, told by ``gc.callbacks``: two clock reads a collection."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GcPauses:
    """Collections over a stretch of a run, in whatever thread: all of them hold the interpreter up."""

    watched_ns: int
    total_ns: int
    longest_ns: int


class GcWatch:
    """Adds up collections from :meth:`start` to :meth:`stop`."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._started_ns: int | None = None
        self._stopped_ns: int | None = None
        self._begun_ns: int | None = None
        self._total_ns = self._longest_ns = 0

    def start(self) -> None:
        """Begin to listen; what is imported and built before training makes garbage of its own."""
        self._started_ns = self._clock()
        gc.callbacks.append(self._told)

    def stop(self) -> None:
        """Listen no more."""
        if self._started_ns is not None and self._stopped_ns is None:
            self._stopped_ns = self._clock()
            if self._told in gc.callbacks:
                gc.callbacks.remove(self._told)

    def pauses(self) -> GcPauses | None:
        """What was seen until now; None where it was never started."""
        if self._started_ns is None:
            return None
        watched_ns = (self._stopped_ns or self._clock()) - self._started_ns
        return GcPauses(watched_ns, self._total_ns, self._longest_ns)

    def _told(self, phase: str, info: dict[str, int]) -> None:  # noqa: ARG002  # as gc calls it
        if phase == "start":
            self._begun_ns = self._clock()
        elif self._begun_ns is not None:
            pause_ns, self._begun_ns = self._clock() - self._begun_ns, None
            self._total_ns += pause_ns
            self._longest_ns = max(self._longest_ns, pause_ns)
