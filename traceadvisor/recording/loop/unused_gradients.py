"""Finds gradients that a backward pass computes and no optimizer uses, in a few early steps.

Before each backward pass, the nodes of its graph show which optimizers' parameters they lead to. The time of nodes that
lead to no parameter of the next optimizer that steps is for other parameters. Their gradients are unused if no
optimizer has these parameters, or if the gradients are gone when their optimizer steps. See
``docs/decisions/0031-unused-gradients.md``.
"""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from operator import or_
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from traceadvisor.model.location import Constructed
from traceadvisor.model.run import UnusedGradients
from traceadvisor.recording.after_import import BACKWARD
from traceadvisor.recording.loop.constructors import Constructors
from traceadvisor.recording.loop.profiler import has_compiled
from traceadvisor.recording.script.own_code import unseen
from traceadvisor.system import clocks

FIRST_STEPS = 3
"""Steps of the first optimizer to wait for. The first ones allocate, and an optimizer may be made late."""

MEASURED_STEPS = 6
"""Steps of that optimizer to measure, all before the first recording by default."""

MOST_NODES = 100_000
"""Nodes of autograd in all measured steps. To look at each takes 2 µs."""

_OF_WEIGHTS = frozenset(f"{name}Backward0" for name in ("T", "Transpose", "Permute", "View", "ToCopy"))
"""Nodes that pass on the gradient of a parameter: it is the node above them that computes it."""

COMPARED = 8
"""Values of a parameter that show whether the script changes it without an optimizer."""

LARGEST_KEPT_BYTES = 1 << 16
"""Size of a parameter to keep when its module is gone, to see whether the script changed it."""

_USED = 1
"""The bit of parameters of which nothing is known."""

_OF_NONE = 2
"""The bit of parameters of no optimizer. Each optimizer has another one."""


@dataclass(slots=True)
class _Pass:
    """A backward pass. Each of its nodes leads to parameters, known by the bits of their optimizers."""

    below: dict[int, list[Tensor]]
    """Parameters right below nodes, by the bits to which these lead."""

    hooks: list[Any] = field(default_factory=list)
    changes: list[tuple[int, int]] = field(default_factory=list)
    """When nodes began that lead to other bits than those before, and the bits."""

    spent_ns: Counter[int] = field(default_factory=Counter)
    """Time of the nodes by their bits."""

    used: int = _USED
    held: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """By optimizer that has not stepped since: one of its parameters, and the gradient of that parameter."""

    def unused(self) -> list[int]:
        """Bits of nodes that lead to nothing that is used."""
        return [bits for bits in self.spent_ns if not bits & self.used]


class GradientsSeen:
    """Follows gradients from one optimizer step to the next."""

    def __init__(self, constructors: Constructors, clock: Callable[[], int] = clocks.perf_counter_ns) -> None:
        self._constructors, self._clock = constructors, clock
        self._first: Callable[[], Optimizer | None] = _nothing
        self._steps = self._pass_count = self._nodes = self._unused_ns = self._begun_ns = 0
        self._ended_ns: int | None = None
        self.is_over = self._is_cleared = False
        self._owner: dict[int, int] = {}
        self._bits: dict[int, int] = {}
        """By optimizer."""
        self._unhook: Callable[[], None] = _nothing
        self._running: _Pass | None = None
        self._passes: list[_Pass] = []
        """Since the last optimizer step."""
        self._judged: list[_Pass] = []
        """Those that wait for steps of other optimizers."""
        self._unused: set[int] = set()
        self._before: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}
        """Parameters of no optimizer, and some of their values."""
        self._kept: list[tuple[Tensor, Tensor]] = []
        """For when they are gone: parts of the unused ones, and their values before."""
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
        return UnusedGradients(min(share, 1.0), len(self._unused), self._pass_count, self._is_cleared)

    def _follow(self, optimizer: Optimizer, now_ns: int) -> None:
        if self._running:
            self._ended_ns = None
            self._end()  # it steps within the backward pass
            return
        if self._first() is None and self._ended_ns is None:
            self._begin_anew(optimizer)
        is_first = self._first() in (optimizer, None)
        self._steps += is_first
        if self._ended_ns is not None:
            self._judge(optimizer)
            if not self._judged or is_first:
                self._end()
                self._kept = [(_kept(one), values) for one, values in self._alive()]
        elif self._begun_ns:
            self._judge(optimizer)
            self._close(optimizer)
            if is_first and self._steps == FIRST_STEPS + MEASURED_STEPS:
                self._ended_ns = now_ns
                self._unhook()
        elif self._steps == FIRST_STEPS:
            self._begin(optimizer, now_ns)

    def _begin_anew(self, first: Optimizer) -> None:
        """Forget an optimizer that is gone, as that of a search for a learning rate."""
        self._unhook()
        self._first = weakref.ref(first)
        self._steps = self._pass_count = self._unused_ns = self._begun_ns = 0
        for found in (self._passes, self._judged, self._unused, self._before):
            found.clear()

    def _begin(self, optimizer: Optimizer, now_ns: int) -> None:
        """Follow the backward passes."""
        if _is_shared_or_compiled():
            self.is_over = True
            return
        optimizers = [optimizer, *self._constructors.known(Optimizer)]
        self._owner = {id(one): id(each) for each in optimizers for one in _parameters(each)}
        self._bits = {key: 4 << place for place, key in enumerate(dict.fromkeys(map(id, optimizers)))}
        for module in self._constructors.known(nn.Module):
            free = (one for one in module.parameters() if id(one) not in self._owner)
            self._before |= {id(one): (weakref.ref(one), _some_values(one)) for one in free}
        self._unhook = _hooked_backward(self._enter, self._leave)
        self._begun_ns = now_ns

    def _enter(self, roots: Iterable[Tensor], inputs: Collection[Tensor]) -> _Pass | None:
        """A backward pass begins; None if it is not followed."""
        if self._running or inputs:
            self._running = self._running and _Pass({})  # nodes do not show what another pass within one leads to
            return None
        began_ns = self._clock()
        try:
            self._running = self._walk(roots)
        except Exception:  # noqa: BLE001  # the script may have nodes of any kind
            self._running = _Pass({})
        self._begun_ns += self._clock() - began_ns
        return self._running

    def _leave(self, running: _Pass | None) -> None:
        if running is None:
            return
        ended_ns, is_whole, self._running = self._clock(), self._running is running, None
        with suppress(Exception):  # as above
            for hook in running.hooks:
                hook.remove()
            if is_whole and not self.is_over:
                for (at_ns, bits), (until_ns, _) in pairwise((*running.changes, (ended_ns, 0))):
                    running.spent_ns[bits] += until_ns - at_ns
                self._passes.append(running)

    def _walk(self, roots: Iterable[Tensor]) -> _Pass:
        """Find where the nodes lead, and have each tell when it begins that leads elsewhere than the one before.

        A thread always runs the newest of its nodes that can run. ``KeyError`` if several made them.
        """
        leads, nodes = dict[Any, int](), dict[Any, list[Any]]()
        left = [one.grad_fn for one in roots if one.grad_fn]
        while left:
            if (node := left.pop()) not in nodes:
                nodes[node] = [one for one, _ in node.next_functions if one]
                left += nodes[node]
                self._nodes += 1
                if self._nodes > MOST_NODES:
                    self._ended_ns = None
                    self._end()
                    return _Pass({})
        leaves = {node: node.variable for node in nodes if type(node).__name__ == "AccumulateGrad"}
        leads |= {leaf: self._bits_of(one) for leaf, one in leaves.items()}
        found, ordered = _Pass({}), list[Any]()
        for node in sorted(nodes.keys() - leaves.keys(), key=lambda node: node._sequence_nr()):
            leads[node] = functools.reduce(or_, (leads[one] for one in nodes[node]), 0) or _USED
            if type(node).__name__ in _OF_WEIGHTS and nodes[node][0] in leaves:
                leaves[node] = leaves[nodes[node][0]]
                continue
            ordered.append(node)
            found.below.setdefault(leads[node], []).extend(leaves[one] for one in nodes[node] if one in leaves)
        before = 0
        for node in reversed(ordered):
            if leads[node] != before:
                before = leads[node]
                note = functools.partial(_note, self._clock, found.changes, before)
                found.hooks.append(node.register_prehook(note))
        return found

    def _bits_of(self, parameter: Tensor) -> int:
        owner = self._owner.get(id(parameter))
        is_known = self._before.get(id(parameter), (_nothing,))[0]() is parameter
        return (_OF_NONE if is_known else _USED) if owner is None else self._bits[owner]

    def _close(self, optimizer: Optimizer) -> None:
        """Keep the backward passes that lead to parameters of this optimizer."""
        passes, self._passes = self._passes, []
        mine = self._bits.get(id(optimizer), 0)
        for one in passes:
            if not any(bits & mine for bits in one.spent_ns):
                continue
            self._pass_count += 1
            one.used |= mine
            for bits in one.unused():
                if any(parameter.grad is None for parameter in one.below[bits]):
                    one.used |= bits
            unused = (parameter for bits in one.unused() for parameter in one.below[bits])
            for parameter in sorted(unused, key=Tensor.numel):
                if (owner := self._owner.get(id(parameter))) is not None and parameter.grad is not None:
                    one.held.setdefault(owner, (parameter, parameter.grad))
            self._judged.append(one)
        self._count()

    def _judge(self, optimizer: Optimizer) -> None:
        """The gradients of an optimizer that it finds again as it steps are used."""
        for one in self._judged:
            parameter, gradient = one.held.pop(id(optimizer), (None, None))
            if parameter is not None and parameter.grad is gradient:
                one.used |= self._bits[id(optimizer)]
        self._count()

    def _count(self) -> None:
        """Add up the passes of which all is known."""
        known = [one for one in self._judged if not one.held]
        self._judged = [one for one in self._judged if one.held]
        for one in known:
            for bits in one.unused():
                self._unused_ns += one.spent_ns[bits]
                self._unused |= {id(parameter) for parameter in one.below[bits]}

    def _end(self) -> None:
        self.is_over = True
        self._unhook()
        self._is_cleared = any(key in self._owner for key in self._unused)
        self._before = {key: known for key, known in self._before.items() if key in self._unused}
        with suppress(Exception):  # modules may have any methods
            self.place = self._constructors.of_parameters(self._unused)
        self._judged.clear()
        self._passes.clear()

    def _are_used_elsewhere(self) -> bool:
        """Whether the script, or an optimizer made later, changed such parameters."""
        return any(not torch.equal(_some_values(one), values) for one, values in (*self._alive(), *self._kept))

    def _alive(self) -> list[tuple[Tensor, Tensor]]:
        return [(one, values) for known, values in self._before.values() if (one := known()) is not None]


def _some_values(parameter: Tensor) -> Tensor:
    return parameter.detach().reshape(-1)[:COMPARED].clone()


def _kept(parameter: Tensor) -> Tensor:
    """Return a small parameter itself, or the values that another has by now: they show changes once it is gone."""
    is_small = parameter.untyped_storage().nbytes() <= LARGEST_KEPT_BYTES
    return parameter.detach() if is_small else _some_values(parameter)


def _parameters(optimizer: Optimizer) -> Iterable[Tensor]:
    return (one for group in optimizer.param_groups for one in group["params"])


def _note(clock: Callable[[], int], changes: list[tuple[int, int]], bits: int, _gradients: object) -> None:
    changes.append((clock(), bits))


def _nothing() -> None:
    """Nothing is hooked."""


def _hooked_backward(
    enter: Callable[[Iterable[Tensor], Collection[Tensor]], _Pass | None], leave: Callable[[_Pass | None], None]
) -> Callable[[], None]:
    """Tell of each backward pass, until the returned function is called."""
    original, is_hooked = getattr(torch.autograd, BACKWARD), True

    @functools.wraps(original)
    @unseen
    def backward(roots: Any, gradients: Any, keep: Any, create: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        followed = enter(roots, inputs) if is_hooked else None
        try:
            return original(roots, gradients, keep, create, inputs, *args, **kwargs)
        finally:
            leave(followed)

    def unhook() -> None:
        nonlocal is_hooked
        is_hooked = False  # what has replaced it since may still call it
        if getattr(torch.autograd, BACKWARD) is backward:
            setattr(torch.autograd, BACKWARD, original)

    setattr(torch.autograd, BACKWARD, backward)
    return unhook


def _is_shared_or_compiled() -> bool:
    """Whether ranks exchange gradients, or compiled code may depend on the hooks of parameters."""
    return has_compiled() or (torch.distributed.is_available() and torch.distributed.is_initialized())
