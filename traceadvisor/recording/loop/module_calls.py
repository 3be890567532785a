"""Follows the calls of modules in a program that never trains and has no loader, such as one that generates text.

A call counts if it is within no other one. First, all modules are followed, as they may be before a training that is
about to start. Once many calls were seen, only the classes whose modules were called from outside are: calls inside a
model then cost nothing. A program may make its model anew for each request: modules of a class that were first
called later count as one. ``__call__`` stays as it is: profilers of torch that record stacks look for its code, and
read its variables. Torch's own hooks on all modules would make ``torch.compile`` warn.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import torch

from traceadvisor.recording.loop.listener import LoopListener
from traceadvisor.recording.script.own_code import unseen

_METHOD = "_call_impl"

_FEWEST = 32
"""Calls from which they count. Checks before a training take a few."""

_MOST_CLASSES = 16
"""Classes of modules to follow."""


class ModuleCalls:
    """Tells the listener of these calls, until the program shows its steps in another way."""

    def __init__(self, listener: LoopListener) -> None:
        self._listener = listener
        self._depth = self._count = 0
        self._classes: set[type[torch.nn.Module]] = set()
        """Classes of the modules that were called, until they count."""
        self._known: dict[int, tuple[weakref.ref[torch.nn.Module], int]] = {}
        """Modules that were called and still exist, by id, with what stands for them."""
        self._hooked: list[tuple[type[torch.nn.Module], object, object]] = []
        """Classes, the method that each defines itself, or None, and what replaces it."""
        self._hook((torch.nn.Module,))

    def remove(self) -> None:
        """Restore the methods that nobody else has replaced since."""
        for kind, own, replacement in self._hooked:
            if kind.__dict__.get(_METHOD) is replacement:
                with suppress(Exception):  # it may be called in the midst of the script's own call
                    if own is None:
                        delattr(kind, _METHOD)
                    else:
                        setattr(kind, _METHOD, own)
        self._hooked.clear()

    def _hook(self, kinds: Iterable[type[torch.nn.Module]]) -> None:
        for kind in kinds:
            own, replacement = kind.__dict__.get(_METHOD), self._followed(getattr(kind, _METHOD))
            with suppress(Exception):  # a class that refuses works as it did
                setattr(kind, _METHOD, replacement)
                self._hooked.append((kind, own, replacement))

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
                result = original(module, *args, **kwargs)
            finally:
                self._depth -= 1
            if not self._depth:
                self._called(module)
            return result

        return call

    def _key(self, module: torch.nn.Module) -> int:
        """Return a number that stands for a module: its id, or that of its class if calls already count."""
        place, known = id(module), self._known
        if place not in known:
            key = place if self._count < _FEWEST else id(type(module))
            known[place] = weakref.ref(module, lambda _: known.pop(place, None)), key
        return known[place][1]

    def _called(self, module: torch.nn.Module) -> None:
        if self._listener.shows_steps:
            self.remove()
            return
        key = self._key(module)
        if self._count >= _FEWEST:
            self._listener.module_called(key)
        else:
            self._count += 1
            self._classes.add(type(module))
            if self._count == _FEWEST:
                self.remove()
                self._hook([*self._classes][:_MOST_CLASSES])
