"""Separates the script's own code from installed libraries and from this package.

Frames of this package stay out of tracebacks and recorded stacks.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import FrameType, FunctionType, TracebackType
from typing import Any, TypeVar, cast

_PACKAGE = "traceadvisor"
_PATHS = ("stdlib", "platstdlib", "purelib", "platlib")


def _library_folders() -> tuple[str, ...]:
    found = [*(sysconfig.get_path(name) for name in _PATHS), *site.getsitepackages(), site.getusersitepackages()]
    return tuple(sorted({f"{path}{os.sep}" for folder in found for path in (folder, str(Path(folder).resolve()))}))


_LIBRARY_FOLDERS = _library_folders()
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
"""Parts of the paths of installed libraries, also in folders that a ``.pth`` file adds."""


@lru_cache(maxsize=4096)
def is_of_library(file: str) -> bool:
    """Whether a file was installed or comes with Python, or is no file at all."""
    if file.startswith(("<", *_LIBRARY_FOLDERS)) or any(part in file for part in _INSTALLED):
        return True
    folder = max((path for path in map(str, sys.path) if path and file.startswith(path + os.sep)), key=len, default="")
    return bool(folder) and Path(file).relative_to(folder).parts[0].removesuffix(".py") in _installed_in(folder)


@lru_cache(maxsize=256)
def _installed_in(folder: str) -> frozenset[str]:
    """The modules that were installed into a folder of ``sys.path``, as by ``pip install --target``."""
    found = set[str]()
    for listing in Path(folder).glob("*.dist-info/RECORD"):
        with suppress(OSError, ValueError):
            names = (line.partition(",")[0].split("/") for line in listing.read_text("utf-8").splitlines())
            found.update(parts[0].removesuffix(".py") for parts in names)
    return frozenset(found)


def own_code() -> tuple[str, ...]:
    """The first parts of the paths of the script and its own modules below a folder of ``sys.path``, sorted.

    torch removes such folders from the paths in its stacks, the longest first (``torch.profiler.python_tracer``), so
    libraries look like folders of the script. A module outside these folders keeps its whole path.
    """
    return tuple(sorted({shown.parts[0] for _, shown in _own_files()}))


def own_files() -> frozenset[tuple[Path, str]]:
    """The files of the script and its own modules, each with its path as in recorded stacks."""
    return frozenset((path, shown.as_posix()) for path, shown in _own_files())


def _own_files() -> Iterator[tuple[Path, Path]]:
    prefixes = sorted({Path(folder).absolute() for folder in sys.path}, reverse=True)
    for name, module in sys.modules.copy().items():  # in one piece: another thread may import
        file = _file_of(getattr(module, "__dict__", {}))  # getattr on a lazy module may import much
        if file is None or is_of_library(file) or name.partition(".")[0] == _PACKAGE:
            continue
        path = Path(file).absolute()
        prefix = next((each for each in prefixes if path.is_relative_to(each)), path)
        if path != prefix:
            yield path, path.relative_to(prefix)


def _file_of(module: Mapping[str, Any]) -> str | None:
    """The file of a module, by its variables.

    ``python train.py`` removes ``__file__`` once the script is done, before the functions of :mod:`atexit` run.
    """
    file = module.get("__file__") or getattr(module.get("__loader__"), "path", None)
    return file if isinstance(file, str) else None


OWN_FILE = "<traceadvisor, as importlib._bootstrap>"
"""File name of functions that run inside those of the script; such names do not count as user code.

Python leaves out frames of importlib where a warning names the caller of a function, so torch's warnings name the line
that they would name without these functions.
"""

_OWN_PREFIX = "traceadvisor."

_Function = TypeVar("_Function", bound=Callable[..., Any])


def unseen(function: _Function) -> _Function:
    """Hide this package's file name in the frames of a function."""
    plain = cast("FunctionType", function)
    plain.__code__ = plain.__code__.replace(co_filename=OWN_FILE)
    return function


def is_own_frame(frame: FrameType) -> bool:
    """Whether a frame belongs to this package."""
    return frame.f_code.co_filename == OWN_FILE or str(frame.f_globals.get("__name__", "")).startswith(_OWN_PREFIX)


def shown_path(file: str) -> str:
    """The path as recorded stacks have it: relative to the working directory if below it."""
    with suppress(OSError, ValueError):  # it was removed, or the file is elsewhere
        return Path(file).relative_to(Path.cwd()).as_posix()
    return file


def strip_own_frames(error: BaseException) -> None:
    """Remove this package's frames from the traceback of an exception and of its causes."""
    pending: list[BaseException | None] = [error]
    known: set[int] = set()
    while pending:
        one = pending.pop()
        if one is None or id(one) in known:
            continue
        known.add(id(one))
        one.__traceback__ = _stripped(one.__traceback__)
        pending += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            pending += one.exceptions


def _stripped(traceback: TracebackType | None) -> TracebackType | None:
    kept: list[TracebackType] = []
    while traceback:
        if not str(traceback.tb_frame.f_globals.get("__name__", "")).startswith(_OWN_PREFIX):
            kept.append(traceback)
        traceback = traceback.tb_next
    result: TracebackType | None = None
    for one in reversed(kept):
        result = TracebackType(result, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return result
