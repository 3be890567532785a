"""Keeps the profiler out of processes that are forked.

A fork copies the calling thread with its profiler: a loader worker forked during a recording would record its own
operators and memory, trace its Python functions, and never write anything. A profiler cannot be stopped in a forked
child, because its other threads are missing there. A new thread has no profiler, so Python's ``multiprocessing``
forks in one.

Python clears the thread-local values of all other threads in a forked child, so those of the forking one would go, too.
Some must not be destroyed there: torch keeps process groups of DTensor so, whose threads are missing in the child. So
the child keeps them.
"""

from __future__ import annotations

import contextvars
import ctypes
import gc
import threading
from contextlib import suppress
from multiprocessing.context import ForkProcess
from typing import Any

_FORK = "_Popen"

_kept: dict[int, object] = {}
"""Thread-local values and context of the threads that fork just now; in a forked child, for ever."""


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


def end_without_profiler() -> None:
    """Let this forked process end although the profiler's own thread is missing in it.

    The C++ destructors of Kineto wait for that thread for ever, or abort. glibc calls functions registered here in
    reverse order and before those destructors: one writes what C buffers hold, then ``_exit`` ends the process with its
    exit code (https://man7.org/linux/man-pages/man3/on_exit.3.html). Other C libraries have no ``on_exit``.
    """
    libc = ctypes.CDLL(None)
    with suppress(AttributeError):
        libc.on_exit(libc._exit, None)
        libc.on_exit(libc.fcloseall, None)


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
    values = _values_of_this_thread()
    _kept[id(values)] = values
    try:
        thread.start()
        thread.join()
    finally:
        del _kept[id(values)]
    if errors:
        raise errors[0]
    return results[0]


def _values_of_this_thread() -> tuple[object, ...]:
    """The context and the thread-local values, which Python clears for a thread that a forked child lacks."""
    local = threading.local()
    local.value = None
    sets = [one for one in gc.get_referents(local) if isinstance(one, set)]
    sentinels = [reference() for one in sets for reference in one]  # since Python 3.13, values live as long as these
    address = _thread_dict()
    values = ctypes.cast(address, ctypes.py_object).value if address else None
    return contextvars.copy_context(), values, sentinels


_thread_dict = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThreadState_GetDict", ctypes.pythonapi))
"""Returns the address of the dict of this thread's values, or None."""
