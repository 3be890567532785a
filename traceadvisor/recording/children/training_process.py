"""Captures this process if it trains. Launchers, loader workers and helpers stay as they are.

A process that creates an optimizer, runs a backward pass or marks a step may train: from then on its loop is followed.
Its first training step decides: only then it joins the bundle of its job, and it leaves no file otherwise.
"""

from __future__ import annotations

import atexit
import functools
import multiprocessing.util
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from traceadvisor.bundle.layout import Ending
from traceadvisor.recording.after_import import BACKWARD, own_imports
from traceadvisor.recording.capture import Ended
from traceadvisor.recording.children.plan import VARIABLE, Plan, plan_of
from traceadvisor.recording.children.rendezvous import Rendezvous
from traceadvisor.recording.loop.own_profiles import own_profiles
from traceadvisor.recording.marking import MARKS
from traceadvisor.recording.script.launch import Launch
from traceadvisor.recording.script.own_code import unseen
from traceadvisor.recording.script.termination import TerminationGuard
from traceadvisor.recording.session import CaptureSession


def follow(given: Plan | str | None) -> None:
    """Wait until this process creates an optimizer, runs a backward pass or marks a step; torch is imported.

    ``given``: what the processes of the command share, also as text.
    """
    plan = plan_of({VARIABLE: given}) if isinstance(given, str) else given
    if plan is None:
        return
    own_profiles.watch()
    import torch  # noqa: PLC0415  # only in a process that imports torch

    from traceadvisor.recording.loop import makers  # noqa: PLC0415  # it imports torch

    makers.watch()
    optimizer, autograd = torch.optim.Optimizer, torch.autograd
    create, run_backward = optimizer.__init__, getattr(autograd, BACKWARD)

    def capture() -> None:
        MARKS.begin = None
        optimizer.__init__ = create  # type: ignore[method-assign]
        setattr(autograd, BACKWARD, run_backward)
        if plan_of() == plan:
            with suppress(Exception), own_imports():  # the program goes on after any error
                TrainingProcess(plan)

    @functools.wraps(create)
    @unseen
    def create_and_capture(self: Any, *args: Any, **kwargs: Any) -> None:
        capture()
        create(self, *args, **kwargs)

    @functools.wraps(run_backward)
    @unseen
    def capture_and_run(*args: Any, **kwargs: Any) -> Any:
        capture()
        return getattr(autograd, BACKWARD)(*args, **kwargs)

    MARKS.begin = capture
    optimizer.__init__ = create_and_capture  # type: ignore[method-assign]
    setattr(autograd, BACKWARD, capture_and_run)


class TrainingProcess:
    """The capture of this process, until the process ends."""

    def __init__(self, plan: Plan) -> None:
        launch = replace(Launch.of_this_process(), started_ns=plan.started_ns)
        folder = Path(plan.folder) if launch.restart == plan.restart else launch.restarted(Path(plan.folder))
        self._plan = plan
        self._session = CaptureSession(
            plan.options, launch, plan.command, folder, plan=plan, repository=plan.repository
        )
        self._session.start_in_child()
        self._raised: BaseException | None = None
        self._print = sys.excepthook
        sys.excepthook = self._note
        if threading.current_thread() is threading.main_thread():
            TerminationGuard(self._terminated).install()
        atexit.register(self._exit)
        multiprocessing.util.Finalize(None, self._exit, exitpriority=0)  # a forked child ends without atexit

    def _note(self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        """Note the exception that ends the program."""
        self._raised = error
        self._print(kind, error, traceback)

    def _terminated(self, number: int) -> None:
        self._end(Ending.TERMINATED, 128 + number)

    def _exit(self) -> None:
        ended = Ended.of(self._raised or sys.exc_info()[1])
        self._end(ended.ending, ended.exit_code, ended.message)

    def _end(self, ending: Ending, exit_code: int, message: str | None = None) -> None:
        with suppress(Exception):  # the program ends as it would without a capture
            self._session.finish(ending, exit_code, message)
            if self._plan.is_attached:
                Rendezvous(Path(self._plan.rendezvous)).remove()
