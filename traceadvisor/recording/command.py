"""Runs any command, such as a launcher, and captures the Python processes of it that train."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn, Self

from traceadvisor.errors import UsageError
from traceadvisor.recording.children.plan import exported, new_plan
from traceadvisor.recording.children.rendezvous import Rendezvous, TrainedChildren
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.output_folder import OutputFolder
from traceadvisor.recording.repository import repository_of
from traceadvisor.recording.requests import hold
from traceadvisor.recording.script.launch import Launch
from traceadvisor.recording.script.program import Script

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

_GROUP_PATIENCE_S = 0.5
"""How long to wait for the witness: ``timeout`` sends a signal to this process first, then to the whole group."""

_LOOK_S = 60.0
"""How often to look for the end of the command, should SIGCHLD be lost."""


def is_command(words: Sequence[str]) -> bool:
    """Whether words are a command of the system, not a Python script: a program on PATH or an executable file."""
    first = words[0]
    if first.endswith((".py", ".pyz")) or Path(first).is_dir():
        return False
    return shutil.which(first) is not None or not Path(first).exists()


def capture_command(words: tuple[str, ...], options: CaptureOptions) -> tuple[int, TrainedChildren]:
    """Run a command to its end. It gets the terminal, signals and the environment, with the plan added.

    Returns:
        Its exit code, negative for the number of the signal that ended it, and what its training processes recorded.

    Raises:
        UsageError: there is no such command, the folder holds another capture, or cannot be written to. Nothing was
            run.
    """
    launch = Launch.of_this_process()
    if launch.world_size == 1:
        launch = replace(launch, started_ns=time.time_ns() // 10_000_000 * 10_000_000)
    if shutil.which(words[0]) is None:
        _refuse(words[0], None)
    script = next((word for word in words if word.endswith(".py")), words[0])
    output = OutputFolder.prepared(launch, options.folder, Path(script).stem)
    plan = new_plan(options, words, launch, output.path, repository_of(Script(script).folder))
    rendezvous = Rendezvous(Path(plan.rendezvous))
    rendezvous.make()
    if options.on_demand:
        hold(rendezvous.place)
    try:
        with SignalsForwarded() as signals:
            try:
                child = subprocess.Popen(  # noqa: S603  # the user asked for it
                    words,
                    env=os.environ | exported(plan, os.environ),
                    close_fds=False,  # it inherits what a shell would give it
                    preexec_fn=signals.restore,  # noqa: PLW1509  # this process has one thread
                )
            except OSError as error:
                _refuse(words[0], error)
            code = signals.wait(child)
        rendezvous.exited(child.pid, code)
        return code, rendezvous.end()
    finally:
        rendezvous.remove()
        output.remove_if_empty()


def _refuse(name: str, error: OSError | None) -> NoReturn:
    missing = error is None or isinstance(error, FileNotFoundError)
    reason = "no such file or command" if error is None or missing else error.strerror
    raise UsageError(f"Cannot run {name}: {reason}.") from error


class SignalsForwarded:
    """Holds signals back from the start of a command on, and passes them on while it waits for the command.

    None is lost in between: they stay pending until this process asks for them. The command has a signal to the whole
    group already, such as Ctrl-C in a terminal. A witness in the group tells which signals those are.
    """

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        """Signals before the command ran, which another thread of this process got: only this one holds them back."""

    def __enter__(self) -> Self:
        """Hold the signals back."""
        self._heard = {number for number in _FORWARDED if signal.getsignal(number) is not signal.SIG_IGN}  # as in nohup
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, {*self._heard, signal.SIGCHLD})
        self._handlers = {number: signal.signal(number, self._heard_elsewhere) for number in self._heard}
        self._handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it loses exit codes
        self._testimony, self._witness = _witness(self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        """Handle signals as before."""
        os.kill(self._witness, signal.SIGKILL)
        os.waitpid(self._witness, 0)
        os.close(self._testimony)
        while signal.sigtimedwait({*self._heard, signal.SIGCHLD} - self._before, 0):
            pass  # the command has ended: they were for it
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def restore(self) -> None:
        """In the new process: do not hold signals back."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def wait(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for the command and pass signals on; returns its exit code."""
        self._child = child
        for number in self._early:
            child.send_signal(number)
        while (code := child.poll()) is None:
            found = signal.sigtimedwait({*self._heard, signal.SIGCHLD}, _LOOK_S)
            if found and found.si_signo != signal.SIGCHLD and not self._has_group(found.si_signo):
                child.send_signal(found.si_signo)
        return code

    def _has_group(self, number: int) -> bool:
        """Whether a signal that this process got went to the whole group."""
        due_s = time.monotonic() + _GROUP_PATIENCE_S
        while select.select([self._testimony], [], [], max(due_s - time.monotonic(), 0))[0]:
            if number in os.read(self._testimony, 1):
                return True
        return False

    def _heard_elsewhere(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  # signal's signature
        if number == signal.SIGINT:
            return  # it cannot be told from that of a terminal
        if self._child:
            self._child.send_signal(number)
        else:
            self._early.append(number)


def _witness(heard: Collection[int]) -> tuple[int, int]:
    """Fork a process of this group; returns a pipe to which it writes the signals that it gets, and its id."""
    parent, (reader, writer) = os.getpid(), os.pipe()
    pid = os.fork()  # this process has one thread
    if pid:
        os.close(writer)
        return reader, pid
    while os.getppid() == parent:
        if found := signal.sigtimedwait(heard, 1):
            os.write(writer, bytes([found.si_signo]))
    os._exit(0)
