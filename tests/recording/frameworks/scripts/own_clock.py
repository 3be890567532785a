"""The script's own clock: when each training step certainly ran, by the script's own reads of the clock."""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from pathlib import Path

PAUSES_S = (0.001, 0.012, 0.004, 0.02, 0.002, 0.016, 0.007)
"""Uneven, so that a step that is attributed to its neighbour has a wrong time."""


def clock_of_script() -> OwnClock:
    """A clock that is written when this process ends."""
    clock, owner = OwnClock(), os.getpid()
    atexit.register(lambda: clock.write() if os.getpid() == owner else None)
    return clock


def say(*words: object) -> None:
    """Print a line in one piece: those of several processes never mix."""
    sys.stdout.write(" ".join(str(word) for word in words) + "\n")
    sys.stdout.flush()


class OwnClock:
    """Reads the clocks at two points of each step, and at the beginning and the end of the script."""

    def __init__(self) -> None:
        self._marks: list[list[int]] = []
        self._made = self._now()

    def begin(self) -> None:
        """The step is under way: it has its batch."""
        self._marks.append([*self._now(), 0, 0])

    def end(self) -> None:
        """The step is not over yet: no other batch was taken."""
        self._marks[-1][2:] = self._now()

    def pause(self) -> None:
        """Work that takes another time in each step."""
        time.sleep(PAUSES_S[len(self._marks) % len(PAUSES_S)])

    def write(self) -> None:
        """Write ``own.<rank>.json`` in the working directory."""
        document = {"made": self._made, "marks": self._marks, "written": self._now()}
        Path(f"own.{_rank()}.json").write_text(json.dumps(document), encoding="ascii")

    @staticmethod
    def _now() -> list[int]:
        return [time.perf_counter_ns(), time.time_ns()]


def _rank() -> str:
    names = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "LOCAL_RANK")
    return next((os.environ[name] for name in names if name in os.environ), "0")
