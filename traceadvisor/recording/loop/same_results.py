"""Finds operators that compute the same again, in the tree of events that torch's profiler keeps after a recording.

The tree names the storage of each input, and the file beside it the other arguments. As compilers number values, each
operator gets a number that follows from its name, its arguments and the numbers of what its inputs hold: two operators
of one number compute the same. What draws random numbers, what this module does not know, and memory that code outside
of torch may fill get a new number each time. Nothing runs while the training does, and no tensor is read.
"""

from __future__ import annotations

import os
import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, count
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch._C._profiler import _EventType

from traceadvisor.model.location import Location
from traceadvisor.model.run import SameResults
from traceadvisor.recording.script.own_code import is_of_library, own_code, shown_path
from traceadvisor.system import clocks

MOST_NS = 1_000_000_000
"""CPU time to go through the events; what happened until then counts. All takes about three times as long."""

_BETWEEN_LOOKS = 256
"""Events between two looks at the clock."""

MANY_STEPS = 4
"""Steps with the same result, from which on it counts as one that never changes."""

MOST_PLACES = 8
MOST_CALLS = 500

_LEAST_SHARE = 0.5
"""Share of a Python call that its operators take at least; others do something else as well."""

_KINDS = frozenset({_EventType.TorchOp, _EventType.Allocation, _EventType.PyCall, _EventType.PyCCall})
_CASTS = frozenset(f"aten::{name}" for name in ("to", "_to_copy", "copy_", "empty", "empty_strided", "empty_like"))
"""Operators within others by which autocast converts weights, which it keeps for the second call."""

_KEEPING = frozenset({"aten::resize_", "aten::as_strided_", "aten::detach_"})
_MARK = "ProfilerStep#"
_ARGUMENTS = re.compile(rb'"External id": (\d+),[^{}]{0,200}?"Concrete Inputs": (\[.*?\]), "Input type": (\[.*?\])')

_FILLS_MEMORY = re.compile(r"DataLoader|from_numpy|as_tensor|frombuffer|from_dlpack|from_blob|rebuild_|asarray")
"""Calls that may put other values where a tensor was, without the allocator of torch."""

_RANDOM = re.compile(
    r"rand|normal|bernoulli|uniform|exponential|poisson|multinomial|geometric|cauchy|rrelu|gamma|binomial"
)
_DROPS = re.compile(r"dropout|lstm|gru|rnn|attention")
_NORMS = re.compile(r"batch_norm|instance_norm")
_MAY_PASS_ON = re.compile(r"aten::(?:\w*dropout|type_as|broadcast_tensors|meshgrid|atleast_\dd|pad)$")
"""Operators that may return what they were given, though their signature does not tell."""


class _Storage:
    """The content of a tensor's memory."""

    __slots__ = ("is_own", "number", "offsets", "order", "views", "writers")

    def __init__(self, number: Hashable, *, is_own: bool) -> None:
        self.number, self.is_own = number, is_own
        self.writers: list[Hashable] = []
        """Numbers of the operators that filled and changed it."""

        self.views: Hashable = None
        self.offsets: set[Hashable] = set()
        self.order: dict[int, int] = {}
        """Tensors that show a part of it, in the order of their first use."""


class _Node:
    """A Python call, with the operators in it: ``[first, last)`` of its thread's."""

    __slots__ = ("duration_ns", "first", "last", "module", "parent", "stack")

    def __init__(self, parent: _Node | None, event: Any, fields: Any, first: int) -> None:
        caller, module = fields.caller, getattr(fields, "module", None)
        self.parent, self.first, self.last = parent, first, first
        self.duration_ns = event.duration_time_ns
        self.module = str(module.cls_name) if module else None
        self.stack: tuple[Location, ...] = parent.stack if parent else ()
        if _is_own(caller.file_name):
            self.stack = (*self.stack, _line(caller.file_name, caller.line_number, caller.function_name))


class _Operator:
    """An operator within no other one."""

    __slots__ = (
        "again_of", "changes_all", "fields", "inner", "is_free", "name", "node", "results", "span_ns", "step", "steps",
    )  # fmt: skip

    def __init__(self, event: Any, fields: Any, node: _Node | None, *, is_free: bool, changes_all: bool) -> None:
        self.name, self.fields, self.node = str(event.name), fields, node
        self.span_ns = event.start_time_ns, event.end_time_ns
        self.is_free, self.changes_all = is_free, changes_all
        self.inner = [*_within(event)]
        self.results: list[_Storage] = []
        self.again_of: _Operator | None = None
        self.step = -1
        self.steps: set[int] = set()
        """Steps in which operators compute this."""

    @property
    def ids(self) -> tuple[int, int]:
        """The first and the last id of its events."""
        mine = [int(event.correlation_id) for event, _ in self.inner if event.tag == _EventType.TorchOp]
        return min(mine), max(mine)

    @property
    def is_again(self) -> bool:
        """Whether it computes the same, and the same happens to its result."""
        first = self.again_of
        return first is not None and [one.writers for one in self.results] == [one.writers for one in first.results]


@cache
def _is_own(file: str) -> bool:
    """Whether a file is the script's or a module of it; torch leaves out the folder of most."""
    return not is_of_library(file) and (Path(file).is_absolute() or file.split(os.sep, maxsplit=1)[0] in _own_parts())


_own_parts = cache(own_code)


@cache
def _line(file: str, line: int, function: str) -> Location:
    return Location(shown_path(file), line, function)


def _within(event: Any) -> Iterator[tuple[Any, Any]]:
    """Yield an operator and what is within it, operators and allocations, with their fields."""
    todo = [event]
    while todo:
        one = todo.pop()
        if one.tag in (_EventType.TorchOp, _EventType.Allocation):
            yield one, one.extra_fields
        todo.extend(reversed(one.children))


def same_results(profiler: Any, content: bytes) -> tuple[SameResults, ...] | None:
    """The places at which a recording computes the same again, those with the most time first.

    ``profiler``: of torch, stopped, with shapes, memory and stacks. ``content``: its file, in JSON.
    None where torch tells too little, or the recording has few steps.
    """
    arguments = {int(one[1]): hash(one.group(2, 3)) for one in _ARGUMENTS.finditer(content)}
    looked = _Look(profiler.profiler.kineto_results.experimental_event_tree())
    if not arguments or looked.step_count < MANY_STEPS:
        return None
    _Numbers(arguments, looked.parameters).give(looked.happened)
    return _places(looked)


class _Look:
    """The events that count."""

    def __init__(self, tree: Iterable[Any]) -> None:
        self.parameters: set[int] = set()
        self.happened: list[tuple[int, Any]] = []
        """By begin: operators, ids of allocations between them, and None for calls that may fill memory."""

        self.trees: list[list[_Operator]] = []
        self._marks: list[int] = []
        self._count = 0
        self._due_ns, self._cut_ns = clocks.thread_time_ns() + MOST_NS, float("inf")
        for root in tree:
            self.trees.append([])
            self._walk(root)
        self.happened.sort(key=lambda one: one[0])
        self._marks.sort()
        self.happened = [one for one in self.happened if one[0] < self._cut_ns]
        self.step_count = len(self._marks)
        for operators in self.trees:
            for one in operators:
                one.step = bisect(self._marks, one.span_ns[0])

    def _walk(self, root: Any) -> None:  # noqa: C901  # one branch for each kind of event
        """Go through a tree, without recursion: it may be deep."""
        todo: list[tuple[Any, _Node | None, bool, bool]] = [(root, None, True, False)]
        operators = self.trees[-1]
        while todo:
            event, node, is_free, changes_all = todo.pop()
            if event is None and node:
                node.last = len(operators)
                continue
            kind, begin_ns = event.tag, event.start_time_ns
            if begin_ns >= self._cut_ns or kind not in _KINDS:
                continue
            self._count += 1
            if not self._count % _BETWEEN_LOOKS and clocks.thread_time_ns() > self._due_ns:
                self._cut_ns = begin_ns
            fields, name = event.extra_fields, event.name
            if kind == _EventType.Allocation:
                if fields.alloc_size > 0:
                    self.happened.append((begin_ns, fields.id))
                continue
            if _FILLS_MEMORY.search(name):
                self.happened.append((begin_ns, None))
            if kind == _EventType.TorchOp:
                if name.startswith(_MARK):
                    self._marks.append(begin_ns)
                is_free &= not name.startswith(("autograd::engine", "Optimizer."))
                changes_all |= name.startswith("Optimizer.")
                if "::" in name and not name.startswith("autograd::"):
                    operators.append(_Operator(event, fields, node, is_free=is_free, changes_all=changes_all))
                    self.happened.append((begin_ns, operators[-1]))
                    continue
            else:
                node = _Node(node, event, fields, len(operators))
                if module := getattr(fields, "module", None):
                    self.parameters.update(tensor.id for _, tensor, _ in module.parameters)
                todo.append((None, node, False, False))
            todo.extend((one, node, is_free, changes_all) for one in reversed(event.children))


class _Numbers:
    """Numbers of what storages hold."""

    def __init__(self, arguments: dict[int, int], parameters: set[int]) -> None:
        self._arguments, self._parameters = arguments, parameters
        self._fresh = count()
        self._storages: dict[int, _Storage] = {}
        self._latest: dict[Hashable, _Operator] = {}

    def give(self, happened: Iterable[tuple[int, Any]]) -> None:
        """Go through all that happened, and set for each operator the one of which it is the repetition."""
        for _, what in happened:
            if what is None:
                self._storages = {key: one for key, one in self._storages.items() if one.is_own}
            elif isinstance(what, _Operator):
                self._operator(what)
            else:
                self._made(what)

    def _operator(self, one: _Operator) -> None:
        tensors = [*_tensors(one.fields.inputs)]
        number: Hashable = self._number(one, tensors)
        sizes = [(fields.id, fields.alloc_size) for event, fields in one.inner if event.tag == _EventType.Allocation]
        freed = {key for key, size in sizes if size < 0}
        made = [key for key, size in sizes if size > 0 and key is not None]
        for place, key in enumerate(made):
            self._write(self._made(key), (number, place))
        one.results = [self._storages[key] for key in made if key not in freed]
        for tensor in self._changed(one, tensors, made):
            if tensor.id is not None:
                self._write(self._of(tensor.id), number)
        self._see_views(one, {*made})
        if one.is_free:
            one.again_of = self._latest.get(number)
            one.steps = one.again_of.steps if one.again_of else one.steps
            one.steps.add(one.step)
            self._latest[number] = one

    def _number(self, one: _Operator, tensors: Sequence[Any]) -> int:
        """Return the number of what an operator computes; a new one if that may differ from call to call."""
        if not one.is_free or not one.name.startswith("aten::") or _differs(one.name, one.fields.inputs):
            return hash((next(self._fresh), "new"))
        inner = [
            (fields.name, self._arguments.get(event.correlation_id))
            for event, fields in one.inner[1:]
            if event.tag == _EventType.TorchOp and fields.name not in _CASTS
        ]
        own = self._arguments.get(one.inner[0][0].correlation_id)
        if own is None or any(tensor.id is None for tensor in tensors):
            return hash((next(self._fresh), "new"))
        return hash((one.name, own, tuple(inner), tuple(map(self._key, tensors))))

    def _key(self, tensor: Any) -> Hashable:
        storage = self._of(tensor.id)
        part: Hashable = storage.views
        if len(storage.offsets) > 1:
            part = part, storage.order.setdefault(tensor.impl_ptr, len(storage.order))
        elif not storage.is_own:
            part = part, tensor.impl_ptr
        return storage.number, tuple(tensor.sizes), tuple(tensor.strides), tensor.dtype, part

    def _of(self, key: int) -> _Storage:
        if key not in self._storages:
            self._storages[key] = _Storage((next(self._fresh), "found"), is_own=key in self._parameters)
        return self._storages[key]

    def _made(self, key: int | None) -> _Storage:
        made = _Storage((next(self._fresh), "made"), is_own=True)
        if key is not None:
            self._storages[key] = made
        return made

    def _write(self, storage: _Storage, number: Hashable) -> None:
        storage.writers.append(number)
        storage.number = hash((storage.number, number)) if len(storage.writers) > 1 or not storage.is_own else number

    def _changed(self, one: _Operator, tensors: Sequence[Any], made: Sequence[int]) -> Iterator[Any]:
        """Yield what an operator changes, or may change."""
        if one.changes_all or not one.name.startswith("aten::") or one.name in signatures().writers:
            yield from tensors
            return
        if one.name.endswith("_"):
            yield from tensors if re.match("aten::_(foreach|fused|amp)", one.name) else tensors[:1]
        elif not made and one.name not in signatures().makes_none and not _MAY_PASS_ON.match(one.name):
            yield from tensors  # the result is in one of them
        for event, fields in one.inner[1:]:
            if event.tag == _EventType.TorchOp and fields.name.endswith("_") and fields.name not in _KEEPING:
                yield from (tensor for tensor in [*_tensors(fields.inputs)][:1] if tensor.id not in made)

    def _see_views(self, one: _Operator, made: set[int]) -> None:
        """Note that tensors may show another part of a storage from now on."""
        for event, fields in one.inner:
            if event.tag == _EventType.TorchOp and fields.name == "aten::as_strided" and len(fields.inputs) > 3:
                tensor, offset = fields.inputs[0], fields.inputs[3]
                if isinstance(offset, int) and tensor.id is not None and tensor.id not in made:
                    storage, part = self._of(tensor.id), (offset, self._arguments.get(event.correlation_id))
                    storage.offsets.add(part)
                    storage.views = part if len(storage.offsets) < 2 else hash((storage.views, part))


def _tensors(inputs: Iterable[Any]) -> Iterator[Any]:
    for one in inputs:
        if isinstance(one, list):
            yield from _tensors(one)
        elif hasattr(one, "impl_ptr"):
            yield one


class _Signatures(NamedTuple):
    """Operators of torch by what they return."""

    writers: frozenset[str]
    """Change an input in each of their forms, without a name that tells."""

    makes_none: frozenset[str]
    """May return a view, or return no tensor."""

    hides: frozenset[str]
    """Have lists of tensors that may be missing, which torch does not record."""


@cache
def signatures() -> _Signatures:
    """Sort the operators of torch, in 0.2 s."""
    writers, others, none, hides = (set[str]() for _ in range(4))
    for one in torch._C._jit_get_all_schemas():
        writes = any(arg.alias_info and arg.alias_info.is_write for arg in one.arguments)
        (writers if writes else others).add(one.name)
        results = [(str(arg.type), arg.alias_info) for arg in one.returns]
        if any((alias and not alias.is_write) or "Tensor" not in kind for kind, alias in results) or not results:
            none.add(one.name)
        if any(str(arg.type) == "List[Optional[Tensor]]" for arg in one.arguments):
            hides.add(one.name)
    return _Signatures(*map(frozenset, ({one for one in writers - others if one[-1] != "_"}, none, hides)))


def _differs(name: str, inputs: Sequence[Any]) -> bool:
    """Whether a call may have another result than the one before with the same inputs, or an effect besides it."""
    flags = [one for one in inputs if isinstance(one, bool)]
    if _RANDOM.search(name) or name in signatures().hides or name in signatures().writers:
        return True
    if _DROPS.search(name):
        return any(isinstance(one, float) and one > 0 for one in inputs) and (True in flags or "attention" in name)
    return bool(_NORMS.search(name)) and (not flags or flags[0]) and len([*_tensors(inputs)]) > 3


class _Piece(NamedTuple):
    """Operators one after another that compute the same again, and the Python call that they are or are in."""

    first: _Operator
    last: _Operator
    node: _Node | None

    @property
    def stack(self) -> tuple[Location, ...]:
        return self.node.stack if self.node else ()

    @property
    def is_of_own_code(self) -> bool:
        """Whether a line of the script makes this call, and not a library in a larger one."""
        above = self.node.parent if self.node else None
        return bool(self.stack) and not (above and self.stack is above.stack)

    @property
    def original(self) -> _Operator:
        assert self.first.again_of  # noqa: S101  # it is again
        return self.first.again_of

    @property
    def is_constant(self) -> bool:
        return len(self.first.steps) >= MANY_STEPS

    @property
    def duration_ns(self) -> int:
        return int(self.last.span_ns[1] - self.first.span_ns[0])

    @property
    def ids(self) -> tuple[int, int, int, int]:
        first, last = (one.again_of or one for one in (self.first, self.last))
        return self.first.ids[0], self.last.ids[1], first.ids[0], last.ids[1]

    def continues(self, other: _Piece) -> bool:
        """Whether it is of the same call of a function, in the same step, as another one."""
        mine, its = ([(one.file, one.function) for one in piece.stack] for piece in (self, other))
        is_near = self.stack[:-1] == other.stack[:-1] and self.first.step == other.first.step
        return is_near and mine == its and self.is_constant == other.is_constant


def _places(looked: _Look) -> tuple[SameResults, ...]:
    """Group the calls that compute the same again by their places."""
    groups: dict[tuple[bool, Location, Location], list[tuple[_Piece, _Piece]]] = defaultdict(list)
    for operators in looked.trees:
        for run in _runs(operators):
            most = max(run, key=lambda one: one.duration_ns)
            original = most.original.node.stack if most.original.node else ()
            place = _parting(original, most.stack) if most.is_of_own_code else None
            if place:
                groups[(most.is_constant, *place)].append((most, run[-1]._replace(first=run[0].first)))
    found = []
    for (is_constant, first, again), calls in groups.items():
        steps = {whole.first.step for _, whole in calls}
        if len(steps) >= looked.step_count - 1:
            calls.sort(key=lambda one: one[1].duration_ns, reverse=True)
            pieces = [whole for _, whole in calls[:MOST_CALLS]]
            node = calls[0][0].node
            module = node.module if node else None
            one = SameResults(first, again, module, is_constant, len(steps), tuple(one.ids for one in pieces))
            found.append((sum(one.duration_ns for one in pieces), one))
    found.sort(key=lambda one: one[0], reverse=True)
    return tuple(one for _, one in found[:MOST_PLACES])


def _runs(operators: Sequence[_Operator]) -> Iterator[list[_Piece]]:
    """Yield operators one after another that compute the same again, in one call of a function."""
    again = [one.is_again for one in operators]
    before = [0, *accumulate(again)]
    time_ns = [0, *accumulate(one.span_ns[1] - one.span_ns[0] for one in operators)]
    place, run = 0, list[_Piece]()
    while place < len(operators):
        if again[place]:
            whole, node = None, operators[place].node
            while node and before[node.last] - before[node.first] == node.last - node.first:
                if time_ns[node.last] - time_ns[node.first] >= _LEAST_SHARE * node.duration_ns:
                    whole = node
                node = node.parent
            node, end = whole or operators[place].node, whole.last if whole else place + 1
            piece = _Piece(operators[place], operators[end - 1], node)
            if run and not piece.continues(run[-1]):
                yield run
                run = []
            run.append(piece)
            place = end
            continue
        if run:
            yield run
            run = []
        place += 1
    if run:
        yield run


def _parting(was: Sequence[Location], now: Sequence[Location]) -> tuple[Location, Location] | None:
    """Return the lines of one function that make both calls; None where they make larger calls that differ."""
    for first, again in zip(was, now, strict=False):
        if first != again:
            is_whole = (first.file, first.function) == (again.file, again.function) and again is now[-1]
            return (first, again) if is_whole else None
    return now[-1], now[-1]
