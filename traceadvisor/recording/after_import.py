"""Calls back once the program has imported torch."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

TORCH = "torch"


def after_torch_import(call: Callable[[], None]) -> None:
    """Call a function once torch is imported; at once if it is already.

    An earlier import of torch would ignore what the script sets first: thread counts, allocator options, log levels.
    """
    if TORCH in sys.modules:
        call()
    else:
        sys.meta_path.insert(0, _OnImport(call))


class _OnImport(MetaPathFinder):
    """Finds torch once through the other finders, and calls back when it has been executed."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._is_looking = False

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  # importlib's signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """The spec of the other finders, with a loader that calls back."""
        if fullname != TORCH or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_looking = False
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:  # a look-up alone does not import
                    sys.meta_path.remove(self)
                    self._call()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
