"""Lets the script see its files through an overlay: what it saves goes to a scratch folder and is read from there."""

from __future__ import annotations

import _io
import builtins
import errno
import functools
import io
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from traceadvisor.experiments.inside.overlay import Overlay
from traceadvisor.recording.after_import import after_import
from traceadvisor.recording.script.own_code import unseen

_SAVING = {
    "torch": (("save", 1, "f"),),
    "torch.serialization": (("save", 1, "f"),),
    "torch.jit": (("save", 1, "f"),),
    "safetensors.torch": (("save_file", 1, "filename"), ("save_model", 1, "filename")),
    "safetensors.numpy": (("save_file", 1, "filename"),),
    "torch.distributed.checkpoint": (("save", 99, "checkpoint_id"), ("async_save", 99, "checkpoint_id")),
    "lightning.fabric.plugins.io.torch_io": (("_atomic_save", 1, "filepath"),),
    "lightning_fabric.plugins.io.torch_io": (("_atomic_save", 1, "filepath"),),
}
"""Functions that write a file without Python, or a checkpoint: by module, name, place and name of the path's argument.

What they write goes to the scratch folder, also where no file was before.
"""

_LOADING = {
    "torch": (("load", 0, "f"),),
    "torch.serialization": (("load", 0, "f"),),
    "torch.jit": (("load", 0, "f"),),
    "torch.distributed.checkpoint": (("load", 99, "checkpoint_id"),),
    "safetensors": (("safe_open", 0, "filename"),),
    "safetensors.torch": (("load_file", 0, "filename"), ("load_model", 1, "filename")),
    "safetensors.numpy": (("load_file", 0, "filename"),),
}
"""Functions that read a file without Python."""

_CHANGING = ("remove", "rename", "mkdir", "rmdir", "link", "symlink", "truncate")
_LISTING = ("listdir", "scandir")
_ATTRIBUTES = ("chmod", "utime", "chown", "lchown", "setxattr", "removexattr")
_READING = ("stat", "lstat", "access", "readlink", "getxattr", "listxattr")
_OF_LINKS = ("lstat", "readlink", "lchown")


class ScratchFolder:
    """Replaces the functions of Python that take paths, and wraps those of libraries once they are imported."""

    def __init__(
        self,
        folder: Path,
        saving: Callable[[], None] = lambda: None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``saving``: called before each file is written; ``note``: called with what is changed in place."""
        self._overlay = Overlay(folder, folder.parent, saving, note)
        self._saving = saving
        self._inside = threading.local()
        self._wrapped: dict[Any, Any] = {}
        self._replace_functions()
        for table, redirected in ((_SAVING, self._for_saving), (_LOADING, self._for_loading)):
            for module in table:
                after_import(module, functools.partial(self._wrap, module, table[module], redirected))

    # -- Python's own functions --------------------------------------------------------------------------------------

    def _replace_functions(self) -> None:
        overlay = self._overlay
        for name in _CHANGING:
            self._replace(name, getattr(overlay, name), always=True)
        self._replace("unlink", overlay.remove, always=True)
        self._replace("replace", overlay.rename, always=True)
        for name in _LISTING:
            self._replace(name, getattr(overlay, name), takes_descriptors=True)
        for name in (*_ATTRIBUTES, *_READING):
            if hasattr(os, name):
                self._replace(name, self._at_its_place(name), always=name in _ATTRIBUTES)
        opened = self._guarded(os.open, overlay.open)
        self._put(os, "open", opened)
        original, builtins.open, io.FileIO = builtins.open, self._opening(opened), _file_io(opened)  # type: ignore[misc]
        for module in list(sys.modules.values()):  # such as io; bz2 has a name of its own for it
            for name, value in list(getattr(module, "__dict__", {}).items()) if module is not _io else ():
                if value is original:
                    setattr(module, name, builtins.open)

    def _replace(
        self, name: str, seen: Callable[..., Any], *, always: bool = False, takes_descriptors: bool = False
    ) -> None:
        """``always``: also while every file lies where its path says."""
        original = getattr(os, name)

        def locked(*args: Any, **kwargs: Any) -> Any:
            with self._overlay.lock:
                return seen(*args, **kwargs)

        guarded = self._guarded(original, locked)

        @functools.wraps(original)
        @unseen
        def call(*args: Any, **kwargs: Any) -> Any:
            is_descriptor = args and isinstance(args[0], int) and not takes_descriptors
            if is_descriptor or (self._overlay.is_empty and not always):
                return original(*args, **kwargs)
            return guarded(*args, **kwargs)

        self._put(os, name, call)

    def _put(self, module: Any, name: str, function: Any) -> None:
        original = getattr(module, name)
        for known in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            if original in known:
                known.add(function)
        setattr(module, name, function)

    def _guarded(self, original: Callable[..., Any], seen: Callable[..., Any]) -> Callable[..., Any]:
        """Leave the overlay's own work with files alone."""
        inside = self._inside

        @functools.wraps(original)
        @unseen
        def call(*args: Any, **kwargs: Any) -> Any:
            if getattr(inside, "is_set", False):
                return original(*args, **kwargs)
            inside.is_set = True
            try:
                return seen(*args, **kwargs)
            finally:
                inside.is_set = False

        return call

    def _at_its_place(self, name: str) -> Callable[..., Any]:
        """A function of ``os`` that is called with the place of the content."""
        original, overlay = getattr(os, name), self._overlay

        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            follow = name not in _OF_LINKS and kwargs.get("follow_symlinks", True)
            key = overlay.key(path, kwargs.get("dir_fd"), follow=follow)
            place = overlay.place(key)
            if place is None and name == "access":
                return False
            if place is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if name in _ATTRIBUTES and overlay.is_of_before(place):
                return None
            kwargs.pop("dir_fd", None)
            return original(place, *args, **kwargs)

        return call

    def _opening(self, opened: Callable[..., int]) -> Callable[..., Any]:
        """The built-in ``open``."""
        original, overlay, inside = builtins.open, self._overlay, self._inside

        @functools.wraps(original)
        @unseen
        def open_(  # noqa: PLR0913, PLR0917  # the arguments of open
            file: Any,
            mode: str = "r",
            buffering: int = -1,
            encoding: str | None = None,
            errors: str | None = None,
            newline: str | None = None,
            closefd: bool = True,
            opener: Any = None,
        ) -> Any:
            is_plain = overlay.is_empty and mode in {"r", "rb", "rt"}
            if is_plain or opener is not None or isinstance(file, int) or getattr(inside, "is_set", False):
                return original(file, mode, buffering, encoding, errors, newline, closefd, opener)
            return original(file, mode, buffering, encoding, errors, newline, closefd, opened)

        return open_

    # -- functions of libraries --------------------------------------------------------------------------------------

    def _wrap(self, module: str, functions: Any, redirected: Callable[[Any], Any]) -> None:
        for name, place, keyword in functions:
            function = getattr(sys.modules[module], name, None)
            if callable(function):
                if function not in self._wrapped:
                    self._wrapped[function] = self._wrapper(function, place, keyword, redirected)
                    self._wrapped[self._wrapped[function]] = self._wrapped[function]
                setattr(sys.modules[module], name, self._wrapped[function])

    def _wrapper(
        self, function: Callable[..., Any], place: int, keyword: str, redirected: Callable[[Any], Any]
    ) -> Callable[..., Any]:
        redirected = self._guarded(lambda file: file, redirected)

        @functools.wraps(function)
        @unseen
        def call(*args: Any, **kwargs: Any) -> Any:
            if keyword in kwargs:
                kwargs[keyword] = redirected(kwargs[keyword])
            elif len(args) > place:
                args = (*args[:place], redirected(args[place]), *args[place + 1 :])
            return function(*args, **kwargs)

        return call

    def _for_saving(self, file: Any) -> Any:
        """A path in the scratch folder; open files and buffers stay."""
        return self._overlay.to_save(file) if isinstance(file, str | bytes | os.PathLike) else file

    def _for_loading(self, file: Any) -> Any:
        if not isinstance(file, str | bytes | os.PathLike) or self._overlay.is_empty:
            return file
        return self._overlay.place(self._overlay.key(file, follow=True)) or file


def _file_io(opened: Callable[..., int]) -> type[io.FileIO]:
    """``io.FileIO`` that opens paths in another way; the files of ``open`` are of this type, too."""
    original = io.FileIO

    class Kind(type(original)):  # type: ignore[misc]  # mypy knows no base that is computed
        def __instancecheck__(cls, one: object) -> bool:
            return isinstance(one, original) if cls is FileIO else super().__instancecheck__(one)

    class FileIO(original, metaclass=Kind):  # type: ignore[valid-type,misc]
        def __init__(self, file: Any, mode: str = "r", closefd: bool = True, opener: Any = None) -> None:
            super().__init__(file, mode, closefd, opener if opener or isinstance(file, int) else opened)

    return FileIO
