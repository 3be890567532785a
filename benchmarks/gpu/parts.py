"""The parts, in order of worth, and how one is run within its limits."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import FrameType

from benchmarks.gpu.budget import Budget
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

    is_shortened: bool = True
    """Whether it takes less time where several parts share a total."""


PARTS = {
    "smoke": Entry("1. A capture against clocks, counters and nvidia-smi; overhead", "smoke", "run", 4.5),
    "capture": Entry(
        "6. What captures promise of any run; light and full recordings", "capturing", "run", 7.0, is_shortened=False
    ),
    "faults": Entry("2. The demo's faults: predicted and measured", "faults", "run", 6.0),
    "pictures": Entry("4a. ResNet on JPEGs under several settings", "levers", "pictures", 6.0),
    "text": Entry("4b. Small GPT under several settings", "levers", "text", 3.5),
    "memory": Entry("3. Memory of larger batches: predicted and measured", "memory", "run", 3.5),
    "special": Entry("5. Graphs, streams, shared devices, ranks, waits", "special", "run", 4.5),
}


def shared_minutes(names: Iterable[str], total: float) -> dict[str, float]:
    """The minutes of each part if they share a total: in proportion to its own, and never more than that."""
    own = {name: PARTS[name].minutes for name in names}
    fixed = sum(minutes for name, minutes in own.items() if not PARTS[name].is_shortened)
    shortened = sum(own.values()) - fixed
    factor = min(1.0, max(0.1, (total - fixed) / shortened)) if shortened else 1.0
    return {name: round(minutes * (factor if PARTS[name].is_shortened else 1.0), 2) for name, minutes in own.items()}


class OutOfTimeError(BaseException):
    """The part's time is over; nothing that handles failures on the way may stop it."""


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
    return status == "complete"


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
