"""Tells the tracker what the hooks noticed, several steps together while no recording is due.

In a step of a few milliseconds, the code and data of the tracker are no longer in the CPU's caches when it is called:
following a step then takes several times as long as directly after another one. So events wait with their time, and
the tracker gets them together. Meanwhile the hooks call nothing else: see :meth:`.LoopListener.may_note`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import TypeAlias

from traceadvisor.recording.loop.tracker import LoopTracker
from traceadvisor.recording.loop.window import Window
from traceadvisor.system import clocks

MOST_STEPS = 64
"""Optimizer steps that wait at most."""

LONGEST_NS = 250_000_000
"""How long they wait: a killed run loses them."""

Event: TypeAlias = Callable[[], None]
"""Tells the tracker."""


class LateClock:
    """Both clocks of the tracker: of the event that it gets late, or now."""

    def __init__(
        self, steady: Callable[[], int] = clocks.perf_counter_ns, wall: Callable[[], int] = clocks.time_ns
    ) -> None:
        self.now_ns, self._wall = steady, wall
        self.at_ns: int | None = None
        """When the event was; None for now."""

    def steady_ns(self) -> int:
        """Steady clock."""
        return self.now_ns() if self.at_ns is None else self.at_ns

    def wall_ns(self) -> int:
        """Wall clock."""
        return self._wall() - (0 if self.at_ns is None else self.now_ns() - self.at_ns)


class HeldEvents:
    """The events that the tracker has yet to get. All but :meth:`loader_left` are for the training thread."""

    def __init__(
        self,
        tracker: LoopTracker,
        window: Window,
        clock: LateClock,
        *,
        most_steps: int = MOST_STEPS,
        may_wait: Callable[[], bool] = lambda: True,
    ) -> None:
        """Prepare.

        Args:
            tracker: gets the events.
            window: tells how long nothing is to be decided.
            clock: tells the tracker when an event was.
            most_steps: optimizer steps that wait at most; 0 if each event is to be passed on at once.
            may_wait: whether nobody else needs to hear of the next events at once.
        """
        self._tracker, self._window, self._clock = tracker, window, clock
        self._most, self._may_wait = most_steps, may_wait
        self._held: list[tuple[int, Event]] = []
        self.hold = self._held.append
        """Takes an event with its time, which is before :attr:`until_ns`."""
        self.until_ns = 0
        """Until when events may wait; 0 if the next must not."""
        self.room = 0
        """Optimizer steps until then, with the one that must not wait."""

    def fetch_begins(self, loader: Hashable, *, grad: bool, loader_start_ns: int = 0, restarted: bool = False) -> None:
        """See :meth:`LoopTracker.fetch_begins`."""
        begins = self._tracker.fetch_begins
        self._tell(partial(begins, loader, grad=grad, loader_start_ns=loader_start_ns, restarted=restarted))

    def fetch_ended(self, loader: Hashable, *, got_batch: bool, loader_start_ns: int = 0) -> None:
        """See :meth:`LoopTracker.fetch_ended`."""
        self._tell(partial(self._tracker.fetch_ended, loader, got_batch=got_batch, loader_start_ns=loader_start_ns))

    def optimizer_stepped(self, optimizer: int, *, at_ns: int | None = None) -> None:
        """See :meth:`LoopTracker.optimizer_stepped`."""
        self.room -= 1
        if self.room <= 0:
            self.until_ns = 0
        self._tell(partial(self._tracker.optimizer_stepped, optimizer, at_ns=at_ns))

    def loader_left(self, loader: Hashable) -> None:
        """See :meth:`LoopTracker.loader_left`."""
        left = partial(self._tracker.loader_left, loader)
        if self._held:
            self.hold((self._clock.now_ns(), left))
        else:
            left()

    def now(self, act: Callable[[], None]) -> None:
        """Pass on what is held, then do something that must not wait."""
        self._pass_on()
        act()

    def _tell(self, event: Event) -> None:
        now_ns = self._clock.now_ns()
        if now_ns < self.until_ns:
            self.hold((now_ns, event))
            return
        self._pass_on()
        event()
        self.room = min(self._most, self._window.idle_steps) if self._may_wait() else 0
        self.until_ns = now_ns + LONGEST_NS if self.room > 0 else 0

    def _pass_on(self) -> None:
        held = self._held.copy()
        self._held.clear()
        self.room = self.until_ns = 0
        self._window.is_late = True
        try:
            self._window.renew()
            for self._clock.at_ns, event in held:
                event()
        finally:
            self._clock.at_ns, self._window.is_late = None, False
