"""Runs a script or module in this process as ``python`` does."""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import NoReturn
from zipfile import is_zipfile

from traceadvisor.errors import UsageError
from traceadvisor.frozen import frozen


@frozen
class Script:
    """The arguments of ``python``: a file, a folder with ``__main__.py`` or, after ``-m``, a module; then its own."""

    target: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    @property
    def command(self) -> tuple[str, ...]:
        """The command line after ``python``."""
        return (*(("-m",) if self.is_module else ()), self.target, *self.arguments)

    @property
    def name(self) -> str:
        """The name of its runs."""
        return self.target.rpartition(".")[2] if self.is_module else Path(self.target).stem

    @property
    def folder(self) -> Path:
        """The folder of its file; of a module, the working directory."""
        path = Path(self.target)
        if self.is_module or not path.exists():
            return Path.cwd()
        return path.resolve() if path.is_dir() else path.resolve().parent

    def prepare(self) -> Callable[[], None]:
        """Make this process look like one of ``python``; returns a function that runs the script and raises its errors.

        Raises:
            UsageError: there is no such file or module.
        """
        sys.argv[:] = [self.target, *self.arguments]
        compiled, main = self._module() if self.is_module else self._file()
        sys.modules["__main__"] = main

        def run() -> None:
            exec(compiled(), main.__dict__)  # noqa: S102  # this command runs scripts

        return run

    def _file(self) -> tuple[Callable[[], CodeType], ModuleType]:
        path = Path(self.target).absolute()
        if path.is_dir() or is_zipfile(path):
            return self._folder(str(path))
        try:
            with io.open_code(str(path)) as file:
                source = file.read()
        except OSError as error:
            raise UsageError(f"Cannot run {self.target}: {error.strerror}.") from error
        _put_first_on_path(os.path.realpath(path.parent) if not path.is_symlink() else str(path.resolve().parent))
        main = _main_module(str(path))
        main.__loader__ = SourceFileLoader("__main__", str(path))
        return lambda: compile(source, str(path), "exec", dont_inherit=True), main

    def _folder(self, path: str) -> tuple[Callable[[], CodeType], ModuleType]:
        """A folder or archive with ``__main__.py``, which becomes the first on the path."""
        spec = PathFinder.find_spec("__main__", [path])
        get_code: Callable[[str], CodeType | None] | None = getattr(spec.loader, "get_code", None) if spec else None
        code = get_code("__main__") if get_code else None
        if spec is None or code is None:
            raise UsageError(f"Cannot run {self.target}: it has no __main__.py.")
        _put_first_on_path(path)
        main = _main_module(spec.origin)
        main.__loader__, main.__package__, main.__spec__ = spec.loader, "", spec
        return lambda: code, main

    def _module(self) -> tuple[Callable[[], CodeType], ModuleType]:
        _put_first_on_path(str(Path.cwd()))
        try:
            spec, code = _find_module(self.target)
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001  # of the package around it
            return partial(_raise, error), _main_module(None)
        sys.argv[0] = spec.origin or self.target
        main = _main_module(spec.origin)
        main.__loader__, main.__package__, main.__spec__ = spec.loader, spec.parent, spec
        return lambda: code, main


def _raise(error: Exception) -> NoReturn:
    raise error


def _main_module(file: str | None) -> ModuleType:
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={}, __cached__=None)
    if file is not None:
        main.__file__ = file
    return main


def _put_first_on_path(folder: str) -> None:
    """Replace the folder of this program, ``sys.path[0]``; with ``-P`` there is none.

    ``python -m traceadvisor`` does without the working directory; a ``PYTHONPATH`` that names it means the script too.
    """
    asked = [] if sys.flags.ignore_environment else _folders(os.environ.get("PYTHONPATH", ""))
    first, others = ([], sys.path) if sys.flags.safe_path else ([folder], sys.path[1:])
    sys.path[:] = [*first, *asked, *(place for place in others if place not in asked)]


def _folders(pythonpath: str) -> list[str]:
    """The absolute folders of a ``PYTHONPATH``; an empty entry is the working directory."""
    return [os.path.abspath(place) for place in pythonpath.split(os.pathsep)] if pythonpath else []  # noqa: PTH100  # as Python does it


def _find_module(name: str) -> tuple[ModuleSpec, CodeType]:
    """Find a module; raises UsageError if there is none that can be run."""
    try:
        spec = importlib.util.find_spec(name)
        if spec and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        raise UsageError(f"Cannot run -m {name}: {error}.") from error
    get_code: Callable[[str], CodeType | None] | None = getattr(spec.loader, "get_code", None) if spec else None
    code = get_code(spec.name) if spec and get_code else None
    if spec is None or code is None:
        raise UsageError(f"Cannot run -m {name}: there is no such module, or it is a package without __main__.")
    return spec, code
