"""The runs below the log folders. Folders are listed again only when they change."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from traceadvisor.frozen import frozen
from traceadvisor.indexing.runs import Run, runs_below

_URI = re.compile(r"[a-zA-Z][0-9a-zA-Z.]*://")
_UNSETTLED_NS = 2_000_000_000
"""A folder that changed so recently may change again without a new time stamp."""

_LONGEST_TRUST_S = 60.0
"""File systems over object stores do not renew the times of folders."""

EVERYTHING = "All runs"


def roots_of(logdir: str | None, specification: str | None) -> dict[Path, str]:
    """The log folders by the prefix of their runs' names: of ``--logdir``, or of ``--logdir_spec``."""
    found: dict[Path, str] = {}
    for part in [logdir] if logdir else (specification or "").split(","):
        name, colon, path = part.partition(":")
        if not colon or part.startswith("/") or logdir or _URI.match(part):
            name, path = "", part
        if path and not _URI.match(path):
            found[Path(path).expanduser().resolve()] = name
    return found


class Logs:
    """The runs below some folders."""

    def __init__(self, roots: dict[Path, str]) -> None:
        self._roots = roots
        self._lock = threading.Lock()
        self._folders: dict[str, _Folder] = {}
        self._runs: tuple[Run, ...] = ()
        self._seen_s = -_LONGEST_TRUST_S

    def runs(self) -> tuple[Run, ...]:
        """All runs together where there are several, then the newest first.

        Takes the time of one ``stat`` per folder where nothing changed.
        """
        with self._lock:
            is_old = time.monotonic() - self._seen_s >= _LONGEST_TRUST_S
            if self._changed(everything=is_old) or is_old:
                found = [run for root, prefix in self._roots.items() for run in runs_below(root, prefix)]
                found.sort(key=lambda run: (-run.time_ns, run.name))
                together = [_together(tuple(self._roots), found)] if len(found) > 1 else []
                self._runs = (*together, *found)
                self._seen_s = time.monotonic()
            return self._runs

    def _changed(self, *, everything: bool) -> bool:
        """Look at each folder, and list those that changed; whether any did."""
        before, self._folders = self._folders, {}
        waiting = [str(root) for root in self._roots]
        changed = False
        while waiting:
            path = waiting.pop()
            known = None if everything else before.get(path)
            try:
                stamp = os.stat(path).st_mtime_ns  # noqa: PTH116  # ten thousand of them
                folder = known if known and known.stamp == stamp and known.is_settled else _listed(path, stamp)
            except OSError:  # gone, or not ours
                continue
            changed |= known is None or (known.stamp, known.entries) != (folder.stamp, folder.entries)
            self._folders[path] = folder
            waiting += folder.inside
        return changed or len(before) != len(self._folders)


@frozen
class _Folder:
    """State of a folder at one look."""

    stamp: int
    is_settled: bool
    entries: int
    """A hash of the names."""

    inside: tuple[str, ...]


def _listed(path: str, stamp: int) -> _Folder:
    is_settled = abs(time.time_ns() - stamp) > _UNSETTLED_NS
    with os.scandir(path) as entries:
        found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
    names = hash(frozenset(name for name, _ in found))
    return _Folder(stamp, is_settled, names, tuple(name for name, is_folder in found if is_folder))


def _together(roots: tuple[Path, ...], runs: Sequence[Run]) -> Run:
    origins = tuple(one for run in runs for one in run.origins)
    return Run(EVERYTHING, roots, origins, runs[0].time_ns, roots)
