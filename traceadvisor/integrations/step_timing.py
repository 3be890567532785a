"""Times a step in this process, in turn with work that only the machine makes slower or faster."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from math import ceil
from pathlib import Path
from statistics import median

import msgspec

from traceadvisor.system.cores import usable_cores

Work = Callable[[], object]

FEWEST_CALLS, WARM_UP_S = 3, 0.5
"""Calls before the first that counts: they compile, load and allocate."""

BLOCK_S = 0.02
"""Shortest block of steps; the device is waited for once a block, as in training."""

FEWEST_BLOCKS, MEASURED_S = 5, 1.0
"""Blocks of a process, and how long it measures at least."""

_MATRIX = 256


class Machine(msgspec.Struct, frozen=True):
    """Things beside the code that a step time depends on."""

    cpu: str
    cores: int
    accelerator: str | None = None


class Timing(msgspec.Struct, frozen=True):
    """Nanoseconds of one process, medians over its blocks."""

    step_ns: float
    reference_ns: float
    """Time of work that is the same on both sides of a comparison."""


def time_step(step: Work) -> Timing:
    """Time a step in blocks, each followed by the reference work."""
    begin, calls = time.monotonic(), 0
    while calls < FEWEST_CALLS or time.monotonic() - begin < WARM_UP_S:
        step()
        calls += 1
    reference = _reference()
    _timed_ns(reference, 1)
    repeated = ceil(BLOCK_S * 1e9 / max(_timed_ns(step, 1), 1))
    steps: list[float] = []
    references: list[float] = []
    begin = time.monotonic()
    while len(steps) < FEWEST_BLOCKS or time.monotonic() - begin < MEASURED_S:
        steps.append(_timed_ns(step, repeated))
        references.append(_timed_ns(reference, 1))
    return Timing(median(steps), median(references))


def this_machine() -> Machine:
    """The machine of this process."""
    torch = sys.modules.get("torch")
    accelerator = torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None
    return Machine(_cpu(), usable_cores(), accelerator)


def _cpu() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            names = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
            return next(names, platform.machine())
    except OSError:
        return platform.processor() or platform.machine()


def _timed_ns(work: Work, times: int) -> float:
    """Mean time of some calls, with what they launched on the device."""
    _wait_for_device()
    begin = time.perf_counter_ns()
    for _ in range(times):
        work()
    _wait_for_device()
    return (time.perf_counter_ns() - begin) / times


def _wait_for_device() -> None:
    if (torch := sys.modules.get("torch")) and torch.accelerator.is_available():
        torch.accelerator.synchronize()


def _reference() -> Work:
    """A few milliseconds of Python; where torch is loaded, also of matrix products on each kind of device."""
    matrices = []
    if torch := sys.modules.get("torch"):
        devices = ["cpu", *([torch.accelerator.current_accelerator()] if torch.accelerator.is_available() else [])]
        matrices = [torch.ones(_MATRIX, _MATRIX, device=device) for device in devices]

    def work() -> None:
        sum(number * number for number in range(30_000))
        for matrix in matrices:
            for _ in range(8):
                matrix @ matrix

    return work
