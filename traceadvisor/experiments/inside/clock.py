"""Times blocks of steps; what happens between two epochs of the script does not count."""

from __future__ import annotations

import time
from collections.abc import Callable


class BlockClock:
    """Counts the steps between :meth:`start` and :meth:`stop`, and the time that they take.

    The device is synchronised where the time starts and ends, and nowhere else.
    """

    def __init__(self, synchronise: Callable[[], None], clock_s: Callable[[], float] = time.perf_counter) -> None:
        self._synchronise, self._clock_s = synchronise, clock_s
        self._begin_s: float | None = None
        self._taken_s = 0.0
        self._pending = 0
        self.steps = 0

    def start(self) -> None:
        """The first measured step begins."""
        self.steps, self._taken_s = 0, 0.0
        self._go_on()

    def step_ended(self, *, interrupted: bool) -> None:
        """The loop asks for another batch. ``interrupted``: it did something else after its last step."""
        if interrupted or self._begin_s is None:  # the step and what followed it cannot be told apart
            self._go_on()
        else:
            self._pending += 1

    def last_of_epoch(self) -> None:
        """The next batch is the last of an epoch: what is measured ends here, until the loop asks again."""
        self._hold()

    def disturbed(self) -> None:
        """Within a step, the script begins something else, such as a validation: it counts as the end of the step."""
        if self._begin_s is not None:
            self._pending += 1
            self._hold()

    def stop(self) -> float:
        """The measured steps have ended; returns seconds per step.

        Raises:
            ZeroDivisionError: no step was measured.
        """
        self._hold()
        return self._taken_s / self.steps

    @property
    def measured(self) -> int:
        """Steps so far."""
        return self.steps + self._pending

    def _hold(self) -> None:
        if self._begin_s is not None:
            self._synchronise()
            self._taken_s += self._clock_s() - self._begin_s
            self.steps += self._pending
        self._begin_s, self._pending = None, 0

    def _go_on(self) -> None:
        self._synchronise()
        self._begin_s, self._pending = self._clock_s(), 0
