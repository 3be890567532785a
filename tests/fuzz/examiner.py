"""A process that examines one input after another within limits, and is replaced when it does not survive one."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.fuzz.examination import Verdict
from traceadvisor.system.executor import Fault

Examine = Callable[[Path], Verdict]

CPU_S, CPU_S_PER_MB = 20.0, 1.0
WALL_PER_CPU = 15
"""How much longer than its processor time an input may take: other work goes first."""

MEMORY_MB, MEMORY_MB_PER_MB, MOST_MEMORY_MB = 300, 10, 1500
"""Beyond what the process holds to begin with."""

_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Examined:
    """What came of one input."""

    verdict: Verdict | None
    """None where it failed."""

    failure: str = ""
    """A traceback, or how the process ended."""

    cause: str = ""
    """The same for failures that have the same reason, as far as can be told."""

    cpu_s: float = 0.0
    memory_mb: float = 0.0
    """At most, beyond what the process held to begin with."""


class Examiner:
    """Runs the examination in a process of its own; a context manager."""

    def __init__(self, examine: Examine, *, cpu_s: float = CPU_S) -> None:
        """Examine with a function of a module, for the process looks it up by its name.

        Args:
            examine: what to do with an input.
            cpu_s: how long it may take with one that holds nothing.
        """
        self._examine = examine
        self._cpu_s = cpu_s
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._examine), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe.recv()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def _stop(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def examined(self, path: Path, size_bytes: int) -> Examined:
        """Examine what is at a path; ``size_bytes`` is what it holds unpacked, by which limits are set."""
        cpu_s = self._cpu_s + CPU_S_PER_MB * size_bytes / _MB
        memory_mb = min(MEMORY_MB + MEMORY_MB_PER_MB * size_bytes // _MB, MOST_MEMORY_MB)
        self._pipe.send((path, cpu_s, memory_mb))
        try:
            if self._pipe.poll(WALL_PER_CPU * cpu_s):
                result: Examined = self._pipe.recv()
                return result
            ending = "no answer in time"
            os.kill(self._process.pid or 0, signal.SIGUSR1)
            self._process.join(1)
        except EOFError:
            self._process.join()
            code = self._process.exitcode or 0
            ending = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        self._stop()
        self._start()
        return Examined(None, ending, ending)


def _serve(pipe: Connection, examine: Examine) -> None:
    warnings.simplefilter("error")
    for number in (signal.SIGUSR1, signal.SIGPROF):
        faulthandler.register(number, chain=True)  # where it was, to standard error; then what the signal does
    base = _held_bytes()
    pipe.send(None)
    while True:
        try:
            path, cpu_s, memory_mb = pipe.recv()
        except EOFError:
            return
        _limit(cpu_s, memory_mb)
        before = os.times()
        try:
            result = Examined(examine(path))
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is the finding
            result = Examined(None, "".join(traceback.format_exception(error)), _cause(error))
        after = os.times()
        _limit(0, None)
        used_s = after.user + after.system - before.user - before.system
        pipe.send(
            Examined(result.verdict, result.failure, result.cause, used_s, max(0, _most_held_bytes() - base) / _MB)
        )


def _limit(cpu_s: float, memory_mb: int | None) -> None:
    """From now on; 0 and None for no limit. Too much memory is an error, too much time the process's end."""
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    most = resource.RLIM_INFINITY if memory_mb is None else _status_bytes("VmSize") + memory_mb * _MB
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    if memory_mb is not None:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _held_bytes() -> int:
    return _status_bytes("VmRSS")


def _most_held_bytes() -> int:
    """Since the limits were set."""
    return _status_bytes("VmHWM")


def _status_bytes(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) * 1024


def _cause(error: BaseException) -> str:
    """The kind of error and the package's innermost line that it came through."""
    if isinstance(error, Fault) and error.__cause__:
        return _cause(error.__cause__)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/traceadvisor/" in frame.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else str(error)[:60]
    return f"{type(error).__name__} in {where}"
