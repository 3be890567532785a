"""Tells the tracker what the hooks noticed, several steps together while no recording is due.

In a step of a few milliseconds, the code and data of the tracker are no longer in the CPU's caches when it is called:
following a step then takes several times as long as directly after another one. So events wait with their time, and
the tracker gets them together. Meanwhile the hooks call nothing else: see :meth:`.LoopListener.may_note`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, partial
from itertools import repeat
from operator import sub
from typing import TypeAlias

from traceadvisor.bundle.steps import Times
from traceadvisor.recording.loop.period import LOOKED_AT, loops_around
from traceadvisor.recording.loop.tracker import LoopTracker
from traceadvisor.recording.loop.window import Window
from traceadvisor.system import clocks

MOST_STEPS = 512
"""Optimizer steps that wait at most: of steps of 0.3 ms, so many take less than :data:`LONGEST_NS`."""

LONGEST_NS = 500_000_000
"""How long they wait: a killed run loses them."""

_MOST_EVENTS = 64
"""Loaders and optimizers whose events are kept."""

Event: TypeAlias = Callable[[], None]
"""Tells the tracker."""

Held: TypeAlias = Sequence[tuple[int, Event]]
"""Events, each with its time."""


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
        once = lru_cache(_MOST_EVENTS)  # equal events are the same object: so steps alike are found
        self.begins = once(lambda loader, grad: partial(tracker.fetch_begins, loader, grad=grad))
        self.ends = once(lambda loader: partial(tracker.fetch_ended, loader, got_batch=True))
        self.stepped = once(lambda optimizer: partial(tracker.optimizer_stepped, optimizer))
        """The events of a fetch with or without gradients, of a batch that came, and of an optimizer's step."""
        self._to_look_at = LOOKED_AT
        self.until_ns = 0
        """Until when events may wait; 0 if the next must not."""
        self.room = 0
        """Optimizer steps until then, with the one that must not wait."""

    def fetch_begins(self, loader: Hashable, *, grad: bool, loader_start_ns: int = 0, restarted: bool = False) -> None:
        """See :meth:`LoopTracker.fetch_begins`."""
        if restarted or loader_start_ns:
            begins = partial(self._tracker.fetch_begins, loader_start_ns=loader_start_ns, restarted=restarted)
            self._tell(partial(begins, loader, grad=grad))
        else:
            self._tell(self.begins(loader, grad))

    def fetch_ended(self, loader: Hashable, *, got_batch: bool, loader_start_ns: int = 0) -> None:
        """See :meth:`LoopTracker.fetch_ended`."""
        if got_batch and not loader_start_ns:
            self._tell(self.ends(loader))
        else:
            ended = partial(self._tracker.fetch_ended, got_batch=got_batch, loader_start_ns=loader_start_ns)
            self._tell(partial(ended, loader))

    def optimizer_stepped(self, optimizer: int, *, at_ns: int | None = None) -> None:
        """See :meth:`LoopTracker.optimizer_stepped`."""
        if self._to_look_at:
            self._to_look_at -= 1
            self._tracker.most_loops = max(self._tracker.most_loops, loops_around())
        self.room -= 1
        if self.room <= 0:
            self.until_ns = 0
        stepped = self._tracker.optimizer_stepped
        self._tell(self.stepped(optimizer) if at_ns is None else partial(stepped, optimizer, at_ns=at_ns))

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
            self._pass_late(held)
        finally:
            self._clock.at_ns, self._window.is_late = None, False

    def _pass_late(self, held: Held) -> None:
        """Pass on late events: one by one, but those of steps that repeat the one before all at once."""
        tracker, place = self._tracker, 0
        begun: tuple[int, Hashable, int] = 0, None, 0
        while place < len(held):
            latest = tracker.latest
            self._clock.at_ns, event = held[place]
            event()
            place += 1
            if tracker.latest is not latest:
                before, begun = begun, (place, tracker.footing, tracker.repetitions)
                if begun[1] == before[1] is not None:
                    place += self._repeat(held, before[0], place, begun[2] - before[2])
                    begun = place, begun[1], tracker.repetitions

    def _repeat(self, held: Held, begin: int, end: int, repetitions: int) -> int:
        """Log the steps that have the events from ``begin`` to ``end`` again, one after another; returns their events.

        ``repetitions``: of the optimizers' pattern in such a step.
        """
        same, length, count = [event for _, event in held[begin:end]], end - begin, 0
        while [event for _, event in held[end + count * length : end + (count + 1) * length]] == same:
            count += 1
        if not count:
            return 0
        times = self._times([at_ns for at_ns, _ in held[begin - 1 : end + count * length]], same)
        if times[0] != self._tracker.latest_times:
            return 0
        self._tracker.repeat(times[1:], repetitions)
        return count * length

    def _times(self, at_ns: Sequence[int], events: Sequence[Event]) -> list[Times]:
        """The times of steps with the same events, from the times of all events and of the one before them."""
        length, ended = len(events), self._tracker.fetch_ended
        ends = [place for place, event in enumerate(events, 1) if isinstance(event, partial) and event.func == ended]
        waits = [map(sub, at_ns[place::length], at_ns[place - 1 :: length]) for place in ends]
        loader_ns = map(sum, zip(*waits, strict=True)) if waits else repeat(0)
        return list(zip(at_ns[:-1:length], at_ns[length::length], loader_ns, strict=False))
