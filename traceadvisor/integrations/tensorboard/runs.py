"""The runs below the log folders. Folders are listed again only when they change."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from traceadvisor import api
from traceadvisor.frozen import frozen
from traceadvisor.model.trace import Origin
from traceadvisor.text.cleaning import clean, one_line

_TIME = re.compile(r"\.(\d{13,19})\.pt\.trace\.json(?:\.gz)?\Z")
_URI = re.compile(r"[a-zA-Z][0-9a-zA-Z.]*://")
_UNSETTLED_NS = 2_000_000_000
"""A folder that changed so recently may change again without a new time stamp."""

_LONGEST_TRUST_S = 60.0
"""File systems over object stores do not renew the times of folders."""

NEWEST, ALL = "", "*"
EVERYTHING = "All runs"


@frozen
class Run:
    """The recordings of a folder of logs, or of a capture."""

    name: str
    roots: tuple[Path, ...]
    origins: tuple[Origin, ...]
    time_ns: int
    """Of the newest recording, since the epoch."""

    folders: tuple[Path, ...] = ()
    """What is read as a whole: captures, or all logs. Of other runs, their files are read."""

    @property
    def id(self) -> str:
        """What the browser calls it; no part of it is a path."""
        return hashlib.sha256(os.fsencode(f"{self.roots}{self.folders}{self.name}")).hexdigest()[:16]

    def chosen(self, worker: str, span: str) -> list[Origin]:
        """Recordings of a worker, or of all; of a span, of the newest one of each worker, or of all."""
        ours = [one for one in self.origins if worker in (ALL, shown(one.worker))]
        if span == NEWEST:
            return list({one.worker: one for one in ours}.values())
        return [one for one in ours if span in (ALL, shown(one.span))]


def shown(name: str) -> str:
    """A name as the browser sees it."""
    return one_line(clean(name))


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
                found = [run for root, prefix in self._roots.items() for run in _runs_below(root, prefix)]
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
    """What a look at a folder saw."""

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


def _runs_below(root: Path, prefix: str) -> list[Run]:
    found: defaultdict[str, list[Origin]] = defaultdict(list)
    origins = api.recordings_below(root)
    homes = {one.bundle.name: one.bundle for one in origins if one.bundle}
    captures = set(homes.values())
    for one in origins:
        if not one.bundle and not captures.isdisjoint(one.path.parents):
            continue  # a memory snapshot, which is read with its capture
        folder = homes.get(one.run, one.bundle) if one.bundle and one.run != one.bundle.name else one.bundle
        found[folder.relative_to(root).as_posix() if folder else one.run].append(one)
    named = ((root.name if name == "." else name, ours) for name, ours in found.items())
    return [
        Run(
            f"{prefix}/{name}" if prefix else name,
            (root,),
            tuple(ours),
            max(map(_time_ns, ours)),
            tuple(dict.fromkeys(one.bundle for one in ours if one.bundle)),
        )
        for name, ours in named
    ]


def _together(roots: tuple[Path, ...], runs: Sequence[Run]) -> Run:
    origins = tuple(one for run in runs for one in run.origins)
    return Run(EVERYTHING, roots, origins, runs[0].time_ns, roots)


def _time_ns(origin: Origin) -> int:
    """When the recording ended: from the name of its file, which copies keep, else when it was written."""
    named = _TIME.search(origin.path.name)
    try:
        return int(named[1].ljust(19, "0")) if named else origin.path.stat().st_mtime_ns
    except OSError:
        return 0
