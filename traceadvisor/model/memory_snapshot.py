"""A CUDA memory snapshot: the history of the caching allocator, and its state at the end.

The columns are those of ``torch.cuda.memory._snapshot()``. ``parsing.snapshot.snapshot_file.read_snapshot`` makes one
from a file; ``analysis.memory.allocations`` turns it into allocations and levels over time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Code, Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.location import Frame


class Action(Code):
    """Kind of an event; ``torch/csrc/cuda/memory_snapshot.cpp`` lists them."""

    ALLOC = 0
    FREE_REQUESTED = 1
    """The program gave the block back; another stream may still use it."""

    FREE_COMPLETED = 2
    """The allocator may use the block again."""

    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    SEGMENT_MAP = 5
    SEGMENT_UNMAP = 6
    SNAPSHOT = 7
    OOM = 8
    """An allocation failed: its size is what was asked for, its address the free bytes of the device."""

    OTHER = 9


class BlockState(Code):
    """State of a block at the end."""

    ALLOCATED = 0
    AWAITING_FREE = 1
    """Given back by the program, still in use by a stream."""

    INACTIVE = 2


@frozen(eq=False)
class MemoryEvents:
    """Events in recorded order, one device after the other; arrays of shape ``(n,)``, NONE where not recorded."""

    device: Int64
    action: Int64
    """Values of :class:`Action`."""

    time_ns: Int64
    """Since the first event of the file."""

    address: Int64
    size_bytes: Int64
    """Requested bytes; of segments, whole bytes."""

    stream: Int64
    stack: Int64
    """Index of the call stack in :attr:`MemorySnapshot.stacks`."""

    def __len__(self) -> int:
        """Number of events."""
        return self.action.size


@frozen(eq=False)
class Segments:
    """Memory that the allocator holds at the end; arrays of shape ``(n,)``."""

    device: Int64
    address: Int64
    size_bytes: Int64
    stream: Int64


@frozen(eq=False)
class Blocks:
    """Parts of the segments at the end, in use or not; arrays of shape ``(n,)``."""

    device: Int64
    segment: Int64
    """Row of the segment."""

    address: Int64
    size_bytes: Int64
    """Bytes that the block takes of the segment."""

    requested_bytes: Int64
    """Bytes that the program asked for; 0 in blocks that are free, NONE where not recorded."""

    state: Int64
    """Values of :class:`BlockState`."""

    stack: Int64
    """Index of the call stack that allocated the block; NONE if it was allocated before the recording."""

    def live(self, device: int) -> Int64:
        """Rows of the blocks of a device that are in use."""
        return np.flatnonzero((self.device == device) & (self.state != BlockState.INACTIVE))


@frozen
class MemoryRange:
    """A named range of host time: ``Optimizer.step#AdamW.step`` and the program's own."""

    name: str
    device: int
    start_ns: int
    end_ns: int


@frozen(eq=False)
class MemorySnapshot:
    """One snapshot file."""

    path: Path
    events: MemoryEvents
    segments: Segments
    blocks: Blocks
    frames: tuple[Frame, ...]
    """Distinct frames, of C++ and Python."""

    stacks: tuple[tuple[int, ...], ...]
    """Distinct call stacks as rows of :attr:`frames`, innermost frame first. torch puts the Python frames where they
    belong among those of C++, but some at the end: see :func:`traceadvisor.analysis.memory.stacks`."""

    ranges: tuple[MemoryRange, ...] = ()
    """By start; empty in old files."""

    settings: Mapping[str, str | int | float | bool] | None = None
    """Settings of the allocator; None in old files."""

    has_times: bool = True
    """Whether events have times; if not, only their order is known."""

    host_events: int = 0
    """Events of the CPU's pinned memory in the file, or its segments if it holds no events. They are not read."""

    of_trace: bool = False
    """Whether it comes from the ``[memory]`` events of a trace: sizes are those of blocks, stacks have operators and
    marks in place of C++ frames, lines are those of functions but for :attr:`calling`, and the state of segments is
    unknown."""

    calling: frozenset[Frame] = frozenset()
    """Frames of a trace whose line is that of the call."""

    own_code: frozenset[str] | None = None
    """First path parts of the user's modules, of a trace; None if unknown."""

    @property
    def devices(self) -> tuple[int, ...]:
        """Devices with events or segments."""
        return tuple(np.union1d(self.events.device, self.segments.device).tolist())


__all__ = ["NONE", "Action", "BlockState", "Blocks", "MemoryEvents", "MemoryRange", "MemorySnapshot", "Segments"]
