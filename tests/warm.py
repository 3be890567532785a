"""Starts processes of Python in which torch is loaded already, but not yet imported.

Loading torch and its compiler takes three seconds of a core, ten times as long as most scripts of the tests. One server
per test process loads them, takes them out of ``sys.modules``, and forks a child for each process. There the first
import of such a package puts it back.

A test about the start of a process, or about what a library reads once when it is loaded (numbers of threads, levels of
logs), starts a process of its own by :mod:`tests.children`.
"""

import atexit
import json
import os
import re
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import IO

from tests.children import DEVNULL, LIMIT_S, PIPE, Done, started
from tests.shared import CHECKOUT

Stream = int | IO[bytes]
"""An open file, ``PIPE`` or ``DEVNULL``."""


class Warm:
    """A process that the server has forked."""

    def __init__(self, connection: socket.socket, stdout: IO[bytes] | None, stderr: IO[bytes] | None) -> None:
        self.stdout, self.stderr = stdout, stderr
        self.returncode: int | None = None
        self._connection = connection
        self.pid = self._number()

    def wait(self, timeout: float) -> int:
        """Wait for its end; returns the exit code, negative after a signal; raises TimeoutError if it still runs."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            self.returncode = self._number()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to a process that was not waited for."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def _number(self) -> int:
        """The next line of the server."""
        line = b""
        while not line.endswith(b"\n"):
            line += self._connection.recv(1) or b"the server has ended\n"
        return int(line)


@cache
def _server() -> str:
    """Start the server; returns the path of its socket."""
    stack = ExitStack()
    atexit.register(stack.close)
    path = f"{stack.enter_context(tempfile.TemporaryDirectory())}/socket"
    command = (sys.executable, "-m", "tests.warm_server", path)
    process = stack.enter_context(started(*command, cwd=CHECKOUT, stdout=PIPE, limit_s=threading.TIMEOUT_MAX))
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    return path


@contextmanager
def warm_started(
    *arguments: str,
    cwd: Path,
    stdout: Stream = DEVNULL,
    stderr: Stream = DEVNULL,
    env: Mapping[str, str] | None = None,
) -> Iterator[Warm]:
    """Start ``python`` with a script or ``-m`` and a module; it is killed at the end of the block."""
    request = {"arguments": arguments, "cwd": str(cwd), "env": dict(os.environ if env is None else env)}
    content = json.dumps(request).encode()
    with ExitStack() as stack:
        connection = stack.enter_context(socket.socket(socket.AF_UNIX))
        connection.connect(_server())
        with ExitStack() as sent:
            streams = [_stream(asked, stack, sent) for asked in (DEVNULL, stdout, stderr)]
            socket.send_fds(connection, [len(content).to_bytes(8)], [stream for stream, _ in streams])
        connection.sendall(content)
        process = Warm(connection, streams[1][1], streams[2][1])
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(LIMIT_S)


def _stream(asked: Stream, kept: ExitStack, sent: ExitStack) -> tuple[int, IO[bytes] | None]:
    """The descriptor to send for a stream, and the file that reads a pipe."""
    if not isinstance(asked, int):
        return asked.fileno(), None
    if asked == PIPE:
        reader, writer = os.pipe()
        sent.callback(os.close, writer)
        return writer, kept.enter_context(os.fdopen(reader, "rb"))
    return sent.enter_context(Path(os.devnull).open("r+b", buffering=0)).fileno(), None


def warm(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> Done:
    """Run ``python`` with a script, or with ``-m`` and a module, to its end, and capture what it writes."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        with warm_started(*arguments, cwd=cwd, stdout=stdout, stderr=stderr, env=env) as process:
            code = process.wait(LIMIT_S)
        return Done(arguments, code, _text(stdout), _text(stderr))


_LEAKS = re.compile(r"^nanobind: leaked .*?^See https://nanobind[^\n]*\n?", re.MULTILINE | re.DOTALL)
"""What Triton's library writes at the end, because the server's copies of its modules outlive it."""


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return _LEAKS.sub("", file.read().decode(errors="replace"))
