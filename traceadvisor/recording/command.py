"""Runs any command, such as a launcher, and captures the Python processes of it that train."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from traceadvisor.bundle.layout import MANIFEST
from traceadvisor.errors import UsageError
from traceadvisor.recording.children.plan import exported, new_plan
from traceadvisor.recording.children.rendezvous import Rendezvous, TrainedChildren
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.script.launch import Launch

_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


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
        UsageError: there is no such command, or the folder holds another capture. Nothing was run.
    """
    launch = replace(Launch.of_this_process(), started_ns=time.time_ns() // 10_000_000 * 10_000_000)
    folder = launch.bundle(options.folder, _name(words))
    if (folder / MANIFEST).exists():
        raise UsageError(f"{folder} already holds a capture. Choose another with -o, or remove it.")
    plan = new_plan(options, words, launch.started_ns, folder)
    rendezvous = Rendezvous(Path(plan.rendezvous))
    try:
        try:
            child = subprocess.Popen(words, env=os.environ | exported(plan, os.environ))  # noqa: S603  # the user asked for it
        except OSError as error:
            reason = "no such file or command" if isinstance(error, FileNotFoundError) else error.strerror
            raise UsageError(f"Cannot run {words[0]}: {reason}.") from error
        with _forwarding_signals(child):
            code = child.wait()
        return code, rendezvous.end(folder)
    finally:
        rendezvous.remove()


def _name(words: Sequence[str]) -> str:
    """The name of the runs of a command: its first Python script, or else the program."""
    script = next((word for word in words if word.endswith(".py")), words[0])
    return Path(script).stem


@contextmanager
def _forwarding_signals(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ctrl-C reaches the whole group: the child decides. Other signals to this process are passed on."""

    def forward(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # signal's signature
        child.send_signal(number)

    heard = (number for number in _FORWARDED if signal.getsignal(number) is not signal.SIG_IGN)  # not under nohup
    before = {number: signal.signal(number, forward) for number in heard}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
