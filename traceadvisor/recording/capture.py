"""The two ways to capture: run a script, or mark a block of a program."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import sysconfig
import traceback
from collections.abc import Callable
from contextlib import suppress
from os import getpid  # the script may replace that of the module
from pathlib import Path
from types import TracebackType
from typing import Self

from traceadvisor.bundle.layout import Ending
from traceadvisor.errors import named
from traceadvisor.frozen import frozen
from traceadvisor.recording.children.plan import exported, new_plan, withdraw
from traceadvisor.recording.children.rendezvous import Rendezvous, TrainedChildren
from traceadvisor.recording.notices import ending_lines, kept_line, say
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.output_folder import OutputFolder
from traceadvisor.recording.repository import repository_of
from traceadvisor.recording.requests import hold
from traceadvisor.recording.script.launch import Launch
from traceadvisor.recording.script.own_code import strip_own_frames
from traceadvisor.recording.script.program import Script
from traceadvisor.recording.script.termination import TerminationGuard
from traceadvisor.recording.session import Captured, CaptureSession
from traceadvisor.recording.stopping import StoppedAfterWindow

SIGINT_CODE = 130

_BLOCKS = itertools.count()
"""Numbers the captured blocks of this process; each is a run of its own."""


@frozen
class Ended:
    """The end of a script or block."""

    ending: Ending
    status: str | int | None
    """The argument of ``sys.exit`` with the same effect."""

    message: str | None = None

    @classmethod
    def of(cls, error: BaseException | None) -> Ended:
        """The ending by an exception, or without one."""
        match error:
            case None:
                return cls(Ending.COMPLETED, None)
            case SystemExit(code=code):
                return cls(Ending.COMPLETED if code in (None, 0) else Ending.EXIT, code)
            case KeyboardInterrupt():
                return cls(Ending.INTERRUPTED, SIGINT_CODE)
            case _:
                return cls(Ending.EXCEPTION, 1, named(error))

    @property
    def exit_code(self) -> int:
        """The exit code of the process."""
        if self.status is None:
            return 0
        return self.status if isinstance(self.status, int) else 1

    @property
    def is_interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.ending is Ending.INTERRUPTED


def capture_script(script: Script, options: CaptureOptions) -> tuple[Ended, Captured, Launch, TrainedChildren]:
    """Run a script and write a bundle; the script's exception has been printed as ``python`` does.

    If not the script itself but child processes of it train, they are captured.

    Raises:
        UsageError: there is no such script, the folder holds another capture, or cannot be written to. Nothing was run.
    """
    launch = Launch.of_this_process()
    run = script.prepare()
    output = OutputFolder.prepared(launch, options.folder, script.name)
    repository = repository_of(script.folder)
    plan = new_plan(options, script.command, launch, output.path, repository)
    session = CaptureSession(options, launch, script.command, output.path, plan=plan, repository=repository)
    session.start()
    withdraw()  # the plan of a capture around this one
    os.environ.update(exported(plan, os.environ))
    rendezvous = Rendezvous(Path(plan.rendezvous))
    rendezvous.make()
    if options.on_demand:
        hold(rendezvous.place)
    guard = TerminationGuard(lambda number: _terminated(session, rendezvous, launch, number))
    guard.install()
    process = getpid()
    ended = Ended.of(_raised_by(run))
    if getpid() != process:  # a child that the script forked: it has no part in the capture
        raise SystemExit(ended.status)
    captured = session.finish(ended.ending, ended.exit_code, ended.message)
    children = TrainedChildren((), (), ())
    with suppress(Exception):  # the script may have replaced what this needs, or used up all files
        guard.remove()
        children = rendezvous.end()
        output.remove_if_empty()
    return ended, captured, launch, children


def _terminated(session: CaptureSession, rendezvous: Rendezvous, launch: Launch, number: int) -> None:
    """A signal ends the script: save what was recorded, and say what that is."""
    captured = session.finish(Ending.TERMINATED, 128 + number)
    children = rendezvous.end()
    if launch.local_rank:
        return
    name = signal.Signals(number).name
    for line in ending_lines(children):
        say(f"ended by {name}; {line}")
    if captured.problem:
        say(f"ended by {name}; no recording could be written: {captured.problem}.")
    elif captured.steps or not (children.results or children.killed):
        say(f"ended by {name}; {kept_line(captured.steps, captured.recorded_steps, captured.folder)}")


def _raised_by(run: Callable[[], None]) -> BaseException | None:
    """Run the script; returns what ended it, printed as the interpreter does, through the script's own hook if set."""
    raised: BaseException | None = None
    try:
        run()
    except BaseException as error:  # noqa: BLE001  # any exception ends the script
        raised = error
    if raised is None or isinstance(raised, SystemExit):
        return raised
    strip_own_frames(raised)
    if not hasattr(sys, "excepthook"):
        _print("sys.excepthook is missing\n", raised)
        return raised
    failed: BaseException | None = None
    try:
        sys.excepthook(type(raised), raised, raised.__traceback__)
    except BaseException as error:  # noqa: BLE001  # a hook of the script may raise anything
        failed = error
    if isinstance(failed, SystemExit):
        return failed
    if failed is not None:
        strip_own_frames(failed)
        _print("Error in sys.excepthook:\n", failed)
        _print("\nOriginal exception was:\n", raised)
    return raised


def _print(title: str, error: BaseException) -> None:
    with suppress(Exception):  # standard error may be closed
        sys.stderr.write(f"{title}{''.join(traceback.format_exception(error))}")


def _is_installed(program: Path) -> bool:
    """Whether the user's code is not where the program is, such as pytest or a notebook's kernel."""
    places = (sysconfig.get_path(name) for name in ("scripts", "purelib", "platlib"))
    return any(program.absolute().is_relative_to(place) for place in places)


class Capture:
    """A context manager that records the training inside it.

    Loaders and optimizers mark the steps, as on the command line. After the first call of :meth:`step`, each call
    ends a step.
    """

    def __init__(self, options: CaptureOptions) -> None:
        self._options = options
        self._session: CaptureSession | None = None
        self.captured: Captured | None = None
        """The result; None until the block has ended."""

    def __enter__(self) -> Self:
        """Start to capture; raises UsageError if the folder holds another capture or cannot be written to."""
        script = Script(sys.argv[0] or "python", tuple(sys.argv[1:]))
        launch = Launch.of_this_process().of_block(next(_BLOCKS))
        output = OutputFolder.prepared(launch, self._options.folder, script.name)
        repository = repository_of(Path.cwd() if _is_installed(Path(script.target)) else script.folder)
        session = CaptureSession(self._options, launch, script.command, output.path, repository=repository)
        session.start()
        self._session = session
        return self

    def step(self) -> None:
        """Mark the end of a training step, where the next begins."""
        if self._session:
            self._session.step()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Write the bundle; an exception of the block propagates, except the end after the window."""
        session, self._session = self._session, None
        if session:
            ended = Ended.of(error)
            self.captured = session.finish(ended.ending, ended.exit_code, ended.message)
        return session is not None and isinstance(error, StoppedAfterWindow)
