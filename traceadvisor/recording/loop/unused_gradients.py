"""Finds gradients that a backward pass computes and no optimizer uses, in a few early steps.

A backward pass is over for an optimizer as soon as the last gradient of its parameters is there. What comes later is
for other parameters. Their gradients are unused if no optimizer has these parameters, or if the gradients are gone when
their optimizer steps. See ``docs/decisions/0031-unused-gradients.md``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from traceadvisor.model.location import Constructed
from traceadvisor.model.run import UnusedGradients
from traceadvisor.recording.loop.constructors import Constructors
from traceadvisor.recording.loop.profiler import has_compiled
from traceadvisor.system import clocks

FIRST_STEPS = 3
"""Steps of the first optimizer to wait for. The first ones allocate, and an optimizer may be made late."""

MEASURED_STEPS = 6
"""Steps of that optimizer to measure, all before the first recording by default."""

MOST_ARRIVALS = 100_000
"""Gradients in all measured steps. After more, the optimizer of the first step is not the one of the training."""

COMPARED = 8
"""Values of a parameter that show whether the script changes it without an optimizer."""

_Arrival = tuple[int, Tensor]
"""When the gradient of a parameter was there, and the parameter."""


@dataclass(slots=True)
class _Tail:
    """The end of a backward pass, behind the last gradient of the optimizer that stepped after it."""

    used_ns: int
    """When the last gradient that is used was there."""

    arrivals: list[_Arrival]
    held: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """By optimizer that has not stepped since: one of its parameters, and the gradient of that parameter."""


class GradientsSeen:
    """Follows gradients from one optimizer step to the next."""

    def __init__(self, constructors: Constructors, clock: Callable[[], int] = clocks.perf_counter_ns) -> None:
        self._constructors, self._clock = constructors, clock
        self._first: Optimizer | None = None
        self._steps = self._passes = self._arrivals = self._unused_ns = self._begun_ns = 0
        self._ended_ns: int | None = None
        self.is_over = self._is_cleared = False
        self._owner: dict[int, int] = {}
        self._hooks: list[Any] = []
        self._arrived: list[_Arrival] = []
        self._tails: list[_Tail] = []
        self._unused: dict[int, weakref.ref[Tensor]] = {}
        self._before: dict[int, Tensor] = {}
        self.place: Constructed | None = None
        """The place that constructs the largest module whose gradients are unused."""

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer stepped. Never raises, and never waits for a GPU."""
        if self.is_over:
            return
        try:
            self._follow(optimizer, self._clock())
        except Exception:  # noqa: BLE001  # parameters may be anything
            self._ended_ns = None
            self._end()

    def result(self) -> UnusedGradients | None:
        """The unused gradients; None if they were not measured, or the script uses them without an optimizer."""
        if not self.is_over or self._ended_ns is None or self._are_used_elsewhere():
            return None
        share = self._unused_ns / max(self._ended_ns - self._begun_ns, 1)
        return UnusedGradients(min(share, 1.0), len(self._unused), self._passes, self._is_cleared)

    def _follow(self, optimizer: Optimizer, now_ns: int) -> None:
        self._first = self._first or optimizer
        self._steps += optimizer is self._first
        if self._ended_ns is not None:
            self._judge(optimizer)
            if not self._tails or optimizer is self._first:
                self._end()
        elif self._begun_ns:
            self._judge(optimizer)
            self._close(optimizer)
            if optimizer is self._first and self._steps == FIRST_STEPS + MEASURED_STEPS:
                self._ended_ns = now_ns
                self._unhook()
        elif self._steps == FIRST_STEPS:
            self._begin(optimizer, now_ns)

    def _begin(self, optimizer: Optimizer, now_ns: int) -> None:
        """Ask every parameter to tell when its gradient is there."""
        if _is_shared_or_compiled():
            self.is_over = True
            return
        optimizers = [optimizer, *self._constructors.known(Optimizer)]
        parameters = {id(one): one for each in optimizers for one in _parameters(each)}
        self._owner = {id(one): id(each) for each in optimizers for one in _parameters(each)}
        for module in self._constructors.known(nn.Module):
            parameters |= {id(one): one for one in module.parameters()}
        for one in parameters.values():
            if one.requires_grad and one.is_leaf:
                hook = one.register_post_accumulate_grad_hook(self._arrive)  # type: ignore[no-untyped-call]
                self._hooks.append(hook)
            if id(one) not in self._owner:
                self._before[id(one)] = _some_values(one)
        self._begun_ns = now_ns

    def _arrive(self, parameter: Tensor) -> None:
        self._arrivals += 1
        self._arrived.append((self._clock(), parameter))
        if self._arrivals == MOST_ARRIVALS:
            self._ended_ns = None
            self._end()

    def _close(self, optimizer: Optimizer) -> None:
        """Keep the gradients behind the last one of this optimizer."""
        arrived, self._arrived = self._arrived, []
        for arrivals in _passes(arrived):
            mine = [at for at, one in arrivals if self._owner.get(id(one)) == id(optimizer)]
            if not mine:
                continue
            self._passes += 1
            tail = _Tail(max(mine), [(at, one) for at, one in arrivals if at > max(mine) and one.grad is not None])
            for _, one in sorted(tail.arrivals, key=lambda arrival: arrival[1].numel()):
                if (owner := self._owner.get(id(one))) is not None and one.grad is not None:
                    tail.held.setdefault(owner, (one, one.grad))
            self._tails.append(tail)
        self._count()

    def _judge(self, optimizer: Optimizer) -> None:
        """The gradients of an optimizer that it finds again as it steps are used."""
        for tail in self._tails:
            parameter, gradient = tail.held.pop(id(optimizer), (None, None))
            if parameter is not None and parameter.grad is gradient:
                mine = [at for at, one in tail.arrivals if self._owner.get(id(one)) == id(optimizer)]
                tail.used_ns = max(tail.used_ns, *mine)
                tail.arrivals = [one for one in tail.arrivals if one[0] > tail.used_ns]
        self._count()

    def _count(self) -> None:
        """Add up the tails of which all is known."""
        known = [tail for tail in self._tails if not tail.held]
        self._tails = [tail for tail in self._tails if tail.held]
        for tail in known:
            self._unused_ns += max((at for at, _ in tail.arrivals), default=tail.used_ns) - tail.used_ns
            self._unused |= {id(one): weakref.ref(one) for _, one in tail.arrivals}

    def _end(self) -> None:
        self.is_over = True
        self._unhook()
        self._is_cleared = any(key in self._owner for key in self._unused)
        self._before = {key: values for key, values in self._before.items() if key in self._unused}
        with suppress(Exception):  # modules may have any methods
            self.place = self._constructors.of_parameters(self._unused.keys())
        self._tails.clear()
        self._first = None

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._arrived.clear()

    def _are_used_elsewhere(self) -> bool:
        """Whether an optimizer made later has such parameters, or the script changed one."""
        later = {id(one) for each in self._constructors.known(Optimizer) for one in _parameters(each)}
        if later & self._before.keys():
            return True
        left = {key: one for key in self._before if (one := self._unused[key]()) is not None}
        return any(not torch.equal(_some_values(one), self._before[key]) for key, one in left.items())


def _some_values(parameter: Tensor) -> Tensor:
    return parameter.detach().reshape(-1)[:COMPARED].clone()


def _parameters(optimizer: Optimizer) -> Iterable[Tensor]:
    return (one for group in optimizer.param_groups for one in group["params"])


def _passes(arrivals: Iterable[_Arrival]) -> Iterator[list[_Arrival]]:
    """Yield the gradients of each backward pass: a parameter gets one gradient in each."""
    current: dict[int, _Arrival] = {}
    for arrival in arrivals:
        if id(arrival[1]) in current:
            yield list(current.values())
            current = {}
        current[id(arrival[1])] = arrival
    yield list(current.values())


def _is_shared_or_compiled() -> bool:
    """Whether ranks exchange gradients, or compiled code may depend on the hooks of parameters."""
    return has_compiled() or (torch.distributed.is_available() and torch.distributed.is_initialized())
