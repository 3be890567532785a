"""How ``traceadvisor record`` asks a running training for a recording, and hears of it.

Both meet in the folder of the command's processes, which only its user can enter. The request with number N is a file
``asked.N`` with the ids of the processes that are asked. The ranks of a job agree on the step from which they record,
as they do on the last step of a run. Each leaves ``begun.N.<host>.<pid>`` then, and ``answered.N.<host>.<pid>`` behind
the recording.

A rank that begins to train later takes part in a request that nobody has answered yet, and in none before it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from traceadvisor.recording.job_store import job_store
from traceadvisor.recording.script.launch import Launch
from traceadvisor.recording.stopping import Ranks
from traceadvisor.system import clocks

PATIENCE_S = 30.0
"""Longest time for which a rank waits for the others: one of them may not train."""

_KEY = "traceadvisor/asked/{restart}/{number}"
_OVER = "/answered"

ATTACHED = "attached"
"""File in the folder of a process that is asked alone, because it was attached to."""

_MOST_APART = 2048
"""Steps by which ranks that exchange gradients may differ where each hears of a request. Others begin at once."""


class Requests:
    """The requests to one process. It asks for them in its training thread, between two steps."""

    def __init__(self, place: Path, launch: Launch, *, is_alone: bool = False) -> None:
        """``is_alone``: do not wait for other ranks, which may know of no request."""
        self._place, self._launch, self._is_alone = place, launch, is_alone
        self._number = 0
        """Number of the latest request."""
        self._answered = 0
        """Number of the latest request with an answer."""
        self._ranks: Ranks | None = None
        """Agree on a step; None if no request waits for that."""
        self._due_s = 0.0
        self._is_here: bool | None = None
        """Whether this node sees the folder; None before the first training step."""

    @property
    def is_pending(self) -> bool:
        """Whether a request waits for the other ranks."""
        return self._ranks is not None

    def is_due(self, steps: int) -> bool:
        """Whether to begin now; ``steps``: training steps so far."""
        if self._is_here is None:
            self._is_here = hold(self._place)
            while self._is_over(self._number + 1):
                self._number = self._answered = self._number + 1
        if self._ranks is None and self._is_asked(self._number + 1):
            while self._is_asked(self._number + 1):
                self._number += 1
            self._ranks = Ranks(key=self._key(self._number) + "/{rank}")
            self._due_s = clocks.monotonic() + PATIENCE_S
        if self._ranks is None:
            return False
        try:
            start = steps if self._is_alone else self._ranks.end(steps)
        except Exception:  # noqa: BLE001  # ranks without torch.distributed: each goes its own way
            start = steps
        if start is None and clocks.monotonic() > self._due_s:
            self._ranks = None
            self.answer()
        if start is None or steps < start <= steps + _MOST_APART:
            return False
        self._ranks = None
        with suppress(OSError):  # the folder is gone: nobody waits
            for number in range(self._answered + 1, self._number + 1):
                (self._place / f"begun.{number}.{self._launch.host}.{os.getpid()}").touch()
        return True

    def answer(self) -> None:
        """The latest request is done, with or without a recording."""
        with suppress(Exception):  # the store is gone: so is the job
            if not self._is_alone and (store := job_store()):
                store.set(self._key(self._number) + _OVER, "")
        with suppress(OSError):  # the folder is gone: nobody waits
            for number in range(self._answered + 1, self._number + 1):
                (self._place / f"answered.{number}.{self._launch.host}.{os.getpid()}").touch()
        self._answered = self._number

    def _is_over(self, number: int) -> bool:
        """Whether another rank has answered a request, in the folder or in the store."""
        if any(self._place.glob(f"answered.{number}.*")):
            return True
        with suppress(Exception):  # as above
            store = None if self._is_alone else job_store()
            return store is not None and bool(store.check([self._key(number) + _OVER]))
        return False

    def _is_asked(self, number: int) -> bool:
        """Whether there is a request with this number: in the folder, or in the store if this node does not see it."""
        if self._is_here and not is_asked(self._place, number):
            return False
        key, store = self._key(number), job_store()
        if not self._is_here:
            return store is not None and bool(store.check([key]))
        if store is not None:
            store.set(key, "")
        return True

    def _key(self, number: int) -> str:
        return _KEY.format(restart=self._launch.restart, number=number)


def hold(place: Path) -> bool:
    """Keep the folder open until this process ends, so that its id leads there; whether the folder is there."""
    with suppress(OSError):
        os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        return True
    return False


def is_asked(place: Path, number: int) -> bool:
    """Whether the user of this process has left the request with this number."""
    try:
        status = os.lstat(f"{place}/asked.{number}")  # asked between steps: a path object takes longer to make
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
