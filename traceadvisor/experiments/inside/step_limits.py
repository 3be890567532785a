"""Lets trainers of libraries go on until everything is measured, whatever number of steps or epochs the script set.

A plain loop over a loader goes on anyway: its batches do not end. These trainers count steps themselves.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from traceadvisor.recording.after_import import after_import
from traceadvisor.recording.script.own_code import unseen

_FAR = 10**7
"""Steps that no experiment reaches."""


def _trainer_of_transformers(trainer: Any) -> None:
    trainer.args.max_steps = _FAR


def _trainer_of_lightning(trainer: Any) -> None:
    trainer.fit_loop.max_epochs = -1
    trainer.fit_loop.epoch_loop.max_steps = -1


_TRAINERS: tuple[tuple[str, str, str, Callable[[Any], None]], ...] = (
    ("transformers.trainer", "Trainer", "train", _trainer_of_transformers),
    ("lightning.pytorch.trainer.trainer", "Trainer", "fit", _trainer_of_lightning),
    ("pytorch_lightning.trainer.trainer", "Trainer", "fit", _trainer_of_lightning),
)
"""Module, class, the method that trains, and what lifts its limit."""


def lift_limits() -> None:
    """Wrap the methods, once their modules are imported."""
    for module, kind, method, lift in _TRAINERS:
        after_import(module, functools.partial(_wrap, module, kind, method, lift))


def _wrap(module: str, kind: str, method: str, lift: Callable[[Any], None]) -> None:
    owner = getattr(sys.modules[module], kind)
    original = getattr(owner, method)

    @functools.wraps(original)
    @unseen
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        with suppress(Exception):  # another version: its own limit holds
            lift(self)
        return original(self, *args, **kwargs)

    setattr(owner, method, train)
