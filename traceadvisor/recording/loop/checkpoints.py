"""Times the saving of checkpoints: two clock reads for each call of the usual functions, and nothing else."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from traceadvisor.recording.after_import import after_import
from traceadvisor.recording.script.own_code import unseen
from traceadvisor.system import clocks

SAVING = {
    "torch.serialization": ("save",),
    "torch": ("save",),
    "safetensors.torch": ("save_file", "save_model"),
    "torch.distributed.checkpoint.state_dict_saver": ("save", "async_save", "save_state_dict"),
    "lightning.pytorch.trainer.trainer": ("Trainer.save_checkpoint",),
    "pytorch_lightning.trainer.trainer": ("Trainer.save_checkpoint",),
    "transformers.trainer": ("Trainer._save_checkpoint",),
    "accelerate.accelerator": ("Accelerator.save_state",),
}
"""Functions that save checkpoints, by the module that defines them or hands them on. Those of frameworks also collect
the state, write it to the disk and remove older files."""


class CheckpointHooks:
    """Wraps the functions of :data:`SAVING`, those of other modules once they are imported."""

    def __init__(self, saved: Callable[[int], None]) -> None:
        """``saved``: called after each outermost call in a thread, with its time in nanoseconds."""
        self._saved = saved
        self._inside = threading.local()
        self._wrapped: dict[Any, Any] = {}
        """Wrappers by the function that each calls."""

        self._places: list[tuple[Any, str, Any, Any]] = []
        """Module or class, name, function and wrapper of each replaced attribute."""

        self._waiting = [after_import(name, functools.partial(self._wrap, name)) for name in SAVING]
        """Each ends the wait for the import of a module."""

    def remove(self) -> None:
        """Restore the functions. Those that a script holds by itself keep working."""
        for stop in self._waiting:
            stop()
        for owner, name, function, wrapper in reversed(self._places):
            if getattr(owner, name, None) is wrapper:
                setattr(owner, name, function)
        self._places.clear()

    def _wrap(self, module_name: str) -> None:
        for path in SAVING[module_name]:
            *outer, name = path.split(".")
            owner: Any = sys.modules[module_name]
            for one in outer:
                owner = getattr(owner, one, None)
            function = getattr(owner, name, None)
            if callable(function):
                if function not in self._wrapped:
                    self._wrapped[function] = self._timed(function)
                wrapper = self._wrapped[function]
                setattr(owner, name, wrapper)
                self._places.append((owner, name, function, wrapper))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        inside, saved = self._inside, self._saved

        @functools.wraps(function)
        @unseen
        def save(*args: Any, **kwargs: Any) -> Any:
            if getattr(inside, "call", False):
                return function(*args, **kwargs)
            inside.call = True
            begin_ns = clocks.perf_counter_ns()
            try:
                return function(*args, **kwargs)
            finally:
                inside.call = False
                saved(clocks.perf_counter_ns() - begin_ns)

        return save
