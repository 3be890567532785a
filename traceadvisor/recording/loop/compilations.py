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
        self._latest_us = clocks.time_ns() // 1000 if since_us is None else since_us
        """Start of the latest one that was read."""

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
            latest = self._latest_us
            for one in module.get_compilation_metrics():
                start_us, took_us = one.start_time_us, one.duration_us
                if start_us and took_us and start_us > self._latest_us:
                    latest = max(latest, start_us)
                    self.pauses.add(_pause(one, start_us * 1000 - ahead_ns, took_us * 1000))
            self._latest_us = latest


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
