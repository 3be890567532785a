"""Requested bytes over time, and each allocation, from a memory snapshot.

All of it is exact: a block that the recording does not see begin was there before, and the blocks that are in use at
the end say how large it is. *Instants* number the events of a device: instant 0 is before the first event, instant
``i`` is
after event ``i - 1``, and the last one is the end. A row of :class:`Allocations` holds its bytes at the instants
``start <= instant < end``; allocations that were there before start at 0, those in use at the end end at ``instants``.

To replay a history with a change, change ``size_bytes``, ``start`` or ``end`` of a copy, and take :func:`held_bytes`.
"""

from __future__ import annotations

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, taken
from traceadvisor.model.events import NONE
from traceadvisor.model.memory_snapshot import Action, MemorySnapshot


@frozen(eq=False)
class Allocations:
    """The allocations of a device by start; arrays of shape ``(n,)``."""

    address: Int64
    size_bytes: Int64
    """Requested bytes."""

    stack: Int64
    """Index of the stack in :attr:`MemorySnapshot.stacks`; NONE where neither the allocation nor its end tells it."""

    stream: Int64
    start: Int64
    """First instant; 0 if it was there before the recording."""

    end: Int64
    """Instant at which the allocator could use the memory again, which may be after the program gave it back."""

    free_stack: Int64
    """Index of the stack that gave it back; NONE if it was not, or where torch recorded the stacks of allocations only:
    it then repeats them where they end."""

    block: Int64
    """Row of the block that it is at the end; NONE if it was freed."""

    def __len__(self) -> int:
        """Number of allocations."""
        return self.address.size


@frozen(eq=False)
class MemoryHistory:
    """Memory that one device held at each instant."""

    device: int
    rows: Int64
    """Rows of the device's events; event ``i`` leads to instant ``i + 1``."""

    time_ns: Int64
    """Time of each instant, ascending; NONE in files without times."""

    allocations: Allocations
    requested_bytes: Int64
    """Held by allocations, at each instant."""

    reserved_bytes: Int64
    """Held by the allocator, at each instant."""

    final_bytes: int
    """The requested bytes of all blocks in use at the end; the last of :attr:`requested_bytes` is the same where the
    file is consistent."""

    unmatched: int
    """Blocks in use at the end, and allocations that were not freed, that do not fit together; 0 in a sound file."""

    failed: Int64
    """The instants at which memory ran out, ascending."""

    @property
    def instants(self) -> int:
        """Number of instants; allocations that end here are in use at the end."""
        return self.rows.size + 1

    @property
    def peak(self) -> int:
        """The first instant with the most requested bytes."""
        return int(np.argmax(self.requested_bytes))

    @property
    def peak_bytes(self) -> int:
        """The most requested bytes."""
        return int(self.requested_bytes[self.peak])

    @property
    def before_bytes(self) -> int:
        """Requested bytes from before the recording."""
        return int(self.requested_bytes[0])

    def alive(self, instant: int) -> Int64:
        """Rows of the allocations that are held at an instant."""
        return np.flatnonzero((self.allocations.start <= instant) & (self.allocations.end > instant))


def held_bytes(start: Int64, end: Int64, size_bytes: Int64, instants: int) -> Int64:
    """Return what allocations hold at each instant; shape ``(instants,)``."""
    change = np.zeros(instants + 1, np.int64)
    np.add.at(change, start, size_bytes)
    np.subtract.at(change, end, size_bytes)
    return np.cumsum(change)[:-1]


def memory_history(snapshot: MemorySnapshot, device: int) -> MemoryHistory:
    """Return what a device held over time."""
    events, blocks, segments = snapshot.events, snapshot.blocks, snapshot.segments
    rows = np.flatnonzero(events.device == device)
    live = blocks.live(device)
    sizes = np.where(blocks.requested_bytes == NONE, blocks.size_bytes, blocks.requested_bytes)
    allocations, unmatched = _allocations(snapshot, rows, live, sizes)
    action = events.action[rows]
    grown = np.isin(action, (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP))
    shrunk = np.isin(action, (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP))
    changed = np.where(grown, 1, np.where(shrunk, -1, 0)) * events.size_bytes[rows]
    reserved = np.cumsum(np.append(0, changed))
    time_ns = np.maximum.accumulate(events.time_ns[rows])
    return MemoryHistory(
        device,
        rows,
        np.append(time_ns[:1], time_ns) if rows.size else np.zeros(1, np.int64),
        allocations,
        held_bytes(allocations.start, allocations.end, allocations.size_bytes, rows.size + 1),
        reserved + int(segments.size_bytes[segments.device == device].sum()) - reserved[-1],
        int(sizes[live].sum()),
        unmatched,
        np.flatnonzero(action == Action.OOM),
    )


def _allocations(snapshot: MemorySnapshot, rows: Int64, live: Int64, block_bytes: Int64) -> tuple[Allocations, int]:
    """Pair each allocation with its end by address, and the rest with the blocks in use at the end."""
    events, blocks, instants = snapshot.events, snapshot.blocks, rows.size + 1
    of_blocks = np.flatnonzero(events.action[rows] <= Action.FREE_COMPLETED)
    order = of_blocks[np.lexsort((of_blocks, events.address[rows[of_blocks]]))]
    action, address = events.action[rows[order]], events.address[rows[order]]
    begins = np.ones(order.size, dtype=np.bool_)  # each block's life is a run of events at one address
    begins[1:] = (address[1:] != address[:-1]) | (action[1:] == Action.ALLOC) | (action[:-1] == Action.FREE_COMPLETED)
    first = np.flatnonzero(begins)
    last = np.append(first[1:], order.size)[: first.size] - 1
    is_new = action[first] == Action.ALLOC
    asked = np.minimum(first + is_new, last)
    is_asked, is_freed = action[asked] == Action.FREE_REQUESTED, action[last] == Action.FREE_COMPLETED
    start, end = np.where(is_new, order[first] + 1, 0), np.where(is_freed, order[last] + 1, instants)
    is_lost = np.zeros(first.size, dtype=np.bool_)
    is_lost[:-1] = ~is_freed[:-1] & (address[first[:-1]] == address[first[1:]])
    end[:-1][is_lost[:-1]] = start[1:][is_lost[:-1]]  # its address was given out again
    sizes = events.size_bytes[rows[order[first]]]
    kept = np.flatnonzero(end == instants)
    common, of_life, of_block = np.intersect1d(address[first[kept]], blocks.address[live], return_indices=True)
    block = np.full(first.size, NONE)
    block[kept[of_life]] = live[of_block]
    differ = int((sizes[kept[of_life]] != block_bytes[live[of_block]]).sum())
    older = np.delete(live, of_block)
    stack = events.stack[rows[order]]
    of_free = np.where(is_asked, stack[asked], NONE)
    pairs = is_new & is_asked
    repeats = bool(pairs.any()) and np.array_equal(stack[first[pairs]], of_free[pairs])
    allocations = Allocations(
        np.append(address[first], blocks.address[older]),
        np.append(sizes, block_bytes[older]),
        np.append(np.where(is_new, stack[first], of_free if repeats else NONE), blocks.stack[older]),
        np.append(events.stream[rows[order[first]]], snapshot.segments.stream[blocks.segment[older]]),
        np.append(start, np.zeros_like(older)),
        np.append(end, np.full(older.size, instants)),
        np.append(np.full_like(of_free, NONE) if repeats else of_free, np.full(older.size, NONE)),
        np.append(block, older),
    )
    by_start = np.argsort(allocations.start, kind="stable")
    return taken(allocations, by_start), differ + int(is_lost.sum()) + kept.size - common.size
