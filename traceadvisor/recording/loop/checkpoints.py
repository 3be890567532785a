"""Times the saving of checkpoints: two clock reads for each call of the usual functions, and nothing else."""

from __future__ import annotations

import functools
import importlib.util
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from traceadvisor.recording.script.own_code import unseen

SAVING = {
    "torch.serialization": ("save",),
    "torch": ("save",),
    "safetensors.torch": ("save_file", "save_model"),
    "torch.distributed.checkpoint.state_dict_saver": ("save", "async_save", "save_state_dict"),
}
"""Functions that save checkpoints, by the module that defines them or hands them on."""


class CheckpointHooks:
    """Wraps the functions of :data:`SAVING`, those of other modules once they are imported."""

    def __init__(self, saved: Callable[[int], None]) -> None:
        """``saved``: called after each outermost call in a thread, with its time in nanoseconds."""
        self._saved = saved
        self._inside = threading.local()
        self._wrapped: dict[Any, Any] = {}
        """Wrappers by the function that each calls."""

        self._places: list[tuple[ModuleType, str, Any, Any]] = []
        """Module, name, function and wrapper of each replaced attribute."""

        self._finder: _OnImport | None = None
        for name in SAVING:
            if module := sys.modules.get(name):
                self._wrap(module)
        missing = {name for name in SAVING if name not in sys.modules}
        if missing:
            self._finder = _OnImport(missing, self._wrap)
            sys.meta_path.insert(0, self._finder)

    def remove(self) -> None:
        """Restore the functions. Those that a script holds by itself keep working."""
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        for module, name, function, wrapper in reversed(self._places):
            if getattr(module, name, None) is wrapper:
                setattr(module, name, function)
        self._places.clear()

    def _wrap(self, module: ModuleType) -> None:
        for name in SAVING[module.__name__]:
            function = getattr(module, name, None)
            if callable(function):
                if function not in self._wrapped:
                    self._wrapped[function] = self._timed(function)
                wrapper = self._wrapped[function]
                setattr(module, name, wrapper)
                self._places.append((module, name, function, wrapper))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        inside, saved = self._inside, self._saved

        @functools.wraps(function)
        @unseen
        def save(*args: Any, **kwargs: Any) -> Any:
            if getattr(inside, "call", False):
                return function(*args, **kwargs)
            inside.call = True
            begin_ns = time.perf_counter_ns()
            try:
                return function(*args, **kwargs)
            finally:
                inside.call = False
                saved(time.perf_counter_ns() - begin_ns)

        return save


class _OnImport(MetaPathFinder):
    """Finds some modules through the other finders, and calls back when each has been executed."""

    def __init__(self, names: set[str], call: Callable[[ModuleType], None]) -> None:
        self._names = names
        self._call = call
        self._looking: set[str] = set()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  # importlib's signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """The spec of the other finders, with a loader that calls back."""
        if fullname not in self._names or fullname in self._looking:
            return None
        self._looking.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking.discard(fullname)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                if fullname in self._names and self in sys.meta_path:
                    self._names.discard(fullname)
                    with suppress(Exception):  # the import succeeded in any case
                        self._call(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
