"""The folders given at the start: no path of a call leads out of them, by ``..`` or by a link."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from traceadvisor.errors import UsageError
from traceadvisor.frozen import frozen
from traceadvisor.indexing.runs import is_below
from traceadvisor.integrations.agents.answers import Refusal, RefusedError


@frozen
class Folders:
    """The folders that calls may name, without links."""

    roots: tuple[Path, ...]

    @classmethod
    def of(cls, given: Sequence[Path]) -> Folders:
        """Take the folders.

        Raises:
            UsageError: one is no folder.
        """
        for one in given:
            if not one.is_dir():
                raise UsageError(f"--root {one}: there is no such folder.")
        return cls(tuple(one.resolve() for one in given))

    def inside(self, text: str) -> Path:
        """The real place of a path of a call; a relative one is below the first folder that has it.

        Raises:
            RefusedError: it leads out of the folders.
        """
        path = Path(text)
        places = [path] if path.is_absolute() else [root / path for root in self.roots]
        try:
            found = next((place for place in places if place.exists()), places[0]).resolve()
        except (OSError, ValueError, RuntimeError) as error:  # a null byte, or links in a circle
            raise RefusedError(Refusal.USAGE, "It is no path.", text) from error
        if not is_below(found, self.roots):
            raise RefusedError(Refusal.OUTSIDE, "It leads out of the folders of --root.", text)
        return found

    def existing(self, text: str) -> Path:
        """The same of a path that must exist."""
        path = self.inside(text)
        if not path.exists():
            raise RefusedError(Refusal.USAGE, "There is no such file or folder.", text)
        return path

    def root_of(self, path: Path) -> Path:
        """The innermost folder around a path."""
        return max((root for root in self.roots if path.is_relative_to(root)), key=lambda root: len(root.parts))
