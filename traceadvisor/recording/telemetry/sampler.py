"""A thread that samples devices, host and processes until it is stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from io import FileIO
from pathlib import Path
from threading import Event, Thread

import msgspec

from traceadvisor.recording.telemetry.group import GroupUse
from traceadvisor.recording.telemetry.host import Host, host_name, memory_bytes
from traceadvisor.recording.telemetry.nvml import Device, Nvml, open_nvml
from traceadvisor.recording.telemetry.pace import Pace, Turns
from traceadvisor.recording.telemetry.processes import ProcessTree
from traceadvisor.recording.telemetry.records import FORMAT, DeviceSample, Header, ProcessSample, Sample
from traceadvisor.system.cores import cpu_affinity, cpu_quota


class TelemetrySampler:
    """Writes a line of telemetry for every sample, from a daemon thread of its own.

    The file is readable up to its last complete line at any time. A failure to sample ends the sampling, never the
    training: see :attr:`error`.
    """

    def __init__(
        self,
        path: Path,
        *,
        pids: Callable[[], Sequence[int]] | None = None,
        interval_s: float = 0.1,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Sample into ``path``.

        Args:
            path: the file to write; one that exists is replaced.
            pids: the training processes of this node, asked for once a second; this process by default. Their
                children are found from there.
            interval_s: the least time between samples; see :class:`~traceadvisor.recording.telemetry.pace.Pace`.
            clock_ns: wall clock, nanoseconds since the epoch.
        """
        self._path = path
        self._interval_s = interval_s
        self._clock_ns = clock_ns
        self._tree = ProcessTree(pids or (lambda: (os.getpid(),)))
        self._stop = Event()
        self._thread: Thread | None = None
        self.error: Exception | None = None
        """What ended the sampling before :meth:`stop`; None where nothing did."""

    def start(self) -> None:
        """Begin to sample.

        Raises:
            OSError: the file cannot be written.
            RuntimeError: it was started before.
        """
        if self._thread is not None:
            raise RuntimeError("a TelemetrySampler is started once")
        file = FileIO(self._path, "w")  # unbuffered: each write is a line
        self._thread = Thread(target=self._run, args=(file,), name="traceadvisor-telemetry", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the sampling, within an interval; a thread held up in a driver that hangs is left behind."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=max(5.0, self._interval_s))

    def _run(self, file: FileIO) -> None:
        with file:
            try:
                with closing(open_nvml()) as nvml:
                    group = GroupUse()
                    _write(file, self._header(nvml, group))
                    self._sample_until_stopped(file, nvml.devices, group)
            except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on without telemetry
                self.error = error

    def _sample_until_stopped(self, file: FileIO, devices: Sequence[Device], group: GroupUse) -> None:
        host, pace = Host(), Pace(self._interval_s)
        turns = Turns([(device, sent) for device in devices for sent in (True, False)])
        wait_s = 0.0
        while not self._stop.wait(wait_s):
            now_s, cpu_before_s = time.monotonic(), time.thread_time()
            seldom = pace.seldom(now_s)
            time_ns = self._clock_ns()
            processes = self._tree.sample(now_s, seldom=seldom)
            if seldom:
                processes = _with_group(processes, group)
            node = host.sample(now_s, seldom=seldom)
            samples = {device.uuid: device.sample(self._tree.pids, seldom=seldom) for device in devices}
            if (turn := turns.take(now_s)) is not None:  # last: it takes 20 ms
                device, sent = turn
                samples[device.uuid] = _with_pcie(samples[device.uuid], device, sent=sent)
            _write(file, Sample(time_ns, round(pace.interval_s, 4), samples, node, processes))
            pace.plan(now_s, time.thread_time() - cpu_before_s)
            wait_s = max(0.0, now_s + pace.interval_s - time.monotonic())

    def _header(self, nvml: Nvml, group: GroupUse) -> Header:
        return Header(
            format=FORMAT,
            time_ns=self._clock_ns(),
            host=host_name(),
            interval_s=self._interval_s,
            cpu_count=os.cpu_count(),
            cpu_affinity=cpu_affinity(),
            cpu_quota=cpu_quota(),
            memory_bytes=memory_bytes(),
            group_memory_limit_bytes=group.memory_limit_bytes,
            devices=nvml.headers(),
            nvml_version=nvml.version("nvmlSystemGetNVMLVersion"),
            driver_version=nvml.version("nvmlSystemGetDriverVersion"),
            nvml_unavailable=nvml.unavailable,
        )


def _with_group(processes: ProcessSample, group: GroupUse) -> ProcessSample:
    return msgspec.structs.replace(
        processes, throttled_percent=group.throttled_percent(), group_memory_bytes=group.memory_bytes
    )


def _with_pcie(sample: DeviceSample, device: Device, *, sent: bool) -> DeviceSample:
    rate = device.pcie_bytes_per_s(sent=sent)
    if sent:
        return msgspec.structs.replace(sample, pcie_tx_bytes_per_s=rate)
    return msgspec.structs.replace(sample, pcie_rx_bytes_per_s=rate)


def _write(file: FileIO, record: Header | Sample) -> None:
    """A whole line at once, so that a run killed at any time leaves whole lines."""
    line = memoryview(msgspec.json.encode(record) + b"\n")
    while line:
        line = line[file.write(line) :]
