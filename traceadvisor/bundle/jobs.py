"""Joins the captures of a job that ran on several nodes without a shared folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from traceadvisor.bundle.folder import job_of
from traceadvisor.model.health import HealthNote
from traceadvisor.model.trace import Origin

MOST_NAMED = 8


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
        if twice := _in_several(ranks.values()):
            notes.append(_twice(twice, folders))
        else:
            runs |= dict.fromkeys(folders, folders[0].name)
            notes.append(_joined(ranks, sizes[job]))
    moved = [
        replace(one, run=runs.get(one.bundle.resolve(), one.run)) if one.bundle is not None else one for one in origins
    ]
    return moved, notes


def _in_several(ranks: Iterable[Sequence[int]]) -> list[int]:
    """The ranks that several captures hold."""
    known: set[int] = set()
    found: set[int] = set()
    for some in ranks:
        found.update(known.intersection(some))
        known.update(some)
    return sorted(found)


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
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
