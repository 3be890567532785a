"""Start child processes: each ends within a time limit, and each can be interrupted.

Tests start processes through this module only; ruff refuses `subprocess.run` and `subprocess.Popen` elsewhere.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

LIMIT_S = 180.0
"""Time limit of a child. The slowest takes seconds on an idle machine; several may share a busy one."""

Done = subprocess.CompletedProcess[str]
Child = subprocess.Popen[bytes]

PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL


def run(
    *command: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    limit_s: float = LIMIT_S,
    check: bool = False,
    stdin: str | None = None,
) -> Done:
    """Run a command to its end and capture what it writes.

    Raises:
        subprocess.TimeoutExpired: it took longer than ``limit_s``; it was killed.
        subprocess.CalledProcessError: it failed, where ``check`` is set; the error shows what the command wrote.
    """
    with _default_handlers():
        done = subprocess.run(
            command,
            cwd=cwd,
            env=env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
            errors="replace",
        )
    if check and done.returncode:
        error = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        error.add_note(done.stderr)
        raise error
    return done


@contextmanager
def started(
    *command: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    new_session: bool = False,
    limit_s: float = LIMIT_S,
) -> Iterator[Child]:
    """Start a command; it is killed at the end of the block, or after ``limit_s`` if the block still waits for it.

    At the end of the block, what it has started in a session of its own is killed with it.
    """
    with _default_handlers():
        child = subprocess.Popen(command, cwd=cwd, env=env, stdout=stdout, stderr=stderr, start_new_session=new_session)
    limit = threading.Timer(limit_s, child.kill)
    limit.daemon = True
    with child:
        limit.start()
        try:
            yield child
        finally:
            limit.cancel()
            child.kill()
            if new_session:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)


def added(**variables: str) -> dict[str, str]:
    """Return this process's environment with some variables changed."""
    return os.environ | variables


@contextmanager
def _default_handlers() -> Iterator[None]:
    """Let children that start in this block have the default handlers of SIGINT and SIGHUP.

    A shell script starts ``pytest &`` with SIGINT ignored, and ``nohup`` ignores SIGHUP. An ignored signal stays
    ignored in children. A handler does not: ``exec`` sets it back to the default. These handlers do nothing, so this
    process ignores the signals as before.
    """
    ignored = [number for number in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
