"""Reads the manifest of a capture folder: its recordings and ranks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from traceadvisor.bundle.layout import (
    FORMAT,
    MANIFEST,
    READABLE_FORMATS,
    BundleFile,
    FileKind,
    Manifest,
    Repository,
    beginning,
)
from traceadvisor.errors import InputError
from traceadvisor.model.health import HealthNote
from traceadvisor.model.limits import LIMITS
from traceadvisor.model.trace import Origin
from traceadvisor.text.secrets import beginning as beginning_of

UNREADABLE = (OSError, ValueError, RuntimeError)
"""Errors of reading a file from an untrusted bundle; msgspec's are ValueErrors, too deep nesting is a RuntimeError."""

MOST_SILENT = 200
"""Ranks without a recording to name: each costs 24 kB in the JSON report."""


def is_bundle(folder: Path) -> bool:
    """Whether a folder is a capture."""
    path = folder / MANIFEST
    try:
        return path.is_file() and FORMAT.partition("/")[0].encode() in beginning(path)
    except OSError:
        return False


class Start(msgspec.Struct, frozen=True):
    """The part of a manifest that tells when the capture began, and of what."""

    started_ns: int
    """Since the epoch; for a damaged manifest, when it was written; 0 if that is unknown."""

    command: tuple[str, ...] = ()
    """The captured script and its arguments; empty if the manifest is damaged."""

    repository: Repository | None = None
    """The repository of the script; None without one, or if the manifest is damaged."""


class _Began(msgspec.Struct, frozen=True):
    started_ns: int
    command: tuple[str, ...] = ()


def start_of(folder: Path) -> Start:
    """The start of a capture, whether or not the rest of its manifest can be read."""
    path = folder / MANIFEST
    with suppress(*UNREADABLE):
        return msgspec.json.decode(beginning(path), type=Start)
    with suppress(*UNREADABLE):
        began = msgspec.json.decode(beginning(path), type=_Began)
        return Start(began.started_ns, began.command)
    with suppress(OSError):
        return Start(path.stat().st_mtime_ns)
    return Start(0)


def find_in_bundle(
    folder: Path, most_ranks: int = LIMITS.ranks, manifest: Manifest | None = None
) -> tuple[list[Origin], list[HealthNote]]:
    """List a capture's recordings by rank and cycle; the manifest stands for a rank without a recording.

    ``most_ranks``: ranks to list, those with the lowest numbers. ``manifest``: as it was read; by default it is read
    here.

    Returns:
        The recordings, and notes on those that are left out: of further ranks, and files listed more than once.

    Raises:
        InputError: the manifest cannot be read, or has a later format.
    """
    manifest = manifest or read_manifest(folder)
    listed = [file for file in manifest.files if file.kind is FileKind.TRACE and is_inside(folder, file)]
    traces, again = _without_repeated(folder, listed)
    origins = [
        Origin(
            folder / file.path,
            folder.name,
            _worker(file.rank),
            "" if file.cycle is None else f"cycle{file.cycle}",
            file.cycle or 0,
            folder,
            file.rank,
            is_cut_short=file.whole is False,
        )
        for file in traces
    ]
    timed = {file.rank for file in manifest.files if file.kind is FileKind.STEPS and file.rank is not None}
    silent = sorted(({ending.rank for ending in manifest.endings} | timed) - {file.rank for file in listed})
    origins += [
        Origin(folder / MANIFEST, folder.name, _worker(rank), "", 0, folder, rank) for rank in silent[:MOST_SILENT]
    ]
    ranks = sorted({one.rank for one in origins if one.rank is not None})
    notes = [*_repeated(again), *_unheard(folder, len(silent)), *_beyond(folder, len(ranks), most_ranks)]
    taken = {None, *ranks[:most_ranks]}
    return [one for one in origins if one.rank in taken], notes


def _without_repeated(folder: Path, files: Sequence[BundleFile]) -> tuple[list[BundleFile], list[BundleFile]]:
    """Split the listed traces: those whose file is listed for the first time, and the others."""
    known: set[Path] = set()
    first: list[BundleFile] = []
    again: list[BundleFile] = []
    for file in files:
        path = (folder / file.path).resolve()
        (again if path in known else first).append(file)
        known.add(path)
    return first, again


def _repeated(again: Sequence[BundleFile]) -> Iterator[HealthNote]:
    if again:
        files = len({file.path for file in again})
        named = beginning_of(again[0].path)
        which = f"the recording {named}" if files == 1 else f"{files} recordings, such as {named},"
        message = (
            f"The manifest lists {which} {len(again) + files} times. A recording belongs to one rank: each was read "
            "once, for the first rank, and the other ranks were left out."
        )
        yield HealthNote("recording-listed-twice", message)


def _unheard(folder: Path, ranks: int) -> Iterator[HealthNote]:
    if ranks > MOST_SILENT:
        message = (
            f"{ranks:,} ranks of {beginning_of(folder.name)} have no recording. The report names the first "
            f"{MOST_SILENT}."
        )
        yield HealthNote("ranks-left-out", message)


def _beyond(folder: Path, ranks: int, most_ranks: int) -> Iterator[HealthNote]:
    if ranks > most_ranks:
        message = (
            f"{beginning_of(folder.name)} holds {ranks} ranks. The report covers the first {most_ranks}. "
            f"To read all of them, add --trusted, or raise ranks in [tool.traceadvisor.limits]."
        )
        yield HealthNote("ranks-left-out", message)


def job_of(folder: Path) -> tuple[str | None, int]:
    """The job that a capture belongs to, None if it does not tell, and the number of the job's ranks.

    Raises:
        InputError: the manifest cannot be read.
    """
    manifest = read_manifest(folder)
    return manifest.job, max(manifest.world_size, 1)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a capture.

    Raises:
        InputError: it cannot be read, or has a later format.
    """
    path = folder / MANIFEST
    try:
        manifest = msgspec.json.decode(beginning(path), type=Manifest)
    except UNREADABLE as error:
        raise InputError(
            path, f"is no readable manifest ({error})", expected=FORMAT, remedy="Capture the run again."
        ) from error
    if manifest.format not in READABLE_FORMATS:
        raise InputError(
            path,
            f"has the format '{manifest.format}'",
            expected=FORMAT,
            remedy="Use the version of TraceAdvisor that captured it.",
        )
    return manifest


def is_inside(folder: Path, file: BundleFile) -> bool:
    """Whether a file of the manifest lies in the folder: an untrusted manifest may point elsewhere."""
    try:
        path = (folder / file.path).resolve()
        return path.is_relative_to(folder.resolve()) and path.is_file()
    except UNREADABLE:
        return False


def _worker(rank: int | None) -> str:
    return "worker" if rank is None else f"rank{rank}"


_MOST_NAMED = 8


def joined(origins: Sequence[Origin]) -> tuple[list[Origin], list[HealthNote]]:
    """The same recordings, with those of one job in one run; a note names the captures.

    Captures that have a rank in common stay apart: they are copies, or attempts of a restarted job.

    Raises:
        InputError: a manifest cannot be read.
    """
    bundles: defaultdict[Path, list[Origin]] = defaultdict(list)
    for origin in origins:
        if origin.bundle is not None:
            bundles[origin.bundle.resolve()].append(origin)
    jobs: defaultdict[str, list[Path]] = defaultdict(list)
    sizes: dict[str, int] = {}
    for folder in sorted(bundles) if len(bundles) > 1 else ():
        job, size = job_of(folder)
        if job is not None:
            jobs[job].append(folder)
            sizes[job] = max(size, sizes.get(job, 0))
    runs: dict[Path, str] = {}
    notes: list[HealthNote] = []
    for job, folders in jobs.items():
        if len(folders) == 1:
            continue
        ranks = {folder: sorted({one.rank for one in bundles[folder] if one.rank is not None}) for folder in folders}
        held = Counter(rank for some in ranks.values() for rank in some)
        if twice := sorted(rank for rank, captures in held.items() if captures > 1):
            notes.append(_twice(twice, folders))
        else:
            runs |= dict.fromkeys(folders, folders[0].name)
            notes.append(_joined(ranks, sizes[job]))
    moved = [
        replace(one, run=runs.get(one.bundle.resolve(), one.run)) if one.bundle is not None else one for one in origins
    ]
    return moved, notes


def _joined(ranks: Mapping[Path, Sequence[int]], world_size: int) -> HealthNote:
    parts = [f"{folder.name} ({_ranks(some)})" for folder, some in ranks.items()]
    missing = sorted(set(range(world_size)).difference(*ranks.values()))
    lack = f" No capture holds {_ranks(missing)} of {world_size}." if missing else ""
    message = f"{len(parts)} captures are parts of one run on several nodes: {_listed(parts)}.{lack}"
    return HealthNote("job-joined", message, degrades=bool(missing))


def _twice(ranks: Sequence[int], folders: Sequence[Path]) -> HealthNote:
    names = _listed([folder.name for folder in folders])
    return HealthNote(
        "job-twice",
        f"These captures of one job are shown as separate runs, because several hold {_ranks(ranks)}: {names}. They "
        "are copies, or attempts of a restarted job.",
        degrades=False,
    )


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_listed([str(rank) for rank in ranks])}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
