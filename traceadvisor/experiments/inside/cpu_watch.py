"""How busy other programs keep the machine during a block, and the CPU time of the training process."""

from __future__ import annotations

import os
from collections.abc import Callable

from traceadvisor.frozen import frozen
from traceadvisor.recording.loop.worker_clocks import CoreWait
from traceadvisor.system import clocks


@frozen
class CpuTimes:
    """Counters of CPU seconds at one moment."""

    own_s: float
    """The training process, with all its threads."""

    family_s: float | None
    """The same and its child processes, such as loader workers; None where the system does not tell."""

    busy_s: float | None
    """All cores while they were not idle."""

    all_s: float | None
    """All cores, idle or not."""

    ready_s: float = 0.0
    """The training thread while it ran, or could run and had no core."""

    wall_s: float = 0.0


@frozen
class CpuUse:
    """CPU time between two moments."""

    own_s: float | None
    """None where the training thread waited for other things, such as workers or files, more than it could run."""

    others_share: float | None
    """Share of the machine's cores that other programs kept busy; None if it is unknown."""


def between(begin: CpuTimes, end: CpuTimes) -> CpuUse:
    """The use between two readings."""
    is_work = end.ready_s - begin.ready_s >= (end.wall_s - begin.wall_s) / 2
    own_s = end.own_s - begin.own_s if is_work else None
    if None in (begin.family_s, begin.busy_s, begin.all_s, end.family_s, end.busy_s, end.all_s):
        return CpuUse(own_s, None)
    busy, family, whole = (
        (getattr(end, name) or 0.0) - (getattr(begin, name) or 0.0) for name in ("busy_s", "family_s", "all_s")
    )
    return CpuUse(own_s, min(max((busy - family) / whole, 0.0), 1.0) if whole > 0 else None)


class CpuWatch:
    """Reads the counters at the begin and at the end of a block."""

    def __init__(self, read: Callable[[], CpuTimes] | None = None) -> None:
        waited = CoreWait()
        self._read = read or (lambda: read_times(waited))
        self._begin: CpuTimes | None = None

    def start(self) -> None:
        """The block begins."""
        self._begin = self._read()

    def stop(self) -> CpuUse | None:
        """The block has ended; None if it did not begin."""
        return None if self._begin is None else between(self._begin, self._read())


def read_times(waited: CoreWait) -> CpuTimes:
    """The counters now, in the thread that made ``waited``."""
    own_s = clocks.process_time_ns() / 1e9
    thread = ((clocks.thread_time_ns() + (waited.total_ns() or 0)) / 1e9, clocks.perf_counter())
    try:
        import psutil  # noqa: PLC0415  # not everywhere

        machine = psutil.cpu_times()
        family_s = own_s + sum(_process_s(child) for child in psutil.Process(os.getpid()).children(recursive=True))
    except Exception:  # noqa: BLE001  # without psutil, or in a sealed container
        return CpuTimes(own_s, None, None, None, *thread)
    guest_s = getattr(machine, "guest", 0.0) + getattr(machine, "guest_nice", 0.0)  # in user and nice, too
    all_s = sum(machine) - guest_s
    return CpuTimes(own_s, family_s, all_s - machine.idle - getattr(machine, "iowait", 0.0), all_s, *thread)


def _process_s(process: object) -> float:
    try:
        times = process.cpu_times()  # type: ignore[attr-defined]  # of psutil
    except Exception:  # noqa: BLE001  # it has just ended
        return 0.0
    return float(times.user + times.system)
