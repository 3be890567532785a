"""What each instant of a recording belongs to, and tables of it for any spans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.innermost import overlapping
from traceadvisor.analysis.operators.numbering import numbered
from traceadvisor.analysis.operators.python_frames import PythonFrames, calls_at
from traceadvisor.analysis.operators.stacks import StackKeys, Stacks
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.analysis.origins.labels import OperatorLabels, neighbours
from traceadvisor.analysis.origins.pieces import IDLE, Holder, Pieces, find_pieces
from traceadvisor.analysis.steps.breakdown import Partition
from traceadvisor.model.arrays import Int64, Mask, distinct
from traceadvisor.model.events import NONE
from traceadvisor.model.location import Location
from traceadvisor.model.origins import OriginRow, Origins, OriginTable, OtherOrigins, StackRow, StackTable
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

Row = TypeVar("Row", OriginRow, StackRow)


@dataclass(frozen=True, slots=True, eq=False)
class _Keys:
    """Dense numbers of pieces."""

    number: Int64
    example: Int64
    """One piece of each number."""

    @classmethod
    def of(cls, *columns: Int64) -> _Keys:
        """Number the distinct combinations of some columns, all from NONE up."""
        return cls(*numbered(*columns))


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
        text = np.append(stacks.text_of, NONE)
        before, after = (
            text[place] for place in neighbours(tree, speaking, pieces.thread[gaps], pieces.start_ns[gaps])
        )
        pairs = _Keys.of(before, after)
        lines: dict[tuple[Location | None, Location | None], int] = {}
        known = [
            lines.setdefault(stacks.lines_around(int(before[place]), int(after[place])), len(lines))
            for place in pairs.example.tolist()
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
    """Of some pieces, by :attr:`stack_of`."""

    stack_of: Int64
    gaps: _Gaps
    operators: _Keys
    modules: _Keys
    lines: _Keys

    def origins(self, spans: SpanSet, step_count: int, most_rows: int) -> Origins:
        """Return where some time comes from, as tables of at most ``most_rows`` rows and a row for all others."""
        starts, ends, _, mine = overlapping(spans.starts_ns, spans.ends_ns, self.pieces.start_ns, self.pieces.end_ns)
        lengths = ends - starts

        def table(keys: _Keys, row: Callable[[int, int, int], Row]) -> tuple[tuple[Row, ...], OtherOrigins]:
            return _table(keys, mine, self.pieces.item, lengths, row, most_rows)

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
        keys, place = self.stack_keys, int(self.stack_of[piece])
        name = self.stacks.module(
            int(keys.module[place]), int(keys.around[place]), is_backward=bool(keys.is_backward[place])
        )
        return OriginRow(name, total_ns, count)

    def _line(self, piece: int, total_ns: int, count: int) -> StackRow:
        gap = int(self.gaps.number[piece])
        if gap != NONE:
            before, after = self.gaps.lines[gap]
            return StackRow(before, after, None, None, total_ns, count)
        keys, place = self.stack_keys, int(self.stack_of[piece])
        outer, inner, owner = (int(column[place]) for column in (keys.outer, keys.inner, keys.owner))
        stack = self.stacks.stack(outer, inner, owner, is_backward=bool(keys.is_backward[place]))
        inner_line = stack.inner if stack.inner != stack.outer else None
        return StackRow(stack.outer, None, inner_line, stack.owner, total_ns, count)


def attribute(observation: Observation, partition: Partition, tree: OperatorTree, stacks: Stacks) -> Attribution:
    """Return what each instant of a recording belongs to."""
    trace = observation.trace
    frames = stacks.frames(_wanted_calls(observation, partition, tree, stacks))
    pieces = find_pieces(observation, partition, frames.calls)
    causes = _causes(pieces, observation)
    operators = _operators(trace, tree, causes)
    labels = OperatorLabels(trace, tree)
    number = labels.of(pieces, operators, causes)
    keys, stack_of = _stacks(trace, pieces, causes, operators, stacks, frames)
    gaps = _Gaps.of(pieces, operators, tree, stacks)
    is_backward = keys.is_backward.astype(np.int64)
    lines, _ = numbered(keys.outer, keys.inner, keys.owner, is_backward)
    modules, _ = numbered(keys.module, keys.around, is_backward * (keys.module != NONE))
    return Attribution(
        pieces=pieces,
        operator_labels=labels,
        operator_number=number,
        stacks=stacks,
        stack_keys=keys,
        stack_of=stack_of,
        gaps=gaps,
        operators=_Keys.of(number),
        modules=_Keys.of(modules[stack_of]),
        lines=_Keys.of(np.where(gaps.number == NONE, lines[stack_of], NONE), gaps.number),
    )


def _wanted_calls(observation: Observation, partition: Partition, tree: OperatorTree, stacks: Stacks) -> Mask:
    """Return the Python calls that run while the CPU is looked at, or that launch or make something."""
    trace, events, launches = observation.trace, observation.trace.events, observation.launches
    calls = trace.python_calls
    idle = SpanSet.union_all(spans for category, spans in partition.items() if category in IDLE)
    if not observation.has_device:
        idle = SpanSet.union_all(partition.values())
    ended = np.searchsorted(idle.ends_ns, calls.start_ns, side="right")
    wanted: Mask = np.searchsorted(idle.starts_ns, calls.end_ns, side="left") > ended
    rows = launches.call_rows[launches.call_rows != NONE]
    forward = distinct(np.sort(stacks.forward_of))
    forward = forward[forward != NONE]
    threads = np.concatenate((events.thread[rows], tree.thread[forward]))
    return wanted | calls_at(calls, threads, np.concatenate((events.start_ns[rows], tree.start_ns[forward])))


def _causes(pieces: Pieces, observation: Observation) -> Int64:
    """Return the row of the event that explains each piece: the launch of a GPU operation, else the piece's own."""
    cause = np.arange(len(observation.trace.events) + 1)
    cause[observation.launches.work_rows] = observation.launches.call_rows
    cause[-1] = NONE
    return cause[pieces.row]


def _operators(trace: Trace, tree: OperatorTree, rows: Int64) -> Int64:
    """Return the innermost operator of each event: itself or the one around its start; NONE without one."""
    used = np.zeros(len(trace.events) + 1, dtype=np.bool_)
    used[rows] = True
    position = np.full(used.size, NONE, dtype=np.int64)
    position[tree.rows] = np.arange(tree.rows.size)
    others = np.flatnonzero(used[:-1] & (position[:-1] == NONE))
    position[others] = tree.enclosing(trace.events.thread[others].astype(np.int64), trace.events.start_ns[others])
    return position[rows]


def _stacks(  # noqa: PLR0913  # all that tells a stack
    trace: Trace, pieces: Pieces, causes: Int64, operators: Int64, stacks: Stacks, frames: PythonFrames
) -> tuple[StackKeys, Int64]:
    """Return the distinct stacks, and the one of each piece."""
    threads = np.asarray(pieces.thread, dtype=np.int64)
    starts = np.append(trace.events.start_ns, NONE)[causes]
    instants = np.where((causes == NONE) | (pieces.holder == Holder.HOST), pieces.start_ns, starts)
    if not stacks.has_calls:
        keys = stacks.at(threads, instants, operators)
        number, example = numbered(keys.inner, keys.is_backward.astype(np.int64))
        return keys.taken(example), number
    own, ran_inside = stacks.own_frames(frames, pieces.call, threads, instants, operators)
    forward = stacks.forward_frames(frames, operators)[operators]
    number, example = numbered(own, forward, ran_inside.astype(np.int64))
    return stacks.keys(frames.table, own[example], forward[example], ran_inside[example]), number


def _table(  # noqa: PLR0913  # all that a table is made of
    keys: _Keys,
    mine: Int64,
    item: Int64,
    lengths_ns: Int64,
    row: Callable[[int, int, int], Row],
    most_rows: int,
) -> tuple[tuple[Row, ...], OtherOrigins]:
    """Sum pieces by their number; the row of each number with much time, and all others in one."""
    number = keys.number[mine]
    total_ns = np.zeros(keys.example.size, dtype=np.int64)
    np.add.at(total_ns, number, lengths_ns)
    largest = np.argsort(-total_ns, kind="stable")[:most_rows]
    largest = largest[total_ns[largest] > 0]
    group = np.full(keys.example.size, largest.size, dtype=np.int64)
    group[largest] = np.arange(largest.size)
    pairs = numbered(item[mine], group[number])[1]
    count = np.bincount(group[number[pairs]], minlength=largest.size + 1)
    rows = tuple(
        row(int(keys.example[key]), int(total_ns[key]), int(count[place])) for place, key in enumerate(largest.tolist())
    )
    return rows, OtherOrigins(int(total_ns.sum() - total_ns[largest].sum()), int(count[-1]))
