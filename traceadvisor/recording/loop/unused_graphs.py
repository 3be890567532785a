"""Counts the nodes of autograd that loops without an optimizer step make, such as a validation with gradients.

Torch numbers the nodes of each thread. The number of a new one at the end of a loop tells how many there were.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from weakref import WeakSet

import torch
from torch.optim import Optimizer

MOST_PARAMETERS = 1000
"""Parameters whose gradients show a backward pass."""


class UnusedGraphs:
    """Watches each loop over a data loader from its first batch to its end."""

    def __init__(self) -> None:
        self._optimizers = WeakSet[Optimizer]()
        self._loop: tuple[int, int, int, list[tuple[int, int]]] | None = None
        """The iterator, optimizer steps, nodes and gradients when the latest loop began."""
        self._nodes = self._batches = 0

    @property
    def nodes_per_batch(self) -> float | None:
        """Nodes per batch of all loops without an optimizer step or a backward pass; None without such a loop."""
        return self._nodes / self._batches if self._batches else None

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer stepped: the gradients of its parameters show backward passes."""
        with suppress(TypeError):  # it allows no weak reference
            self._optimizers.add(optimizer)

    def began(self, iterator: object, steps: int) -> None:
        """A loop begins. Never raises, and never waits for a GPU.

        ``steps``: optimizer steps until now. A script without an optimizer may train in its own way.
        """
        self._loop = None
        try:
            if self._optimizers and (nodes := _nodes()) is not None:
                self._loop = id(iterator), steps, nodes, self._gradients()
        except Exception:  # noqa: BLE001  # the script may have changed what torch does
            self._loop = None

    def ended(self, iterator: Any, steps: int) -> None:
        """A loop has no further batch. Never raises."""
        loop, self._loop = self._loop, None
        try:
            if loop and loop[:2] == (id(iterator), steps) and loop[3] == self._gradients():
                self._add(loop[2], int(getattr(iterator, "_num_yielded", 0)))
        except Exception:  # noqa: BLE001  # as above
            self._loop = None

    def _add(self, before: int, batches: int) -> None:
        if (after := _nodes()) is not None and batches > 0:
            self._nodes += max(after - before - 1, 0)
            self._batches += batches

    def _gradients(self) -> list[tuple[int, int]]:
        """The gradients of the parameters, and how often each was changed in place."""
        groups = (group for optimizer in self._optimizers for group in optimizer.param_groups)
        parameters = (one for group in groups for one in group["params"])
        gradients = (one.grad for one, _ in zip(parameters, range(MOST_PARAMETERS), strict=False))
        return [(id(one), 0 if one is None else one._version) for one in gradients]


def _nodes() -> int | None:
    """Return the number of a new node of this thread; None in inference mode, and where a mode of the script is on."""
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return None
    with torch.enable_grad():
        node = torch.empty(0, device="cpu", requires_grad=True).view(0).grad_fn
    return None if node is None else int(node._sequence_nr())
