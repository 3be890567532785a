"""The allocations of a trace's ``[memory]`` events, as those of a memory snapshot.

The events hold the size of each block with its rounding, and what the device holds after each. Their call stacks are
the operators around them, marks of the optimizer, and Python calls where those were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from traceadvisor.analysis.memory.allocations import Allocations, MemoryHistory, held_bytes, memory_history
from traceadvisor.analysis.memory.call_stacks import call_stacks
from traceadvisor.analysis.memory.classes import EVIDENCE, KINDS, Classes, classes
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.analysis.operators.innermost import ThreadCalls
from traceadvisor.analysis.operators.names import rows_with_prefix
from traceadvisor.analysis.operators.numbering import numbered
from traceadvisor.analysis.operators.python_frames import calls_at, frame_of
from traceadvisor.analysis.operators.source_files import line_in
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int32, Int64, joined, taken
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.location import Frame
from traceadvisor.model.memory_figures import MemoryClass, MemoryEvidence
from traceadvisor.model.memory_snapshot import Action, Blocks, MemoryEvents, MemorySnapshot, Segments
from traceadvisor.model.trace import Trace

ADAM_STATES = 2
"""Tensors that optimizers of Adam's family keep for each parameter; of others, the number depends on settings."""

_MOST_BYTES = 1 << 50
"""Largest size of one allocation: sums of a million stay exact."""


def trace_memory(trace: Trace, tree: OperatorTree, device: int) -> SnapshotFacts | None:
    """Return the allocations of a device with their classes; None if no memory was recorded."""
    rows = np.flatnonzero(trace.memory.device == device)
    if not rows.size:
        return None
    snapshot = _snapshot(trace, tree, rows)
    stacks = call_stacks(snapshot)
    history = _history(trace, snapshot, rows)
    if not history.peak_bytes:
        return None
    if (trace.memory.address[rows] == NONE).any():  # allocations of one size may be confused
        unknown = np.full(len(history.allocations), KINDS.index(MemoryClass.UNKNOWN))
        none = np.full_like(unknown, EVIDENCE.index(MemoryEvidence.NONE))
        return SnapshotFacts(snapshot, history, stacks, Classes(unknown, none))
    return _with_parameters(SnapshotFacts(snapshot, history, stacks, classes(history, stacks)))


def _snapshot(trace: Trace, tree: OperatorTree, rows: Int64) -> MemorySnapshot:
    memory, none = trace.memory, np.empty(0, np.int64)
    changed = np.clip(memory.changed_bytes[rows], -_MOST_BYTES, _MOST_BYTES)
    numbered_stacks = _Stacks(trace, tree)
    frames, stacks, stack = numbered_stacks.at(memory.thread[rows], memory.time_ns[rows])
    address = memory.address[rows]
    events = MemoryEvents(
        memory.device[rows],
        np.where(changed > 0, Action.ALLOC, Action.FREE_COMPLETED),
        memory.time_ns[rows],
        address if (address != NONE).all() else _addresses(changed),
        np.abs(changed),
        np.zeros_like(rows),
        stack,
    )
    blocks = Blocks(*(none for _ in range(7)))
    segments = Segments(*(none for _ in range(4)))
    return MemorySnapshot(
        trace.origin.path,
        events,
        segments,
        blocks,
        frames,
        stacks,
        of_trace=True,
        own_code=trace.own_code,
        calling=frozenset(numbered_stacks.calling),
    )


def _addresses(changed: Int64) -> Int64:
    """Stand-ins for addresses that were not recorded: what is freed is the last allocation of its size."""
    order = np.argsort(np.abs(changed), kind="stable")
    sizes, signs = np.abs(changed)[order], np.sign(changed)[order]
    count = np.cumsum(signs)
    first = np.searchsorted(sizes, sizes)
    level = count - (count - signs)[first] + (signs < 0)  # of its size: that of an allocation is the one that it makes
    result = np.empty_like(changed)
    result[order] = numbered(sizes - sizes.min(initial=0), level - level.min(initial=0))[0]
    return result


def _history(trace: Trace, snapshot: MemorySnapshot, rows: Int64) -> MemoryHistory:
    """The history; its first allocation, without a stack, is all that was there before and stays."""
    memory, history = trace.memory, memory_history(snapshot, int(trace.memory.device[rows[0]]))
    held, reserved = memory.allocated_bytes[rows], memory.reserved_bytes[rows]
    missing = held - history.requested_bytes[1:]
    rest = max(int(np.median(missing)), 0)
    return replace(
        history,
        allocations=joined([_from_before(history, [rest][: min(rest, 1)]), history.allocations]),
        requested_bytes=history.requested_bytes + rest,
        reserved_bytes=np.append(reserved[:1], reserved).clip(min=0),
        final_bytes=int(held[-1]),
        unmatched=int(np.count_nonzero(np.diff(missing))),
    )


def _from_before(history: MemoryHistory, sizes: Sequence[int]) -> Allocations:
    """Allocations of these sizes that were there before, and stay."""
    none, end = np.full(len(sizes), NONE), np.full(len(sizes), history.instants)
    return Allocations(none, np.array(sizes, np.int64), none, none, np.zeros_like(end), end, none, none)


def _with_parameters(facts: SnapshotFacts) -> SnapshotFacts:
    """Find parameters, and the state of Adam, in what was there before: they are as large as the gradients."""
    history, found, rows = facts.history, facts.found, facts.rows
    mine = facts.is_of(MemoryClass.GRADIENTS)
    gradients = int(held_bytes(rows.start[mine], rows.end[mine], rows.size_bytes[mine], history.instants).max())
    rest = int(rows.size_bytes[0]) if rows.stack[0] == NONE else 0
    if not gradients or rest < gradients:
        return facts
    names = {frame.function for frame in facts.snapshot.frames if frame.function.startswith("Optimizer.step#")}
    states = ADAM_STATES * gradients if names and all("Adam" in name for name in names) else 0
    if (state := states if gradients + states <= rest else 0) and facts.is_of(MemoryClass.OPTIMIZER_STATE).any():
        state = 0  # made in the recording
    parts = (
        (gradients, MemoryClass.PARAMETERS, MemoryEvidence.SIZE_OF_GRADIENTS),
        (state, MemoryClass.OPTIMIZER_STATE, MemoryEvidence.COPIES_OF_PARAMETERS),
        (rest - gradients - state, MemoryClass.UNKNOWN, MemoryEvidence.NONE),
    )
    sizes, kinds, evidence = zip(*(part for part in parts if part[0]), strict=True)
    return SnapshotFacts(
        facts.snapshot,
        replace(history, allocations=joined([_from_before(history, sizes), taken(rows, slice(1, None))])),
        facts.stacks,
        Classes(
            np.append([KINDS.index(one) for one in kinds], found.kind[1:]),
            np.append([EVIDENCE.index(one) for one in evidence], found.evidence[1:]),
        ),
    )


class _Stacks:
    """The operators, marks and Python calls around instants, innermost first."""

    def __init__(self, trace: Trace, tree: OperatorTree) -> None:
        self._trace, self._tree = trace, tree
        self._rows: dict[Frame, int] = {}
        self._stacks: list[tuple[int, ...]] = [()]
        self.calling: set[Frame] = set()
        """Frames with the line of a call."""

    def at(self, threads: Int64, times_ns: Int64) -> tuple[tuple[Frame, ...], tuple[tuple[int, ...], ...], Int64]:
        """Return frames, stacks, and the number of the stack at each instant."""
        trace, tree, calls = self._trace, self._tree, self._trace.python_calls
        marks = rows_with_prefix(trace, Kind.ANNOTATION, "Optimizer.")
        spans = ThreadCalls(trace.events.start_ns[marks], trace.events.end_ns[marks], trace.events.thread[marks])
        ran = np.flatnonzero(calls_at(calls, threads, times_ns))
        python = ThreadCalls(calls.start_ns[ran], calls.end_ns[ran], calls.thread[ran])
        name_id = trace.events.name_id
        parts = (
            self._numbers(tree.enclosing(threads, times_ns), tree.parent, name_id[tree.rows], Frame),
            self._numbers(spans.at(threads, times_ns), np.full(marks.size, NONE), name_id[marks], Frame),
            self._numbers(
                python.at(threads, times_ns), python.around(), calls.name_id[ran], frame_of, calls.call_from[ran]
            ),
        )
        number, example = numbered(*parts)
        stacks = [sum((self._stacks[part[place]] for part in parts), ()) for place in example.tolist()]
        return tuple(self._rows), tuple(stacks), number

    def _numbers(
        self,
        at: Int64,
        around: Int64,
        name_id: Int32,
        frame: Callable[[str], Frame],
        call_from: Int32 | None = None,
    ) -> Int64:
        """Number what runs at each instant with all around it; 0 for nothing."""
        around = np.append(around, NONE)  # of none
        calls = _with_all_around(at, around)
        outer = around[calls]
        row = self._rows_of(name_id[calls], frame)
        called = np.append(row, NONE)[np.searchsorted(calls, outer)]  # of the frame around; not used without one
        if call_from is not None and (has_line := np.flatnonzero((outer != NONE) & (call_from[calls] != NONE))).size:
            names, lines = name_id[outer[has_line]], call_from[calls[has_line]]
            called[has_line] = self._rows_at_lines(names, lines, called[has_line])
        depth, above = np.zeros_like(calls), outer
        while (is_inside := above != NONE).any():
            depth += is_inside
            above = around[above]
        number, callers = np.zeros(around.size, np.int64), np.zeros(around.size, np.int64)
        order = np.argsort(depth, kind="stable")
        for level in np.split(order, np.flatnonzero(np.diff(depth[order])) + 1):
            if level.size and depth[level[0]]:
                callers[calls[level]] = self._extended(callers[outer[level]], called[level])
            number[calls[level]] = self._extended(callers[calls[level]], row[level])
        return number[at]

    def _extended(self, outer: Int64, row: Int64) -> Int64:
        """Number stacks with one more frame inside them."""
        alike, example = numbered(outer, row)
        first = len(self._stacks)
        for inner, whole in zip(row[example].tolist(), outer[example].tolist(), strict=True):
            self._stacks.append((inner, *self._stacks[whole]))
        return first + alike

    def _rows_of(self, name_id: Int32, frame: Callable[[str], Frame]) -> Int64:
        names, place = np.unique(name_id, return_inverse=True)
        rows = [self._rows.setdefault(frame(self._trace.names[name]), len(self._rows)) for name in names.tolist()]
        return np.array(rows, np.int64)[place]

    def _rows_at_lines(self, names: Int32, call_from: Int32, otherwise: Int64) -> Int64:
        """Return the rows of frames at the lines of calls in them; the given rows where a line is in another file."""
        number, example = numbered(names, call_from)
        rows = otherwise[example]
        for at, (name, call) in enumerate(zip(names[example].tolist(), call_from[example].tolist(), strict=True)):
            frame = frame_of(self._trace.names[name])
            line = line_in(frame.file, self._trace.texts[call])
            if line is not None:
                calling = replace(frame, line=line)
                self.calling.add(calling)
                rows[at] = self._rows.setdefault(calling, len(self._rows))
        return rows[number]


def _with_all_around(at: Int64, around: Int64) -> Int64:
    """Return the calls that run, with those around them, ascending."""
    used = np.zeros(around.size, dtype=np.bool_)
    above = np.unique(at)
    while (above := above[above != NONE]).size:
        used[above] = True
        above = np.unique(around[above])
        above = above[~used[above]]
    return np.flatnonzero(used)
