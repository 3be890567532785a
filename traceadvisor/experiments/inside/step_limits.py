"""Lets trainers of libraries go on until everything is measured, and lets them save nothing.

A plain loop over a loader goes on anyway: its batches do not end. These trainers count steps themselves. Their
checkpoints hold more than files that ``torch.save`` writes, and a limit on their number deletes earlier ones.
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
    trainer.args.save_strategy = type(trainer.args.save_strategy)("no")
    trainer.args.max_steps = _FAR


def _trainer_of_lightning(trainer: Any) -> None:
    trainer.callbacks = [one for one in trainer.callbacks if one not in trainer.checkpoint_callbacks]
    trainer.fit_loop.max_epochs = -1
    trainer.fit_loop.epoch_loop.max_steps = -1


def _accelerator() -> None:
    """Save no state; the state of model and optimizer is in the scratch folder where the script saves it itself."""

    @unseen
    def save_state(_: Any, output_dir: Any = None, *__: Any, **___: Any) -> Any:
        return output_dir

    sys.modules["accelerate.accelerator"].Accelerator.save_state = save_state


_TRAINERS: tuple[tuple[str, str, str, Callable[[Any], None]], ...] = (
    ("transformers.trainer", "Trainer", "train", _trainer_of_transformers),
    ("lightning.pytorch.trainer.trainer", "Trainer", "fit", _trainer_of_lightning),
    ("pytorch_lightning.trainer.trainer", "Trainer", "fit", _trainer_of_lightning),
)
"""Module, class, the method that trains, and what lifts its limit."""


def lift_limits() -> None:
    """Change the libraries, once their modules are imported."""
    after_import("accelerate.accelerator", _accelerator)
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
