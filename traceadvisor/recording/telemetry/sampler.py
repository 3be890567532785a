"""A thread that samples devices, host and processes until it is stopped, at negligible cost to the run."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Generic, TypeVar

import msgspec
import psutil

from traceadvisor.bundle.layout import Sample, encode_telemetry_header
from traceadvisor.bundle.steps import StepLog
from traceadvisor.recording.bundle_writer import BundleWriter
from traceadvisor.recording.growing_file import GrowingFile
from traceadvisor.recording.telemetry.host import GroupUse, Host, readable
from traceadvisor.recording.telemetry.nvml import Device, Nvml, open_nvml
from traceadvisor.recording.telemetry.processes import ProcessTree
from traceadvisor.system import clocks
from traceadvisor.system.cores import cpu_affinity, cpu_quota

T = TypeVar("T")

_STOP_S = 10.0
"""How long stopping waits: the thread may collect garbage, and the iterator of a loader then waits 5 s for a worker."""

EXPENSIVE_S = 1.0
"""Interval of expensive figures."""

SHORT_STEPS_INTERVAL_S, SHORT_STEPS_LATER_S = 0.25, 1.0
"""Shortest time between two samples of a training with short steps, and the same after 20 s. Each sample reads a dozen
files, and asks for the interpreter as often."""

FIRST_OF_SHORT_STEPS = 20
"""In between, the interval grows with the run."""

LARGEST_CPU_SHARE = 0.01
"""Share of one core. If samples take more, there are fewer of them."""

SAMPLES_BEFORE_THINNING = 18_000
"""Half an hour at the default interval. After that the interval grows with the run: the file of a week holds seven
times as many samples as that of half an hour, not 300 times."""

_SMOOTHING = 0.1
"""Weight of the latest sample in the mean cost."""


class TelemetrySampler:
    """Writes a line of telemetry for every sample, from a daemon thread.

    The file is readable up to its last complete line at any time. A failure to sample ends the sampling, never the
    training: see :attr:`error`. A sample that cannot be written is lost, and the next may be written again.
    """

    def __init__(  # noqa: PLR0913  # what it needs to know
        self,
        path: Path,
        *,
        pids: Callable[[], Sequence[int]] | None = None,
        interval_s: float = 0.1,
        has_short_steps: Callable[[], bool] = lambda: False,
        clock_ns: Callable[[], int] = clocks.time_ns,
        lost: Callable[[OSError], None] = lambda _: None,
    ) -> None:
        """Sample into ``path``.

        Args:
            path: the file to write; an existing file is replaced.
            pids: returns the training processes of this node, once a second; this process by default. Their children
                are sampled, too.
            interval_s: the shortest time between samples; see :class:`Pace`.
            clock_ns: wall clock, nanoseconds since the epoch.
            has_short_steps: returns whether samples are to be at least :data:`SHORT_STEPS_INTERVAL_S` apart.
            lost: called in the thread when a sample could not be written.
        """
        self._path = path
        self._interval_s, self._has_short_steps = interval_s, has_short_steps
        self._clock_ns = clock_ns
        self._lost = lost
        self._unwritten = b""
        """The header, until it is written."""
        self._tree = ProcessTree(pids or (lambda: (os.getpid(),)))
        self._stop = Event()
        self._thread: Thread | None = None
        self._file: GrowingFile | None = None
        self.error: Exception | None = None
        """The error that ended the sampling before :meth:`stop`, if any."""

    def start(self) -> None:
        """Start to sample.

        Raises:
            OSError: the file cannot be written.
            RuntimeError: it was already started.
        """
        if self._thread is not None:
            raise RuntimeError("a TelemetrySampler is started once")
        file = self._file = GrowingFile(self._path)
        self._thread = Thread(target=self._run, args=(file,), name="traceadvisor-telemetry", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop within an interval; a thread that hangs in a driver is left behind."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=max(_STOP_S, self._interval_s))

    def leave_to_parent(self) -> None:
        """Let go of the file in a forked child, which has no sampling thread."""
        if self._file:
            self._file.leave_to_parent()

    def _run(self, file: GrowingFile) -> None:
        with closing(file):
            try:
                with closing(open_nvml()) as nvml:
                    group = GroupUse()
                    self._write(file, encode_telemetry_header(self._header(nvml, group)), is_header=True)
                    self._sample_until_stopped(file, nvml.devices, group)
            except Exception as error:  # noqa: BLE001  # after any error the training continues without telemetry
                self.error = error

    def _sample_until_stopped(self, file: GrowingFile, devices: Sequence[Device], group: GroupUse) -> None:
        host, pace = Host(), Pace(self._interval_s)
        turns = Turns([(device, sent) for device in devices for sent in (True, False)])
        wait_s = 0.0
        while not self._stop.wait(wait_s):
            now_s, cpu_before_s = clocks.monotonic(), clocks.thread_time()
            expensive = pace.expensive(now_s)
            time_ns = self._clock_ns()
            processes = self._tree.sample(now_s, expensive=expensive)
            if expensive:
                processes.update(group.sample())
            node = host.sample(now_s, expensive=expensive)
            samples = {device.uuid: device.sample(self._tree.pids, expensive=expensive) for device in devices}
            if (turn := turns.take(now_s)) is not None:  # last, because it takes 20 ms
                device, sent = turn
                samples[device.uuid] |= device.pcie_sample(sent=sent)
            self._write(file, msgspec.json.encode(Sample(time_ns, round(pace.interval_s, 4), samples, node, processes)))
            pace.plan(now_s, clocks.thread_time() - cpu_before_s, has_short_steps=self._has_short_steps())
            wait_s = max(0.0, now_s + pace.interval_s - clocks.monotonic())

    def _header(self, nvml: Nvml, group: GroupUse) -> dict[str, object]:
        return {
            "time_ns": self._clock_ns(),
            "host": socket.gethostname(),
            "interval_s": self._interval_s,
            "cpu_count": os.cpu_count(),
            "cpu_affinity": cpu_affinity(),
            "cpu_quota": cpu_quota(),
            "memory_bytes": readable(lambda: psutil.virtual_memory().total),
            "group_memory_limit_bytes": group.memory_limit_bytes,
            "devices": tuple(device.header() for device in nvml.devices),
            "nvml_version": nvml.version("nvmlSystemGetNVMLVersion"),
            "driver_version": nvml.version("nvmlSystemGetDriverVersion"),
            "nvml_unavailable": nvml.unavailable,
        }

    def _write(self, file: GrowingFile, record: bytes, *, is_header: bool = False) -> None:
        """Write a whole line at once, so that a killed run leaves whole lines."""
        line = self._unwritten + record + b"\n"
        try:
            file.append(line)
            self._unwritten = b""
        except OSError as error:
            self._unwritten = line if is_header else self._unwritten
            self._lost(error)


class Pace:
    """Decides how long to wait for the next sample, and which samples hold expensive figures."""

    def __init__(self, shortest_interval_s: float) -> None:
        self._shortest_interval_s = shortest_interval_s
        self._start_s: float | None = None
        self._expensive_due_s = 0.0
        self._cpu_s: float | None = None
        self.interval_s = shortest_interval_s
        """The time from the latest sample to the next."""

    def expensive(self, now_s: float) -> bool:
        """Whether the sample at ``now_s`` holds expensive figures; called once for each sample."""
        if self._start_s is None:
            self._start_s = self._expensive_due_s = now_s
        if now_s < self._expensive_due_s:
            return False
        self._expensive_due_s = now_s + EXPENSIVE_S
        return True

    def plan(self, now_s: float, cpu_s: float, *, has_short_steps: bool = False) -> None:
        """Set the interval after a sample at ``now_s`` that took ``cpu_s`` of CPU time."""
        self._cpu_s = cpu_s if self._cpu_s is None else self._cpu_s + _SMOOTHING * (cpu_s - self._cpu_s)
        run_s = now_s - (now_s if self._start_s is None else self._start_s)
        short_s = max(SHORT_STEPS_INTERVAL_S, min(run_s / FIRST_OF_SHORT_STEPS, SHORT_STEPS_LATER_S))
        self.interval_s = max(
            self._shortest_interval_s,
            short_s if has_short_steps else 0.0,
            self._cpu_s / LARGEST_CPU_SHARE,
            run_s / SAMPLES_BEFORE_THINNING,
        )


class Turns(Generic[T]):
    """Takes items in turn, each at most once in :data:`EXPENSIVE_S`."""

    def __init__(self, items: Sequence[T]) -> None:
        self._items = items
        self._next = 0
        self._round_due_s = 0.0

    def take(self, now_s: float) -> T | None:
        """The next item; None if it is too early for another round, or without items."""
        if not self._items:
            return None
        if self._next == 0:
            if now_s < self._round_due_s:
                return None
            self._round_due_s = now_s + EXPENSIVE_S
        item = self._items[self._next]
        self._next = (self._next + 1) % len(self._items)
        return item


class NodeTelemetry:
    """Samples into the bundle of a writer while this process is the one that does so for its node."""

    def __init__(self, writer: BundleWriter, lost: Callable[[Exception], None], log: StepLog) -> None:
        """Prepare; nothing is sampled yet.

        ``writer``: this process's access to the bundle. ``lost``: called when something could not be written, in any
        thread. ``log``: has the steps of this process.
        """
        self.name = f"telemetry.{writer.host}.jsonl"
        self._writer = writer
        self._lost, self._log = lost, log
        self.sampler: TelemetrySampler | None = None
        """None unless this process samples, or has sampled until it stopped."""

    def start(self, *, ranks: int) -> None:
        """Sample into a file that is not yet part of the bundle.

        ``ranks``: of the job. If there are several, all children of their common parent are sampled.
        """
        roots = (os.getppid() if ranks > 1 else os.getpid(),)
        try:
            sampler = TelemetrySampler(
                self._writer.stage(self.name),
                pids=lambda: roots,
                has_short_steps=lambda: self._log.has_short_steps,
                lost=self._lost,
            )
            sampler.start()
            self.sampler = sampler
        except OSError as error:
            self._lost(error)

    def stop(self) -> None:
        """Sample no more."""
        if self.sampler:
            self.sampler.stop()

    def move(self, folder: Path, *, samples: bool) -> None:
        """Write to another bundle from now on, and take along the samples so far.

        ``folder``: the bundle; the writer writes to it, too. ``samples``: whether this process samples for its node.
        """
        staged = self._writer.staged(self.name)
        self._writer.folder = folder
        if not samples:
            self._end()
        try:
            if self.sampler:
                staged.replace(self._writer.place(self.name))
            else:
                staged.unlink(missing_ok=True)
        except OSError:  # such as a bundle on another file system
            self._end()

    def start_in_bundle(self, *, ranks: int) -> None:
        """Sample into the bundle, unless this process does so already."""
        if not self.sampler:
            self.start(ranks=ranks)
            with suppress(OSError):
                self._writer.publish_staged(self.name)

    def _end(self) -> None:
        self.stop()
        self.sampler = None
