"""Keeps the profiler out of processes that Python's ``multiprocessing`` forks during a recording.

A fork copies the calling thread with its profiler: a loader worker forked then would record its own operators and
memory, trace its Python functions, and never write anything. A profiler cannot be stopped in a forked child, because
its other threads are missing there. A new thread has no profiler, so such processes are forked in one.
"""

from __future__ import annotations

import threading
from multiprocessing.context import ForkProcess
from typing import Any

_FORK = "_Popen"


class ForksWithoutProfiler:
    """Replaces the function that forks a process, and restores it."""

    def __init__(self) -> None:
        self._original: Any = None

    def install(self) -> None:
        """Fork in a thread of its own from now on."""
        if self._original is not None:
            return
        original = self._original = ForkProcess.__dict__[_FORK]

        def fork(process: object) -> object:
            return _in_new_thread(original.__func__, process)

        setattr(ForkProcess, _FORK, staticmethod(fork))

    def remove(self) -> None:
        """Fork as before."""
        if self._original is not None:
            setattr(ForkProcess, _FORK, self._original)
            self._original = None


def _in_new_thread(function: Any, argument: object) -> object:
    """Call a function in a thread of its own; returns its result or raises its error. A forked child never returns."""
    results: list[object] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function(argument))
        except BaseException as error:  # noqa: BLE001  # raised by the caller
            errors.append(error)

    thread = threading.Thread(target=call, name=threading.current_thread().name)  # the child's main thread
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
