"""The runs below a folder: captures, folders of logs, and recordings that stand alone."""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from traceadvisor import api
from traceadvisor.frozen import frozen
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.discovery import rank_in_job
from traceadvisor.rendering.units import number_of
from traceadvisor.system.folders import entries_below
from traceadvisor.text.cleaning import clean, one_line

_TIME = re.compile(r"\.(\d{13,19})\.pt\.trace\.json(?:\.gz)?\Z")

NEWEST, ALL = "", "*"


@frozen
class Run:
    """The recordings of a folder of logs, or of a capture."""

    name: str
    roots: tuple[Path, ...]
    origins: tuple[Origin, ...]
    time_ns: int
    """Time of the newest recording, since the epoch."""

    folders: tuple[Path, ...] = ()
    """Folders that are read as a whole: captures, or all logs. Other runs name their files instead."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return the paths that a report on all of it reads."""
        return self.folders or tuple(one.path for one in self.origins)

    @property
    def id(self) -> str:
        """Return the browser's name for it; no part of it is a path."""
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


def runs_below(root: Path, prefix: str = "") -> list[Run]:
    """A run for each folder that holds recordings, and for each capture."""
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
    return [_run(f"{prefix}/{name}" if prefix else name, (root,), ours) for name, ours in named]


_MOST_APART_NS = 600_000_000_000
"""Ranks of one job end their recordings closer together; file systems and clocks may differ by minutes."""


@frozen
class _Together:
    """Ranks of one job, as far as they were found."""

    start_ns: int
    ranks: set[int]
    origins: list[Origin]


def separate_runs(paths: Sequence[Path], takes: Callable[[Origin], bool] = lambda _: True) -> list[Run]:
    """The runs under some paths; in a folder of logs, each process is one, but all ranks of a job are one together.

    ``paths``: folders, and files. ``takes``: whether to take a recording.
    """
    found: list[Run] = []
    files: defaultdict[Path, list[Origin]] = defaultdict(list)
    for path in paths:
        if path.is_dir():
            of = "" if len(paths) == 1 else f"{path.name}/"
            found += [
                replace(one, name=one.name if one.name == path.name else of + one.name) for one in runs_below(path)
            ]
        else:
            files[path.parent] += api.recordings_below(path)
    found += [_run(folder.name, (folder,), origins) for folder, origins in files.items() if origins]
    chosen = ((run, tuple(filter(takes, run.origins))) for run in found)
    return [one for run, origins in chosen if origins for one in _processes(replace(run, origins=origins))]


def _processes(run: Run) -> Iterator[Run]:
    workers: defaultdict[str, list[Origin]] = defaultdict(list)
    for one in run.origins:
        workers[one.worker].append(one)
    if run.folders or len(workers) == 1:
        yield run
        return
    newest: dict[int, _Together] = {}
    all_: list[_Together] = []
    for ours in sorted(workers.values(), key=lambda some: _time_ns(some[0])):
        rank, size = rank_in_job(ours[0])
        time_ns, job = _time_ns(ours[0]), newest.get(size)
        if size == 1 or job is None or rank in job.ranks or time_ns - job.start_ns > _MOST_APART_NS:
            job = newest[size] = _Together(time_ns, set(), [])
            all_.append(job)
        job.ranks.add(rank)
        job.origins.extend(ours)
    for job in all_:
        more = f" and {number_of(len(job.ranks) - 1, 'more rank')}" if len(job.ranks) > 1 else ""
        name = f"{run.name}/{job.origins[0].worker}{more}" if len(all_) > 1 else run.name
        yield _run(name, run.roots, job.origins)


def _run(name: str, roots: tuple[Path, ...], origins: Sequence[Origin]) -> Run:
    folders = dict.fromkeys(one.bundle for one in origins if one.bundle)
    return Run(name, roots, tuple(origins), max(map(_time_ns, origins)), tuple(folders))


def files_in(paths: Iterable[Path], roots: Sequence[Path]) -> Iterator[Path]:
    """The files at and below some paths, in the order of their names, as far as they really lie below the roots."""
    for path in paths:
        if is_below(path, roots):
            for file in sorted(entries_below(path)) if path.is_dir() else [path]:
                if file.is_file() and (not file.is_symlink() or is_below(file, roots)):
                    yield file


def is_below(path: Path, roots: Iterable[Path]) -> bool:
    """Whether a path really lies below one of some folders; a link may lead anywhere."""
    return any(path.resolve().is_relative_to(root.resolve()) for root in roots)


def _time_ns(origin: Origin) -> int:
    """When the recording ended: from the name of its file, which copies keep, else when it was written."""
    named = _TIME.search(origin.path.name)
    try:
        return int(named[1].ljust(19, "0")) if named else origin.path.stat().st_mtime_ns
    except OSError:
        return 0
