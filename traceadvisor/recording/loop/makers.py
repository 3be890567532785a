"""Hooks what makes the objects of the training: loaders, optimizers, modules and gradient scalers.

In a child process, a capture starts with the first optimizer. Its model and its loader are made before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.amp.grad_scaler import GradScaler
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from traceadvisor.recording.loop.constructors import Constructors
from traceadvisor.recording.script.own_code import unseen


class Makers:
    """Replaces methods that run as objects are made, and restores them."""

    def __init__(self, constructors: Constructors) -> None:
        """Replace them; ``constructors`` hears of each object."""
        self.constructors = constructors
        self._replaced: list[tuple[type, str, Any, Any]] = []
        # the last call of a loader's constructor, and the first of an optimizer's that knows the optimizer
        self._hook(DataLoader, "check_worker_number_rationality", constructors.loader_made)
        self._hook(Optimizer, "_patch_step_function", constructors.made)
        self._hook(GradScaler, "__init__", constructors.made)
        self._of_modules = [
            register(constructors.module_grows)
            for register in (register_module_module_registration_hook, register_module_parameter_registration_hook)
        ]

    def remove(self) -> None:
        """Restore them, but those that the script has replaced meanwhile."""
        for hook in self._of_modules:
            hook.remove()
        for owner, name, original, hooked in reversed(self._replaced):
            if owner.__dict__.get(name) is hooked:
                setattr(owner, name, original)

    def _hook(self, owner: type, name: str, made: Callable[[Any], None]) -> None:
        original = owner.__dict__[name]
        hooked = _hooked_making(original, made)
        self._replaced.append((owner, name, original, hooked))
        setattr(owner, name, hooked)


def _hooked_making(original: Callable[..., None], made: Callable[[Any], None]) -> Callable[..., None]:
    @functools.wraps(original)
    @unseen
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        made(self)

    return make


_early: list[Makers] = []


def watch() -> None:
    """Remember what this process makes from now on: it may train later."""
    if not _early:
        _early.append(Makers(Constructors()))


def remembered() -> Constructors:
    """Return what was made since :func:`watch`, which ends; nothing without it."""
    if not _early:
        return Constructors()
    early = _early.pop()
    early.remove()
    return early.constructors
