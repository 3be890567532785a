"""Finds operators that a step calls again with the same inputs, in a few early steps of a training without a GPU.

Two calls are the same if function, arguments and versions of all tensors are equal, no random numbers were drawn, and
compared values of the results are equal, too. See ``docs/decisions/0038-work-done-again.md``.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode, _get_current_function_mode

from traceadvisor.model.location import Location
from traceadvisor.model.run import SameCalls
from traceadvisor.recording.devices import devices_in_use
from traceadvisor.recording.loop.padding import PaddingSeen
from traceadvisor.recording.loop.profiler import has_compiled
from traceadvisor.recording.loop.unused_gradients import FIRST_STEPS, MEASURED_STEPS
from traceadvisor.recording.loop.value_numbers import ValueNumbers, some_values, tensors_in
from traceadvisor.recording.script.own_code import is_of_library, is_own_frame, shown_path, unseen
from traceadvisor.system import clocks

FIRST = FIRST_STEPS + MEASURED_STEPS + 1
"""Steps of the first optimizer to wait for: the gradients are measured by then."""

STEPS = 3
"""Steps to follow. By default these are the ones before a recording, which count for nothing else. The first only shows
what the second may repeat: a step of one optimizer often begins in the middle of an iteration."""

LEAST_NS = 5_000
"""Shorter calls make a view or ask for a size."""

MOST_CALLS = 50_000
MOST_FRAMES = 60

_COPIES = ("clone", "empty", "zeros", "ones", "full", "new_", "copy", "_like", "__get__")
"""Parts of the names of functions whose results are often changed afterwards, or are there already."""

_Line = tuple[CodeType, int]
_Place = tuple[_Line | CodeType, ...]
"""Two lines of one function, or a function that is called again."""


class _Call(NamedTuple):
    """A call of an operator."""

    step: int
    took_ns: int
    has_gradient: bool
    stack: tuple[_Line, ...]
    """Lines of the user's code, the outermost first."""


class _Result(NamedTuple):
    number: Hashable
    values: list[Tensor]


class CallsSeen:
    """Follows the calls of a few steps."""

    def __init__(self, is_recording: Callable[[], bool], clock: Callable[[], int] = clocks.thread_time_ns) -> None:
        self._is_recording, self._clock = is_recording, clock
        self._first: Optimizer | None = None
        self._steps = 0
        self._mode: _Following | None = None
        self._found: list[dict[_Place, _Sum]] = []
        """For each step but the first."""

        self.is_over = False
        self.padding = PaddingSeen()
        """The padding in what embeddings are given."""

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer stepped. Never raises."""
        if self.is_over:
            return
        try:
            self._follow(optimizer)
        except Exception:  # noqa: BLE001  # tensors may be of any class
            self._found.clear()
            self._end()

    def close(self) -> None:
        """Nothing is followed from now on."""
        self._end()
        self.is_over = True

    def result(self) -> SameCalls | None:
        """The place of the calls that take the most time again, in every step; None if nothing was followed."""
        if not self._found:
            return None
        places = set.intersection(*map(set, self._found))
        by_place = {place: [one[place] for one in self._found] for place in places}
        least = [(min(found, key=lambda one: one.share), place) for place, found in by_place.items()]
        most, place = max(least, key=lambda one: one[0].share, default=(None, ()))
        if most is None:
            return SameCalls(0.0, 0.0, 0, len(self._found))
        first, *_, again = (*(one if isinstance(one, tuple) else most.line for one in place), most.line)[:2]
        found = most.share, most.gradient_share, most.count, len(self._found)
        return SameCalls(*found, _location(first), _location(again))

    def _follow(self, optimizer: Optimizer) -> None:
        self._first = self._first or optimizer
        self._steps += optimizer is self._first
        if self._mode is not None:
            self._mode.numbers.forget(one for group in optimizer.param_groups for one in group["params"])
        if optimizer is not self._first or self._steps < FIRST:
            return
        if self._mode is None and not self._is_recording() and _may_follow():
            self._mode = _entered(_Following(self._clock, self.padding))
        elif self._mode is None or self._steps >= FIRST + STEPS or self._is_recording():
            self._found = self._mode.results() if self._mode else []
            self._end()
        if self._mode is not None:
            self._mode.begin()

    def _end(self) -> None:
        if self._mode is None or self._mode.leave():
            self.is_over, self._mode, self._first = True, None, None


class _Sum:
    """Calls of one place that a step made again, as a share of the step."""

    def __init__(self, calls: Sequence[Sequence[_Call]], step_ns: int) -> None:
        self.share = self.gradient_share = 0.0
        self.count = 0
        self.line = max(calls, key=lambda same: sum(one.took_ns for one in same))[0].stack[-1]
        """The innermost line of those that take most."""

        for same in calls:
            with_gradient = [one.took_ns for one in same if one.has_gradient]
            took_ns = [one.took_ns for one in same]
            self.count += len(same) - 1
            self.share += (sum(took_ns) - max(took_ns)) / step_ns
            self.gradient_share += (sum(with_gradient) - max(with_gradient, default=0)) / step_ns


class _Following(TorchFunctionMode):
    """Sees each call of a function of torch that is not within another one."""

    def __init__(self, clock: Callable[[], int], padding: PaddingSeen) -> None:
        super().__init__()
        self.numbers = ValueNumbers()
        self._clock, self._padding, self._process = clock, padding, os.getpid()
        self._is_on = False
        self._begun_ns = self._own_ns = self._count = 0
        self._steps_ns: list[int] = []
        self._results: dict[Hashable, _Result] = {}
        self._calls: dict[Hashable, list[_Call]] = defaultdict(list)

    def begin(self) -> None:
        """A step ends, and the next begins."""
        now_ns = self._clock()
        if self._begun_ns:
            self._steps_ns.append(max(now_ns - self._begun_ns - self._own_ns, 1))
        self._is_on = self._is_on or not self._begun_ns
        self._own_ns, self._begun_ns = 0, now_ns

    def results(self) -> list[dict[_Place, _Sum]]:
        """Return the sums of each place in each step but the first; empty if not all steps were followed to their end.

        What is the same in every step is left out: a script that measures itself may train on one batch only.
        """
        self.begin()
        if not self._is_on or len(self._steps_ns) < STEPS:
            return []
        places: list[dict[_Place, list[list[_Call]]]] = [defaultdict(list) for _ in self._steps_ns]
        for calls in self._calls.values():
            is_again = len(calls) > 1 and len({one.step for one in calls}) < STEPS
            if is_again and all(one.stack for one in calls):
                places[calls[-1].step][_place(calls[0].stack, calls[1].stack)].append(calls)
        return [
            {place: _Sum(calls, step_ns) for place, calls in found.items()}
            for found, step_ns in zip(places[1:], self._steps_ns[1:], strict=True)
        ]

    def leave(self) -> bool:
        """Leave the mode; False if a mode that the script entered later is still there."""
        self._is_on = False
        if _get_current_function_mode() is not self:  # type: ignore[no-untyped-call]
            return False
        self.__exit__(None, None, None)
        return True

    @unseen
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function, and note it."""
        kwargs = kwargs or {}
        is_here = self._is_on and os.getpid() == self._process
        if not is_here or torch._C._current_autograd_node() is not None:
            return func(*args, **kwargs)
        entered_ns = self._clock()
        before = self._prepared(func, args, kwargs)
        begin_ns = self._clock()
        result = func(*args, **kwargs)
        end_ns = self._clock()
        if before is not None:
            self._note((func, args, kwargs), result, before, end_ns - begin_ns)
        self._own_ns += begin_ns - entered_ns + self._clock() - end_ns
        return result

    def _prepared(self, func: Any, args: Any, kwargs: Any) -> tuple[Hashable, Tensor | None, list[int]] | None:
        """Return the number of the call, the state of random numbers if it was made before, and versions."""
        try:
            self._count += 1
            self._is_on = self._count < MOST_CALLS
            if self.numbers.opened(func, args):
                return None
            number = self.numbers.of_call(func, args, kwargs)
            state = torch.default_generator.get_state() if number in self._results else None
            return number, state, [one._version for one in tensors_in((args, kwargs))]
        except Exception:  # noqa: BLE001  # arguments may be anything
            self._is_on = False
            return None

    def _note(self, call: Any, result: Any, before: Any, took_ns: int) -> None:
        func, args, kwargs = call
        try:
            if func is functional.embedding and len(args) > 1:
                self._padding.saw_ids(args[0], args[1], kwargs.get("padding_idx", (*args, None)[2]))
            number, state, versions = before
            results = list(tensors_in(result))
            changed = [
                one for one, version in zip(tensors_in((args, kwargs)), versions, strict=True) if one._version > version
            ]
            values = [some_values(one) for one in results]
            is_random = state is not None and not torch.equal(state, torch.default_generator.get_state())
            known = self._results.get(number)
            is_same = known is not None and not is_random and _are_equal(known.values, values)
            if known is not None and not is_same:
                number = object()
            for place, one in enumerate((*results, *changed)):
                self.numbers.give(one, (number, place), keep=place < len(results))
            self._results[number] = known if known and is_same else _Result(number, values)
            if took_ns >= LEAST_NS and results and _computes(func, args, kwargs):
                self._calls[number].append(
                    _Call(len(self._steps_ns), took_ns, any(one.requires_grad for one in results), _stack())
                )
            self._is_on = self._is_on and all(one.device.type == "cpu" for one in results)
        except Exception:  # noqa: BLE001  # results may be anything
            self._is_on = False


def _entered(mode: _Following) -> _Following:
    mode.__enter__()  # type: ignore[no-untyped-call]
    return mode


def _may_follow() -> bool:
    """Whether nothing that the script does depends on modes: no compiled code, no GPU, no ranks, no mode of its own."""
    has_ranks = torch.distributed.is_available() and torch.distributed.is_initialized()
    return _get_current_function_mode() is None and not (has_ranks or has_compiled() or devices_in_use())  # type: ignore[no-untyped-call]


def _computes(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call computes something from tensors that may be kept."""
    name = str(getattr(func, "__name__", ""))
    return not any(part in name for part in _COPIES) and any(True for _ in tensors_in((args, kwargs)))


def _are_equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


def _stack() -> tuple[_Line, ...]:
    """Return the lines of the user's code that run now, the outermost first."""
    found: list[_Line] = []
    frame: FrameType | None = sys._getframe(2)
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        if not is_own_frame(frame) and not is_of_library(frame.f_code.co_filename):
            found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(reversed(found))


def _place(first: tuple[_Line, ...], again: tuple[_Line, ...]) -> _Place:
    """Return the lines of the same function at which two stacks part; of equal stacks, the innermost function."""
    for one, other in zip(first, again, strict=False):
        if one != other and one[0] is other[0]:
            return one, other
    return (again[-1][0],)


def _location(line: _Line) -> Location:
    code, number = line
    return Location(shown_path(code.co_filename), number, code.co_name)
