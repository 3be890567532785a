"""CPU, memory and I/O of the training processes and their children, read from ``/proc``.

``psutil`` looks at every process of the machine to find one's children (milliseconds on a busy node) and takes three
times as long for the figures of one; see proc(5) for the fields.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import psutil

from traceadvisor.recording.telemetry.host import Rate, readable
from traceadvisor.recording.telemetry.records import ProcessSample, WorkerSample

PROC = "/proc"
MOST_PROCESSES = 512
"""A tree larger than this is no training; what is beyond is not looked at."""

MOST_WORKERS = 16
"""Children told apart, those that used most CPU time so far."""

EVERY_THREAD_S = 5.0
"""How often children of all threads are looked for; in between only those of main threads, which start nearly all:
a training has hundreds of threads."""

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Stat(NamedTuple):
    """What ``/proc/<pid>/stat`` says of one process."""

    name: str
    start_ticks: int
    """Tells a process from a later one of the same id."""

    cpu_s: float
    rss_bytes: int


@dataclass(slots=True)
class _Member:
    """One process of the tree between two samples."""

    start_ticks: int
    cpu: Rate
    worker_cpu: Rate
    read: Rate
    written: Rate


class ProcessTree:
    """The processes that ``roots`` names and all their descendants."""

    def __init__(self, roots: Callable[[], Sequence[int]]) -> None:
        self._roots = roots
        self._root_pids: frozenset[int] = frozenset()
        self._members: dict[int, _Member] = {}
        self._every_thread_due_s: float | None = None
        self.pids: tuple[int, ...] = ()

    def sample(self, now_s: float, *, seldom: bool) -> ProcessSample:
        """The tree now; ``seldom`` looks for new members and adds what is dear to read."""
        if seldom:
            self._look_for_members(now_s)
        stats = {pid: stat for pid in self.pids if (stat := read_stat(pid)) is not None}
        self._keep(stats)
        rates = [self._members[pid].cpu.per_s(stat.cpu_s, now_s) for pid, stat in stats.items()]
        whole = ProcessSample(
            process_count=len(stats),
            cpu_percent=_percent(_sum(rates)),
            rss_bytes=sum(stat.rss_bytes for stat in stats.values()) if stats else None,
        )
        if not seldom:
            return whole
        read_per_s, written_per_s = self._storage(stats, now_s)
        return ProcessSample(
            process_count=whole.process_count,
            cpu_percent=whole.cpu_percent,
            rss_bytes=whole.rss_bytes,
            read_bytes_per_s=read_per_s,
            write_bytes_per_s=written_per_s,
            busiest=self._busiest(stats, now_s),
        )

    def _look_for_members(self, now_s: float) -> None:
        self._root_pids = frozenset(self._roots())
        if self._every_thread_due_s is None or now_s >= self._every_thread_due_s:
            self._every_thread_due_s = now_s + EVERY_THREAD_S
            self.pids = descendants(self._root_pids, every_thread=True)
        else:
            self.pids = descendants([*self._root_pids, *self._members], every_thread=False)

    def _keep(self, stats: dict[int, Stat]) -> None:
        """Remember the counters of those that are still there, and of no one else."""
        kept: dict[int, _Member] = {}
        for pid, stat in stats.items():
            member = self._members.get(pid)
            if member is None or member.start_ticks != stat.start_ticks:
                member = _Member(stat.start_ticks, Rate(), Rate(), Rate(), Rate())
            kept[pid] = member
        self._members = kept

    def _storage(self, pids: Iterable[int], now_s: float) -> tuple[float | None, float | None]:
        """Bytes per second read from and written to storage."""
        read, written = [], []
        for pid in pids:
            counts = read_io(pid)
            read.append(self._members[pid].read.per_s(counts and counts[0], now_s))
            written.append(self._members[pid].written.per_s(counts and counts[1], now_s))
        return _sum(read), _sum(written)

    def _busiest(self, stats: dict[int, Stat], now_s: float) -> tuple[WorkerSample, ...]:
        children = [(pid, stat) for pid, stat in stats.items() if pid not in self._root_pids]
        children.sort(key=lambda child: -child[1].cpu_s)
        found = []
        for pid, stat in children[:MOST_WORKERS]:
            cpu_percent = _percent(self._members[pid].worker_cpu.per_s(stat.cpu_s, now_s))
            if cpu_percent is not None:
                found.append(WorkerSample(pid, stat.name, cpu_percent, stat.rss_bytes))
        return tuple(found)


def descendants(roots: Iterable[int], *, every_thread: bool) -> tuple[int, ...]:
    """The processes themselves and all that come from them, each once."""
    found: dict[int, None] = {}
    waiting = list(roots)
    while waiting and len(found) < MOST_PROCESSES:
        pid = waiting.pop()
        if pid not in found:
            found[pid] = None
            waiting += children(pid, every_thread=every_thread)
    return tuple(found)


def children(pid: int, *, every_thread: bool) -> list[int]:
    """The processes that the main thread of ``pid`` started, or any of its threads."""
    listed = _read(f"{PROC}/{pid}/task/{pid}/children")
    if listed is None:  # gone, or a kernel without CONFIG_PROC_CHILDREN
        found = readable(lambda: psutil.Process(pid).children()) if every_thread else None
        return [child.pid for child in found or ()]
    if every_thread:
        threads = readable(lambda: os.listdir(f"{PROC}/{pid}/task"))  # noqa: PTH208 - a Path for each would cost more
        listed += b"".join(_read(f"{PROC}/{pid}/task/{thread}/children") or b"" for thread in threads or ())
    return [int(child) for child in listed.split()]


def read_stat(pid: int) -> Stat | None:
    """None where the process is gone."""
    content = _read(f"{PROC}/{pid}/stat")
    if content is None:
        return None
    before, _, after = content.rpartition(b")")  # a name may hold spaces and brackets
    fields = after.split()
    if len(fields) < 22 or fields[0] in (b"Z", b"X"):
        return None
    name = before.partition(b"(")[2].decode(errors="replace")
    cpu_s = (int(fields[11]) + int(fields[12])) * _TICK_S
    return Stat(name, int(fields[19]), cpu_s, int(fields[21]) * _PAGE_BYTES)


def read_io(pid: int) -> tuple[int, int] | None:
    """Bytes read from and written to storage so far; None where that is not for us to see."""
    content = _read(f"{PROC}/{pid}/io")
    if content is None:
        return None
    counts = dict(line.split(b": ") for line in content.splitlines() if b": " in line)
    if b"read_bytes" not in counts or b"write_bytes" not in counts:
        return None
    return int(counts[b"read_bytes"]), int(counts[b"write_bytes"])


def _read(path: str) -> bytes | None:
    """The beginning of a file that has no size: one call, no buffers."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, 16384)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _sum(rates: Iterable[float | None]) -> float | None:
    """The sum of those known; None where none is."""
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _percent(cores: float | None) -> float | None:
    return None if cores is None else round(100 * cores, 1)
