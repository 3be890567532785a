"""CPU, memory and I/O of the host, and what the control groups of this process grant it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

from traceadvisor.bundle.layout import Figure
from traceadvisor.model.telemetry import NodeColumn, ProcessColumn
from traceadvisor.system.control_groups import OWN_PROCESS, ControlGroup, control_groups
from traceadvisor.system.cores import quota_of

T = TypeVar("T")

UNREADABLE = (OSError, RuntimeError, NotImplementedError, ValueError, psutil.Error)
"""psutil's errors on old kernels and in sealed containers."""

_UNLIMITED_BYTES = 1 << 60
"""Without a limit, version 1 of control groups writes a number larger than this."""


def readable(read: Callable[[], T]) -> T | None:
    """The result of ``read``; None if the system refuses it."""
    try:
        return read()
    except UNREADABLE:
        return None


class Host:
    """Reads the host's counters and turns them into rates since they were last read."""

    def __init__(self) -> None:
        self._busy_s, self._iowait_s, self._total_s = Rate(), Rate(), Rate()
        self._disk_read, self._disk_written = Rate(), Rate()
        self._received, self._sent = Rate(), Rate()

    def sample(self, now_s: float, *, expensive: bool) -> dict[NodeColumn, Figure]:
        """Sample the host; ``expensive`` adds the expensive figures. ``now_s`` is from a monotonic clock."""
        cpu_percent, iowait_percent = self._cpu(now_s)
        figures: dict[NodeColumn, Figure] = {
            NodeColumn.CPU_PERCENT: cpu_percent,
            NodeColumn.IOWAIT_PERCENT: iowait_percent,
        }
        if not expensive:
            return figures
        memory, swap = readable(psutil.virtual_memory), readable(psutil.swap_memory)
        disk, network = readable(psutil.disk_io_counters), readable(psutil.net_io_counters)
        load = readable(os.getloadavg)
        return figures | {
            NodeColumn.MEMORY_AVAILABLE_BYTES: memory.available if memory else None,
            NodeColumn.MEMORY_USED_BYTES: memory.used if memory else None,
            NodeColumn.SWAP_USED_BYTES: swap.used if swap else None,
            NodeColumn.DISK_READ_BYTES_PER_S: self._disk_read.per_s(disk and disk.read_bytes, now_s),
            NodeColumn.DISK_WRITE_BYTES_PER_S: self._disk_written.per_s(disk and disk.write_bytes, now_s),
            NodeColumn.NETWORK_RECEIVED_BYTES_PER_S: self._received.per_s(network and network.bytes_recv, now_s),
            NodeColumn.NETWORK_SENT_BYTES_PER_S: self._sent.per_s(network and network.bytes_sent, now_s),
            NodeColumn.LOAD_1MIN: load[0] if load else None,
        }

    def _cpu(self, now_s: float) -> tuple[float | None, float | None]:
        """Percent of all CPUs' time that was busy, and that was idle with I/O outstanding."""
        times = readable(psutil.cpu_times)
        if times is None:
            return None, None
        iowait_s = getattr(times, "iowait", None)
        guest_s = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # both are in user and nice, too
        total_s = sum(times) - guest_s
        busy_s = round(total_s - times.idle - (iowait_s or 0.0), 2)  # ticks: rounding errors must not look like a fall
        total_rate = self._total_s.per_s(total_s, now_s)
        busy_rate, iowait_rate = self._busy_s.per_s(busy_s, now_s), self._iowait_s.per_s(iowait_s, now_s)
        return _percent(busy_rate, total_rate), _percent(iowait_rate, total_rate)


def _percent(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else round(min(100 * part / whole, 100.0), 2)


class Rate:
    """The rise of a counter between one reading and the next."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def per_s(self, count: float | None, now_s: float) -> float | None:
        """The rise per second since the last reading.

        None at the first reading, after a failed one, and after the counter was reset.
        """
        last, self._last = self._last, None if count is None else (count, now_s)
        if last is None or count is None or now_s <= last[1] or count < last[0]:
            return None
        return (count - last[0]) / (now_s - last[1])


class GroupUse:
    """Reads the control groups that set a limit; the limits are read once."""

    def __init__(self, process: Path = OWN_PROCESS) -> None:
        self._periods = {
            group: _periods(group) for group in control_groups("cpu", process) if quota_of(group) is not None
        }
        limits = {group: limit for group in control_groups("memory", process) if (limit := _limit_bytes(group))}
        self._memory = min(limits, key=lambda group: limits[group], default=None)
        self.memory_limit_bytes = limits[self._memory] if self._memory else None
        """None without a limit."""

    def sample(self) -> dict[str, Figure]:
        """Sample what the groups have used."""
        return {
            ProcessColumn.THROTTLED_PERCENT: self._throttled_percent(),
            ProcessColumn.GROUP_MEMORY_BYTES: self._memory_bytes(),
        }

    def _memory_bytes(self) -> int | None:
        """Memory in use, without what the kernel drops first (files not read lately); None without a limit.

        Out-of-memory killers of container runtimes use this figure:
        https://kubernetes.io/docs/tasks/configure-pod-container/assign-memory-resource/
        """
        if self._memory is None:
            return None
        version_1 = self._memory.version == 1
        used = self._memory.number("memory.usage_in_bytes" if version_1 else "memory.current")
        idle = self._memory.counts("memory.stat").get("total_inactive_file" if version_1 else "inactive_file", 0)
        return None if used is None else max(used - idle, 0)

    def _throttled_percent(self) -> float | None:
        """Percent of the periods since the last call that used up the quota, in the most throttled group."""
        shares = []
        for group, before in self._periods.items():
            now = self._periods[group] = _periods(group)
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
