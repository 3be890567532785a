"""Follows the calls of modules in a program that never trains and has no loader, such as one that generates text.

A call counts if it is within no other one and has no gradients. First, all modules are followed, as they may be before
a training that is about to start. Once many calls were seen, only the classes whose modules were called from outside
are: calls inside a model then cost nothing. Torch's own hooks on all modules would make ``torch.compile`` warn.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import torch

from traceadvisor.recording.loop.listener import LoopListener
from traceadvisor.recording.script.own_code import unseen

_FEWEST = 32
"""Calls without gradients from which they count. Checks before a training take a few."""

_MOST_CLASSES = 16
"""Classes of modules to follow."""


class ModuleCalls:
    """Tells the listener of these calls, until the program shows its steps in another way."""

    def __init__(self, listener: LoopListener) -> None:
        self._listener = listener
        self._depth = self._count = 0
        self._classes: set[type[torch.nn.Module]] = set()
        """Classes of the modules that were called, until they count."""
        self._hooked: list[tuple[type[torch.nn.Module], object]] = []
        """Classes, and the ``__call__`` that each defines itself; None without one."""
        self._hook((torch.nn.Module,))

    def remove(self) -> None:
        """Restore the methods."""
        for kind, own in self._hooked:
            if own is None:
                del kind.__call__
            else:
                kind.__call__ = own  # type: ignore[method-assign, assignment]
        self._hooked.clear()

    def _hook(self, kinds: Iterable[type[torch.nn.Module]]) -> None:
        for kind in kinds:
            own = kind.__dict__.get("__call__")
            with suppress(Exception):  # a class that refuses works as it did
                kind.__call__ = self._followed(kind.__call__)  # type: ignore[method-assign]
                self._hooked.append((kind, own))

    def _followed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        listener = self._listener

        @functools.wraps(original)
        @unseen
        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            # By this name: otherwise dynamo compiles what follows. Calls in forked processes count no more.
            if torch.compiler.is_compiling() or not listener.is_here:
                return original(module, *args, **kwargs)
            self._depth += 1
            try:
                return original(module, *args, **kwargs)
            finally:
                self._depth -= 1
                if not self._depth:
                    self._called(module)

        return call

    def _called(self, module: torch.nn.Module) -> None:
        if self._listener.shows_steps:
            self.remove()
        elif not torch.is_grad_enabled():
            if self._count >= _FEWEST:
                self._listener.module_called(module)
                return
            self._count += 1
            self._classes.add(type(module))
            if self._count == _FEWEST:
                self.remove()
                self._hook([*self._classes][:_MOST_CLASSES])
