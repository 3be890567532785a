"""A process that examines thousands of inputs, each within limits, and is replaced when it does not survive one."""

import faulthandler
import gc
import os
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Self

from tests.fuzz.case import Case
from tests.fuzz.examination import Depth, Examine, Verdict
from traceadvisor.system.executor import Fault

Make = Callable[[int], Case]

CPU_S, CPU_S_PER_MB = 20.0, 1.0
WALL_PER_CPU = 15
"""How much longer than its processor time an input may take: other work goes first."""

MEMORY_MB, MEMORY_MB_PER_MB, MOST_MEMORY_MB = 300, 10, 1500
"""Beyond what the process holds to begin with. The depth that starts other processes has no such limit."""

MOST_INPUTS = 20_000
"""Of one process: what it keeps from one input to the next must not add up for ever."""

MEMORY = Path("/dev/shm")  # noqa: S108  # a folder in it is made by mkdtemp
"""Holds files without a disk."""

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

    depth: Depth = Depth.READ
    mutator: str = ""
    cpu_s: float = 0.0
    memory_mb: float = 0.0
    """At most, beyond what the process held to begin with."""


AHEAD = 64
"""Inputs that the process is asked for before it has answered."""

STUCK_S = 1800.0
"""A process that does not answer for so long hangs where its own limits do not reach."""


class Examiner:
    """Makes inputs and examines them in a process of its own; a context manager."""

    def __init__(self, make: Make, examine: Examine, *, cpu_s: float = CPU_S) -> None:
        """Start the process; it is forked, so that it has what the inputs are made from.

        Args:
            make: makes the input of a number.
            examine: what to do with an input.
            cpu_s: how long it may take with one that holds nothing.
        """
        self._make, self._examine, self._cpu_s = make, examine, cpu_s
        self._scratch = Path(mkdtemp(dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
        self._start()

    def _start(self) -> None:
        context = get_context("fork")
        self._pipe, theirs = context.Pipe()
        worker = _Worker(theirs, self._make, self._examine, self._cpu_s, self._scratch)
        self._process = context.Process(target=worker.serve, args=(self._pipe,), daemon=True)
        self._process.start()
        theirs.close()
        self._left = MOST_INPUTS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _stop(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def examined(self, asked: Case | int, depth: Depth) -> Examined:
        """What comes of one input, or of the one that a number makes."""
        return next(self.each_examined([(asked, depth)]))

    def each_examined(self, asked: Iterable[tuple[Case | int, Depth]]) -> Iterator[Examined]:
        """The same for many inputs in turn; to be read to its end.

        The process has some of them ahead, so that it need not wait for this one on a busy machine.
        """
        waiting: deque[tuple[Case | int, Depth]] = deque()
        for one in asked:
            self._pipe.send(one)
            waiting.append(one)
            if len(waiting) == AHEAD:
                yield self._answer(waiting)
        while waiting:
            yield self._answer(waiting)

    def _answer(self, waiting: deque[tuple[Case | int, Depth]]) -> Examined:
        """What came of the first one that waits."""
        if not self._pipe.poll(STUCK_S):
            self._process.kill()
        _, depth = waiting.popleft()
        try:
            result: Examined = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode or 0
            ending = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
            result = Examined(None, ending, ending, depth)
        else:
            self._left -= 1
            if self._left > 0:
                return result
        self._stop()
        for left in self._scratch.iterdir():
            shutil.rmtree(left, ignore_errors=True)
        self._start()
        for one in waiting:
            self._pipe.send(one)
        return result


@dataclass(frozen=True, slots=True)
class _Worker:
    """What runs in the process."""

    pipe: Connection
    make: Make
    examine: Examine
    cpu_s: float
    scratch: Path

    def serve(self, callers_end: Connection) -> None:
        """Answer each input until the caller closes its end."""
        callers_end.close()
        gc.freeze()
        warnings.simplefilter("error")
        for number in (signal.SIGALRM, signal.SIGPROF):  # where it was, to standard error; then what the signal does
            faulthandler.register(number, file=sys.__stderr__ or 2, chain=True)
        while True:
            try:
                asked, depth = self.pipe.recv()
            except EOFError:
                return
            case = asked if isinstance(asked, Case) else self.make(asked)
            self.pipe.send(self._examined(case, depth))

    def _examined(self, case: Case, depth: Depth) -> Examined:
        folder = Path(mkdtemp(dir=self.scratch))
        path = case.write(folder)
        size_mb = case.unpacked_bytes / _MB
        base, before = _status_bytes("VmRSS"), os.times()
        _limit(self.cpu_s + CPU_S_PER_MB * size_mb, size_mb, has_memory_limit=depth is not Depth.APART)
        try:
            verdict, reached = self.examine(path, depth)
            result = Examined(verdict, depth=reached)
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is the finding
            result = Examined(None, "".join(traceback.format_exception(error)), _cause(error), depth)
        _unlimit()
        after = os.times()
        shutil.rmtree(folder, ignore_errors=True)
        return replace(
            result,
            mutator=case.mutator,
            cpu_s=after.user + after.system - before.user - before.system,
            memory_mb=max(0, _status_bytes("VmHWM") - base) / _MB,
        )


def _limit(cpu_s: float, size_mb: float, *, has_memory_limit: bool) -> None:
    """From now on: too much memory is an error, too much time the process's end."""
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, WALL_PER_CPU * cpu_s)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the most held since now is VmHWM
    if has_memory_limit:
        memory_mb = min(MEMORY_MB + int(MEMORY_MB_PER_MB * size_mb), MOST_MEMORY_MB)
        most = _status_bytes("VmSize") + memory_mb * _MB
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def _unlimit() -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _status_bytes(key: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition(f"{key}:")[2].split(maxsplit=1)[0]) * 1024


def _cause(error: BaseException) -> str:
    """The kind of error and the package's innermost line that it came through."""
    if isinstance(error, Fault) and error.__cause__:
        return _cause(error.__cause__)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/traceadvisor/" in frame.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else str(error)[:60]
    return f"{type(error).__name__} in {where}"
