"""The parts, in order of worth, and how one is run within its limits."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType

from benchmarks.gpu.budget import Budget, OutOfTimeError
from benchmarks.gpu.checks import FAIL
from benchmarks.gpu.machine import described, device_name
from benchmarks.gpu.outbox import Outbox
from benchmarks.gpu.part import Part, scratch_folder

MOST_MINUTES = 8.0
_KEPT_S = 15.0
"""Left of a part's time to write what it has."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A part of the kit."""

    title: str
    module: str
    function: str
    minutes: float
    """What it may take unless it is told otherwise."""

    least_minutes: float = 0.0
    """What it needs at least where several parts share a total."""


PARTS = {
    "smoke": Entry("1. A capture against clocks, counters and nvidia-smi; overhead", "smoke", "run", 4.5),
    "sweep": Entry("2. Sweep and try against alternation by the kit", "sweeps", "whole", 5.0, 4.0),
    "trouble": Entry("3. Failing devices, other profilers and graphs while recording", "trouble", "run", 4.5, 3.0),
    "capture": Entry("4. What captures promise of any run; light and full recordings", "capturing", "run", 7.0, 3.5),
    "figures": Entry("5. Costs and counters that only a device has", "figures", "run", 3.0),
    "switches": Entry("6. Single settings of sweep: what each needs a device for", "sweeps", "switches", 8.0),
    "faults": Entry("7. The demo's faults: predicted and measured", "faults", "run", 6.0),
    "memory": Entry("8. Memory of larger batches: predicted and measured", "memory", "run", 3.5),
    "pictures": Entry("9a. ResNet on JPEGs under several settings", "levers", "pictures", 6.0),
    "text": Entry("9b. Small GPT under several settings", "levers", "text", 3.5),
    "exhausted": Entry("11. Memory that runs out; classes of memory; cost of the history", "exhausted", "run", 3.0),
    "special": Entry("10. Graphs, streams, shared devices, ranks, waits", "special", "run", 4.5),
    "trainings": Entry("12. Trainings as they are and fixed, by their own clock", "trainings", "run", 6.0, 2.0),
}


def shared_minutes(names: Iterable[str], total: float) -> dict[str, float]:
    """The minutes of each part if they share a total: in proportion to its own, with what it needs at least."""
    entries = {name: PARTS[name] for name in names}
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        fits = sum(map(partial(_minutes, factor=middle), entries.values())) <= total
        low, high = (middle, high) if fits else (low, middle)
    return {name: round(_minutes(entry, high), 2) for name, entry in entries.items()}


def _minutes(entry: Entry, factor: float) -> float:
    return max(entry.least_minutes, factor * entry.minutes, 0.5)


def run_part(name: str, folder: Path, *, reduced: bool, minutes: float | None = None) -> bool:
    """Run one part and write its files into the folder; returns whether it came to its end.

    It is stopped before 8 minutes are over, with what it has.
    """
    entry = PARTS[name]
    seconds = 60 * min(minutes or entry.minutes, MOST_MINUTES) - _KEPT_S
    facts = {**described(reduced=reduced), "started": datetime.now(UTC).isoformat(timespec="seconds")}
    outbox = Outbox(folder, name, facts)
    budget = Budget(seconds)
    status, error = "complete", None
    try:
        with _stopped_after(seconds), scratch_folder() as scratch:
            part = Part(outbox, budget, device_name(reduced=reduced), reduced, Path(scratch))
            function: Callable[[Part], None] = getattr(import_module(f"benchmarks.gpu.{entry.module}"), entry.function)
            function(part)
        if part.failures:
            status, error = "partial", "; ".join(part.failures)
    except OutOfTimeError:
        status, error = "partial", f"stopped after {budget.spent_s:.0f} s"
    except Exception as failure:  # noqa: BLE001  # whatever it is, what was learned is written
        status, error = "failed", f"{type(failure).__name__}: {failure}"
        outbox.put("traceback", traceback.format_exc())
    outbox.put("took_s", round(budget.spent_s, 1))
    outbox.say(f"{status} after {budget.spent_s:.0f} s{f': {error}' if error else ''}")
    outbox.finish(status, error)
    has_failed = any(row["outcome"] == FAIL for row in outbox.document.get("checks", ()))
    return status == "complete" and not has_failed


@contextmanager
def _stopped_after(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError inside the block once the time is over."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise OutOfTimeError(number, frame)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1.0))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
