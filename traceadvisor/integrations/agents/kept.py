"""Runs a program for a call. Nothing of it is left when the call ends or the server is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import anyio
from anyio.abc import Process

from traceadvisor.experiments import keeper

_KEEPER = str(Path(keeper.__file__).resolve())
_ENDING_S = 15.0
"""Time for a training to save what it recorded, once it is asked to end."""

_LAST_BYTES = 8_000


async def kept(  # noqa: PLR0913  # what is run, and how
    words: Sequence[str],
    folder: Path,
    *,
    hear: Callable[[bytes], Awaitable[None]],
    with_errors: bool,
    ending_s: float = 0.0,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Run a program with this Python to its end; returns its exit code.

    Args:
        words: the arguments of Python.
        folder: where it runs.
        hear: takes what it prints, in pieces.
        with_errors: whether it hears standard error, too; otherwise that goes to this process's.
        ending_s: where the call is cancelled: time to end by SIGTERM.
        variables: what it has in its environment beside that of this process.
    """
    process = await anyio.open_process(
        [sys.executable, "-I", _KEEPER, sys.executable, *words],
        cwd=folder,
        env=os.environ | dict(variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if with_errors else None,
    )
    try:
        assert process.stdout  # noqa: S101  # for mypy
        async for piece in process.stdout:
            await hear(piece)
        return await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process, ending_s)


async def _end(process: Process, ending_s: float) -> None:
    assert process.stdin  # noqa: S101  # for mypy
    if process.returncode is None and ending_s:
        with anyio.move_on_after(ending_s), suppress(anyio.BrokenResourceError, OSError):
            await process.stdin.send(b".")
            await process.wait()
    with suppress(OSError):
        await process.stdin.aclose()  # whoever keeps it kills all of it
    await process.wait()
    await process.aclose()


class LastOutput:
    """The end of what a program prints."""

    def __init__(self) -> None:
        self._bytes = b""

    async def hear(self, piece: bytes) -> None:
        """Take a piece."""
        self._bytes = (self._bytes + piece)[-_LAST_BYTES:]

    @property
    def text(self) -> str:
        """The text."""
        return self._bytes.decode(errors="replace")


async def run_script(words: Sequence[str], folder: Path, minutes: float) -> tuple[int | None, str]:
    """Run a script for a limited time; returns its exit code, None if the time was over, and the end of its output."""
    output, code = LastOutput(), None
    with anyio.move_on_after(minutes * 60):
        code = await kept(words, folder, hear=output.hear, with_errors=True, ending_s=_ENDING_S)
    return code, output.text
