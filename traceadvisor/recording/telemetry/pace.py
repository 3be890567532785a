"""When to sample what, so that sampling costs a run next to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

SELDOM_S = 1.0
"""How often the dear figures are read."""

LARGEST_CPU_SHARE = 0.01
"""Of one core: where samples take longer, they become fewer."""

SAMPLES_BEFORE_THINNING = 18_000
"""Half an hour at the default interval. From then on the interval grows with the run, so that a file of a week holds
seven times as many samples as one of half an hour, not 300 times."""

_SMOOTHING = 0.1
"""Weight of the latest sample in the mean cost."""


class Pace:
    """Tells how long to wait for the next sample, and which samples are to hold the dear figures."""

    def __init__(self, least_interval_s: float) -> None:
        self._least_interval_s = least_interval_s
        self._start_s: float | None = None
        self._seldom_due_s = 0.0
        self._cpu_s: float | None = None
        self.interval_s = least_interval_s
        """The time from the latest sample to the next."""

    def seldom(self, now_s: float) -> bool:
        """Whether the sample at ``now_s`` is to hold the dear figures; asked once for each sample."""
        if self._start_s is None:
            self._start_s = self._seldom_due_s = now_s
        if now_s < self._seldom_due_s:
            return False
        self._seldom_due_s = now_s + SELDOM_S
        return True

    def plan(self, now_s: float, cpu_s: float) -> None:
        """Set the interval after a sample at ``now_s`` that took ``cpu_s`` of CPU time."""
        self._cpu_s = cpu_s if self._cpu_s is None else self._cpu_s + _SMOOTHING * (cpu_s - self._cpu_s)
        run_s = now_s - (now_s if self._start_s is None else self._start_s)
        self.interval_s = max(self._least_interval_s, self._cpu_s / LARGEST_CPU_SHARE, run_s / SAMPLES_BEFORE_THINNING)


class Turns(Generic[T]):
    """Gives one item at a time, in turn, each at most once in :data:`SELDOM_S`."""

    def __init__(self, items: Sequence[T]) -> None:
        self._items = items
        self._next = 0
        self._round_due_s = 0.0

    def take(self, now_s: float) -> T | None:
        """The next item; None where it is too early for another round, or where there are no items."""
        if not self._items:
            return None
        if self._next == 0:
            if now_s < self._round_due_s:
                return None
            self._round_due_s = now_s + SELDOM_S
        item = self._items[self._next]
        self._next = (self._next + 1) % len(self._items)
        return item
