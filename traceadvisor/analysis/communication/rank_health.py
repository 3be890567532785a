"""Check that a run has one recording per rank, all from the same moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from traceadvisor.model.health import HealthNote
from traceadvisor.model.report import Recording

MOST_NAMED = 8


def rank_notes(recordings: Iterable[Recording]) -> Iterator[HealthNote]:
    """Yield notes to read before comparing recordings or generalising from one of them."""
    files = sorted({one.path: one for one in recordings}.values(), key=lambda one: (one.run, one.cycle))
    for run, of_run in groupby(files, key=lambda one: one.run):
        members = list(of_run)
        yield from _different_jobs(run, members)
        yield from _missing(run, members)
        for _, together in groupby(members, key=lambda one: one.cycle):
            by_rank = _by_rank(together)
            yield from _repeated(by_rank)
            yield from _not_aligned(run, by_rank)


def _by_rank(recordings: Iterable[Recording]) -> dict[int, list[Recording]]:
    by_rank: defaultdict[int, list[Recording]] = defaultdict(list)
    for one in recordings:
        if one.distributed and one.distributed.rank is not None:
            by_rank[one.distributed.rank].append(one)
    return dict(sorted(by_rank.items()))


def _world_sizes(recordings: Iterable[Recording]) -> list[int]:
    sizes = {one.distributed.world_size for one in recordings if one.distributed}
    return sorted(size for size in sizes if size is not None)


def _different_jobs(run: str, recordings: Sequence[Recording]) -> Iterator[HealthNote]:
    if len(sizes := _world_sizes(recordings)) > 1:
        yield HealthNote(
            "different-jobs",
            f"The recordings{_of(run)} come from jobs with {_listed(sizes)} processes, so they are not from one run. "
            "Keep each run in its own folder.",
        )


def _missing(run: str, recordings: Sequence[Recording]) -> Iterator[HealthNote]:
    sizes, ranks = _world_sizes(recordings), list(_by_rank(recordings))
    if len(sizes) == 1 and 0 < len(ranks) < sizes[0]:
        few, were = (f"rank {ranks[0]}", "was") if len(ranks) == 1 else (f"ranks {_listed(ranks)}", "were")
        yield HealthNote(
            "ranks-missing",
            f"Only {few} of {sizes[0]} {were} recorded{_in(run)}: what the other ranks do meanwhile is unknown.",
            degrades=False,
        )


def _repeated(by_rank: dict[int, list[Recording]]) -> Iterator[HealthNote]:
    for rank, recordings in by_rank.items():
        if len(recordings) > 1:
            names = _listed(one.path.name for one in recordings)
            yield HealthNote(
                "rank-repeated",
                f"Rank {rank} was recorded more than once ({names}): the files are copies or come from different runs. "
                "Only the first is compared with other ranks.",
            )


def _not_aligned(run: str, by_rank: dict[int, list[Recording]]) -> Iterator[HealthNote]:
    firsts = {rank: recordings[0].recorded_wall_ns for rank, recordings in by_rank.items()}
    spans = [span for span in firsts.values() if span]
    if len(firsts) < 2:
        return
    if len(spans) < len(firsts):
        unknown = _listed(rank for rank, span in firsts.items() if not span)
        yield HealthNote(
            "not-aligned",
            f"It is unknown when ranks {unknown}{_of(run)} were recorded, so their times cannot be aligned.",
            degrades=False,
        )
    elif (apart_ns := max(start for start, _ in spans) - min(end for _, end in spans)) > 0:
        yield HealthNote(
            "not-aligned",
            f"The recordings of ranks {_listed(firsts)}{_of(run)} are {apart_ns / 1e9:.1f} s apart and do not overlap: "
            "they show different moments, or their clocks disagree.",
            degrades=False,
        )


def _in(run: str) -> str:
    return f" in {run}" if run else ""


def _of(run: str) -> str:
    return f" of {run}" if run else ""


def _listed(items: Iterable[object]) -> str:
    names = [str(item) for item in items]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
