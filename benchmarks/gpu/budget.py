"""The time that a part may take."""

from __future__ import annotations

import time
from collections.abc import Callable


class OutOfTimeError(BaseException):
    """The part's time is over; nothing that handles failures on the way may stop it."""


class Budget:
    """Counts down from when it is made."""

    def __init__(self, seconds: float, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._begin_s = clock_s()
        self._seconds = seconds

    @property
    def spent_s(self) -> float:
        """Time since the part began."""
        return self._clock_s() - self._begin_s

    @property
    def left_s(self) -> float:
        """Time left; negative once it is spent."""
        return self._seconds - self.spent_s

    def part_of(self, seconds: float) -> Budget:
        """A budget that begins now and ends with this one at the latest."""
        return Budget(min(seconds, self.left_s), self._clock_s)
