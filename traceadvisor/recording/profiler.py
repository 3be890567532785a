"""Makes recordings with torch's profiler."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch
from torch.autograd.profiler import record_function
from torch.profiler.profiler import _KinetoProfile

from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.trace_file import write_trace

MARK = "ProfilerStep#"

_LOG_LEVEL = ("KINETO_LOG_LEVEL", "6")
"""Else the profiler tells of each start and stop on the standard error; it reads this when it first gets ready."""


class Saved(Protocol):
    """Who is told of each recording."""

    def __call__(self, name: str, cycle: int, *, valid: bool) -> None:
        """The file's name, the cycle, and whether it is valid JSON."""


class TorchRecorder:
    """One recording at a time. The steps' marks are made here, so that their numbers are those of the step log.

    ``torch.profiler.profile`` would add nothing but a schedule fixed in advance; its documented base class starts and
    stops when it is told to.
    """

    def __init__(
        self,
        options: CaptureOptions,
        host: str,
        *,
        stage: Callable[[str], Path],
        saved: Saved,
    ) -> None:
        self._options = options
        self._host = host
        self._stage = stage
        self._saved = saved
        self._profiler: _KinetoProfile | None = None
        self._started = False
        self._mark: record_function | None = None
        self.making = False
        """Whether a profiler that comes to be right now is this one's."""

    @property
    def recording(self) -> bool:
        """Whether it is at work, or about to be."""
        return self._profiler is not None

    def prepare(self) -> int:
        """Get the profiler ready: where there are devices, this is what takes long. Returns nanoseconds."""
        begin_ns = time.perf_counter_ns()
        self.making = True
        try:
            profiler = _KinetoProfile(
                record_shapes=self._options.shapes,
                profile_memory=self._options.memory,
                with_stack=self._options.stacks,
            )
            with _quiet():
                profiler.prepare_trace()
            self._profiler = profiler  # only now: one that is not ready ends the process when it is started
        finally:
            self.making = False
        return time.perf_counter_ns() - begin_ns

    def start(self) -> int:
        """Begin to record; returns how long that took, in nanoseconds."""
        if self._profiler is None:
            return 0
        begin_ns = time.perf_counter_ns()
        self._profiler.start_trace()
        self._started = True
        return time.perf_counter_ns() - begin_ns

    def mark(self, step: int) -> None:
        """End the mark of the step before and begin the next."""
        self._end_mark()
        self._mark = record_function(f"{MARK}{step}")
        self._mark.__enter__()  # type: ignore[no-untyped-call]

    def save(self, cycle: int) -> None:
        """Stop, and write what was recorded."""
        profiler = self._stop()
        if profiler is None:
            return
        name = f"{self._host}_{os.getpid()}.{time.time_ns()}.pt.trace.json.gz"
        valid = write_trace(profiler, self._stage(name))
        self._saved(name, cycle, valid=valid)

    def discard(self) -> None:
        """Stop, and forget what was recorded."""
        if self._profiler and not self._started:
            self.start()  # one that is ready cannot be stopped before it has begun
        self._stop()

    def _stop(self) -> _KinetoProfile | None:
        self._end_mark()
        profiler, self._profiler = self._profiler, None
        if profiler and self._started:
            profiler.stop_trace()
        self._started = False
        return profiler

    def _end_mark(self) -> None:
        if self._mark:
            self._mark.__exit__(None, None, None)
            self._mark = None


@contextmanager
def _quiet() -> Iterator[None]:
    """A log level for the profiler, unless the user has chosen one; gone again before the script could see it.

    torch 2.11 also warns that a cycle's events are cleared at its end, which is what happens here anyway.
    """
    name, value = _LOG_LEVEL
    chosen = name in os.environ
    os.environ.setdefault(name, value)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r".*Profiler clears events at the end of each cycle")
            yield
    finally:
        if not chosen:
            del os.environ[name]


def is_profiling() -> bool:
    """Whether some profiler is at work in this process."""
    return bool(torch._C._autograd._profiler_enabled())
