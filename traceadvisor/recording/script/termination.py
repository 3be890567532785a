"""Lets a process save before SIGTERM ends it, as launchers send it to the ranks that are left when one has died.

Python runs signal handlers between two of its instructions, which a thread that waits within a collective never
reaches. So a thread of its own waits for the signal, too, and acts when the main thread does not.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

PATIENCE_S = 5.0
"""How long the main thread has before the other acts; torchrun gives 30 seconds in all."""


class TerminationGuard:
    """Calls a function once when SIGTERM arrives, then ends the process by that signal."""

    def __init__(self, save: Callable[[], None]) -> None:
        self._save = save
        self._owner = os.getpid()
        self._taken = threading.Lock()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def install(self) -> None:
        """Takes effect in the main thread, and only where the signal has its default meaning."""
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        signal.signal(signal.SIGTERM, self._handle)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=self._forked)
        threading.Thread(target=self._watch, name="traceadvisor-sigterm", daemon=True).start()

    def remove(self) -> None:
        """Gives the signal its default meaning again, unless the script has given it another."""
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  # signal's signature
        if os.getpid() != self._owner or self._save_once():
            end_by(signal.SIGTERM)

    def _watch(self) -> None:
        while received := os.read(self._reader, 1):
            if received[0] == signal.SIGTERM:
                break
        threading.Event().wait(PATIENCE_S)
        if self._save_once():
            end_by(signal.SIGTERM)

    def _save_once(self) -> bool:
        if not self._taken.acquire(blocking=False):
            return False
        self._save()
        return True

    def _forked(self) -> None:
        """Children end by the signal as they would without us, and keep out of this process's pipe."""
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)


def end_by(number: signal.Signals) -> None:
    """End this process by a signal with its default meaning, so that whoever waits for it sees which."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(number, signal.SIG_DFL)
    else:  # where Python refuses, the C library does not
        ctypes.CDLL(None).signal(int(number), None)
    os.kill(os.getpid(), number)
