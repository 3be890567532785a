"""Stands between what happens in the script and the tracker: one thread, no nesting, and never an error of ours."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch

from traceadvisor.recording.loop.tracker import LoopTracker


class Loaders(Protocol):
    """Tells loaders apart; see :mod:`traceadvisor.recording.loop.loaders`."""

    def of(self, iterator: object) -> Any:
        """The loader behind an iterator."""

    def start_ns(self, iterator: object) -> int:
        """How long beginning its loop took; 0 after its first batch."""


class LoopWatch:
    """What the hooks call. After an error, or in a forked worker, it no longer listens."""

    def __init__(
        self,
        tracker: LoopTracker,
        loaders: Loaders,
        *,
        thread: int,
        stepped: Callable[[Any], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._tracker = tracker
        self._loaders = loaders
        self._stepped = stepped
        """Told of each optimizer that steps."""
        self._failed = failed
        self._thread = thread
        self._depth = 0
        """Fetches and optimizer steps within one another: only the outermost counts."""
        self.active = True

    def enter(self) -> bool:
        """Something begins that may count; must be paired with :meth:`leave` where the answer is yes."""
        if not self.active or threading.get_ident() != self._thread:
            return False
        self._depth += 1
        return True

    def leave(self) -> bool:
        """It has ended; whether it was the outermost."""
        self._depth -= 1
        return self._depth == 0

    def fetch_begins(self, iterator: object) -> None:
        """A batch is asked for."""
        if self._depth == 1:
            try:
                start_ns = self._loaders.start_ns(iterator)
                self._tracker.fetch_begins(
                    self._loaders.of(iterator), grad=torch.is_grad_enabled(), loader_start_ns=start_ns
                )
            except Exception as error:  # noqa: BLE001  # whatever it is, the script goes on
                self._fail(error)

    def fetch_ended(self, iterator: object, *, got_batch: bool) -> None:
        """A batch was given, or not."""
        if self.leave() and self.active:
            try:
                self._tracker.fetch_ended(self._loaders.of(iterator), got_batch=got_batch)
            except Exception as error:  # noqa: BLE001  # as above
                self._fail(error)

    def optimizer_stepped(self, optimizer: object) -> None:
        """An optimizer's step, or a gradient scaler's, has returned, its annotation closed."""
        if self.leave() and self.active:
            try:
                self._stepped(optimizer)
                self._tracker.optimizer_stepped(id(optimizer))
            except Exception as error:  # noqa: BLE001  # as above
                self._fail(error)

    def step(self) -> None:
        """The script says that a step ended."""
        if self.active and threading.get_ident() == self._thread:
            try:
                self._tracker.step()
            except Exception as error:  # noqa: BLE001  # as above
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.active = False
        self._failed(error)
