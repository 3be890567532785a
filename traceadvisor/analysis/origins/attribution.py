"""What each instant of a recording belongs to, and tables of it for any spans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.innermost import ThreadCalls, overlapping, positions_by, split
from traceadvisor.analysis.operators.stacks import StackKeys, Stacks
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.analysis.origins.labels import OperatorLabels, neighbours
from traceadvisor.analysis.origins.pieces import Holder, Pieces, find_pieces
from traceadvisor.analysis.steps.breakdown import Partition
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.location import Location
from traceadvisor.model.origins import OriginRow, Origins, OriginTable, OtherOrigins, StackRow, StackTable
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import PythonCalls

Row = TypeVar("Row", OriginRow, StackRow)


@dataclass(frozen=True, slots=True, eq=False)
class _Keys:
    """Dense numbers of pieces."""

    number: Int64
    example: Int64
    """One piece of each number."""

    member: Int64
    """Dense number of each combination of a number and an item; pieces of one item count once."""

    @classmethod
    def of(cls, item: Int64, *columns: Int64) -> _Keys:
        """Number the distinct combinations of some columns, all from NONE up."""
        number = np.zeros(item.size, dtype=np.int64)
        example = number
        for column in columns:
            example, number = _numbered(number, column - NONE)
        return cls(number, example, _numbered(number, item)[1])


def _numbered(first: Int64, second: Int64) -> tuple[Int64, Int64]:
    """Number the distinct pairs; one place of each, and the number of each place."""
    pairs = first * (int(second.max(initial=0)) + 1) + second
    _, example, number = np.unique(pairs, return_index=True, return_inverse=True)
    return example, number


@dataclass(frozen=True, slots=True, eq=False)
class _Gaps:
    """Plain Python between two operators with stacks, in recordings without Python calls."""

    number: Int64
    """For each piece, its row of :attr:`lines`; NONE for other pieces."""

    lines: tuple[tuple[Location | None, Location | None], ...]
    """The lines before and after."""

    @classmethod
    def of(cls, pieces: Pieces, operators: Int64, tree: OperatorTree, stacks: Stacks) -> _Gaps:
        """Return the gaps among some pieces."""
        number = np.full(operators.size, NONE, dtype=np.int64)
        if stacks.has_calls or not stacks.is_known:
            return cls(number, ())
        gaps = np.flatnonzero((pieces.holder == Holder.HOST) & (operators == NONE))
        speaking = np.flatnonzero(stacks.has_user(stacks.text_of))
        around = neighbours(tree, speaking, pieces.thread[gaps], pieces.start_ns[gaps])
        text = np.append(stacks.text_of, NONE)
        pairs = _Keys.of(gaps, *(text[place] for place in around))
        lines: dict[tuple[Location | None, Location | None], int] = {}
        known = [
            lines.setdefault(stacks.lines_around(*(int(text[place[example]]) for place in around)), len(lines))
            for example in pairs.example.tolist()
        ]
        number[gaps] = np.array(known, dtype=np.int64)[pairs.number]
        return cls(number, tuple(lines))


@dataclass(frozen=True, slots=True, eq=False)
class Attribution:
    """What each instant belongs to."""

    pieces: Pieces
    """In order of time; they cover the recording once."""

    operator_labels: OperatorLabels
    operator_number: Int64
    stacks: Stacks
    stack_keys: StackKeys
    gaps: _Gaps
    operators: _Keys
    modules: _Keys
    lines: _Keys

    def origins(self, spans: SpanSet, step_count: int, most_rows: int) -> Origins:
        """Return where some time comes from, as tables of at most ``most_rows`` rows and a row for all others."""
        starts, ends, _, mine = overlapping(spans.starts_ns, spans.ends_ns, self.pieces.start_ns, self.pieces.end_ns)
        lengths = ends - starts

        def table(keys: _Keys, row: Callable[[int, int, int], Row]) -> tuple[tuple[Row, ...], OtherOrigins]:
            return _table(keys, mine, lengths, row, most_rows)

        return Origins(
            total_ns=int(lengths.sum()),
            step_count=step_count,
            operators=OriginTable(*table(self.operators, self._operator)),
            modules=OriginTable(*table(self.modules, self._module)) if self.stacks.has_modules else None,
            stacks=StackTable(*table(self.lines, self._line)) if self.stacks.is_known else None,
        )

    def _operator(self, piece: int, total_ns: int, count: int) -> OriginRow:
        return OriginRow(self.operator_labels.words(int(self.operator_number[piece])), total_ns, count)

    def _module(self, piece: int, total_ns: int, count: int) -> OriginRow:
        keys = self.stack_keys
        name = self.stacks.module(
            int(keys.module[piece]), int(keys.around[piece]), is_backward=bool(keys.is_backward[piece])
        )
        return OriginRow(name, total_ns, count)

    def _line(self, piece: int, total_ns: int, count: int) -> StackRow:
        gap = int(self.gaps.number[piece])
        if gap != NONE:
            before, after = self.gaps.lines[gap]
            return StackRow(before, after, None, None, total_ns, count)
        keys = self.stack_keys
        outer, inner, owner = (int(column[piece]) for column in (keys.outer, keys.inner, keys.owner))
        stack = self.stacks.stack(outer, inner, owner, is_backward=bool(keys.is_backward[piece]))
        inner_line = stack.inner if stack.inner != stack.outer else None
        return StackRow(stack.outer, None, inner_line, stack.owner, total_ns, count)


def attribute(observation: Observation, partition: Partition, tree: OperatorTree, stacks: Stacks) -> Attribution:
    """Return what each instant of a recording belongs to."""
    trace = observation.trace
    pieces = find_pieces(observation, partition)
    item = np.where(pieces.row == NONE, len(trace.events) + np.arange(pieces.row.size), pieces.row)
    pieces, item = _split_by_python(pieces, item, trace.python_calls)
    operators = tree.enclosing(pieces.thread, pieces.instant_ns)
    labels = OperatorLabels(trace, tree)
    number = labels.of(pieces, operators, _launch_calls(pieces, observation))
    keys = stacks.at(pieces.thread, pieces.instant_ns, operators)
    around = _Gaps.of(pieces, operators, tree, stacks)
    return Attribution(
        pieces=pieces,
        operator_labels=labels,
        operator_number=number,
        stacks=stacks,
        stack_keys=keys,
        gaps=around,
        operators=_Keys.of(item, number),
        modules=_Keys.of(item, keys.module, keys.around, (keys.is_backward & (keys.module != NONE)).astype(np.int64)),
        lines=_Keys.of(item, keys.outer, keys.inner, keys.owner, keys.is_backward.astype(np.int64), around.number),
    )


def _launch_calls(pieces: Pieces, observation: Observation) -> Int64:
    """Return the row of the launch of each GPU operation; NONE for other pieces."""
    call = np.full(len(observation.trace.events) + 1, NONE, dtype=np.int64)
    call[observation.launches.work_rows] = observation.launches.call_rows
    return np.where(pieces.holder == Holder.WORK, call[pieces.row], NONE)


def _split_by_python(pieces: Pieces, item: Int64, calls: PythonCalls) -> tuple[Pieces, Int64]:
    """Split what the host does where Python calls begin or end; their items stay whole."""
    host = np.flatnonzero(pieces.holder == Holder.HOST)
    if not calls.start_ns.size or not host.size:
        return pieces, item
    by_thread = positions_by(calls.thread)
    parts, origins = [pieces.taken(pieces.holder != Holder.HOST)], [np.flatnonzero(pieces.holder != Holder.HOST)]
    for thread, mine in positions_by(pieces.thread[host]).items():
        places = host[mine]
        starts, ends = pieces.start_ns[places], pieces.end_ns[places]
        rows = by_thread.get(thread, np.empty(0, np.int64))
        ended = np.searchsorted(ends, calls.start_ns[rows], side="right")
        rows = rows[np.searchsorted(starts, calls.end_ns[rows], side="left") > ended]
        course = ThreadCalls(calls.start_ns[rows], calls.end_ns[rows], calls.thread[rows]).course(thread)
        starts, ends, parent = split(starts, ends, course.bounds_ns)
        whole = pieces.taken(places[parent])
        parts.append(Pieces(starts, ends, whole.holder, whole.row, whole.thread, starts))
        origins.append(places[parent])
    order = np.argsort(np.concatenate([part.start_ns for part in parts]), kind="stable")
    return Pieces.joined(parts), item[np.concatenate(origins)[order]]


def _table(
    keys: _Keys, mine: Int64, lengths_ns: Int64, row: Callable[[int, int, int], Row], most_rows: int
) -> tuple[tuple[Row, ...], OtherOrigins]:
    """Sum pieces by their number; the row of each number with much time, and all others in one."""
    number = keys.number[mine]
    total_ns = np.zeros(keys.example.size, dtype=np.int64)
    np.add.at(total_ns, number, lengths_ns)
    member, order = keys.member[mine], np.arange(mine.size)
    last = np.empty(keys.member.max(initial=NONE) + 1, dtype=np.int64)
    last[member] = order
    count = np.bincount(number[last[member] == order], minlength=keys.example.size)
    largest = np.argsort(-total_ns, kind="stable")[:most_rows]
    largest = largest[total_ns[largest] > 0]
    rows = tuple(row(int(keys.example[key]), int(total_ns[key]), int(count[key])) for key in largest.tolist())
    left_ns, left = total_ns.sum() - total_ns[largest].sum(), count.sum() - count[largest].sum()
    return rows, OtherOrigins(int(left_ns), int(left))
