"""When ``torch.compile`` compiled what, and what had changed, as torch itself remembers it."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from traceadvisor.model.run import Change, Pause, PauseKind
from traceadvisor.recording.pauses import LongestPauses
from traceadvisor.recording.stacks.frames import shown
from traceadvisor.system import clocks

LONGEST_REASON = 200
"""Characters of what torch says."""

_METRICS = "torch._dynamo.utils"
_OF_SHAPES = ("size mismatch", "stride mismatch", "rank mismatch", ".size()", ".shape")
"""Words of torch about tensors whose shape changed."""


class Compilations:
    """The compilations that torch remembers, read again and again: it keeps the latest 64."""

    def __init__(self, since_us: int | None = None) -> None:
        """Leave out those of an earlier run in the process: that began before a wall clock time, by default now."""
        self.pauses = LongestPauses()
        self._since_us = clocks.time_ns() // 1000 if since_us is None else since_us
        self._known: set[tuple[int, int]] = set()
        """Start and length of those of the last look. One may begin before others and end after them."""

    def total_ns(self) -> int:
        """Time of all that were kept."""
        self.look()
        return sum(one.duration_ns for one in self.pauses)

    def look(self) -> None:
        """Read those that are new, in any thread. Never raises: this is no public interface of torch."""
        module = sys.modules.get(_METRICS)
        if module is None:
            return
        with suppress(Exception):
            ahead_ns = clocks.time_ns() - clocks.perf_counter_ns()
            remembered = {
                (one.start_time_us or 0, one.duration_us or 0): one for one in module.get_compilation_metrics()
            }
            for start_us, took_us in remembered.keys() - self._known:
                if took_us and start_us > self._since_us:
                    one = remembered[start_us, took_us]
                    self.pauses.add(_pause(one, start_us * 1000 - ahead_ns, took_us * 1000))
            self._known = set(remembered)


def _pause(one: Any, clock_ns: int, duration_ns: int) -> Pause:
    reason, file = one.recompile_reason, one.co_filename
    return Pause(
        PauseKind.COMPILATION,
        max(clock_ns, 0),
        duration_ns,
        file=shown(file) if file else None,
        line=one.co_firstlineno,
        function=one.co_name,
        reason=_short(str(reason)) if reason else None,
        change=_change(str(reason)) if reason else None,
    )


def _change(reason: str) -> Change:
    return Change.SHAPE if any(word in reason for word in _OF_SHAPES) else Change.OTHER


def _short(reason: str) -> str:
    """The first words of torch, without the code that it quotes."""
    return reason.partition("\n")[0].partition("  #")[0].strip()[:LONGEST_REASON]
