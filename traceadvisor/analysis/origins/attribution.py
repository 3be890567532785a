"""Owner of each instant of a recording, and tables of it for any spans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.innermost import overlapping
from traceadvisor.analysis.operators.numbering import numbered, values_at
from traceadvisor.analysis.operators.python_frames import calls_at
from traceadvisor.analysis.operators.stacks import Stacks
from traceadvisor.analysis.operators.tree import OperatorTree, call_operators
from traceadvisor.analysis.origins.labels import OperatorLabels, Places
from traceadvisor.analysis.origins.pieces import IDLE, PieceFinder, Pieces
from traceadvisor.analysis.steps.breakdown import Partition
from traceadvisor.analysis.steps.detection import recording_extent
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int32, Int64, Mask, distinct
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.origins import OriginRow, Origins, OriginTable, OtherOrigins, StackRow, StackTable
from traceadvisor.model.spans import SpanSet

WINDOW_EVENTS = 1 << 17
"""Events of a window that is worked on at once, which bounds the memory needed."""

Row = TypeVar("Row", OriginRow, StackRow)


@dataclass(slots=True)
class _Growing:
    """Numbers distinct keys as they come, window by window."""

    keys: dict[int, int] = field(default_factory=dict)
    parts: list[Int32] = field(default_factory=list)

    def add(self, keys: Int64) -> None:
        """Add the keys of a window."""
        number, example = numbered(keys)
        known = [self.keys.setdefault(key, len(self.keys)) for key in keys[example].tolist()]
        self.parts.append(np.array(known, dtype=np.int32)[number])


@frozen(eq=False)
class Attribution:
    """Owner of each instant: pieces in order of time that cover the recording once; arrays of shape ``(n,)``."""

    start_ns: Int64
    end_ns: Int64
    item: Int32 | Int64
    """Number of the call, GPU operation or stretch of plain Python."""

    operator: Int32
    """Row of :attr:`operator_names`."""

    place: Int32
    """Row of :attr:`lines_of` and :attr:`modules_of`."""

    labels: OperatorLabels
    operator_keys: tuple[int, ...]
    places: Places
    place_keys: Int64
    lines_of: Int64
    modules_of: Int64
    """For each distinct place, the number of its lines and of its module; several places can have the same."""

    def origins(self, spans: SpanSet, step_count: int, most_rows: int) -> Origins:
        """Return where some time comes from, as tables of at most ``most_rows`` rows and a row for all others."""
        starts, ends, _, mine = overlapping(spans.starts_ns, spans.ends_ns, self.start_ns, self.end_ns)
        lengths, item, place = ends - starts, self.item[mine], self.place[mine]

        def table(number: Int64, row: Callable[[int, int, int], Row]) -> tuple[tuple[Row, ...], OtherOrigins]:
            return _table(number, item, lengths, row, most_rows)

        by_module, by_line = self.places.has_modules, self.places.has_lines
        return Origins(
            total_ns=int(lengths.sum()),
            step_count=step_count,
            operators=OriginTable(*table(self.operator[mine].astype(np.int64), self._operator)),
            modules=OriginTable(*table(self.modules_of[place], self._module)) if by_module else None,
            stacks=StackTable(*table(self.lines_of[place], self._line)) if by_line else None,
        )

    def _operator(self, number: int, total_ns: int, count: int) -> OriginRow:
        key = self.operator_keys[number]
        labels = self.labels
        return OriginRow(labels.words(key), total_ns, count, labels.is_python(key), labels.around(key))

    def _module(self, number: int, total_ns: int, count: int) -> OriginRow:
        return OriginRow(self.places.module(self._key_of(self.modules_of, number)), total_ns, count)

    def _line(self, number: int, total_ns: int, count: int) -> StackRow:
        return self.places.row(self._key_of(self.lines_of, number), total_ns, count)

    def _key_of(self, numbers: Int64, number: int) -> int:
        return int(self.place_keys[np.argmax(numbers == number)])


def attribute(observation: Observation, partition: Partition, tree: OperatorTree, stacks: Stacks) -> Attribution:
    """Return what each instant of a recording belongs to."""
    frames = stacks.frames(lambda: _wanted_calls(observation, partition, tree, stacks))
    finder = PieceFinder(observation, frames.calls)
    labels, places = OperatorLabels(observation.trace, tree), Places(observation.trace, tree, stacks, frames)
    causes_of, operators_of = _causes(observation), _operators(observation, tree)
    operators, found_places = _Growing(), _Growing()
    starts: list[Int64] = []
    ends: list[Int64] = []
    items: list[Int32 | Int64] = []
    for start_ns, end_ns in _windows(observation):
        pieces = finder.pieces({category: spans.clip(start_ns, end_ns) for category, spans in partition.items()})
        causes = values_at(causes_of, pieces.row)
        around = values_at(operators_of, causes)
        operators.add(labels.of(pieces, around, causes))
        found_places.add(places.of(pieces, around, causes))
        starts.append(pieces.start_ns)
        ends.append(pieces.end_ns)
        items.append(_small(pieces))
    place_keys = np.array(list(found_places.keys), dtype=np.int64)
    places.release()
    lines_of, modules_of = places.alike(place_keys)
    return Attribution(
        start_ns=_taken(starts),
        end_ns=_taken(ends),
        item=_taken(items),
        operator=_taken(operators.parts),
        place=_taken(found_places.parts),
        labels=labels,
        operator_keys=tuple(operators.keys),
        places=places,
        place_keys=place_keys,
        lines_of=lines_of,
        modules_of=modules_of,
    )


def _taken(parts: list[Any]) -> NDArray[Any]:
    """Return the windows of a column in one array, and release them."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole


def _small(pieces: Pieces) -> Int32 | Int64:
    return pieces.item.astype(np.int32) if pieces.item.max(initial=0) < np.iinfo(np.int32).max else pieces.item


def _windows(observation: Observation) -> Iterator[tuple[int, int]]:
    """Split the recording into windows with similar numbers of events."""
    start_ns, end_ns = recording_extent(observation.trace)
    cuts = observation.trace.events.start_ns[WINDOW_EVENTS::WINDOW_EVENTS]
    inner = distinct(cuts[(cuts > start_ns) & (cuts < end_ns)]).tolist()
    return pairwise((start_ns, *inner, end_ns))


def _wanted_calls(observation: Observation, partition: Partition, tree: OperatorTree, stacks: Stacks) -> Mask:
    """Return the Python calls that run while the CPU is looked at, or that launch or make something."""
    trace, events, launches = observation.trace, observation.trace.events, observation.launches
    calls = trace.python_calls
    looked_at = (category for category in partition if category in IDLE or not observation.has_device)
    idle = SpanSet.union_all(partition[category] for category in looked_at)
    ended = idle.ends_ns.searchsorted(calls.start_ns, side="right")
    wanted: Mask = idle.starts_ns.searchsorted(calls.end_ns, side="left") > ended
    rows = launches.call_rows[launches.call_rows != NONE]
    forward = distinct(np.sort(stacks.forward_of))
    forward = forward[forward != NONE]
    threads = np.concatenate((events.thread[rows], tree.thread[forward]))
    return wanted | calls_at(calls, threads, np.concatenate((events.start_ns[rows], tree.start_ns[forward])))


def _causes(observation: Observation) -> Int32:
    """Return, for each event, the event that explains it: of a GPU operation its launch, else itself."""
    cause = np.arange(len(observation.trace.events), dtype=np.int32)
    cause[observation.launches.work_rows] = observation.launches.call_rows
    return cause


def _operators(observation: Observation, tree: OperatorTree) -> Int32:
    """Return, for each event of the CPU, the innermost operator: itself or the one around its start; else NONE."""
    events = observation.trace.events
    position = np.full(len(events), NONE, dtype=np.int32)
    position[tree.rows] = np.arange(tree.rows.size)
    others = events.rows(Kind.RUNTIME, Kind.ANNOTATION, Kind.OVERHEAD)
    found = call_operators(events)[others].astype(np.int64)
    left = events.kind[others] != Kind.RUNTIME
    found[left] = tree.enclosing(events.thread[others[left]].astype(np.int64), events.start_ns[others[left]])
    while (shorter := ((found != NONE) & (values_at(tree.end_ns, found) < events.end_ns[others])).nonzero()[0]).size:
        found[shorter] = tree.parent[found[shorter]]  # it starts with the event, inside it
    position[others] = found
    return position


def _table(
    number: Int64, item: Int32 | Int64, lengths_ns: Int64, row: Callable[[int, int, int], Row], most_rows: int
) -> tuple[tuple[Row, ...], OtherOrigins]:
    """Sum pieces by their number; the row of each number with much time, and all others in one."""
    total_ns = np.zeros(int(number.max(initial=0)) + 1, dtype=np.int64)
    np.add.at(total_ns, number, lengths_ns)
    largest = np.argsort(-total_ns, kind="stable")[:most_rows]
    largest = largest[total_ns[largest] > 0]
    group = np.full(total_ns.size, largest.size, dtype=np.int64)
    group[largest] = np.arange(largest.size)
    count = _distinct_items(item, group[number], largest.size + 1)
    rows = tuple(row(key, int(total_ns[key]), int(count[place])) for place, key in enumerate(largest.tolist()))
    return rows, OtherOrigins(int(total_ns.sum() - total_ns[largest].sum()), int(count[-1]))


def _distinct_items(item: Int32 | Int64, group: Int64, group_count: int) -> Int64:
    count = np.zeros(group_count, dtype=np.int64)
    last = np.empty(int(item.max(initial=0)) + 1, dtype=np.int64)
    while item.size:
        places = np.arange(item.size)
        last[item] = places
        last_of_item = last[item]
        count += np.bincount(group[last_of_item == places], minlength=group_count)
        other = group != group[last_of_item]  # rarely, an item is in several groups: the next round counts another one
        item, group = item[other], group[other]
    return count
