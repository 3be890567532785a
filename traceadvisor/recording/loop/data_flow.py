"""Follows what the results of operators depend on: on nothing that changes, the batch, or what the training changes.

It takes two steps. The first one shows what changes in place, and what numbers of the script are; the second one is
judged. Nothing of the values is kept beyond that.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from functools import cache
from itertools import islice
from pathlib import Path
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

import traceadvisor
from traceadvisor.bundle.settings import MOST_PLACES
from traceadvisor.model.location import Location
from traceadvisor.model.run import RepeatedResult
from traceadvisor.recording.loop.random_numbers import script_state
from traceadvisor.recording.script.own_code import is_of_library, shown_path
from traceadvisor.system import clocks

MOST_NS = 3_000_000_000
"""Time to look at operators in both steps. Each takes 0.02 to 0.1 ms."""

MOST_OBJECTS = 200_000
"""Tensors and modules that exist before."""

MOST_ERRORS = 100
"""Operators that are unlike what was expected."""

COMPARED = 8
"""Values of a result that are compared."""

MOST_VALUES = 1 << 16
"""Values of a tensor to add up."""

_MOST_FRAMES = 200


class _Level(IntEnum):
    """The kinds of things that a tensor depends on: all of the ones before, too."""

    NOTHING = auto()
    """It is the same in each step."""

    DATA = auto()
    """The batch."""

    ORDER = auto()
    """Random integers, which may only choose samples."""

    TRAINING = auto()
    """Trained parameters, random numbers, or what is unknown."""


class _Code(Enum):
    """Whose code a frame runs."""

    SCRIPT = auto()
    LIBRARY = auto()
    OWN = auto()
    """It runs the script, and is called by it."""

    OPTIMIZER = auto()
    LOADER = auto()


_CALLERS = frozenset({_Code.OWN, _Code.OPTIMIZER})

Loss = tuple[int, int, Tensor]
_Frames = tuple[tuple[CodeType, int], ...]
"""The script's functions and lines, outermost first."""

_LOADERS = "torch/utils/data/"
_OPTIMIZERS = "torch/optim/", "torch/amp/"
"""Folders of optimizers, and of gradient scalers, which may call a closure of the script."""

_PACKAGE = f"{Path(traceadvisor.__file__).parent}{os.sep}"

_CHOOSES = frozenset({"index", "index_select", "gather", "take", "select", "embedding", "slice", "split", "unbind"})
_PASSES_ORDER = _CHOOSES | {"view", "_unsafe_view", "clone", "unsqueeze", "expand", "alias", "detach", "_reshape_alias"}
"""Operators whose results hold the same integers."""

_COPIES = frozenset({"_to_copy", "copy_", "_pin_memory", "lift_fresh", "detach", "alias"})
_READS = frozenset({"_local_scalar_dense", "is_nonzero", "equal"})
"""Operators that return numbers to Python."""

_EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
"""Operators whose results hold anything until they are written."""

_LOSSES = frozenset({"nll_loss_forward", "nll_loss2d_forward"})

_INTEGERS = frozenset({torch.uint8, torch.int16, torch.int32, torch.int64})

_DROPOUT = frozenset({"dropout_p", "dropout"})
"""Arguments of operators that are random only if they are not 0."""


@dataclass(slots=True)
class _Known:
    """A tensor's memory, and how its values come about."""

    reference: Any
    """Keeps the address from being used again; of a sparse tensor, its values, too."""

    level: _Level
    is_older: bool = False
    """Whether it is older than the step."""

    is_read: bool = False
    is_made: bool = False
    """Whether an operator computed it, and did not only copy it."""

    is_random: bool = False
    """Whether it is a single random number, or follows from one alone."""

    values: str | None = None
    """Some of them, when it was first read; None if they are unknown."""

    step: int = 0
    """The step in which they were looked at."""


class _Look(NamedTuple):
    """The part of an operator's call that is compared with the step before."""

    shape: tuple[int, ...] = ()
    values: str | None = ""
    """Some of the result; None if they are unknown."""

    inputs: tuple[tuple[int, ...], ...] = ()
    """Shapes of the tensors that it got."""

    numbers: tuple[float, ...] = ()
    integers: tuple[int, ...] = ()
    """That the script gave the operator."""


@dataclass(slots=True)
class _Calls:
    """The operators that one path of the script called in a step."""

    level: _Level = _Level.NOTHING
    count: int = 0
    time_ns: int = 0
    looks: list[_Look] = field(default_factory=list)


class DataFlow(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base has no types
    """Sees the operators of one thread, and what their results depend on."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would call each method through several others; nothing is compiled meanwhile

    def __init__(self, optimizers: Iterable[Optimizer]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.thread = get_ident()
        self.is_on = self.is_whole = True
        self.stance: Any = None
        self._spent_ns = self._time_ns = 0
        self._known: dict[int, _Known] = {}
        self._before: dict[_Frames, list[_Look]] | None = None
        """Looks of the first step; None during it."""
        self._calls = defaultdict[_Frames, _Calls](_Calls)
        self.loss: Loss | None = None
        """Targets and classes of the largest loss, and the number of targets that it leaves out."""
        self._errors_left = MOST_ERRORS
        self._state = script_state()
        """That of random numbers of the script, which no operator shows."""
        self.is_drawn = False
        """Whether the steps drew such a number: it may choose what they do."""
        trained = {id(one) for each in optimizers for one in _of_optimizer(each)}
        kept = (one for one in gc.get_objects() if issubclass(type(one), Tensor | nn.Module))
        objects = list(islice(kept, MOST_OBJECTS))
        followed = trained | _alike(objects, trained)
        for one in objects:
            if isinstance(one, Tensor):
                is_trained = id(one) in followed or one.grad_fn is not None
                self._note(one, _Level.TRAINING if is_trained else _Level.NOTHING).is_older = True

    def begin_second(self) -> None:
        """The first step ended. What it did not read may belong to the data of the second one.

        What it computed from its batch, and the second one still has, is no part of the next batch, unless it is only a
        copy that nobody has read yet.
        """
        for one in self._known.values():
            if one.is_older and not one.is_read and one.level is _Level.NOTHING:
                one.level = _Level.DATA
            elif one.level is _Level.DATA and (one.is_made or one.is_read) and not one.is_older:
                one.level = _Level.TRAINING
            one.is_older = True
        self._before = {frames: calls.looks for frames, calls in self._calls.items()}
        self._calls, self._time_ns = defaultdict(_Calls), 0

    def end(self) -> None:
        """Both steps ended."""
        self.is_on = False
        self.is_drawn |= script_state() != self._state

    def received(self, batch: Iterable[Tensor]) -> None:
        """The loader returned these tensors."""
        for one in batch:
            self._note(one, _Level.DATA)

    def _lost(self, scores: Tensor, targets: Tensor, ignored: int) -> None:
        """A cross entropy is computed: count the targets that it leaves out, without waiting for a GPU."""
        if self._before is None or (self.loss and self.loss[0] >= targets.numel()):
            return
        count = torch.zeros((), dtype=torch.int64, pin_memory=targets.is_cuda)
        count.copy_((targets == ignored).sum(), non_blocking=True)
        self.loss = targets.numel(), scores.shape[1], count

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and note what its results depend on."""
        if not self.is_on:
            return function(*args, **(kwargs or {}))
        begin_ns = clocks.perf_counter_ns()
        result = function(*args, **(kwargs or {}))
        end_ns = clocks.perf_counter_ns()
        try:
            self._saw(function, args, kwargs or {}, result, end_ns - begin_ns)
        except Exception:  # noqa: BLE001  # operators may have anything
            self._failed(result)
        self._spent_ns += clocks.perf_counter_ns() - end_ns
        if self._spent_ns > MOST_NS:
            self.is_on = self.is_whole = False
        return result

    def _failed(self, result: Any) -> None:
        """An operator is unlike what was expected: its results may depend on anything."""
        self._errors_left -= 1
        try:
            for one in (one for one in _parts((result,)) if isinstance(one, Tensor)):
                self._note(one, _Level.TRAINING)
        except Exception:  # noqa: BLE001  # as above
            self._errors_left = 0
        if self._errors_left <= 0:
            self.is_on = self.is_whole = False

    def places(self, *, data: bool) -> tuple[RepeatedResult, ...]:
        """Return the outermost lines and functions that depend on nothing, and with ``data`` on the batch alone."""
        most = _Level.DATA if data else _Level.NOTHING
        levels = defaultdict[object, _Level](lambda: _Level.NOTHING)
        for frames, calls in self._calls.items():
            for key in _places(frames):
                levels[key] = max(levels[key], calls.level)
        found = defaultdict[tuple[CodeType, int], list[_Calls]](list)
        for frames, calls in self._calls.items():
            place = next((key for key in _places(frames) if levels[key] <= most), None)
            if place is not None and calls.count:
                found[place].append(calls)
        results = [
            RepeatedResult(
                _location(*place),
                levels[place] is _Level.NOTHING,
                sum(one.time_ns for one in every) / max(self._time_ns, 1),
                sum(one.count for one in every),
            )
            for place, every in found.items()
        ]
        return tuple(sorted(results, key=lambda one: -one.operator_share)[:MOST_PLACES])

    def _saw(self, function: Any, args: Any, kwargs: Any, result: Any, took_ns: int) -> None:
        self._time_ns += took_ns
        results = [one for one in _parts((result,)) if isinstance(one, Tensor)]
        if torch._C._current_autograd_node() is not None:
            for one in (*results, *_written(function, args, kwargs)):
                self._note(one, _Level.TRAINING)
            return
        if _name(function) in _LOSSES:
            self._lost(args[0], args[1], args[4])
        frames, is_apart = _frames(sys._getframe(2))
        calls, given = self._calls[frames], [*_parts((args, kwargs))]
        inputs = [self._input(one, frames) for one in given if isinstance(one, Tensor)]
        name, level = _name(function), _level(function, args, kwargs, inputs, results)
        look = _look(results, given, with_values=level is _Level.NOTHING and name not in _EMPTY)
        level = self._with_changes(level, look, self._look_before(frames), chooses=name in _CHOOSES)
        calls.looks.append(look)
        is_random = _is_random(function, inputs, [*given, *results])
        self.is_drawn |= name in _READS and any(one.is_random for one in inputs)
        for one in results:
            known = self._of(one)
            if known and any(known is each for each in inputs):  # a view
                known.level = max(known.level, level)
            else:
                known = self._note(one, level)
                known.is_made, known.is_random = name not in _COPIES, is_random
        for one in _written(function, args, kwargs):
            if known := self._of(one):
                known.level = _Level.TRAINING if known.is_older else max(known.level, level)
        if results and not is_apart:
            calls.level = max(calls.level, level)
            calls.count += 1
            calls.time_ns += took_ns

    def _with_changes(self, level: _Level, look: _Look, before: _Look | None, *, chooses: bool) -> _Level:
        """The level by what an operator returned in the step before, and by the numbers that it was given."""
        if self._before is None or level >= _Level.ORDER:
            return level
        if before is None:
            return _Level.DATA
        if look.numbers != before.numbers:
            return _Level.TRAINING
        has_other_integers = look.integers != before.integers
        if level is _Level.DATA:
            # Lengths of samples differ from batch to batch; a random part of samples of one size does, too.
            return _Level.TRAINING if has_other_integers and look.inputs == before.inputs else level
        if look[:2] != before[:2] or (look.values is None and has_other_integers):
            return _Level.DATA if chooses or look.shape != before.shape else _Level.TRAINING
        return level

    def _look_before(self, frames: _Frames) -> _Look | None:
        looks = (self._before or {}).get(frames, [])
        place = len(self._calls[frames].looks)
        return looks[place] if place < len(looks) else None

    def _input(self, tensor: Tensor, frames: _Frames) -> _Known:
        """Return the memory of an input. One that no operator made, such as of numbers, is what it holds."""
        if (known := self._of(tensor)) is None:
            look, before = _Look(tuple(tensor.shape), _values(tensor)), self._look_before(frames)
            is_known = look.values is not None and tensor.numel() <= MOST_VALUES
            is_same = is_known and (self._before is None or look == before)
            self._calls[frames].looks.append(look)
            known = self._note(tensor, _Level.NOTHING if is_same else _Level.TRAINING)
        elif known.is_older and known.level is _Level.NOTHING:
            self._look_again(known, tensor)
        known.is_read = True
        return known

    def _look_again(self, known: _Known, tensor: Tensor) -> None:
        """Look at a tensor that nothing has changed so far, once in each step: code other than torch's may."""
        step = 1 if self._before is None else 2
        if known.step < step:
            values, before = _values(tensor), known.values
            if known.step and values != before:
                known.level = _Level.TRAINING
            known.values, known.step = values, step

    def _of(self, tensor: Tensor) -> _Known | None:
        return self._known.get(_address(tensor))

    def _note(self, tensor: Tensor, level: _Level) -> _Known:
        address = _address(tensor)
        if (known := self._known.get(address)) is None:
            known = self._known[address] = _Known(_reference(tensor), level)
        known.level, known.is_older, known.is_made, known.is_random = level, False, False, False
        return known


def _level(function: Any, args: Any, kwargs: Any, inputs: list[_Known], results: list[Tensor]) -> _Level:
    """Return the level of the results of an operator by its inputs."""
    level, name = max((one.level for one in inputs), default=_Level.NOTHING), _name(function)
    if torch.Tag.nondeterministic_seeded in function.tags and not _is_without_dropout(function, args, kwargs):
        is_order = level < _Level.TRAINING and all(one.dtype in _INTEGERS for one in results)
        return _Level.ORDER if is_order else _Level.TRAINING
    if level is _Level.ORDER:
        if name in _CHOOSES and inputs[0].level < _Level.ORDER and inputs[0].is_older:
            return _Level.DATA  # samples
        return level if name in _PASSES_ORDER else _Level.TRAINING
    return level


def _name(function: Any) -> str:
    return str(function.overloadpacket.__name__)


def _is_without_dropout(function: Any, args: Any, kwargs: Any) -> bool:
    for place, one in enumerate(function._schema.arguments):
        if one.name in _DROPOUT:
            given = kwargs.get(one.name, args[place] if place < len(args) else one.default_value)
            return bool(given == 0)
    return False


def _written(function: Any, args: Any, kwargs: Any) -> Iterator[Tensor]:
    """The tensors that an operator changes in place."""
    for place, name in _write_places(function):
        given = kwargs.get(name, args[place] if place < len(args) else None)
        yield from (one for one in _parts((given,)) if isinstance(one, Tensor))


@cache
def _write_places(function: Any) -> tuple[tuple[int, str], ...]:
    every = enumerate(function._schema.arguments)
    return tuple((place, one.name) for place, one in every if one.alias_info and one.alias_info.is_write)


def _is_random(function: Any, inputs: list[_Known], parts: list[object]) -> bool:
    """Whether an operator returns a single random number, or what follows from one alone."""
    is_single = all(one.numel() == 1 for one in parts if isinstance(one, Tensor))
    is_drawn = torch.Tag.nondeterministic_seeded in function.tags
    return is_single and (is_drawn or any(one.is_random for one in inputs))


def _look(results: list[Tensor], given: Iterable[object], *, with_values: bool) -> _Look:
    given = list(given)
    return _Look(
        tuple(results[0].shape) if results else (),
        _values(results[0]) if with_values and results else None,
        tuple(tuple(one.shape) for one in given if isinstance(one, Tensor)),
        tuple(one for one in given if type(one) is float),
        tuple(one for one in given if type(one) is int),
    )


def _values(tensor: Tensor) -> str | None:
    """Some values of a tensor on the CPU as text, and their sum; None if they are unknown, or too many of an input."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.is_quantized:
        return None
    if tensor.numel() > MOST_VALUES and not tensor.is_contiguous():
        return None  # to flatten it copies all of it
    with suppress(NotImplementedError, RuntimeError):  # of rare number types, or without memory
        return _text_of(tensor)
    return None


def _text_of(tensor: Tensor) -> str:
    flat = tensor.detach().reshape(-1)[:MOST_VALUES]
    few = flat[:: max(len(flat) // COMPARED, 1)]
    return f"{few.tolist()} {flat.sum().item()}"


def _address(tensor: Tensor) -> int:
    """A number that tensors of the same memory share, and no other ones that are there at the same time."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError, ValueError):  # such as a sparse one
        return -id(tensor)


def _reference(tensor: Tensor) -> object:
    try:
        return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]  # torch has no types for it
    except (NotImplementedError, RuntimeError, ValueError):
        return tensor


def _of_optimizer(optimizer: Optimizer) -> Iterator[object]:
    """The parameters of an optimizer, and what it keeps for each."""
    yield from (one for group in optimizer.param_groups for one in group["params"])
    yield from (one for kept in optimizer.state.values() for one in kept.values())


def _alike(objects: Iterable[object], trained: set[int]) -> set[int]:
    """Ids of tensors alike trained ones: of a module alike a trained one, such as a teacher, or in no module.

    The training may copy parameters to them, in later steps as well.
    """
    objects = list(objects)
    modules = [one for one in objects if isinstance(one, nn.Module)]
    sizes = {one: [each.shape for each in one.parameters()] for one in modules if any(True for _ in one.parameters())}
    are_trained = {one for one in sizes if any(id(each) in trained for each in one.parameters())}
    known = [(type(one), sizes[one]) for one in are_trained]
    copies = [one for one in sizes if one not in are_trained and (type(one), sizes[one]) in known]
    found = {id(each) for one in copies for each in (*one.parameters(), *one.buffers())}
    held = {id(each) for one in modules for each in (*one.parameters(recurse=False), *one.buffers(recurse=False))}
    shapes = {one.shape for one in objects if id(one) in trained and isinstance(one, Tensor) and one.dim() > 1}
    loose = (one for one in objects if isinstance(one, Tensor) and id(one) not in held)
    return found | {id(one) for one in loose if one.shape in shapes and one.is_floating_point()}


def _parts(values: Iterable[object]) -> Iterator[object]:
    """The members of lists, tuples and mappings, however deep."""
    for one in values:
        if isinstance(one, list | tuple):
            yield from _parts(one)
        elif isinstance(one, dict):
            yield from _parts(one.values())
        else:
            yield one


def _frames(frame: FrameType | None) -> tuple[_Frames, bool]:
    """The script's frames, outermost first, and whether an operator is that of a loader, optimizer or this package."""
    found, is_apart = list[tuple[CodeType, int]](), False
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        kind = _kind(frame.f_code)
        is_apart |= kind is _Code.LOADER or (kind in _CALLERS and not found)
        if kind is _Code.SCRIPT:
            found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(reversed(found)), is_apart


@cache
def _kind(code: CodeType) -> _Code:
    if code.co_filename.startswith(_PACKAGE):
        return _Code.OWN
    if not is_of_library(code.co_filename):
        return _Code.SCRIPT
    file = code.co_filename.replace(os.sep, "/")
    if _LOADERS in file:
        return _Code.LOADER
    return _Code.OPTIMIZER if any(part in file for part in _OPTIMIZERS) else _Code.LIBRARY


def _places(frames: _Frames) -> Iterator[tuple[CodeType, int]]:
    """The functions and lines of a path, outermost first; line 0 stands for the function."""
    for code, line in frames:
        yield from ((code, 0), (code, line))


def _location(code: CodeType, line: int) -> Location:
    file = shown_path(code.co_filename)
    return Location(file, line, code.co_name) if line else Location.of_function(file, code.co_firstlineno, code.co_name)
