"""Check that a run has one recording per rank, all from the same moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

from traceadvisor.model.health import HealthNote
from traceadvisor.model.ranks import RankFile
from traceadvisor.model.report import Recording

MOST_NAMED = 8


def recorded(recording: Recording) -> RankFile:
    """Return the file of a recording, and its rank as far as it is known."""
    group = recording.distributed
    rank, size = (group.rank, group.world_size) if group else (None, None)
    return RankFile(recording.path, recording.run, recording.cycle, rank, size, recording.recorded_wall_ns)


def rank_notes(recordings: Iterable[RankFile]) -> Iterator[HealthNote]:
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


def _by_rank(recordings: Iterable[RankFile]) -> dict[int, list[RankFile]]:
    by_rank: defaultdict[int, list[RankFile]] = defaultdict(list)
    for one in recordings:
        if one.rank is not None:
            by_rank[one.rank].append(one)
    return dict(sorted(by_rank.items()))


def _world_sizes(recordings: Iterable[RankFile]) -> list[int]:
    return sorted({one.world_size for one in recordings if one.world_size is not None})


def _different_jobs(run: str, recordings: Sequence[RankFile]) -> Iterator[HealthNote]:
    if len(sizes := _world_sizes(recordings)) > 1:
        yield HealthNote(
            "different-jobs",
            f"The recordings{_of(run)} come from jobs with {_listed(sizes)} processes, so they are not from one run. "
            "Keep each run in its own folder.",
        )


def _missing(run: str, recordings: Sequence[RankFile]) -> Iterator[HealthNote]:
    sizes, ranks = _world_sizes(recordings), list(_by_rank(recordings))
    if len(sizes) == 1 and sizes[0] < 2 * len(ranks) and (missing := sorted(set(range(sizes[0])) - set(ranks))):
        yield HealthNote(
            "ranks-missing",
            f"{_ranks(missing)} of {sizes[0]} {'was' if len(missing) == 1 else 'were'} not recorded{_in(run)}: a rank "
            "that is missing may be the one that the others wait for.",
            degrades=False,
        )
    elif len(sizes) == 1 and 0 < len(ranks) < sizes[0]:
        few, were = (f"rank {ranks[0]}", "was") if len(ranks) == 1 else (f"ranks {_listed(ranks)}", "were")
        yield HealthNote(
            "ranks-missing",
            f"Only {few} of {sizes[0]} {were} recorded{_in(run)}: what the other ranks do meanwhile is unknown.",
            degrades=False,
        )


def _repeated(by_rank: dict[int, list[RankFile]]) -> Iterator[HealthNote]:
    twice = {rank: recordings for rank, recordings in by_rank.items() if len(recordings) > 1}
    if twice:
        names = _listed(one.path.name for recordings in twice.values() for one in recordings)
        yield HealthNote(
            "rank-repeated",
            f"{_ranks(twice)} {'was' if len(twice) == 1 else 'were'} recorded more than once ({names}): the files are "
            "copies or come from different runs. Only the first of each rank is compared with other ranks.",
        )


def _ranks(numbers: Collection[int]) -> str:
    return f"Rank{'s' if len(numbers) > 1 else ''} {_listed(numbers)}"


def _not_aligned(run: str, by_rank: dict[int, list[RankFile]]) -> Iterator[HealthNote]:
    firsts = {rank: recordings[0].recorded_wall_ns for rank, recordings in by_rank.items()}
    spans = [span for span in firsts.values() if span]
    if len(firsts) < 2:
        return
    if len(spans) < len(firsts):
        unknown = _listed(rank for rank, span in firsts.items() if not span)
        yield HealthNote(
            "not-aligned",
            f"It is unknown when ranks {unknown}{_of(run)} were recorded: they may show different moments.",
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
