"""CPU, memory and I/O of the whole host.

Rates from counters.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import TypeVar

import psutil

from traceadvisor.recording.telemetry.records import NodeSample

T = TypeVar("T")

UNREADABLE = (OSError, RuntimeError, NotImplementedError, ValueError, psutil.Error)
"""What psutil raises where a system does not tell: old kernels, sealed containers."""


def readable(read: Callable[[], T]) -> T | None:
    """What ``read`` returns; None where the system does not tell."""
    try:
        return read()
    except UNREADABLE:
        return None


def host_name() -> str:
    """As the network knows this machine."""
    return socket.gethostname()


def memory_bytes() -> int | None:
    """Memory of the host."""
    memory = readable(psutil.virtual_memory)
    return None if memory is None else memory.total


class Host:
    """Reads the host's counters and turns them into rates."""

    def __init__(self) -> None:
        self._busy_s, self._iowait_s, self._total_s = Rate(), Rate(), Rate()
        self._disk_read, self._disk_written = Rate(), Rate()
        self._received, self._sent = Rate(), Rate()

    def sample(self, now_s: float, *, seldom: bool) -> NodeSample:
        """The host now; ``seldom`` adds what is dear to read. ``now_s`` is of a clock that never goes back."""
        cpu_percent, iowait_percent = self._cpu(now_s)
        if not seldom:
            return NodeSample(cpu_percent=cpu_percent, iowait_percent=iowait_percent)
        memory, swap = readable(psutil.virtual_memory), readable(psutil.swap_memory)
        disk, network = readable(psutil.disk_io_counters), readable(psutil.net_io_counters)
        load = readable(os.getloadavg)
        return NodeSample(
            cpu_percent=cpu_percent,
            iowait_percent=iowait_percent,
            memory_available_bytes=memory.available if memory else None,
            memory_used_bytes=memory.used if memory else None,
            swap_used_bytes=swap.used if swap else None,
            disk_read_bytes_per_s=self._disk_read.per_s(disk.read_bytes if disk else None, now_s),
            disk_write_bytes_per_s=self._disk_written.per_s(disk.write_bytes if disk else None, now_s),
            network_received_bytes_per_s=self._received.per_s(network.bytes_recv if network else None, now_s),
            network_sent_bytes_per_s=self._sent.per_s(network.bytes_sent if network else None, now_s),
            load_1min=load[0] if load else None,
        )

    def _cpu(self, now_s: float) -> tuple[float | None, float | None]:
        """Percent of all CPUs' time that was busy, and that was idle with I/O outstanding."""
        times = readable(psutil.cpu_times)
        if times is None:
            return None, None
        iowait_s = getattr(times, "iowait", None)
        total_s = (
            sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        )  # both are in user, nice
        busy_s = round(
            total_s - times.idle - (iowait_s or 0.0), 2
        )  # ticks: what a float adds must not look like a fall
        total_rate = self._total_s.per_s(total_s, now_s)
        busy_rate, iowait_rate = self._busy_s.per_s(busy_s, now_s), self._iowait_s.per_s(iowait_s, now_s)
        return _percent(busy_rate, total_rate), _percent(iowait_rate, total_rate)


def _percent(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else round(min(100 * part / whole, 100.0), 2)


class Rate:
    """How fast a counter rises between one reading and the next."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def per_s(self, count: float | None, now_s: float) -> float | None:
        """The rise per second since the last reading.

        None at the first one, after one that failed, and where the counter was set back.
        """
        last, self._last = self._last, None if count is None else (count, now_s)
        if last is None or count is None or now_s <= last[1] or count < last[0]:
            return None
        return (count - last[0]) / (now_s - last[1])
