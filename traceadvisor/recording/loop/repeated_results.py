"""Finds code of the script that computes from the data alone: neither trained parameters nor random numbers change it.

Two early steps are followed. See ``docs/decisions/0039-repeated-results.md``.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from threading import get_ident

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode,
    _get_current_dispatch_mode_stack,
)

from traceadvisor.model.run import IgnoredTargets, RepeatedResult, RepeatedResults
from traceadvisor.recording.devices import is_capturing
from traceadvisor.recording.loop.constructors import Constructors
from traceadvisor.recording.loop.data_flow import DataFlow, Loss
from traceadvisor.recording.loop.profiler import has_compiled, is_profiling
from traceadvisor.system import clocks

FIRST_STEPS = 1
"""Steps of the first optimizer to wait for: it makes its state in the first one, and scripts fill their caches."""

OBSERVED_STEPS = 2

MOST_ENTRIES, DEEPEST = 256, 4
"""Entries of a list, tuple or mapping of a batch, and levels of them."""

_STANCE = "force_eager"

_ALLOWS_ALL = "supports_higher_order_operators"
"""Without it, an earlier torch refuses to run some operators under a mode such as this one."""


class ResultsSeen:
    """Follows what results depend on in two early steps."""

    def __init__(self, constructors: Constructors) -> None:
        self._constructors = constructors
        self._first: weakref.ref[Optimizer] | None = None
        self._steps = 0
        self._flow: DataFlow | None = None
        self._draws = False
        """Whether loading draws random numbers."""
        self._places: tuple[RepeatedResult, ...] | None = None
        self._loss: Loss | None = None
        self._same: tuple[RepeatedResult, ...] | None = None
        """Only those whose results are always the same."""
        self.span_ns = (0, 0)
        """When it looked at operators, which takes longer than to run them."""
        self.is_over = False

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer stepped. Never raises."""
        if self.is_over and self._flow is None:
            return
        try:
            if self._flow and not self._flow.is_on:
                self.stop()
            self._follow(optimizer)
        except Exception:  # noqa: BLE001  # objects may be anything
            self.stop()

    def drawn(self) -> None:
        """Loading draws random numbers."""
        self._draws = True

    def saw(self, batch: object) -> None:
        """The loop received a batch. Never raises."""
        if (flow := self._flow) is None:
            return
        if not flow.is_on:
            self.stop()
            return
        try:
            flow.received(_tensors(batch, DEEPEST))
        except Exception:  # noqa: BLE001  # a batch may be anything
            flow.is_whole = False

    def stop(self) -> None:
        """Follow no further operators."""
        self.is_over = True
        self._leave()

    def result(self) -> RepeatedResults | None:
        """The code that was found; None if no whole step was seen."""
        places = self._same if self._draws else self._places
        return None if places is None else RepeatedResults(places, self._draws)

    def ignored_targets(self) -> IgnoredTargets | None:
        """The targets that the loss leaves out; None if no whole step was seen, or it has no such loss."""
        if self._loss is None:
            return None
        whole, classes, count = self._loss
        return IgnoredTargets(int(count) / whole, whole, classes)

    def _follow(self, optimizer: Optimizer) -> None:
        if self._first is None or self._first() is None:
            self._leave()
            self._first, self._steps = weakref.ref(optimizer), 0
        if self._first() is not optimizer or self.is_over:
            return
        self._steps += 1
        if self._steps == FIRST_STEPS:
            self._enter(optimizer)
        elif self._flow and self._steps == FIRST_STEPS + 1:
            self._flow.begin_second()
        elif (flow := self._flow) and self._steps >= FIRST_STEPS + OBSERVED_STEPS:
            flow.end()
            self.stop()
            if flow.is_whole and self._flow is None:
                self._draws |= flow.is_drawn
                self._places, self._same = flow.places(data=True), flow.places(data=False)
                self._loss = flow.loss

    def _enter(self, optimizer: Optimizer) -> None:
        """Begin to look, unless something else looks at operators, or code is compiled or shared among ranks."""
        is_shared = torch.distributed.is_available() and torch.distributed.is_initialized()
        is_watched = is_profiling() or is_capturing() or torch._C._len_torch_dispatch_stack()
        is_within_backward = torch._C._current_graph_task_id() != -1  # torch forgets the mode when that ends
        is_refused = has_compiled() or not hasattr(TorchDispatchMode, _ALLOWS_ALL)
        if is_shared or is_watched or is_within_backward or is_refused:
            self.is_over = True
            return
        flow = DataFlow([optimizer, *self._constructors.known(Optimizer)])
        flow.stance = torch.compiler.set_stance(_STANCE)  # Dynamo would skip for good what it meets meanwhile
        self.span_ns = clocks.perf_counter_ns(), sys.maxsize
        flow.__enter__()  # type: ignore[no-untyped-call]  # torch's base has no types
        self._flow = flow
        _follow_forks(self)

    def _leave(self) -> None:
        """Look no more; the mode goes once nothing of the script is on top of it."""
        if (flow := self._flow) is None or get_ident() != flow.thread:
            return
        flow.is_on = False
        self.span_ns = self.span_ns[0], min(clocks.perf_counter_ns(), self.span_ns[1])
        stance, flow.stance = flow.stance, None
        if stance is not None and sys.modules["torch._dynamo.eval_frame"]._stance.stance == _STANCE:
            stance.__exit__(None, None, None)  # otherwise the script has set another one
        if _get_current_dispatch_mode() is flow:
            flow.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # as above
        if flow not in _get_current_dispatch_mode_stack():
            self._flow = None


_following: list[weakref.ref[ResultsSeen]] = []
"""The latest one that follows operators, in this process."""


def _follow_forks(seen: ResultsSeen) -> None:
    """Processes that are forked meanwhile, such as loader workers, follow nothing."""
    if not _following and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forked)
    _following[:] = [weakref.ref(seen)]


def _forked() -> None:
    if (seen := _following[0]()) is not None:
        with suppress(Exception):  # the process goes on
            seen.stop()


def _tensors(value: object, levels: int) -> Iterator[Tensor]:
    """The tensors of a batch."""
    if isinstance(value, Tensor):
        yield value
    elif levels and isinstance(value, Mapping):
        for one in [*value.values()][:MOST_ENTRIES]:
            yield from _tensors(one, levels - 1)
    elif levels and isinstance(value, list | tuple):
        for one in value[:MOST_ENTRIES]:
            yield from _tensors(one, levels - 1)
    elif levels and hasattr(value, "__dict__"):
        yield from _tensors(vars(value), levels - 1)
