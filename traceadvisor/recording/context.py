"""A capture around part of a program, for those who would rather say it in code."""

from __future__ import annotations

import itertools
import sys
from types import TracebackType
from typing import Self

from traceadvisor.bundle.layout import Ending
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.script.launch import Launch
from traceadvisor.recording.script.program import Script
from traceadvisor.recording.script.torch_import import after_torch_import
from traceadvisor.recording.session import Captured, CaptureSession

_BLOCKS = itertools.count()
"""Of this process; each is a run of its own."""


class Capture:
    """A context manager: what trains inside is recorded.

    Steps are told as on the command line, by loaders and optimizers, until :meth:`step` is called for the first time;
    from then on they end where it is called.
    """

    def __init__(self, options: CaptureOptions) -> None:
        self._options = options
        self._session: CaptureSession | None = None
        self.captured: Captured | None = None
        """What came of it; None until the block has ended."""

    def __enter__(self) -> Self:
        """Begin; raises UsageError where the folder holds another capture."""
        script = Script(sys.argv[0] or "python", tuple(sys.argv[1:]))
        launch = Launch.of_this_process().of_block(next(_BLOCKS))
        session = CaptureSession(self._options, launch, script.command, script.name)
        session.start()
        after_torch_import(session.attach)
        self._session = session
        return self

    def step(self) -> None:
        """A training step has ended and the next begins."""
        if self._session:
            self._session.step()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Write the bundle; what the block raised goes on its way."""
        session, self._session = self._session, None
        if session is None:
            return
        match error:
            case None:
                self.captured = session.finish(Ending.COMPLETED, 0)
            case KeyboardInterrupt():
                self.captured = session.finish(Ending.INTERRUPTED, 130)
            case SystemExit():
                self.captured = session.finish(Ending.EXIT, error.code if isinstance(error.code, int) else 1)
            case _:
                self.captured = session.finish(Ending.EXCEPTION, 1, f"{type(error).__name__}: {error}"[:2000])
