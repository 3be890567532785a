"""What the control groups of this process grant it and what they have used of it: a container's own limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from traceadvisor.system.control_groups import OWN_PROCESS, ControlGroup, control_groups
from traceadvisor.system.cores import quota_of

_UNLIMITED_BYTES = 1 << 60
"""Version 1 writes a number as large as it has where there is no limit."""


class GroupUse:
    """Reads the groups that set a limit; what they grant is looked at once."""

    def __init__(self, process: Path = OWN_PROCESS) -> None:
        self._throttling = _Throttling(
            [group for group in control_groups("cpu", process) if quota_of(group) is not None]
        )
        limits = {group: limit for group in control_groups("memory", process) if (limit := _limit_bytes(group))}
        self._memory = min(limits, key=lambda group: limits[group], default=None)
        self.memory_limit_bytes = limits[self._memory] if self._memory else None
        """None where nothing limits it."""

    @property
    def memory_bytes(self) -> int | None:
        """Memory in use, without what the kernel drops first (files not read lately); None where nothing limits it.

        This is what out-of-memory killers of container runtimes go by:
        https://kubernetes.io/docs/tasks/configure-pod-container/assign-memory-resource/
        """
        if self._memory is None:
            return None
        version_1 = self._memory.version == 1
        used = self._memory.number("memory.usage_in_bytes" if version_1 else "memory.current")
        idle = self._memory.counts("memory.stat").get("total_inactive_file" if version_1 else "inactive_file", 0)
        return None if used is None else max(used - idle, 0)

    def throttled_percent(self) -> float | None:
        """See :attr:`~traceadvisor.model.telemetry.ProcessColumn.THROTTLED_PERCENT`."""
        return self._throttling.percent()


class _Throttling:
    """Counters of each group that has a quota."""

    def __init__(self, groups: Sequence[ControlGroup]) -> None:
        self._last = {group: _periods(group) for group in groups}

    def percent(self) -> float | None:
        """Periods in which the quota was used up, of those since it was last asked; of the group that has most."""
        shares = []
        for group, before in self._last.items():
            now = self._last[group] = _periods(group)
            if now and before and now[0] > before[0] and now[1] >= before[1]:
                shares.append(100 * (now[1] - before[1]) / (now[0] - before[0]))
        return round(max(shares), 1) if shares else None


def _periods(group: ControlGroup) -> tuple[int, int] | None:
    """Periods in which the group ran, and those in which it used up its quota."""
    counts = group.counts("cpu.stat")
    return (counts["nr_periods"], counts["nr_throttled"]) if {"nr_periods", "nr_throttled"} <= counts.keys() else None


def _limit_bytes(group: ControlGroup) -> int | None:
    limit = group.number("memory.limit_in_bytes" if group.version == 1 else "memory.max")
    return limit if limit is not None and 0 < limit < _UNLIMITED_BYTES else None
