"""Captures a script that runs in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from traceadvisor.bundle.layout import Ending
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.script.launch import Launch
from traceadvisor.recording.script.own_code import strip_own_frames
from traceadvisor.recording.script.program import Script
from traceadvisor.recording.script.termination import TerminationGuard
from traceadvisor.recording.script.torch_import import after_torch_import
from traceadvisor.recording.session import Captured, CaptureSession

SIGINT_CODE = 130
SIGTERM_CODE = 143


@dataclass(frozen=True, slots=True)
class Ended:
    """How the script ended."""

    ending: Ending
    status: str | int | None
    """What to hand to ``sys.exit`` for the same effect."""

    message: str | None = None

    @property
    def exit_code(self) -> int:
        """What the process is going to return."""
        if self.status is None:
            return 0
        return self.status if isinstance(self.status, int) else 1

    @property
    def is_interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.ending is Ending.INTERRUPTED


def capture_script(script: Script, options: CaptureOptions) -> tuple[Ended, Captured, Launch]:
    """Run a script and write a bundle; what the script raised has been printed as ``python`` would.

    Raises:
        UsageError: there is no such script, or the folder holds another capture. Nothing was run.
    """
    launch = Launch.of_this_process()
    session = CaptureSession(options, launch, script.command, script.name)
    run = script.prepare()
    session.start()
    guard = TerminationGuard(lambda: _terminated(session))
    guard.install()
    after_torch_import(session.attach)
    process = os.getpid()
    ended = _ended(run)
    if os.getpid() != process:  # a child that the script forked, at its end: it has no part in the capture
        raise SystemExit(ended.status)
    captured = session.finish(ended.ending, ended.exit_code, ended.message)
    guard.remove()
    return ended, captured, launch


def _terminated(session: CaptureSession) -> None:
    session.finish(Ending.TERMINATED, SIGTERM_CODE)


def _ended(run: Callable[[], None]) -> Ended:
    try:
        run()
    except SystemExit as leaving:
        code = leaving.code
        return Ended(Ending.COMPLETED if code in (None, 0) else Ending.EXIT, code)
    except KeyboardInterrupt as error:
        _print(error)
        return Ended(Ending.INTERRUPTED, SIGINT_CODE)
    except BaseException as error:  # noqa: BLE001  # what ends a script ends it here
        _print(error)
        return Ended(Ending.EXCEPTION, 1, f"{type(error).__name__}: {error}"[:2000])
    return Ended(Ending.COMPLETED, None)


def _print(error: BaseException) -> None:
    """As the interpreter does, through the script's own hook where it has set one."""
    strip_own_frames(error)
    sys.excepthook(type(error), error, error.__traceback__)
