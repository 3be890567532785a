"""The tree of operator calls on each host thread."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.by_thread import Axis, ThreadSpans
from traceadvisor.analysis.operators.innermost import positions_by
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int32, Int64, Mask, read_only
from traceadvisor.model.events import NONE, EventTable, Kind
from traceadvisor.model.once import once

DEEPEST = 128
"""Deepest level of nesting; deeper operators count as directly inside the last level.

Public recordings are at most six deep. Climbing the tree takes time for each level.
"""

_MOST_PASSES = 64
"""Passes over all operators at once; longer chains are processed one operator at a time, which is faster."""


@frozen(eq=False)
class OperatorTree:
    """Operators of all threads; arrays of shape ``(n,)``, a parent always before its children."""

    rows: Int64
    """Rows of the event table, by thread and start."""

    parent: Int64
    """Position of the enclosing operator; NONE at the top."""

    thread: Int64
    start_ns: Int64
    end_ns: Int64

    def __post_init__(self) -> None:
        read_only(self.rows, self.parent, self.thread, self.start_ns, self.end_ns)

    def enclosing(self, threads: Int64, instants_ns: Int64) -> Int64:
        """Return the position of the innermost operator around each instant on its thread; NONE if there is none."""
        if not self.rows.size:
            return np.full(instants_ns.shape, NONE, dtype=np.int64)
        result = np.full(instants_ns.shape, NONE, dtype=np.int64)
        for thread, asked in positions_by(threads).items():
            first, last = self.thread.searchsorted([thread, thread + 1])
            position = first + self.start_ns[first:last].searchsorted(instants_ns[asked], side="right") - 1
            position[position < first] = NONE
            result[asked] = self._climb_to(position, instants_ns[asked])
        return result

    def nearest(self, chosen: Mask) -> Int64:
        """Return, for each operator, the nearest chosen one among itself and its ancestors; NONE if there is none."""
        return nearest_around(self.parent, chosen)

    def outermost(self) -> Int64:
        """Return, for each operator, the outermost one around it: itself at the top."""
        return outermost_around(self.parent)

    def tops(self, thread: int | None) -> Int64:
        """Return the positions of the operators of a thread that are inside no other, by start."""
        return np.flatnonzero((self.thread == thread) & (self.parent == NONE))

    def self_time_ns(self) -> Int64:
        """Return the time in each operator itself, without its children."""
        own = self.end_ns - self.start_ns
        inner = np.zeros_like(own)
        has_parent = self.parent != NONE
        np.add.at(inner, self.parent[has_parent], own[has_parent])
        outer: Int64 = np.maximum(own - inner, 0)
        return outer

    def _climb_to(self, position: Int64, instants_ns: Int64) -> Int64:
        """Climb from the operator that started last to the first enclosing one that had not ended."""
        while True:
            ended = (position != NONE) & (self.end_ns[position] <= instants_ns)
            if not ended.any():
                return position
            position[ended] = self.parent[position[ended]]


@once
def operator_tree(events: EventTable) -> OperatorTree:
    """Build the tree; an operator that merely overlaps another is not inside it."""
    rows = events.rows(Kind.OPERATOR)
    rows = rows[events.thread[rows].argsort(kind="stable")]
    starts, threads = events.start_ns[rows], events.thread[rows]
    ties = np.concatenate(([False], (starts[1:] == starts[:-1]) & (threads[1:] == threads[:-1])))[: rows.size]
    tied = (ties | np.concatenate((ties[1:], [False]))[: rows.size]).nonzero()[0]
    rows[tied] = rows[tied[np.lexsort((-events.duration_ns[rows[tied]], starts[tied], threads[tied]))]]
    ends = events.end_ns[rows]
    return OperatorTree(rows, parents_of(starts, ends, threads), threads.astype(np.int64), starts, ends)


@once
def call_operators(events: EventTable) -> Int32:
    """Return, for each runtime call, the position in the tree of the innermost operator around its start.

    Returns:
        A value for each row of the event table; NONE for calls outside operators, for other events, and last.
    """
    calls = events.rows(Kind.RUNTIME)
    found = np.full(len(events) + 1, NONE, dtype=np.int32)
    found[calls] = operator_tree(events).enclosing(events.thread[calls].astype(np.int64), events.start_ns[calls])
    read_only(found)
    return found


def nearest_around(parent: Int32 | Int64, chosen: Mask) -> Int64:
    """Return, for each call, the nearest chosen one among itself and those around it; NONE if there is none.

    ``parent``: the position of the call around each; NONE at the top.
    """
    top = parent.size
    if not chosen.any():
        return np.full(top, NONE, dtype=np.int64)
    above = _climbed(np.concatenate((np.where(chosen, np.arange(top), np.where(parent == NONE, top, parent)), [top])))
    return np.where(above == top, NONE, above)[:top]


def outermost_around(parent: Int64) -> Int64:
    """Return, for each call, the outermost one around it: itself at the top."""
    return _climbed(np.where(parent == NONE, np.arange(parent.size), parent))


def _climbed(above: Int64) -> Int64:
    while not np.array_equal(twice := above[above], above):  # each time twice as far
        above = twice
    return above


def parents_of(starts: Int64, ends: Int64, threads: Int32) -> Int64:
    """Return the nearest earlier operator that encloses each one."""
    axis = Axis(ThreadSpans(threads, starts, ends))
    latest = np.maximum.accumulate(axis.at(threads, ends))
    is_inner = np.concatenate(([False], latest[:-1] > axis.at(threads, starts)[1:]))[: starts.size]
    above = np.where(is_inner, np.arange(starts.size) - 1, NONE)
    passed = is_inner.nonzero()[0]
    for _ in range(_MOST_PASSES):
        passed = passed[(above[passed] != NONE) & (ends[above[passed]] < ends[passed])]
        if not passed.size:
            break
        above[passed] = above[above[passed]]  # skips what the previous operator skipped, usually doubling the distance
    parents = np.where((above != NONE) & (ends[above] > starts), above, NONE)
    is_sound = not passed.size and _deepest(parents) < DEEPEST
    return parents if is_sound else _capped_parents(starts, ends, threads)


def _deepest(parents: Int64) -> int:
    """Return the deepest nesting, up to the limit."""
    depth = 0
    above = parents[parents != NONE]
    while above.size and depth < DEEPEST:
        above = parents[above]
        above = above[above != NONE]
        depth += 1
    return depth


def _capped_parents(starts: Int64, ends: Int64, threads: Int32) -> Int64:
    """Return the same one by one, limited in depth."""
    parents = np.full(starts.size, NONE, dtype=np.int64)
    stack: list[tuple[int, int]] = []
    thread = NONE
    for position, (start, end, owner) in enumerate(zip(starts.tolist(), ends.tolist(), threads.tolist(), strict=True)):
        if owner != thread:
            stack.clear()
            thread = owner
        while stack and stack[-1][1] < end:
            stack.pop()
        if stack and stack[-1][1] > start:
            parents[position] = stack[-1][0]
        if len(stack) < DEEPEST:
            stack.append((position, end))
    return parents
