"""Waits for an instant and reads the stack of another thread there, in a single call of functions written in C.

The sampled thread takes the interpreter back as soon as it can: after the switch interval, between any two instructions
of the sampler that may be interrupted. Then the sampler would see a later line, or the inner frames of one moment and
the outer ones of another. No call in this chain runs Python code before the stack is read, so that cannot happen,
unless the script has an audit hook in Python: reading the code of a frame is an event.

Python makes an object of each frame that is looked at. Up to 3.11, making one may start the garbage collector. That
calls Python code, during which the other thread may run on and leave the frame: then Python overwrites its own memory,
or waits for ever (https://github.com/python/cpython/issues/106883). So the collector pauses while the stack is read.
"""

from __future__ import annotations

import dis
import gc
import resource
import sys
from collections.abc import Callable
from itertools import accumulate, chain, compress, islice, repeat, starmap, takewhile
from operator import attrgetter, call
from types import CodeType
from typing import Any, Protocol, cast

from traceadvisor.frozen import frozen
from traceadvisor.recording.stacks.frames import RUNS_SCRIPT
from traceadvisor.recording.stacks.tally import Raw
from traceadvisor.system import clocks

DEEPEST = 2000
"""Frames of a stack that are looked at."""

MOST_WAITS = 4
"""Waits for the interpreter, of which each ends after the switch interval, or when the thread has let go of it but
took it back at once. With more of them, a single call is likely to have kept it."""

_INTERRUPTED = ("CALL", "PRECALL", "RESUME", "JUMP", "CACHE")

_NOTHING: tuple[tuple[Any, ...], ...] = ((),)
"""The arguments of a single call."""

_OWN_WAITS = resource.getrusage, ((resource.RUSAGE_THREAD,),)
"""A call that tells how often the calling thread has waited. The first of its waits here is the sleep."""

_PLACE = attrgetter("f_code", "f_lasti")


class Alarm(Protocol):
    """A lock that is held while the sampler is to sleep."""

    def acquire(self, blocking: bool, timeout: float) -> bool:  # noqa: FBT001  # as of a lock
        """Wait for it."""


@frozen
class Look:
    """A stack, and how the sampler came to see it."""

    raw: Raw | None
    """The stack of the thread; None if there is no such thread."""

    at_ns: int
    waits: int
    """Number of waits for the interpreter: none unless the thread ran Python code."""

    is_fetching: bool

    @property
    def is_by_chance(self) -> bool:
        """Whether the thread ran other code in between, and then let go of the interpreter by itself.

        Python interrupts a thread only at calls, at the begin of functions and at the end of loops.
        """
        if self.raw is None or not 1 < self.waits <= MOST_WAITS:
            return False
        code, at = self.raw[0]
        return not dis.opname[code.co_code[at]].startswith(_INTERRUPTED)


def look(alarm: Alarm, timeout_s: float, thread: int, is_fetching: Callable[[], bool], *, from_ns: int = 0) -> Look:
    """Sleep until an alarm or a timeout, and look at a thread as soon as the interpreter is free.

    ``from_ns``: before that, by the steady clock, the stack is not read.
    """
    collects: list[bool] = []
    innermost = map(dict.get, starmap(sys._current_frames, _NOTHING), (thread,))
    frames = takewhile(bool, accumulate(chain(innermost, cast("Any", repeat("f_back"))), getattr))
    is_time = map(from_ns.__le__, starmap(clocks.perf_counter_ns, _NOTHING))
    steps = chain[Any](
        starmap(*_OWN_WAITS),
        starmap(alarm.acquire, ((True, timeout_s),)),
        starmap(*_OWN_WAITS),
        starmap(clocks.perf_counter_ns, _NOTHING),
        map(collects.append, starmap(gc.isenabled, _NOTHING)),
        starmap(gc.disable, _NOTHING),
        chain.from_iterable(compress((map(_PLACE, islice(frames, DEEPEST)),), is_time)),
        map(call, compress((gc.enable,), collects)),
        starmap(is_fetching, _NOTHING),
    )
    try:
        before, _, after, at_ns, _, _, *seen, is_fetching_now = list(steps)
    except BaseException:
        if collects == [True] and not gc.isenabled():
            gc.enable()
        raise
    raw: list[tuple[CodeType, int]] = list(takewhile(_is_of_script, filter(None, seen)))
    return Look(raw or None, at_ns, max(after.ru_nvcsw - before.ru_nvcsw - 1, 0), bool(is_fetching_now))


def _is_of_script(frame: tuple[CodeType, int]) -> bool:
    return frame[0].co_filename != RUNS_SCRIPT
