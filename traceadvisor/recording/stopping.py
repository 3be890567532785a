"""Ends the script once its window is saved: at the same step on all ranks, so that none waits for another.

The end is a :class:`SystemExit`, raised in the training thread between two steps: ``finally`` clauses, context
managers and ``atexit`` functions run, and the exit code is 0. Ranks agree on the step through the store of
``torch.distributed``, which all of them already share. Each rank leaves its step there when its windows are saved. When
all have done so, the last of these steps plus :data:`MARGIN_STEPS` is the end.

The margin is safe because each rank waits for its device at every boundary from its own window on. Then no rank is more
than one step ahead of another with which it exchanges gradients.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from traceadvisor.bundle.layout import Note
from traceadvisor.errors import named
from traceadvisor.recording.devices import wait_for_devices
from traceadvisor.recording.script.launch import Launch

if TYPE_CHECKING:
    from traceadvisor.recording.loop.window import Window

MARGIN_STEPS = 3
"""Steps from the last saved window to the end: each rank passes a boundary meanwhile, and sees the end coming."""

MOST_EXITS = 3
"""How often to raise if the script catches it and goes on."""

_KEY = "traceadvisor/saved/{restart}/{rank}"


class StoppedAfterWindow(SystemExit):
    """Ends the script, as requested, with exit code 0."""

    def __init__(self) -> None:
        super().__init__(0)


class Stopper:
    """Raises :class:`StoppedAfterWindow` at a boundary between steps; call it after each event of the loop."""

    def __init__(self, window: Window, ranks: Ranks | None = None, trains: Callable[[], bool] = lambda: True) -> None:
        """``trains``: whether the recorded steps train. Other loops may come before the training, and go on."""
        self._window = window
        self._ranks = ranks or Ranks()
        self._trains = trains
        self._seen = 0
        self._exits = 0
        self._went_on = False
        self._end: int | None = None
        self._problem = ""

    @property
    def stopped(self) -> bool:
        """Whether the script was ended, and made no further step."""
        return self._exits > 0 and not self._went_on

    @property
    def notes(self) -> list[Note]:
        """Why the run went on."""
        if self._exits and self._went_on:
            problem = "the script caught the exit and went on"
        elif self.stopped or not self._window.complete:
            return []
        else:
            ranks = "the other ranks did not save their recordings before the end"
            problem = self._problem or (ranks if self._trains() else "a loop without training may come before one")
        return [Note("not-stopped", f"--stop-after-window did not end the run: {problem}.", degrades=False)]

    def __call__(self) -> None:
        """Raise if a step has ended, all windows are saved, and the end is reached."""
        steps = self._window.training_steps
        if steps == self._seen or not self._window.complete or not self._trains():
            return
        self._seen = steps
        self._went_on = self._exits > 0
        if self._exits < MOST_EXITS and self._is_due(steps):
            self._exits += 1
            self._went_on = False
            raise StoppedAfterWindow

    def _is_due(self, steps: int) -> bool:
        if self._end is None and not self._problem:
            try:
                self._end = self._ranks.end(steps)
            except Exception as error:  # noqa: BLE001  # the script goes on after any error
                self._problem = f"the ranks could not agree on a step: {named(error)}"
        return self._end is not None and steps >= self._end


class Ranks:
    """The ranks of the job, which agree on a step: the last one of the run, or the first one of a recording."""

    def __init__(self, launched_size: int | None = None, key: str | None = None) -> None:
        """Take the number of processes of the launcher, by default from its variables, and the key of the store."""
        launch = Launch.of_this_process()
        self._launched_size = launch.world_size if launched_size is None else launched_size
        self._key = key or _KEY.replace("{restart}", str(launch.restart))
        self._saved = False

    def end(self, steps: int) -> int | None:
        """The number of training steps that all ranks agree on; None as long as it is not known.

        ``steps``: training steps of this rank so far, when it is ready.

        Raises:
            RuntimeError: the ranks cannot communicate.
        """
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            if self._launched_size > 1:
                raise RuntimeError(f"{self._launched_size} processes were launched without torch.distributed")
            return steps
        size = distributed.get_world_size()
        return steps if size == 1 else self._agreed(distributed, size, steps)

    def _agreed(self, distributed: Any, size: int, steps: int) -> int | None:
        store = distributed.distributed_c10d._get_default_store()
        if not self._saved:
            store.set(self._key.format(rank=distributed.get_rank()), str(steps))
            self._saved = True
        wait_for_devices()
        keys = [self._key.format(rank=rank) for rank in range(size)]
        if not store.check(keys):
            return None
        return max(int(store.get(key)) for key in keys) + MARGIN_STEPS
