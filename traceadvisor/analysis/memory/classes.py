"""The class of each allocation, with evidence: its call stack, its lifetime and its size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from traceadvisor.analysis.memory.allocations import Allocations, MemoryHistory
from traceadvisor.analysis.memory.call_stacks import CallStacks, Phase
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.memory_figures import MemoryClass as Kind
from traceadvisor.model.memory_figures import MemoryEvidence as Evidence

KINDS = tuple(Kind)
EVIDENCE = tuple(Evidence)


@frozen(eq=False)
class Classes:
    """Class of each allocation of a device, in the order of :class:`Allocations`."""

    kind: Int64
    """Place in :data:`KINDS`."""

    evidence: Int64
    """Place in :data:`EVIDENCE`."""

    def of(self, kind: Kind) -> Int64:
        """Rows of a class."""
        return np.flatnonzero(self.kind == KINDS.index(kind))


def classes(history: MemoryHistory, stacks: CallStacks) -> Classes:
    """Return the class of each allocation; what nothing tells stays unknown."""
    return _Classifier(history, stacks).all()


class _Classifier:
    """Assigns classes, the surest evidence first; an allocation keeps the first class that it gets."""

    def __init__(self, history: MemoryHistory, stacks: CallStacks) -> None:
        self._instants = history.instants
        self._rows: Allocations = history.allocations
        self._tell_lines = stacks.tell_lines
        self._phase = stacks.phase[self._rows.stack]  # the last one stands for no stack
        self._is_backward = stacks.is_backward[self._rows.stack]
        self._in_module = stacks.in_module[self._rows.stack]
        self._multiplies = stacks.multiplies[self._rows.stack]
        self._same_stack = stacks.same[self._rows.stack]
        self._freed_phase = stacks.phase[self._rows.free_stack]
        self._freed_backward = stacks.is_backward[self._rows.free_stack]
        self._is_old = self._rows.start == 0
        self._at_end = self._rows.end == history.instants
        self._has_failed = bool(history.failed.size)
        failures = np.append(history.failed, history.instants)
        self._next_failure = failures[np.searchsorted(failures, self._rows.start)]
        self._kind = np.full(len(self._rows), NONE)
        self._evidence = np.full(len(self._rows), EVIDENCE.index(Evidence.NONE))
        known = ~self._is_old & (self._phase != Phase.UNKNOWN)
        self._known = known
        self._leaves_backward = self._next(known & ~self._is_backward)
        self._next_backward = self._next(known & self._is_backward)
        self._leaves_step = self._next(known & (self._phase != Phase.OPTIMIZER))
        self._leaves_making = self._next(known & (self._phase != Phase.MODULE))

    def all(self) -> Classes:
        """Apply all evidence."""
        self._by_frames()
        self._in_backward()
        self._in_optimizer()
        self._in_forward()
        self._from_before()
        if self._tell_lines:
            self._like_others()
        self._by_size()
        self._by_layers()
        self._kind[self._kind == NONE] = KINDS.index(Kind.UNKNOWN)
        return Classes(self._kind, self._evidence)

    def _is(self, mask: Mask, kind: Kind, evidence: Evidence) -> None:
        open_rows = mask & (self._kind == NONE)
        self._kind[open_rows] = KINDS.index(kind)
        self._evidence[open_rows] = EVIDENCE.index(evidence)

    def _next(self, which: Mask) -> Int64:
        """For each allocation, the start of the next one of these, or the end of the recording."""
        starts = np.append(self._rows.start[which], self._instants)
        found: Int64 = starts[np.searchsorted(starts, self._rows.start, side="right").clip(max=starts.size - 1)]
        return found

    def _in_phase(self, phase: Phase) -> Mask:
        found: Mask = self._phase == phase
        return found

    def _by_frames(self) -> None:
        self._is(self._in_phase(Phase.WORKSPACE), Kind.WORKSPACES, Evidence.FRAMES)
        self._is(self._in_phase(Phase.COMMUNICATION), Kind.COMMUNICATION, Evidence.FRAMES)
        module, kept = self._in_phase(Phase.MODULE), self._at_end | (self._rows.end > self._leaves_making)
        self._is(module & kept, Kind.PARAMETERS, Evidence.MADE_BY_MODULE)
        self._is(module, Kind.TEMPORARIES, _FREED)
        self._workspaces()

    def _workspaces(self) -> None:
        """Find the workspaces that cuBLAS takes in the first products of the passes and never gives back.

        Such a product makes its result in later passes, too; what a module makes once and keeps, it makes elsewhere.
        Gradients that are kept too, to be added up or set to 0, are of several sizes.
        """
        passes, mine = self._passes(), np.isin(self._rows.size_bytes, CUBLAS_WORKSPACE_BYTES)
        if passes.size < 2:  # what an unfinished pass holds may be of any kind
            return
        turn = np.searchsorted(passes, self._rows.start)
        latest = np.zeros(int(self._same_stack.max()) + 2, np.int64)
        np.maximum.at(latest, self._same_stack, turn)
        runs_again = (latest[self._same_stack] > turn) & (self._rows.start < passes[-2])
        forward = self._at_end & runs_again & self._in_module & self._multiplies & self._in_phase(Phase.OTHER)
        backward = self._at_end & (self._rows.start < passes[-1]) & self._in_phase(Phase.BACKWARD)
        for chosen in (forward & mine, backward & mine[backward].all()):
            self._is(self._place_in_size(chosen) == 1, Kind.WORKSPACES, Evidence.SIZE_OF_WORKSPACE)

    def _in_backward(self) -> None:
        """Classify memory of the backward pass: gradients outlive it, everything else does not."""
        mine = self._in_phase(Phase.BACKWARD)
        self._is(mine & (self._rows.end <= self._leaves_backward) & ~self._at_end, Kind.TEMPORARIES, _FREED)
        kept = self._is_old | (self._rows.end > self._leaves_backward)
        self._is(mine & kept, Kind.GRADIENTS, Evidence.KEPT_AFTER_BACKWARD)

    def _in_optimizer(self) -> None:
        mine = self._in_phase(Phase.OPTIMIZER)
        self._is(mine & (self._rows.end <= self._leaves_step) & ~self._at_end, Kind.TEMPORARIES, _FREED)
        kept = self._is_old | (self._rows.end > self._leaves_step)
        self._is(mine & kept, Kind.OPTIMIZER_STATE, Evidence.KEPT_AFTER_STEP)

    def _in_forward(self) -> None:
        """Classify memory that the backward pass frees as saved for it."""
        mine = self._in_phase(Phase.OTHER) | self._in_phase(Phase.INPUT)
        self._is(self._in_phase(Phase.INPUT), Kind.INPUTS, Evidence.FRAMES)
        reaches = self._rows.end > self._next_backward
        self._is(mine & ~reaches & ~self._at_end & ~self._is_cut(), Kind.TEMPORARIES, _FREED)
        self._is(mine & reaches & self._freed_backward, Kind.ACTIVATIONS, Evidence.FREED_IN_BACKWARD)
        passes = np.append(self._passes(), self._instants)
        later = passes[np.searchsorted(passes, self._next_backward, side="right").clip(max=passes.size - 1)]
        kept = mine & reaches & ~self._at_end & (self._rows.end <= later)
        self._is(kept, Kind.ACTIVATIONS, Evidence.KEPT_UNTIL_BACKWARD)

    def _is_cut(self) -> Mask:
        """Whether memory ran out while an allocation was held, before any backward pass: nothing tells its end."""
        cut: Mask = (self._rows.end > self._next_failure) & (self._next_backward >= self._next_failure)
        return cut

    def _passes(self) -> Int64:
        """The first instant of each backward pass."""
        is_backward = self._is_backward[self._known]
        begins = is_backward & np.append(True, ~is_backward[:-1])[: is_backward.size]
        return np.compress(begins, self._rows.start[self._known])

    def _from_before(self) -> None:
        old = self._is_old & ~self._at_end
        self._is(old & (self._freed_phase == Phase.ZERO_GRAD), Kind.GRADIENTS, Evidence.FREED_BY_ZERO_GRAD)
        self._is(old & (self._freed_phase == Phase.OPTIMIZER), Kind.OPTIMIZER_STATE, Evidence.FREED_IN_STEP)
        self._is(old & self._freed_backward, Kind.ACTIVATIONS, Evidence.FREED_IN_BACKWARD)

    def _like_others(self) -> None:
        """Classify memory that the recording ends too early for like most others of its call stack, if any."""
        stack = self._same_stack if self._has_failed else self._rows.stack  # a cut pass has few of each
        settled = (self._kind != NONE) & (stack != NONE)
        if not settled.any():
            return
        counts = np.zeros((int(stack.max()) + 1, len(KINDS)), np.int64)
        np.add.at(counts, (stack[settled], self._kind[settled]), 1)
        open_rows = (self._kind == NONE) & (stack != NONE) & self._known
        best = counts.argmax(axis=1)
        for place, kind in enumerate(KINDS):
            alike = open_rows & (best[stack] == place) & (counts[stack, place] > 0)
            self._is(alike, kind, Evidence.LIKE_OTHERS)
        self._is(self._in_phase(Phase.OPTIMIZER), Kind.OPTIMIZER_STATE, Evidence.KEPT_AFTER_STEP)

    def _by_size(self) -> None:
        """Find parameters, as many and as large as the gradients, and optimizer state, one or two copies of each."""
        gradients, sizes = self._most_gradients(), self._rows.size_bytes
        first = self._rows.start[self._known & self._is_backward].min(initial=self._instants)
        outlives = self._rows.end > self._rows.start[self._known].max(initial=0)  # a script that ends frees its weights
        kept = outlives & (self._is_old | (self._rows.start < first))
        place = self._place_in_size(kept & np.isin(self._kind, (NONE, KINDS.index(Kind.PARAMETERS))))
        matching = np.array([gradients.get(size, 0) for size in sizes.tolist()], np.int64)
        state = Counter(sizes[self._kind == KINDS.index(Kind.OPTIMIZER_STATE)].tolist())
        has_state = np.array([state[size] > 0 for size in sizes.tolist()], np.bool_)
        self._is((place > 0) & (place <= matching), Kind.PARAMETERS, Evidence.SIZE_OF_GRADIENTS)
        copies = (place > 0) & (place <= 3 * matching) & ~has_state
        self._is(copies, Kind.OPTIMIZER_STATE, Evidence.COPIES_OF_PARAMETERS)
        early = self._is_old & ~self._at_end & (self._rows.end <= first) & (self._kind == NONE)
        place = self._place_in_size(early)
        known = Counter(sizes[self._is_old & (self._kind == KINDS.index(Kind.GRADIENTS))].tolist())
        missing = matching - np.array([known[size] for size in sizes.tolist()], np.int64)
        self._is((place > 0) & (place <= missing), Kind.GRADIENTS, Evidence.SIZE_OF_GRADIENTS)
        left = (self._kind == NONE) & self._is_old & (self._rows.size_bytes == CUBLAS_WORKSPACE_BYTES[0])
        self._is(left, Kind.WORKSPACES, Evidence.SIZE_OF_WORKSPACE)
        if not gradients and not self._is_backward.any() and not self._in_phase(Phase.OPTIMIZER).any():
            self._is(self._is_old & self._at_end, Kind.PARAMETERS, Evidence.FORWARD_ONLY)

    def _place_in_size(self, which: Mask) -> Int64:
        """The number of each of these among those of its size, from 1; 0 for all others."""
        met: Counter[int] = Counter()
        place = np.zeros(which.size, np.int64)
        for row in np.flatnonzero(which).tolist():
            size = int(self._rows.size_bytes[row])
            met[size] += 1
            place[row] = met[size]
        return place

    def _most_gradients(self) -> Mapping[int, int]:
        """The sizes of the gradients where most bytes of them are held."""
        rows = np.flatnonzero(self._kind == KINDS.index(Kind.GRADIENTS))
        if not rows.size:
            return {}
        start, end, size = self._rows.start[rows], self._rows.end[rows], self._rows.size_bytes[rows]
        held = np.zeros(self._instants + 1, np.int64)
        np.add.at(held, start, size)
        np.subtract.at(held, end, size)
        most = int(np.argmax(np.cumsum(held)))
        return Counter(size[(start <= most) & (end > most)].tolist())

    def _by_layers(self) -> None:
        """Classify memory that modules hold at the end of the last forward pass, and layers without a backward pass.

        A forward pass that runs out of memory ends there.
        """
        mine = self._known & (self._at_end | self._is_cut()) & self._in_phase(Phase.OTHER)
        passes = np.append(0, self._passes())
        if passes.size > 1:
            last = mine & self._in_module & (self._rows.start > passes[-2]) & (self._rows.start < passes[-1])
            self._is(last, Kind.ACTIVATIONS, Evidence.KEPT_UNTIL_BACKWARD)
        layers = self._in_module | ~self._in_module.any()
        after = mine & layers & (self._next_backward == self._instants) & self._tell_lines
        stack = self._same_stack if self._has_failed else self._rows.stack  # a cut pass has few of each
        counts = np.bincount(stack[after], minlength=int(stack.max(initial=0)) + 1)
        self._is(after & (counts[stack.clip(min=0)] > 1), Kind.ACTIVATIONS, Evidence.KEPT_BY_LAYERS)


_FREED = Evidence.FREED_IN_ITS_PHASE

CUBLAS_WORKSPACE_BYTES = (8_519_680, 33_554_432)
"""Workspaces that torch gives a handle of cuBLAS: ``CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8``, and more from Hopper on."""
