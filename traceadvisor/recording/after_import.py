"""Calls back once the program has imported a module, such as torch."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from traceadvisor.system import clocks  # noqa: F401  # before the script can replace those of Python

TORCH = "torch"

BACKWARD = "_engine_run_backward"
"""The function of ``torch.autograd`` by which ``backward`` and ``grad`` start the backward pass."""


def _ignore(_error: BaseException) -> None:
    """Ignore a failed import: the program deals with it."""


def after_torch_import(call: Callable[[], None], failed: Callable[[BaseException], None] = _ignore) -> None:
    """Call a function once torch is imported; at once if it is already.

    An earlier import of torch would ignore what the script sets first: thread counts, allocator options, log levels.
    """
    after_import(TORCH, call, failed)


def after_import(
    name: str, call: Callable[[], None], failed: Callable[[BaseException], None] = _ignore
) -> Callable[[], None]:
    """Call a function once a module is imported; at once if it is already.

    ``failed``: called with the error of each import that fails.

    Returns:
        A function that stops waiting for the import.
    """
    if name in sys.modules:
        with own_imports():
            call()
        return lambda: None
    waiting = _OnImport(name, call, failed)
    sys.meta_path.insert(0, waiting)
    return waiting.stop


class _OnImport(MetaPathFinder):
    """Finds a module once through the other finders, and calls back when it has been executed."""

    def __init__(self, name: str, call: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
        self._name = name
        self._call = call
        self._failed = failed
        self._is_looking = False

    def stop(self) -> None:
        """Wait no longer."""
        with suppress(ValueError):  # called back already
            sys.meta_path.remove(self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  # importlib's signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """The spec of the other finders, with a loader that calls back."""
        if fullname != self._name or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_looking = False
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                try:
                    execute(module)
                except BaseException as error:
                    with suppress(Exception):
                        self._failed(error)
                    raise
                if self in sys.meta_path:  # a look-up alone does not import
                    sys.meta_path.remove(self)
                    with suppress(Exception), own_imports():  # the import succeeded in any case
                        self._call()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_PATH = tuple(sys.path)
"""Before the folder of the script comes first on it: this module is imported early."""


class _Finder(MetaPathFinder):
    """Looks for modules in places of its own while a thread imports for this package."""

    def __init__(self) -> None:
        self.importing = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of the other finders, except that modules are not looked for in the folder of the script."""
        if path is not None or not getattr(self.importing, "depth", 0):
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            places = _PATH if finder is PathFinder else None
            if spec := finder.find_spec(fullname, places, target):
                return spec
        if sys._getframe(2).f_code.co_name == "find_spec":  # `importlib.util.find_spec` raises no error
            return None
        raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


_FINDER = _Finder()
sys.meta_path.insert(0, _FINDER)


@contextmanager
def own_imports() -> Iterator[None]:
    """In this block, imports of this thread do not see the folder of the script."""
    importing = _FINDER.importing
    importing.depth = getattr(importing, "depth", 0) + 1
    try:
        yield
    finally:
        importing.depth -= 1
