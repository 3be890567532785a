"""Facts that rules about a memory snapshot read: phases, classes, and the code that allocated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np

from traceadvisor.analysis.memory.allocations import Allocations, MemoryHistory, memory_history
from traceadvisor.analysis.memory.call_stacks import CallStacks, Phase, call_stacks
from traceadvisor.analysis.memory.changes import MemoryChange, saved_bytes
from traceadvisor.analysis.memory.classes import KINDS, Classes, classes
from traceadvisor.analysis.operators.source_files import is_library
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.location import Frame, Location
from traceadvisor.model.memory_advice import TrainingPass
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.model.memory_snapshot import MemorySnapshot

PASSES = tuple(TrainingPass)

NO_PYTHON = "No Python stacks were recorded: pass stacks='python' or 'all' for a snapshot, with_stack=True for a trace."


class SnapshotFacts:
    """The facts of one device of a snapshot; each is computed once. Masks have one value for each allocation."""

    def __init__(self, snapshot: MemorySnapshot, history: MemoryHistory, stacks: CallStacks, found: Classes) -> None:
        self.snapshot = snapshot
        self.history = history
        self.stacks = stacks
        self.found = found

    @classmethod
    def of(cls, snapshot: MemorySnapshot) -> tuple[SnapshotFacts, ...]:
        """The facts of each device that held memory."""
        stacks = call_stacks(snapshot)
        histories = [memory_history(snapshot, device) for device in snapshot.devices]
        return tuple(cls(snapshot, one, stacks, classes(one, stacks)) for one in histories if one.peak_bytes)

    @property
    def rows(self) -> Allocations:
        """The allocations of the device."""
        return self.history.allocations

    def is_of(self, *kinds: MemoryClass) -> Mask:
        """Whether allocations are of some classes."""
        return np.isin(self.found.kind, [KINDS.index(one) for one in kinds])

    def in_phase(self, phase: Phase) -> Mask:
        """Whether allocations were made in a phase; what was there before the recording was made in none."""
        is_new = (self.rows.stack != NONE) & (self.rows.start > 0)
        if phase is Phase.BACKWARD:
            return np.asarray(is_new & self.stacks.is_backward[self.rows.stack])
        return np.asarray(is_new & (self.stacks.phase[self.rows.stack] == phase))

    @cached_property
    def python(self) -> tuple[tuple[Frame, ...], ...]:
        """The Python frames of each stack, innermost first."""
        frames = self.snapshot.frames
        is_python = [str(one.file).endswith(".py") or str(one.file).startswith("<") for one in frames]
        return tuple(tuple(frames[one] for one in stack if is_python[one]) for stack in self.snapshot.stacks)

    @property
    def has_cpp(self) -> bool:
        """Whether stacks have frames of C++, which name operators and libraries."""
        pairs = zip(self.snapshot.stacks, self.python, strict=True)
        return not self.snapshot.of_trace and any(len(stack) > len(python) for stack, python in pairs)

    @cached_property
    def code(self) -> Int64:
        """A number for the Python frames of each allocation; NONE without any. C++ frames differ from call to call."""
        numbers: dict[tuple[Frame, ...], int] = {}
        table = [numbers.setdefault(frames, len(numbers)) if frames else NONE for frames in self.python]
        return np.array([*table, NONE], np.int64)[self.rows.stack]

    def with_frame(self, matches: Callable[[Frame], object]) -> Mask:
        """Whether a frame of an allocation's stack matches."""
        chosen = {row for row, frame in enumerate(self.snapshot.frames) if matches(frame)}
        return self.of_stacks(not chosen.isdisjoint(stack) for stack in self.snapshot.stacks)

    def of_stacks(self, values: Iterable[bool]) -> Mask:
        """The value of each allocation's stack; False where it has none."""
        return np.array([*values, False], dtype=np.bool_)[self.rows.stack]  # NONE is the last one

    @cached_property
    def is_autocast(self) -> Mask:
        """Whether autocast made an allocation; only stacks with C++ frames tell."""
        return self.with_frame(lambda frame: "autocast" in frame.function)

    @cached_property
    def is_saved(self) -> Mask:
        """Whether the forward pass keeps an allocation for the backward pass."""
        return self.is_of(MemoryClass.ACTIVATIONS)

    @cached_property
    def _passes(self) -> tuple[Int64, Int64]:
        """When each allocation of the recording was made, and the place in :data:`PASSES` of the pass that did."""
        made = np.flatnonzero((self.rows.stack != NONE) & (self.rows.start > 0))
        part = np.where(self.in_phase(Phase.OPTIMIZER), 2, self.in_phase(Phase.BACKWARD).astype(np.int64))[made]
        return self.rows.start[made], part

    @cached_property
    def pass_of(self) -> Int64:
        """The instant at which the forward or backward pass or optimizer step ends that made each allocation."""
        starts, part = self._passes
        ends = np.append(starts[1:][np.diff(part) != 0], self.history.instants)
        return ends[np.searchsorted(ends[:-1], self.rows.start, side="right")].astype(np.int64)

    def passes_at(self, instants: Int64) -> Int64:
        """The place in :data:`PASSES` of the pass at each instant; NONE where no training was recorded."""
        starts, part = self._passes
        if not part.any():
            return np.full(instants.shape, NONE)
        places: Int64 = part[np.searchsorted(starts, instants, side="right").clip(min=1) - 1]
        return places

    def pass_at(self, instant: int) -> TrainingPass | None:
        """The pass at an instant; None where no training was recorded."""
        place = int(self.passes_at(np.array([instant]))[0])
        return None if place == NONE else PASSES[place]

    def saved(self, *changes: MemoryChange) -> int:
        """Bytes by which changes lower the peak; 0 if they do not."""
        return max(saved_bytes(self.history, *changes), 0)

    def saved_share(self, *changes: MemoryChange) -> float:
        """The same as a share of the peak, 0..1."""
        return self.saved(*changes) / max(self.history.peak_bytes, 1)

    @cached_property
    def peak_rows(self) -> Int64:
        """Allocations that are held at the peak."""
        return self.history.alive(self.history.peak)

    def at_peak(self, chosen: Mask) -> Int64:
        """Those of the chosen allocations that are held at the peak."""
        return self.peak_rows[chosen[self.peak_rows]]

    def bytes_of(self, chosen: Int64 | Mask) -> int:
        """Requested bytes of some allocations."""
        return int(self.rows.size_bytes[chosen].sum())

    def locations(self, chosen: Int64, most: int = 3) -> tuple[Location, ...]:
        """The user's lines that allocated the most of these bytes."""
        totals: dict[Location, int] = {}
        for row in chosen.tolist():
            place = self.stacks.places[self.rows.stack[row]]
            if place and place.line:
                totals[place.line] = totals.get(place.line, 0) + int(self.rows.size_bytes[row])
        return tuple(sorted(totals, key=lambda line: -totals[line])[:most])

    def common_call(self, chosen: Int64) -> Location | None:
        """The user's innermost line that the stacks of all these allocations have in common; None without one."""
        stacks = {tuple(reversed(self.python[stack])) for stack in self.rows.stack[chosen].tolist()}
        common = [frames[0] for frames in zip(*stacks, strict=False) if len(set(frames)) == 1]
        own = next((frame for frame in reversed(common) if frame.file and not is_library(frame.file)), None)
        return Location(own.file, own.line, own.function) if own and own.file and own.line else None
