"""Work for the workers of a Dask cluster."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Tell = Callable[[int], None]


def squared(item: int, tell: Tell) -> int:
    tell(item)
    return item * item


def processes(_item: int, _tell: Tell) -> tuple[int, int]:
    """The process of the worker, and the one that works for it."""
    time.sleep(0.2)
    return os.getppid(), os.getpid()


@dataclass(frozen=True)
class KillsWorker:
    """Squares numbers; at the first, it kills the worker that does this, up to a number of times."""

    marks: Path
    times: int

    def __call__(self, item: int, tell: Tell) -> int:
        killed = len(list(self.marks.iterdir()))
        if item == 0 and killed < self.times:
            (self.marks / str(killed)).touch()
            os.kill(os.getppid(), signal.SIGKILL)
            while True:  # until nobody listens
                tell(1)
                time.sleep(0.05)
        return item * item
