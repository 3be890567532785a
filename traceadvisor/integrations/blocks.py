"""A captured block whose begin and end are calls of a framework."""

from __future__ import annotations

import atexit
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceadvisor import api

if TYPE_CHECKING:
    from traceadvisor.recording.capture import Capture
    from traceadvisor.recording.session import Captured


class Block:
    """Begins at most one capture at a time."""

    def __init__(self, folder: Path | str | None, options: dict[str, Any]) -> None:
        self._folder, self._options = folder, options
        self._running: Capture | None = None
        self.captured: Captured | None = None
        """The result; None until the block has ended."""

    def begin(self) -> None:
        """Begin to capture; raises UsageError if the folder holds another capture or cannot be written to.

        A framework that does not tell of an exception leaves the end to the end of the process.
        """
        if self._running is None:
            self._running = api.capture(self._folder, **self._options).__enter__()
            atexit.register(self._end_with_process)

    def end(self, error: BaseException | None = None) -> None:
        """Write the capture; no-op if none runs."""
        running, self._running = self._running, None
        if running:
            running.__exit__(type(error) if error else None, error, None)
            self.captured = running.captured
            atexit.unregister(self._end_with_process)

    def _end_with_process(self) -> None:
        self.end(getattr(sys, "last_value", None))  # the exception that ended the program
