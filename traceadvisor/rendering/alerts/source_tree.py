"""Files of a recording as paths relative to the repository, and the code at their lines.

Paths in a recording are untrusted. A path that leaves this module is relative, never leads out of the repository, and
a file is only read if it is Python source inside the checkout.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import field
from itertools import islice
from pathlib import Path

from traceadvisor.frozen import frozen
from traceadvisor.model.run import Repository

LARGEST_SOURCE_BYTES = 1 << 22
"""A larger file is no hand-written code."""

MOST_PARTS = 30
"""Folders of a path that are compared with the checkout; deeper ones are unusual."""

LONGEST_PATH = 400

UNKNOWN = "unknown"
"""A path of which nothing is left."""

_DRIVE = re.compile(r"[A-Za-z]:(?=/)")
_SOURCE = frozenset({".py", ".pyw", ".pyx"})


@frozen
class SourceTree:
    """A checkout of the repository, to look up paths and lines of code."""

    root: Path | None
    """Its top folder; None without a checkout: then paths are not checked, and no code is known."""

    _lines: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False)

    def relative(self, file: str, repository: Repository | None) -> str:
        """A recorded path relative to the repository.

        A path outside the repository is cut to what the checkout also has, or to the file's name. A relative path may
        be relative to the working directory or to the script's folder; the checkout tells which.

        Args:
            file: as recorded.
            repository: that of the script, if known.
        """
        path = file.replace("\\", "/")
        whole = _DRIVE.sub("", path)
        is_absolute = whole.startswith(("/", "~"))
        if repository is not None and is_absolute:
            inside = _below(path, repository.root.replace("\\", "/"))
            if inside is not None:
                return _plain(inside)
        if is_absolute:
            parts = _plain(whole.lstrip("~")).split("/")[-MOST_PARTS:]
            ends = ("/".join(parts[start:]) for start in range(len(parts)))
            return next((end for end in ends if self._has(end)), parts[-1])
        return self._among(_plain(path), repository)

    def code(self, file: str, line: int) -> str | None:
        """The code at a line, without indentation; None if unknown. The file is as :meth:`relative` gives it."""
        if file not in self._lines:
            self._lines[file] = self._read(file)
        lines = self._lines[file]
        return lines[line - 1].strip() if 0 < line <= len(lines) else None

    def _among(self, path: str, repository: Repository | None) -> str:
        """The path itself, or the path below the script's folder: what the checkout has, the latter if both or none."""
        folder = _plain(repository.folder) if repository and repository.folder not in {None, "."} else ""
        if not folder or path.startswith(f"{folder}/"):
            return path
        below = f"{folder}/{path}"
        return path if self._has(path) and not self._has(below) else below

    def _place(self, file: str) -> Path | None:
        """The file in the checkout; None if it is missing, is no regular file, or a link leads out of the checkout."""
        if self.root is None:
            return None
        try:
            place = (self.root / file).resolve()
            is_inside = place.is_relative_to(self.root.resolve())
            return place if is_inside and place.is_file() else None
        except (OSError, ValueError):
            return None

    def _has(self, file: str) -> bool:
        return self._place(file) is not None

    def _read(self, file: str) -> tuple[str, ...]:
        place = self._place(file)
        try:
            if place is None or place.suffix not in _SOURCE or place.stat().st_size > LARGEST_SOURCE_BYTES:
                return ()
            return tuple(place.read_text(encoding="utf-8", errors="replace").split("\n"))
        except OSError:
            return ()


def checkout(start: Path) -> SourceTree:
    """The checkout that a folder belongs to, found by ``.git``."""
    folders = islice((start, *start.parents), MOST_PARTS)
    try:
        return SourceTree(next((folder for folder in folders if (folder / ".git").exists()), None))
    except OSError:
        return SourceTree(None)


def _below(path: str, root: str) -> str | None:
    """The path relative to a folder; None if it is not below it."""
    path, root = posixpath.normpath(path), posixpath.normpath(root)
    return path[len(root) + 1 :] if path.startswith(f"{root}/") else None


def _plain(path: str) -> str:
    """The path without parts that lead elsewhere."""
    parts = [part for part in path.split("/") if part not in {"", ".", ".."}]
    return "/".join(parts)[-LONGEST_PATH:].lstrip("/") or UNKNOWN
