"""The operator that a piece of time belongs to, as a number, and its words."""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np

from traceadvisor.analysis.communication.collectives import host_collective_rows
from traceadvisor.analysis.operators.containers import COMPILED
from traceadvisor.analysis.operators.innermost import ThreadCalls, positions_by
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, name_mask
from traceadvisor.analysis.operators.numbering import numbered, values_at
from traceadvisor.analysis.operators.python_frames import PythonFrames
from traceadvisor.analysis.operators.stacks import StackKeys, StackLines, Stacks
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.analysis.origins.pieces import Holder, Pieces
from traceadvisor.frozen import replace
from traceadvisor.model.arrays import Code, Int32, Int64, Mask, taken
from traceadvisor.model.events import EXCHANGE, NONE, Kind
from traceadvisor.model.location import Location
from traceadvisor.model.origins import StackRow, between
from traceadvisor.model.trace import Trace

_GRAPH_LAUNCH = re.compile(r"GraphLaunch")
_SHOWN_CALL = re.compile(r"Synchronize|Malloc|Free|HostAlloc|MemAlloc|MemGetInfo|^(?:cuda|hip)Memcpy$")
"""Runtime calls that are worth naming beside their operator: waits and memory management."""

_OWN_NAMES = ("enumerate(", "Optimizer.")
"""Annotations by torch that tell what plain Python inside them does."""


class _Kind(Code):
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
        self._is_graph_launch, self._is_shown_call = self._matching(_GRAPH_LAUNCH), self._matching(_SHOWN_CALL)
        self._is_exchange = np.concatenate((name_mask(trace.names, lambda name: name == EXCHANGE), [False]))
        self._is_own = name_mask(trace.names, lambda name: name.startswith(_OWN_NAMES))
        names = self._without_prefix(trace.events.name_id[tree.rows].astype(np.int64))
        self._name = np.concatenate((names, [NONE]))[np.concatenate((self._speaking(names), [NONE]))]

    def of(self, pieces: Pieces, operators: Int64, causes: Int64) -> Int64:
        """Return the number of each piece's operator.

        Args:
            pieces: shape ``(n,)``.
            operators: position in the tree of the innermost operator at each piece's instant; NONE without one.
            causes: row of the launch of each GPU operation; of other pieces their own row.
        """
        events = self._trace.events
        host, work = pieces.holder == Holder.HOST, pieces.holder == Holder.WORK
        row_name, cause_name = values_at(events.name_id, pieces.row), values_at(events.name_id, causes)
        is_call = host & (values_at(events.kind, pieces.row) == Kind.RUNTIME)
        name = self._with_collectives(self._name[operators], causes)
        outside = operators == NONE
        result = self._key(_Kind.NAMED, np.where(outside | (pieces.holder == Holder.EVENT), row_name, name))
        for kind, chosen, first, second in (
            (_Kind.LAUNCHED, work & outside, row_name, None),
            (_Kind.UNLINKED, work & (causes == NONE), row_name, None),
            (_Kind.CALL, work & self._is_graph_launch[cause_name], cause_name, name),
            (_Kind.AFTER, pieces.holder == Holder.WAIT, row_name, name),
            (_Kind.CALL, is_call & (self._is_shown_call[row_name] | outside), row_name, name),
        ):
            inside = second[chosen] if second is not None else NONE
            result[chosen] = self._key(kind, first[chosen], inside)
        gaps = (host & outside & ~is_call).nonzero()[0]
        self._name_gaps(result, taken(pieces, gaps), gaps)
        return result

    def _with_collectives(self, name: Int64, causes: Int64) -> Int64:
        """Return the names; of what records the sizes of a collective, that of the collective (``nccl:all_to_all``)."""
        found = self._is_exchange[name].nonzero()[0]
        if not found.size:
            return name
        events, (rows, calls) = self._trace.events, self._collectives
        around = np.concatenate((rows, [NONE]))[calls.at(events.thread[causes[found]], events.start_ns[causes[found]])]
        result = name.copy()
        result[found[around != NONE]] = events.name_id[around[around != NONE]]
        return result

    @cached_property
    def _collectives(self) -> tuple[Int64, ThreadCalls]:
        events, rows = self._trace.events, host_collective_rows(self._trace)
        return rows, ThreadCalls(events.start_ns[rows], events.end_ns[rows], events.thread[rows])

    def words(self, number: int) -> str | None:
        """Return an operator in words; None for time outside all that was recorded."""
        kind, rest = divmod(number, self._base * self._base)
        first, second = (self._word(name - 1) for name in divmod(rest, self._base))
        inside = f" in {second}" if second else ""
        words = {
            _Kind.NAMED: first,
            _Kind.CALL: f"{first}{inside}",
            _Kind.LAUNCHED: f"{first} (launched outside operators)" if self._tree.rows.size else first,
            _Kind.UNLINKED: f"{first} (launch not recorded)",
            _Kind.AFTER: f"after {first}{inside}",
            _Kind.BETWEEN: between(first, second),
        }
        return words[_Kind(kind)]

    def around(self, number: int) -> tuple[str, ...]:
        """Return the operators around plain Python; empty for an operator."""
        kind, rest = divmod(number, self._base * self._base)
        words = (self._word(name - 1) for name in divmod(rest, self._base)) if kind == _Kind.BETWEEN else ()
        return tuple(filter(None, words))

    def is_python(self, number: int) -> bool:
        """Return whether an operator is none: Python between two, or in an event of torch around the script's code."""
        kind, rest = divmod(number, self._base * self._base)
        return kind == _Kind.BETWEEN or (kind == _Kind.NAMED and bool(self._is_own[rest // self._base - 1]))

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

    def _key(self, kind: _Kind, first: Int32 | Int64, second: Int64 | int = NONE) -> Int64:
        key: Int64 = (int(kind) * self._base + first.astype(np.int64) + 1) * self._base + second + 1
        return key

    def _matching(self, pattern: re.Pattern[str]) -> Mask:
        """Return whether each name matches; the last entry is that of NONE."""
        return np.concatenate((name_mask(self._trace.names, pattern.search), [False]))

    def _speaking(self, names: Int64) -> Int64:
        """Return the operator that names each operator: the compiled region around it, or what records a collective."""
        tree = self._tree
        own = np.where(self._is_exchange[names] & (tree.parent != NONE), tree.parent, np.arange(names.size))
        is_compiled = name_mask(self._trace.names, COMPILED.match)[names]
        inner = tree.nearest(is_compiled)
        above = np.concatenate((tree.parent, [NONE]))[inner]
        while (above != NONE).any():  # regions are nested a few levels deep
            outer = np.concatenate((inner, [NONE]))[above]
            higher = (above != NONE) & (outer != NONE)
            if not higher.any():
                break
            inner = np.where(higher, outer, inner)
            above = np.concatenate((tree.parent, [NONE]))[inner]
        return np.where(inner == NONE, own, inner)

    @cached_property
    def _outermost(self) -> Neighbours:
        return Neighbours(self._tree, (self._tree.parent == NONE).nonzero()[0])

    def _name_gaps(self, result: Int64, gaps: Pieces, places: Int64) -> None:
        """Number plain Python: by an annotation that only holds plain Python, else by the operators around it."""
        tree, events = self._tree, self._trace.events
        before, after = self._outermost.around(gaps.thread, gaps.start_ns)
        result[places] = self._key(_Kind.BETWEEN, self._name[before], self._name[after])
        annotated = (gaps.row != NONE).nonzero()[0]
        rows, first, last = gaps.row[annotated], before[annotated], after[annotated]
        if not rows.size:
            return
        after_first = (first == NONE) | (values_at(tree.end_ns, first) <= events.start_ns[rows])
        before_last = (last == NONE) | (events.end_ns[rows] <= values_at(tree.start_ns, last))
        chosen = (after_first & before_last) | self._is_own[events.name_id[rows]]
        result[places[annotated[chosen]]] = self._key(_Kind.NAMED, events.name_id[rows[chosen]].astype(np.int64))


class Neighbours:
    """Some operators of a tree, to find those around an instant."""

    def __init__(self, tree: OperatorTree, chosen: Int64) -> None:
        """Take the positions of the operators in the tree, ascending."""
        self._chosen = np.concatenate((chosen, [NONE]))
        self._thread, self._start_ns = tree.thread[chosen], tree.start_ns[chosen]

    def around(self, threads: Int32 | Int64, instants_ns: Int64) -> tuple[Int64, Int64]:
        """Return the last operator that started before each instant on its thread, and the next one.

        Returns:
            Positions in the tree, of the shape of the instants; NONE if there is none.
        """
        before = np.full(threads.size, NONE, dtype=np.int64)
        after = before.copy()
        for thread, asked in positions_by(threads).items():
            first, last = self._thread.searchsorted([thread, thread + 1])
            place = first + self._start_ns[first:last].searchsorted(instants_ns[asked], side="right")
            before[asked] = self._chosen[np.where(place > first, place - 1, NONE)]
            after[asked] = self._chosen[np.where(place < last, place, NONE)]
        return before, after


_FLAGS = 4
"""The last two bits of a number. With Python calls: whether they ran inside the backward pass. Else the two below."""

_BACKWARD, _GAP = 1, 2


class Places:
    """Numbers the places in the code that pieces belong to, and puts the numbers into rows."""

    def __init__(self, trace: Trace, tree: OperatorTree, stacks: Stacks, frames: PythonFrames) -> None:
        self._trace, self._tree, self._stacks = trace, tree, stacks
        self._frames: PythonFrames | None = frames
        self._table = frames.table
        self._base = 1 + max(len(trace.texts), self._table.inner.size)
        self._known: dict[int, StackRow] = {}
        """The places of rows by their number: several tables show the same ones."""

    @property
    def has_modules(self) -> bool:
        """Whether modules were recorded."""
        return self._stacks.has_modules

    @property
    def has_lines(self) -> bool:
        """Whether stacks were recorded."""
        return self._stacks.is_known

    def of(self, pieces: Pieces, operators: Int64, causes: Int64) -> Int64:
        """Return the number of each piece's place.

        Args:
            pieces: shape ``(n,)``.
            operators: position in the tree of the innermost operator; NONE without one.
            causes: row of the event that explains each piece.
        """
        if not self.has_lines:
            return np.zeros(pieces.row.size, dtype=np.int64)
        stacks, threads = self._stacks, np.asarray(pieces.thread, dtype=np.int64)
        of_cause = (causes != NONE) & (pieces.holder != Holder.HOST)
        instants = np.where(of_cause, values_at(self._trace.events.start_ns, causes), pieces.start_ns)
        if stacks.has_calls and self._frames:
            own, ran_inside = stacks.own_frames(self._frames, np.asarray(pieces.call), threads, instants, operators)
            return self._key(own, self._forward_frames[operators], ran_inside.astype(np.int64))
        keys = stacks.at(threads, instants, operators)
        result = self._key(keys.inner, np.full(operators.size, NONE), keys.is_backward * _BACKWARD)
        gaps = ((pieces.holder == Holder.HOST) & (operators == NONE)).nonzero()[0]
        before, after = self._speaking.around(threads[gaps], pieces.start_ns[gaps])
        text = stacks.text_of
        result[gaps] = self._key(text[before], text[after], np.full(gaps.size, _GAP))
        return result

    def release(self) -> None:
        """Release the Python calls, which take much memory, once all pieces are numbered."""
        self._frames = None
        vars(self).pop("_forward_frames", None)

    def alike(self, numbers: Int64) -> tuple[Int64, Int64]:
        """Number distinct places by their lines, and by their modules."""
        if not self.has_lines:
            none = np.zeros(numbers.size, dtype=np.int64)
            return none, none
        if not self._stacks.has_calls:
            rows: dict[StackRow, int] = {}
            found = [rows.setdefault(self._row(number), len(rows)) for number in numbers.tolist()]
            return np.array(found, dtype=np.int64), np.zeros(numbers.size, dtype=np.int64)
        keys = self._keys(numbers)
        lines, _ = numbered(*keys.lines)
        return lines, numbered(keys.module, keys.around, keys.is_backward.astype(np.int64) * (keys.module != NONE))[0]

    def module(self, number: int) -> str | None:
        """Return the module of a place; None outside modules."""
        keys = self._keys(np.array([number]))
        return self._stacks.module(int(keys.module[0]), int(keys.around[0]), is_backward=bool(keys.is_backward[0]))

    def row(self, number: int, total_ns: int, count: int) -> StackRow:
        """Return the row of a place."""
        if number not in self._known:
            self._known[number] = self._row(number)
        return replace(self._known[number], total_ns=total_ns, count=count)

    def _row(self, number: int) -> StackRow:
        first, second, flags = (int(part[0]) for part in self._parts(np.array([number])))
        if not self._stacks.has_calls and flags == _GAP:
            before, after = self._stacks.lines_around(first, second)
            return StackRow(before, after, None, None, 0, 0)
        if self._stacks.has_calls:
            stack = self._stacks.stack(self._keys(np.array([number])).lines_at(0))
        else:
            stack = self._stacks.stack(StackLines(first, first, first, is_backward=flags == _BACKWARD))
        inner: Location | None = stack.inner if stack.inner != stack.outer else None
        return StackRow(stack.outer, None, inner, stack.owner, 0, 0)

    def _keys(self, numbers: Int64) -> StackKeys:
        own, forward, ran_inside = self._parts(numbers)
        return self._stacks.keys(self._table, own, forward, ran_inside != 0)

    def _key(self, first: Int64, second: Int64, flags: Int64) -> Int64:
        key: Int64 = ((first + 1) * self._base + second + 1) * _FLAGS + flags
        return key

    def _parts(self, numbers: Int64) -> tuple[Int64, Int64, Int64]:
        pairs, flags = np.divmod(numbers, _FLAGS)
        first, second = np.divmod(pairs, self._base)
        return first - 1, second - 1, flags

    @cached_property
    def _forward_frames(self) -> Int64:
        """The frames of the forward operator of each operator; NONE without one, and last."""
        if self._frames is None:
            raise ValueError("the Python calls were released")
        return self._stacks.forward_frames(self._frames, np.arange(self._tree.rows.size))

    @cached_property
    def _speaking(self) -> Neighbours:
        """Operators with user code in their stacks."""
        return Neighbours(self._tree, self._stacks.has_user(self._stacks.text_of)[:-1].nonzero()[0])
