"""Looks for subnormal numbers in parameters, buffers and gradients: the CPU computes with them far more slowly."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from traceadvisor.system import clocks

MOST_VALUES = 1 << 15
"""Values of all tensors together: to look at them takes a fraction of a millisecond."""

MOST_TENSORS = 64
"""The largest ones."""

MOST_TENSORS_OF_MODULES = 256
"""In the only look at modules: each takes some 20 us."""

MOST_MODULES = 1 << 12

FIRST_NS = 250_000_000
GROWTH = 1.4
"""Looks are this much further apart each time, so that a run has few of them."""

_PLAIN = (Tensor, nn.Parameter)
_TABLES = (dict, OrderedDict)


class SubnormalSeen:
    """The largest share of subnormal numbers, looked at now and then after an optimizer's step, and before recording.

    Where the CPU treats them as zero, they compare as zero, and there are none.
    """

    def __init__(self) -> None:
        self.share: float | None = None
        self._wait_ns = float(FIRST_NS)
        self._due_ns = clocks.perf_counter_ns() + FIRST_NS
        self._is_over = False

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer stepped. Never raises, and never waits for a GPU."""
        now_ns = clocks.perf_counter_ns()
        if now_ns < self._due_ns:
            return
        self._wait_ns *= GROWTH
        self._due_ns = now_ns + round(self._wait_ns)
        self._look(_of_optimizer(optimizer), MOST_TENSORS)

    def look_at(self, modules: Iterable[nn.Module]) -> None:
        """Look at the parameters and buffers of modules, the first time only. Never raises."""
        if not self._is_over:
            self._is_over = True
            self._look(_of_modules(modules), MOST_TENSORS_OF_MODULES)

    def _look(self, found: Iterable[object], most: int) -> None:
        try:
            if torch._C._autograd._profiler_enabled() or torch._C._len_torch_dispatch_stack():
                return  # a recording, or a mode of the script, would see what is done here
            with torch._C.DisableTorchFunction():
                share = _share(sorted(_tensors(found), key=lambda one: -one.numel())[:most])
        except Exception:  # noqa: BLE001  # a parameter may be of any class, and torch may have renamed what is asked
            self._due_ns = 1 << 62
            return
        if share is not None:
            self.share = max(self.share or 0.0, share)


def _share(tensors: Sequence[Tensor]) -> float | None:
    """Return the share of all their values, from values at equal distances in each; None without any."""
    subnormal, count = 0.0, 0
    for one in tensors:
        if one.untyped_storage().nbytes() == 0:  # its memory is elsewhere, such as that of a sharded parameter
            continue
        values = some_values(one.detach())
        distance = values.numel() * len(tensors) // MOST_VALUES | 1
        some = values[::distance].abs()
        if some.numel():
            found = int(((some > 0) & (some < torch.finfo(some.dtype).tiny)).sum())
            subnormal += one.numel() * found / some.numel()
            count += one.numel()
    return subnormal / count if count else None


def some_values(tensor: Tensor) -> Tensor:
    """Return values of a tensor in one dimension without a copy: all, or the first row if there are gaps in memory."""
    in_memory = tensor.permute(sorted(range(tensor.dim()), key=lambda at: -tensor.stride()[at] or -inf))
    return in_memory.reshape(-1) if in_memory.is_contiguous() else in_memory[(0,) * (tensor.dim() - 1)]


def _of_optimizer(optimizer: Optimizer) -> Iterator[object]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            yield parameter
            if _is_plain(parameter):
                yield parameter.grad


def _of_modules(modules: Iterable[nn.Module]) -> Iterator[object]:
    """Yield parameters and buffers of modules and of those within them; no code of the script runs."""
    left, seen = list(modules), set[int]()
    while left and len(seen) < MOST_MODULES:
        module = left.pop()
        if id(module) not in seen:
            seen.add(id(module))
            parts = object.__getattribute__(module, "__dict__")
            for name in ("_parameters", "_buffers"):
                yield from _values(parts.get(name))
            left += filter(_is_module, _values(parts.get("_modules")))


def _is_module(one: object) -> TypeGuard[nn.Module]:
    return issubclass(type(one), nn.Module)


def _is_plain(one: object) -> TypeGuard[Tensor]:
    return type(one) in _PLAIN


def _values(table: object) -> tuple[object, ...]:
    return tuple(table.values()) if type(table) in _TABLES else ()  # type: ignore[attr-defined]


def _tensors(found: Iterable[object]) -> Iterator[Tensor]:
    """Yield each tensor that the CPU computes with in its own number type; subclasses may run code of the script."""
    seen = set[int]()
    for one in found:
        if _is_plain(one) and id(one) not in seen:
            seen.add(id(one))
            if one.is_cpu and one.layout is torch.strided and one.dtype in {torch.float32, torch.float64}:
                yield one
