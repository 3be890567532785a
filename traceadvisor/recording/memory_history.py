"""Keeps a bounded history of device allocations, and writes torch's snapshot of it when memory runs out."""

from __future__ import annotations

import gzip
import inspect
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from traceadvisor.bundle.layout import Note
from traceadvisor.system import clocks

LARGEST_BYTES = 256 << 20
"""Size of a snapshot before compression; with more, the oldest events are left out."""

WRITING_S = 60.0
"""Time for snapshots of memory that ran out. A script that looks for its largest batch runs out many times."""


class MemoryHistory:
    """The history of one process; nothing here raises an error into the script."""

    def __init__(self, entries: int, save: Callable[[Callable[[Path], None]], None]) -> None:
        """Start once CUDA is initialised; never initialises it.

        Args:
            entries: most events to keep; 0 for no history.
            save: called with a function that writes the snapshot to a path.
        """
        self._entries = entries
        self._save = save
        self._process = os.getpid()
        self._is_recording = False
        self._writing_s = 0.0
        self._times = 0
        """How often memory ran out."""

        self._asked_bytes = 0
        self._saved_times = 0
        self._problem: str | None = None
        if entries:
            torch.cuda._lazy_call(self._start)  # type: ignore[no-untyped-call]  # at once if it is initialised

    @property
    def notes(self) -> list[Note]:
        """Remarks for the report."""
        notes = []
        if self._times:
            often = "once" if self._times == 1 else f"{self._times} times"
            asked = f", last for {self._asked_bytes / 2**20:,.0f} MiB" if self._asked_bytes else ""
            missing = "" if self._saved_times == self._times else " The snapshot is of an earlier time than the last."
            if not self._saved_times:
                missing = " No snapshot could be written."
            notes.append(Note("out-of-memory", f"Device memory ran out {often}{asked}.{missing}", degrades=False))
        if self._problem:
            message = f"The history of allocations ended early: {self._problem}."
            notes.append(Note("memory-history", message, degrades=False))
        return notes

    def close(self, *, ran_out: bool, as_planned: bool) -> None:
        """The script ended: write the snapshot, unless it holds memory that ran out before, or the device failed."""
        if not self._is_recording or os.getpid() != self._process:
            return
        if ran_out and not self._times:  # by a library that does not ask torch's allocator
            self._ran_out(0)
        elif as_planned and not self._times:
            self._write()
        self._is_recording = False
        self._guarded(lambda: torch.cuda.memory._record_memory_history(None))

    def _start(self) -> None:
        """Called by torch when CUDA is initialised."""
        if os.getpid() == self._process:
            self._guarded(self._record)

    def _record(self) -> None:
        if not hasattr(torch._C, "_cuda_attach_out_of_memory_observer"):  # a torch without CUDA's allocator
            return
        record = torch.cuda.memory._record_memory_history
        skips = {"skip_actions": ["snapshot"]} if "skip_actions" in inspect.signature(record).parameters else {}
        record("all", context="alloc", stacks="python", max_entries=self._entries, **skips)
        self._is_recording = True
        torch._C._cuda_attach_out_of_memory_observer(self._observe)

    def _observe(self, device: int, asked: int, total: int, free: int) -> None:  # noqa: ARG002  # torch's signature
        """Torch is about to raise OutOfMemoryError, in the thread that allocates."""
        if self._is_recording and os.getpid() == self._process:
            self._ran_out(asked)

    def _ran_out(self, asked: int) -> None:
        self._times += 1
        self._asked_bytes = asked
        if self._writing_s < WRITING_S and self._write():
            self._saved_times = self._times

    def _write(self) -> bool:
        begin_s = clocks.monotonic()
        done = self._guarded(lambda: self._save(write_snapshot))
        self._writing_s += clocks.monotonic() - begin_s
        return done

    def _guarded(self, act: Callable[[], object]) -> bool:
        """Whether something succeeded; the script goes on after any error."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  # as said
            self._problem = self._problem or repr(error)
            return False
        return True


def write_snapshot(path: Path) -> None:
    """Write the snapshot of all devices, compressed and bounded; the latest events are kept.

    Raises:
        OSError: it cannot be written.
        RuntimeError: torch makes none.
    """
    snapshot = torch.cuda.memory._snapshot()
    while True:
        try:
            with gzip.open(path, "wb", compresslevel=1) as file:
                pickle.Pickler(_Bounded(file.write), protocol=4).dump(snapshot)
        except _TooLargeError:
            snapshot["device_traces"] = [trace[len(trace) // 2 + 1 :] for trace in snapshot["device_traces"]]
            if not any(snapshot["device_traces"]):
                raise OSError(f"the snapshot is larger than {LARGEST_BYTES >> 20} MiB") from None
        else:
            return


class _TooLargeError(Exception):
    pass


class _Bounded:
    """A file that takes no more than :data:`LARGEST_BYTES`."""

    def __init__(self, write: Callable[[Any], int]) -> None:
        self._write = write
        self._left = LARGEST_BYTES

    def write(self, piece: Any) -> int:
        self._left -= len(piece) if isinstance(piece, bytes) else memoryview(piece).nbytes
        if self._left < 0:
            raise _TooLargeError
        return self._write(piece)
