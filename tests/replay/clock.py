"""Discrete events in the order of time, and processes that wait for them."""

from collections.abc import Callable, Generator
from heapq import heappop, heappush
from itertools import count


class Signal:
    """Something that happens once."""

    def __init__(self) -> None:
        self.has_happened = False
        self._waiting: list[Callable[[], None]] = []

    def then(self, act: Callable[[], None]) -> None:
        """Do something when it happens, or now if it has."""
        if self.has_happened:
            act()
        else:
            self._waiting.append(act)

    def happen(self) -> None:
        """Let it happen, now."""
        self.has_happened = True
        waiting, self._waiting = self._waiting, []
        for act in waiting:
            act()


Process = Generator["int | Signal", None, None]
"""Yields nanoseconds to pass, or a signal to wait for."""


class Clock:
    """What is due at one instant happens in the order in which it was asked for."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def after(self, ns: int, act: Callable[[], None]) -> None:
        """Do something some time from now."""
        heappush(self._due, (self.now_ns + ns, next(self._order), act))

    def start(self, process: Process) -> Signal:
        """Let a process run from now on; the signal is its end."""
        ended = Signal()

        def resume() -> None:
            for awaited in process:
                if isinstance(awaited, int):
                    self.after(awaited, resume)
                    return
                if not awaited.has_happened:
                    awaited.then(resume)
                    return
            ended.happen()

        self.after(0, resume)
        return ended

    def run(self) -> None:
        """Until nothing is due any more."""
        while self._due:
            self.now_ns, _, act = heappop(self._due)
            act()
