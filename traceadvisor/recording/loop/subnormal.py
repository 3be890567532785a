"""Looks for subnormal numbers in parameters and gradients on the CPU, which computes with them far more slowly."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import torch
from torch import Tensor
from torch.optim import Optimizer

from traceadvisor.system import clocks

MOST_VALUES = 1 << 15
"""Values of all tensors together: to look at them takes a fraction of a millisecond."""

MOST_TENSORS = 64

FIRST_NS = 250_000_000
GROWTH = 1.4
"""Looks are this much further apart each time, so that a run has few of them."""


class SubnormalSeen:
    """The largest share of subnormal numbers, looked at now and then after an optimizer's step."""

    def __init__(self) -> None:
        self.share: float | None = None
        self._wait_ns = float(FIRST_NS)
        self._due_ns = clocks.perf_counter_ns() + FIRST_NS

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer stepped. Never raises, and never waits for a GPU."""
        now_ns = clocks.perf_counter_ns()
        if now_ns < self._due_ns:
            return
        try:
            if torch._C._autograd._profiler_enabled():
                return
            self._wait_ns *= GROWTH
            self._due_ns = now_ns + round(self._wait_ns)
            self._look(optimizer)
        except Exception:  # noqa: BLE001  # a parameter may be of any class, and torch may have renamed what is asked
            self._due_ns = 1 << 62

    def _look(self, optimizer: Optimizer) -> None:
        tensors = list(_tensors(optimizer))[:MOST_TENSORS]
        subnormal = count = 0
        with torch.no_grad():
            for one in tensors:
                values = some_values(one.detach())[: MOST_VALUES // len(tensors)].abs()
                subnormal += int(((values > 0) & (values < torch.finfo(values.dtype).tiny)).sum())
                count += values.numel()
        if count:
            self.share = max(self.share or 0.0, subnormal / count)


def some_values(tensor: Tensor) -> Tensor:
    """Return values of a tensor in one dimension without a copy: all, or the first row if there are gaps in memory."""
    in_memory = tensor.permute(sorted(range(tensor.dim()), key=lambda at: -tensor.stride()[at] or -inf))
    return in_memory.reshape(-1) if in_memory.is_contiguous() else in_memory[(0,) * (tensor.dim() - 1)]


def _tensors(optimizer: Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for one in (parameter, parameter.grad):
                if one is not None and one.device.type == "cpu" and one.is_floating_point() and not one.is_sparse:
                    yield one
