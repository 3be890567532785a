"""Keeps a recording from growing without end: to stop and to write it holds up the training, and takes memory.

A recording is as large as its steps are: a step of 50,000 operators makes eight steps too many. And a loop may stop
making steps while the profiler runs. So a recording is bounded by

- **events**: operators and Python calls. torch does not count them before it stops. Each takes about 500 bytes of the C
  library's heap until then (350 to 500, measured with torch 2.13), so the growth of the heap tells their number;
- **memory**: to stop takes another 5.5 KB for each of them;
- **time**.

At a bound, the recording ends with the step. At twice the bound, it ends at once: a thread looks.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import psutil

from traceadvisor.frozen import frozen
from traceadvisor.model.telemetry import ProcessColumn
from traceadvisor.recording.devices import devices_in_use
from traceadvisor.recording.telemetry.host import GroupUse
from traceadvisor.system import clocks

MOST_EVENTS = 500_000
"""To stop and write these takes 10 to 30 seconds, in which the process does nothing else; torchrun waits 30."""

LONGEST_S = 300.0

MEMORY_SHARE = 0.5
"""Largest share of the memory that is left which stopping may take."""

HEAP_PER_EVENT = 500
STOP_PER_EVENT = 5_500
"""Bytes for each event while it is recorded, and when the recording stops."""

TOO_MUCH = 2
"""How many times a bound ends a recording at once."""

SMALL_BYTES = 100_000_000
"""Memory that is there without a look, which takes about a millisecond."""

LOOK_S = 0.5


@frozen
class Reached:
    """A bound that a recording reached."""

    text: str
    at_once: bool
    """Whether it must not go on to the end of the step."""


class Bounds:
    """Looks at one recording at a time."""

    def __init__(
        self,
        *,
        heap: Callable[[], int | None] | None = None,
        memory_left: Callable[[], int] | None = None,
        clock: Callable[[], float] = clocks.monotonic,
    ) -> None:
        self._heap, self._memory_left, self._clock = heap or heap_bytes, memory_left or memory_left_bytes, clock
        self._began_s = 0.0
        self._heap_before: int | None = None
        self.reached: Reached | None = None
        self.used = 0.0
        """How much of the nearest bound the recording took at the last look, as a share."""
        self._over: threading.Event | None = None

    def start(self, overdue: Callable[[], None]) -> None:
        """Look from now on; ``overdue`` is called in another thread while the recording must end at once."""
        self.reached, self.used = None, 0.0
        self._began_s, self._heap_before = self._clock(), self._heap()
        over = self._over = threading.Event()

        def watch() -> None:
            while not over.wait(LOOK_S):
                with suppress(Exception):  # such as a file of the system that cannot be read now
                    self.look(events=bool(devices_in_use()))
                if self.reached and self.reached.at_once:
                    overdue()

        with suppress(RuntimeError):  # the system allows no more threads
            threading.Thread(target=watch, name="traceadvisor-bounds", daemon=True).start()

    def stop(self) -> None:
        """Look no longer."""
        if self._over:
            self._over.set()
        self._over = self.reached = None

    def look(self, *, events: bool) -> None:
        """Compare the recording with its bounds.

        ``events``: whether the heap tells their number. In the middle of a step on the CPU, it holds tensors, too.
        """
        count = self._events() if events else 0
        needed = count * STOP_PER_EVENT
        lasted_s = self._clock() - self._began_s
        shares = {
            f"it holds about {count / 1000:,.0f} thousand operators and Python calls": count / MOST_EVENTS,
            f"to stop it takes about {needed / 1e9:.1f} GB of memory": self._memory_share(needed),
            f"it lasts {lasted_s / 60:.0f} minutes": lasted_s / LONGEST_S,
        }
        text = max(shares, key=shares.__getitem__)
        self.used = shares[text]
        if self.used >= 1:
            self.reached = Reached(text, at_once=self.used >= TOO_MUCH)

    def _memory_share(self, needed: int) -> float:
        return needed / max(MEMORY_SHARE * self._memory_left(), 1) if needed > SMALL_BYTES else 0.0

    def _events(self) -> int:
        heap = self._heap()
        if heap is None or self._heap_before is None:
            return 0
        return max(heap - self._heap_before, 0) // HEAP_PER_EVENT


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of mallinfo(3)."""

    _fields_ = [
        *((f"other{number}", ctypes.c_size_t) for number in range(7)),
        ("uordblks", ctypes.c_size_t),
        ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    ]


@cache
def _mallinfo() -> Callable[[], _MallInfo] | None:
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is not None:
        function.restype = _MallInfo
    return function


def heap_bytes() -> int | None:
    """Bytes that the process holds of the C library's heap; None if this C library does not say so (glibc 2.33)."""
    function = _mallinfo()
    return int(function().uordblks) if function else None


def memory_left_bytes() -> int:
    """Memory that the process may still take: of the machine, and of its control group."""
    left = int(psutil.virtual_memory().available)
    group = GroupUse()
    used = group.sample()[ProcessColumn.GROUP_MEMORY_BYTES]
    if group.memory_limit_bytes is not None and used is not None:
        left = min(left, int(group.memory_limit_bytes - used))
    return max(left, 0)
