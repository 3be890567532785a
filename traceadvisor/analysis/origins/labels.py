"""The operator that a piece of time belongs to, as a number, and its words."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cached_property

import numpy as np

from traceadvisor.analysis.communication.collectives import host_collective_rows
from traceadvisor.analysis.operators.innermost import ThreadCalls, positions_by
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, name_mask
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.analysis.origins.pieces import Holder, Pieces
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import EXCHANGE, NONE, Kind
from traceadvisor.model.trace import Trace

_COMPILED = re.compile(r"Torch-Compiled Region|CompiledFunction")
_GRAPH_LAUNCH = re.compile(r"GraphLaunch")
_SHOWN_CALL = re.compile(r"Synchronize|Malloc|Free|HostAlloc|MemAlloc|MemGetInfo|^(?:cuda|hip)Memcpy$")
"""Runtime calls that are worth naming beside their operator: waits and memory management."""

_OWN_NAMES = ("enumerate(", "Optimizer.")
"""Annotations by torch that tell what plain Python inside them does."""


class _Kind(IntEnum):
    NAMED = 0
    """An operator, annotation or other event by its name."""

    CALL = 1
    """A runtime call, in an operator or outside all."""

    LAUNCHED = 2
    """A GPU operation that was launched outside operators."""

    UNLINKED = 3
    """A GPU operation without a recorded launch."""

    AFTER = 4
    """After a wait for the GPU, in an operator or outside all."""

    BETWEEN = 5
    """Between two operators."""


class OperatorLabels:
    """Numbers the operators that pieces belong to, and puts the numbers into words."""

    def __init__(self, trace: Trace, tree: OperatorTree) -> None:
        self._trace, self._tree = trace, tree
        self._base = len(trace.names) + 1
        names = self._without_prefix(trace.events.name_id[tree.rows].astype(np.int64))
        self._name = np.append(names, NONE)[np.append(self._speaking(names), NONE)]

    def of(self, pieces: Pieces, operators: Int64, causes: Int64) -> Int64:
        """Return the number of each piece's operator.

        Args:
            pieces: shape ``(n,)``.
            operators: position in the tree of the innermost operator at each piece's instant; NONE without one.
            causes: row of the launch of each GPU operation; of other pieces their own row.
        """
        events = self._trace.events
        name = self._name[operators]
        row_name = np.append(events.name_id, NONE)[pieces.row].astype(np.int64)
        kind = np.append(events.kind, Kind.OTHER)[pieces.row]
        name = self._with_collectives(name, causes)
        result = self._key(_Kind.NAMED, np.where(operators != NONE, name, row_name))
        is_work = pieces.holder == Holder.WORK
        lone = is_work & (operators == NONE)
        result[lone] = self._key(_Kind.LAUNCHED, row_name[lone])
        unlinked = is_work & (pieces.thread == NONE)
        result[unlinked] = self._key(_Kind.UNLINKED, row_name[unlinked])
        launch_name = np.append(events.name_id, NONE)[causes].astype(np.int64)
        by_graph = is_work & self._matching(_GRAPH_LAUNCH)[launch_name]
        result[by_graph] = self._key(_Kind.CALL, launch_name[by_graph], name[by_graph])
        is_event = pieces.holder == Holder.EVENT
        result[is_event] = self._key(_Kind.NAMED, row_name[is_event])
        waits = pieces.holder == Holder.WAIT
        result[waits] = self._key(_Kind.AFTER, row_name[waits], name[waits])
        calls = (pieces.holder == Holder.HOST) & (kind == Kind.RUNTIME)
        shown = calls & (self._matching(_SHOWN_CALL)[row_name] | (operators == NONE))
        result[shown] = self._key(_Kind.CALL, row_name[shown], name[shown])
        gaps = np.flatnonzero((pieces.holder == Holder.HOST) & (operators == NONE) & (kind != Kind.RUNTIME))
        self._name_gaps(result, pieces.taken(gaps), gaps)
        return result

    @cached_property
    def _is_exchange(self) -> Mask:
        return np.append(name_mask(self._trace.names, lambda name: name == EXCHANGE), False)

    def _with_collectives(self, name: Int64, causes: Int64) -> Int64:
        """Return the names; of what records the sizes of a collective, that of the collective (``nccl:all_to_all``)."""
        found = np.flatnonzero(self._is_exchange[name])
        if not found.size:
            return name
        events, rows = self._trace.events, host_collective_rows(self._trace)
        calls = ThreadCalls(events.start_ns[rows], events.end_ns[rows], events.thread[rows])
        around = np.append(rows, NONE)[calls.at(events.thread[causes[found]], events.start_ns[causes[found]])]
        result = name.copy()
        result[found[around != NONE]] = events.name_id[around[around != NONE]]
        return result

    def words(self, number: int) -> str | None:
        """Return an operator in words; None for time outside all that was recorded."""
        kind, rest = divmod(number, self._base * self._base)
        first, second = (self._word(name - 1) for name in divmod(rest, self._base))
        inside = f" in {second}" if second else ""
        words = {
            _Kind.NAMED: first,
            _Kind.CALL: f"{first}{inside}",
            _Kind.LAUNCHED: f"{first} (launched outside operators)",
            _Kind.UNLINKED: f"{first} (launch not recorded)",
            _Kind.AFTER: f"after {first}{inside}",
            _Kind.BETWEEN: _between(first, second),
        }
        return words[_Kind(kind)]

    def _word(self, name: int) -> str | None:
        return None if name == NONE else self._trace.names[name].removeprefix(f"{BACKWARD_PREFIX}: ")

    def _without_prefix(self, names: Int64) -> Int64:
        """Replace the names of the engine's nodes by those of the operators inside them: in words they are the same."""
        plain = np.arange(len(self._trace.names))
        number = {name: place for place, name in enumerate(self._trace.names)}
        for place, name in enumerate(self._trace.names):
            if name.startswith(BACKWARD_PREFIX):
                plain[place] = number.get(name.removeprefix(f"{BACKWARD_PREFIX}: "), place)
        return plain[names] if plain.size else names

    def _key(self, kind: _Kind, first: Int64, second: Int64 | int = NONE) -> Int64:
        key: Int64 = (int(kind) * self._base + first + 1) * self._base + second + 1
        return key

    def _matching(self, pattern: re.Pattern[str]) -> Mask:
        """Return whether each name matches; the last entry is that of NONE."""
        return np.append(name_mask(self._trace.names, lambda name: pattern.search(name) is not None), False)

    def _speaking(self, names: Int64) -> Int64:
        """Return the operator that names each operator: the compiled region around it, or what records a collective."""
        tree = self._tree
        is_exchange = name_mask(self._trace.names, lambda name: name == EXCHANGE)[names]
        own = np.where(is_exchange & (tree.parent != NONE), tree.parent, np.arange(names.size))
        is_compiled = name_mask(self._trace.names, lambda name: _COMPILED.match(name) is not None)[names]
        inner = tree.nearest(is_compiled)
        above = np.append(tree.parent, NONE)[inner]
        while (above != NONE).any():  # regions are nested a few levels deep
            outer = np.append(inner, NONE)[above]
            higher = (above != NONE) & (outer != NONE)
            if not higher.any():
                break
            inner = np.where(higher, outer, inner)
            above = np.append(tree.parent, NONE)[inner]
        return np.where(inner == NONE, own, inner)

    def _name_gaps(self, result: Int64, gaps: Pieces, places: Int64) -> None:
        """Number plain Python: by an annotation that only holds plain Python, else by the operators around it."""
        tree, events = self._tree, self._trace.events
        before, after = neighbours(tree, np.flatnonzero(tree.parent == NONE), gaps.thread, gaps.start_ns)
        result[places] = self._key(_Kind.BETWEEN, self._name[before], self._name[after])
        own = np.append(name_mask(self._trace.names, lambda name: name.startswith(_OWN_NAMES)), False)
        annotated = np.flatnonzero(gaps.row != NONE)
        rows, first, last = gaps.row[annotated], before[annotated], after[annotated]
        alone = (first == NONE) | (np.append(tree.end_ns, 0)[first] <= events.start_ns[rows])
        alone &= (last == NONE) | (events.end_ns[rows] <= np.append(tree.start_ns, 0)[last])
        chosen = alone | own[events.name_id[rows]]
        result[places[annotated[chosen]]] = self._key(_Kind.NAMED, events.name_id[rows[chosen]].astype(np.int64))


def _between(before: str | None, after: str | None) -> str | None:
    if before and after:
        return f"between {before} and {after}"
    return f"after {before}" if before else f"before {after}" if after else None


def neighbours(tree: OperatorTree, chosen: Int64, threads: Int64, instants_ns: Int64) -> tuple[Int64, Int64]:
    """Return the last of some operators that started before each instant on its thread, and the next one.

    Args:
        tree: the operators.
        chosen: positions in the tree, ascending.
        threads: shape ``(n,)``.
        instants_ns: shape ``(n,)``.

    Returns:
        Positions in the tree; NONE if there is none.
    """
    before = np.full(threads.size, NONE, dtype=np.int64)
    after = before.copy()
    for thread, asked in positions_by(threads).items():
        first, last = np.searchsorted(tree.thread[chosen], [thread, thread + 1])
        mine = chosen[first:last]
        place = np.searchsorted(tree.start_ns[mine], instants_ns[asked], side="right")
        before[asked] = np.append(mine, NONE)[np.where(place > 0, place - 1, mine.size)]
        after[asked] = np.append(mine, NONE)[place]
    return before, after
