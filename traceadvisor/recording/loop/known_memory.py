"""Keeps torch from warning of CPU memory that it does not know, because only our recording makes it ask.

While a profiler records memory, torch looks up the size of each CPU block that is freed. It knows blocks allocated
since the profiler started, and warns of others: "Memory block of unknown size was allocated before the profiling
started". C++ writes the warning to file descriptor 2. It cannot be filtered there: other threads write to it, too.

So torch gets to know the blocks. Its flag ``caffe2_report_cpu_memory_usage`` registers each block without a profiler.
It is set during the warm-up steps and the recording, and the frees of these blocks are recorded, too. Older blocks
remain: torch warns of the first unknown block and then of each thousandth. The first one is a block of ours. It is
freed at once, while torch's log level leaves out warnings for some microseconds.

Sources: ``c10/core/CPUAllocator.cpp`` (``ProfiledCPUMemoryReporter``) and ``c10/util/Logging.cpp`` of torch 2.13. Both
flags are plain C variables of ``libc10``. Where they are missing, or the log level was changed, nothing is done.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

_WARNING, _ERROR = 1, 2
"""Log levels of torch's C++ code."""


class _Flags(NamedTuple):
    """Variables of torch's C++ library."""

    log_level: ctypes.c_int
    registers_blocks: ctypes.c_bool


class KnownMemory:
    """Lets torch know the CPU blocks that are allocated during the warm-up and the recording."""

    def __init__(self) -> None:
        self._flags: _Flags | None = None

    def start(self) -> None:
        """Register CPU blocks from now on, if torch would warn of unknown ones."""
        flags = _flags()
        if flags is None or flags.log_level.value != _WARNING or flags.registers_blocks.value:
            return
        self._flags = flags
        unknown = torch.UntypedStorage(1, device="cpu")  # type: ignore[no-untyped-call]
        flags.registers_blocks.value = True
        flags.log_level.value = _ERROR
        del unknown
        flags.log_level.value = _WARNING

    def stop(self) -> None:
        """Register no more blocks."""
        if self._flags:
            self._flags.registers_blocks.value = False
        self._flags = None


@cache
def _flags() -> _Flags | None:
    """The variables; None if this torch lacks one."""
    with suppress(OSError, ValueError):
        library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libc10.so"))
        flags = _Flags(
            ctypes.c_int.in_dll(library, "FLAGS_caffe2_log_level"),
            ctypes.c_bool.in_dll(library, "FLAGS_caffe2_report_cpu_memory_usage"),
        )
        os.register_at_fork(after_in_child=lambda: _leave(flags))
        return flags
    return None


def _leave(flags: _Flags) -> None:
    """A forked child has no part in the recording."""
    flags.registers_blocks.value = False
