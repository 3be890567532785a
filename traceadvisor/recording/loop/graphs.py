"""CUDA graphs that hold steps of optimizers: to replay one is to train.

While a graph is captured, nothing runs on the device. An optimizer's step in it is no step of the training. Each replay
of the graph makes it, and calls no other function of torch.
"""

from __future__ import annotations

import weakref
from contextlib import suppress

from torch.optim import Optimizer


class GraphSteps:
    """The optimizers that each graph steps, in their order."""

    def __init__(self) -> None:
        self.are_used = False
        """Whether a capture has begun."""
        self._current: weakref.ref[object] | None = None
        self._held: weakref.WeakKeyDictionary[object, list[Optimizer]] = weakref.WeakKeyDictionary()

    def capture_begins(self, graph: object) -> None:
        """Count launches as those of a graph from now on."""
        self.are_used = True
        self._current = weakref.ref(graph)
        self._held.pop(graph, None)

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer stepped during a capture."""
        if self._current and (graph := self._current()) is not None:
            self._held.setdefault(graph, []).append(optimizer)

    def of(self, graph: object) -> tuple[Optimizer, ...]:
        """The optimizers that a replay of the graph steps."""
        with suppress(TypeError):  # a graph that cannot be referred to weakly
            return tuple(self._held.get(graph, ()))
        return ()
