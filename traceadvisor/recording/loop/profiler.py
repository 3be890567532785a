"""Records with torch's profiler and writes each recording as a gzipped Chrome trace.

torch's C++ export comes first: it is five times faster than the Python export, which also leaves out the kinds of
memory events and the length of the recording. But it does not escape names. If its JSON is invalid for that reason,
the Python export replaces it. See docs/decisions/0006-trace-export.md.
"""

from __future__ import annotations

import ctypes
import functools
import gzip
import os
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import torch
from torch.autograd.profiler import record_function
from torch.profiler import ProfilerActivity
from torch.profiler.profiler import _KinetoProfile

from traceadvisor.recording.after_import import own_imports
from traceadvisor.recording.devices import devices_in_use, is_capturing, wait_for_devices, wait_for_streams
from traceadvisor.recording.growing_file import removed_on_error
from traceadvisor.recording.loop.bounds import Bounds, Reached
from traceadvisor.recording.loop.forks import ForksWithoutProfiler
from traceadvisor.recording.loop.own_profiles import HiddenTracer, own_profiles
from traceadvisor.recording.loop.tool_ids import ToolOfTorch
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.system import clocks
from traceadvisor.system.garbage import no_collections

MARK = "ProfilerStep#"

_LOG_LEVEL = ("KINETO_LOG_LEVEL", "6")
"""Otherwise the profiler logs each start and stop to standard error. It reads this when it is first prepared.

Neither does a recording then hold the profiler's warning that its buffers were full. The report finds that out from
steps without GPU activity at the end (``analysis/steps/windows.py``)."""

_GZIP_LEVEL = 1

_ACTIVITIES = {
    "cuda": ProfilerActivity.CUDA,
    "xpu": ProfilerActivity.XPU,
    "mtia": ProfilerActivity.MTIA,
    "hpu": ProfilerActivity.HPU,
}
"""Profiler activities of a device, by the module of torch."""


_ONE_CHOICE_SINCE = (2, 13)
"""From this version on, a process whose first profiler records no device never records one: that profiler decides
whether Kineto is for the CPU only (``cpuOnly`` in ``torch/csrc/profiler/kineto_shim.cpp``)."""

_first: list[frozenset[str]] = []
"""The devices of the first profiler in this process, once there was one."""


class Saved(Protocol):
    """Called for each recording."""

    def __call__(self, name: str, cycle: int, *, valid: bool, whole: bool) -> None:
        """Takes the file name, the cycle, whether the file is valid JSON, and whether the window is whole."""


class TorchRecorder:
    """Makes one recording at a time, with a mark for each step that carries its number in the step log.

    It uses the documented base class of ``torch.profiler.profile``, because the latter adds a fixed schedule.
    """

    def __init__(
        self,
        options: CaptureOptions,
        host: str,
        *,
        stage: Callable[[str], Path],
        saved: Saved,
        lost: Callable[[Exception], None],
    ) -> None:
        self._options = options
        self._host = host
        self._stage, self._saved, self._lost = stage, saved, lost
        self._profiler: _KinetoProfile | None = None
        self._started = False
        self._mark: record_function | None = None
        self._memory = KnownMemory()
        self._forks = ForksWithoutProfiler()
        self._hidden, self._tool = HiddenTracer(), ToolOfTorch()
        self._devices: frozenset[str] = frozenset()
        """Those that the profiler records, or that no profiler has to."""
        self.lacks_stacks = False
        """Whether the latest recording has no Python stacks because the training uses ``torch.compile``."""
        self.is_profiled = False
        """Whether the latest recording has no Python stacks because the script has a profile function of its own."""
        self._bounds = Bounds()
        self.overdue: Callable[[], None] = lambda: None
        """Called in another thread while the recording must end at once."""
        self._thread = 0
        """The one that records."""
        self.patience_s: float | None = None
        """Longest wait for the devices before a recording is saved; None: as long as it takes."""

        self.making = False
        """Whether this object is making or starting a profiler."""
        self.has_stacks = False
        """Whether the profiler that runs or is prepared records Python stacks."""

    @property
    def recording(self) -> bool:
        """Whether the profiler runs or is prepared."""
        return self._profiler is not None

    def prepare(self) -> int:
        """Prepare the profiler, which takes long with devices; returns the time in nanoseconds."""
        begin_ns = clocks.perf_counter_ns()
        with self._making():
            self._prepare()
        return clocks.perf_counter_ns() - begin_ns

    def start(self) -> int:
        """Start to record; returns the time that took, in nanoseconds."""
        if self._profiler is None:
            return 0
        begin_ns = clocks.perf_counter_ns()
        with self._making():
            if self.is_outdated:
                self._start(self._profiler)  # what is prepared ends well only if it starts
                self._stop(keep=False)
                self._prepare()
            self._start(self._profiler)
        return clocks.perf_counter_ns() - begin_ns

    @property
    def is_running(self) -> bool:
        """Whether the profiler records."""
        return self._started

    @property
    def is_outdated(self) -> bool:
        """Whether the training has come to use a device that the latest recording lacks."""
        return not self._devices.issuperset(devices_in_use())

    @property
    def lacks_devices(self) -> bool:
        """Whether the latest recording holds nothing of the devices in use, because an earlier one was of the CPU."""
        version = tuple(int(part) for part in str(torch.__version__).split(".")[:2])
        return bool(self._devices) and _first == [frozenset()] and version >= _ONE_CHOICE_SINCE

    @property
    def reached(self) -> Reached | None:
        """The bound that the current recording reached."""
        return self._bounds.reached

    @property
    def used(self) -> float:
        """How much of what it may hold the current recording holds, as a share."""
        return self._bounds.used

    def abandon(self) -> None:
        """Another thread has started a profiler, which ended this one: to stop it, too, would end the process."""
        self._mark = None
        self._clean_up()

    @property
    def is_blocked(self) -> bool:
        """Whether nothing may start or stop now: a CUDA graph is being captured."""
        return is_capturing()

    @contextmanager
    def _making(self) -> Iterator[None]:
        self.making = True
        try:
            with own_profiles.torch_starts_or_stops(), self._tool.torch_starts_or_stops():
                yield
        finally:
            self.making = False

    def _prepare(self) -> None:
        self._devices = frozenset(devices_in_use())
        self.lacks_stacks = self._options.stacks is None and has_compiled()
        self.is_profiled = self._options.stacks is not False and own_profiles.are_in_use
        has_stacks = self._options.stacks is not False and not (self.lacks_stacks or self.is_profiled)
        profiler = _KinetoProfile(
            activities=activities(self._devices),
            record_shapes=self._options.shapes,
            profile_memory=self._options.memory,
            with_stack=has_stacks,
        )
        with _quiet():
            profiler.prepare_trace()
        if not _first:
            _first.append(self._devices)
        self._profiler = profiler  # only now: one that is not ready ends the process when it is started
        self.has_stacks = has_stacks
        if self._options.memory:
            self._memory.start()

    def _start(self, profiler: _KinetoProfile | None) -> None:
        assert profiler  # noqa: S101  # it is prepared
        self._forks.install()
        with no_collections():  # they let other threads run on, and torch fails where those leave frames that it reads
            profiler.start_trace()
        if self.has_stacks:
            self._hidden.install()
        self._started, self._thread = True, threading.get_ident()
        self._bounds.start(self.overdue)

    def mark(self, step: int) -> None:
        """End the mark of the previous step and start the next."""
        self._end_mark()
        with suppress(Exception):  # such as a file of the system that cannot be read now
            self._bounds.look(events=True)
        self._mark = record_function(f"{MARK}{step}")
        self._mark.__enter__()  # type: ignore[no-untyped-call]

    def save(self, cycle: int, *, whole: bool) -> bool:
        """Stop and write the recording. False: there is none, or it cannot be written, such as on a full disk.

        Raises:
            RuntimeError: a kernel failed, or the devices did not finish in time. The recording is lost.
        """
        try:
            profiler = self._stop(keep=True)
            if profiler is not None:
                name = f"{self._host}_{os.getpid()}.{clocks.time_ns()}.pt.trace.json.gz"
                valid = write_trace(profiler, self._stage(name))
                self._saved(name, cycle, valid=valid, whole=whole)
        except OSError as error:
            self._lost(error)
            return False
        return profiler is not None

    def discard(self) -> None:
        """Stop without writing."""
        if self._profiler and not self._started:
            with self._making():
                self._start(self._profiler)  # a prepared profiler cannot be stopped before it has started
        self._stop(keep=False)

    def _stop(self, *, keep: bool) -> _KinetoProfile | None:
        profiler = self._profiler
        try:
            if profiler and self._started:
                if threading.get_ident() != self._thread:  # torch stops a profiler only where it was started
                    raise RuntimeError("the training thread did not answer, so the recording is lost")
                self._end_mark()
                try:
                    if keep:
                        self._wait()
                finally:
                    self._hidden.remove()
                    with own_profiles.torch_starts_or_stops(), self._tool.torch_starts_or_stops():
                        _stop_without_waiting(profiler)
        finally:
            self._clean_up()
        return profiler

    def _clean_up(self) -> None:
        self._profiler, self._started, self.has_stacks = None, False, False
        self._bounds.stop()
        self._memory.stop()
        self._forks.remove()
        self._hidden.remove()
        self._tool.forget()

    def _wait(self) -> None:
        """Wait until what was launched is recorded."""
        if self.patience_s is None:
            wait_for_devices()
        elif not wait_for_streams(self.patience_s):
            raise RuntimeError(
                f"the device did not finish within {self.patience_s:.0f} seconds, so the recording is lost"
            )

    def _end_mark(self) -> None:
        if self._mark:
            self._mark.__exit__(None, None, None)
            self._mark = None


def activities(devices: Collection[str]) -> list[ProfilerActivity]:
    """Activities to record with these devices. torch by default records, and so initialises, each that it finds."""
    supported: set[ProfilerActivity] = torch.profiler.supported_activities()  # type: ignore[no-untyped-call]
    unused = {activity for name, activity in _ACTIVITIES.items() if name not in devices}
    if torch._C._get_privateuse1_backend_name() not in devices:
        unused.add(ProfilerActivity.PrivateUse1)
    return sorted(supported - unused, key=lambda activity: activity.value)


def _stop_without_waiting(profiler: _KinetoProfile) -> None:
    """Stop a profiler that would wait for the device first.

    If that wait fails, torch leaves the profiler on, and the process ends with a segmentation fault.
    """
    inner: Any = profiler.profiler
    device, inner.use_device = inner.use_device, None
    function: Any = sys.getprofile()  # that of torch, which is not callable, or what the script has set meanwhile
    try:
        profiler.stop_trace()
    finally:
        inner.use_device = device
        if callable(function):
            sys.setprofile(function)


@contextmanager
def _quiet() -> Iterator[None]:
    """Set the profiler's log level unless the user has, where C code finds it and ``os.environ`` does not show it.

    The level stays set: the profiler's own thread reads the environment from now on, and a process can crash when a
    variable is removed at the same time.

    torch 2.11 also warns that it clears the events of a cycle at its end, which is intended here.
    """
    _set_log_level()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*Profiler clears events at the end of each cycle")
        yield


@functools.cache
def _set_log_level() -> None:
    name, value = _LOG_LEVEL
    if name not in os.environ:
        os.putenv(name, value)


def has_profiled() -> bool:
    """Whether a profiler of ours was made in this process, or before it was forked."""
    return bool(_first)


def has_compiled() -> bool:
    """Whether ``torch.compile`` has compiled anything in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["stats"])


def is_profiling() -> bool:
    """Whether any profiler is running in this process."""
    return bool(torch._C._autograd._profiler_enabled())


def write_trace(profiler: _KinetoProfile, path: Path) -> bool:
    """Write the recording to ``path`` (``*.json.gz``); returns whether it is valid JSON.

    Raises:
        OSError: it cannot be written.
    """
    plain = path.with_suffix("")
    try:
        with _as_text(plain) as name:
            profiler.export_chrome_trace(name)
            content = plain.read_bytes()
            valid = _is_json(content)
            if not valid and "use_python_export" in signature(profiler.export_chrome_trace).parameters:
                profiler.export_chrome_trace(name, use_python_export=True)
                content = plain.read_bytes()
                valid = _is_json(content)
    finally:
        plain.unlink(missing_ok=True)
        plain.with_name(f"{plain.name}.tmp").unlink(missing_ok=True)  # torch leaves it where the disk is full
    with removed_on_error(path):
        _compress(content, path)
    return valid


@contextmanager
def _as_text(path: Path) -> Iterator[str]:
    """A name of the path in UTF-8, which torch needs."""
    if is_text(str(path)):
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def is_text(path: str) -> bool:
    """Whether a path is UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def paths_of_code_are_text() -> bool:
    """Whether the profiler can read the file names in Python's stacks: others end the recording."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return all(is_text(path) for path in (*sys.path, main) if isinstance(path, str))


def _is_json(content: bytes) -> bool:
    """Whether the syntax is valid; checks 800 MB/s."""
    try:
        msgspec.json.decode(content, type=msgspec.Raw)
    except ValueError:  # also for bytes that are not UTF-8
        return False
    return True


def _compress(content: bytes, path: Path) -> None:
    try:
        with own_imports():
            from isal import igzip  # noqa: PLC0415  # ten times faster; no wheel on some platforms
    except ImportError:
        path.write_bytes(gzip.compress(content, _GZIP_LEVEL))
        return
    path.write_bytes(igzip.compress(content, _GZIP_LEVEL))


_WARNING, _ERROR = 1, 2
"""Log levels of torch's C++ code."""


class _Flags(NamedTuple):
    """Variables of torch's C++ library."""

    log_level: ctypes.c_int
    registers_blocks: ctypes.c_bool


class KnownMemory:
    """Lets torch know the CPU blocks that are allocated during the warm-up and the recording."""

    def __init__(self) -> None:
        self._flags: _Flags | None = None

    def start(self) -> None:
        """Register CPU blocks from now on, if torch would warn of unknown ones."""
        flags = _flags()
        if flags is None or flags.log_level.value != _WARNING or flags.registers_blocks.value:
            return
        self._flags = flags
        unknown = torch.UntypedStorage(1, device="cpu")  # type: ignore[no-untyped-call]
        flags.registers_blocks.value = True
        flags.log_level.value = _ERROR
        del unknown
        flags.log_level.value = _WARNING

    def stop(self) -> None:
        """Register no more blocks."""
        if self._flags:
            self._flags.registers_blocks.value = False
        self._flags = None


@cache
def _flags() -> _Flags | None:
    """The variables; None if this torch lacks one."""
    with suppress(OSError, ValueError):
        library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libc10.so"))
        flags = _Flags(
            ctypes.c_int.in_dll(library, "FLAGS_caffe2_log_level"),
            ctypes.c_bool.in_dll(library, "FLAGS_caffe2_report_cpu_memory_usage"),
        )
        os.register_at_fork(after_in_child=lambda: _leave(flags))
        return flags
    return None


def _leave(flags: _Flags) -> None:
    """A forked child has no part in the recording."""
    flags.registers_blocks.value = False
