"""Lists the files below a folder that a script made, changed or removed."""

from __future__ import annotations

from pathlib import Path

from traceadvisor.frozen import frozen
from traceadvisor.system.folders import entries_below

MOST_FILES = 50_000
"""A folder with more files is not listed: looking at all of them takes seconds."""

_IGNORED = {"__pycache__", ".git", ".venv", "venv", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


@frozen
class Footprints:
    """Size and time of change of each file; None if there are too many."""

    files: dict[str, tuple[int, int]] | None

    @classmethod
    def below(cls, folder: Path, *, ignored: Path) -> Footprints:
        """Look at all files now, except those in one more folder."""
        found: dict[str, tuple[int, int]] = {}
        skipped = str(ignored.absolute())
        for path in entries_below(folder, lambda one: one.name not in _IGNORED and str(one.absolute()) != skipped):
            try:
                status = path.lstat()
            except OSError:
                continue
            found[path.relative_to(folder).as_posix()] = (status.st_size, status.st_mtime_ns)
            if len(found) > MOST_FILES:
                return cls(None)
        return cls(found)

    def changed(self, later: Footprints) -> tuple[str, ...] | None:
        """Paths that are new, differ or are gone; None if unknown."""
        if self.files is None or later.files is None:
            return None
        before, after = self.files, later.files
        return tuple(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))
