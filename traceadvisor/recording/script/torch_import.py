"""Something to do right after the script has imported torch.

Importing torch before the script would rob it of what it sets first: thread counts, allocator options, log levels.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

TORCH = "torch"


def after_torch_import(then: Callable[[], None]) -> None:
    """Call a function once torch is imported; at once where it is already."""
    if TORCH in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _OnImport(then))


class _OnImport(MetaPathFinder):
    """Finds torch as everybody else does, once, and is told when it has been executed."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  # importlib's signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """The spec that the other finders give, with a loader that calls back."""
        if fullname != TORCH:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec and spec.loader:
            execute, then = spec.loader.exec_module, self._then

            def exec_module(module: ModuleType) -> None:
                execute(module)
                then()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
