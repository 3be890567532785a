"""Lets a process save its recording before SIGTERM ends it. Launchers send SIGTERM to all ranks when one has died.

Python runs signal handlers between two bytecode instructions, and a thread that waits in a collective never gets there.
So a second thread waits for the signal, too, and acts if the main thread does not.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

PATIENCE_S = 5.0
"""Time for the main thread before the second thread acts; torchrun kills after 30 seconds."""


class TerminationGuard:
    """Calls a function once on SIGTERM, then ends the process by that signal."""

    def __init__(self, save: Callable[[], None]) -> None:
        self._save = save
        self._owner = os.getpid()
        self._taken = threading.Lock()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def install(self) -> None:
        """Handle the signal if its handler is the default; call it in the main thread."""
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        signal.signal(signal.SIGTERM, self._handle)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=self._forked)
        threading.Thread(target=self._wait_for_signal, name="traceadvisor-sigterm", daemon=True).start()

    def remove(self) -> None:
        """Restore the default handler, unless the script has set its own."""
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  # signal's signature
        if os.getpid() != self._owner or self._save_once():
            end_by(signal.SIGTERM)

    def _wait_for_signal(self) -> None:
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
        """A child has the default handler, and does not write to this process's pipe."""
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)


def end_by(number: signal.Signals) -> None:
    """End this process by the default action of a signal, so that its parent sees the signal."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(number, signal.SIG_DFL)
    else:  # Python sets handlers only in the main thread
        ctypes.CDLL(None).signal(int(number), None)
    os.kill(os.getpid(), number)
