"""Limits the threads of native libraries in a loader worker, without the environment of the training process."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

_SETTERS = (
    "openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "scipy_openblas_set_num_threads64_",
    "MKL_Set_Num_Threads",
    "bli_thread_set_num_threads",
)
"""Functions of OpenBLAS, also as the wheels of numpy and scipy name it, of MKL and of BLIS."""

_LIBRARIES = ("openblas", "libmkl_rt", "libblis")
_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "POLARS_MAX_THREADS")
"""For libraries that the worker loads later."""


class LimitedThreads:
    """The ``worker_init_fn`` of a loader, after which native libraries have so many threads."""

    def __init__(self, threads: int, original: Callable[[int], Any] | None) -> None:
        self._threads, self._original = threads, original

    def __call__(self, worker: int) -> None:
        """Limit them, and call the script's own function."""
        if self._original is not None:
            self._original(worker)
        limit_threads(self._threads)


def limit_threads(threads: int) -> None:
    """Limit the libraries of this process that are known here; others keep their threads."""
    os.environ |= dict.fromkeys(_VARIABLES, str(threads))
    os.environ["TOKENIZERS_PARALLELISM"] = "false" if threads == 1 else "true"
    for path in _mapped():
        with suppress(OSError):  # a file that is no library, or is gone
            library = ctypes.CDLL(path)
            for name in _SETTERS:
                if setter := getattr(library, name, None):
                    setter(ctypes.c_int(threads))
    with suppress(Exception):  # another version of these
        if cv2 := sys.modules.get("cv2"):
            cv2.setNumThreads(threads if threads > 1 else 0)
        if pyarrow := sys.modules.get("pyarrow"):
            pyarrow.set_cpu_count(threads)


def _mapped() -> Iterator[str]:
    """The files of such libraries that this process has mapped."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return
    paths = {line[line.index("/") :] for line in lines if "/" in line}
    yield from sorted(path for path in paths if any(name in path.rpartition("/")[2] for name in _LIBRARIES))
