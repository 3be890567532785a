"""A job of several ranks: who is late, why, and how much the ranks differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from traceadvisor.model.breakdown import Category
from traceadvisor.model.job import Job, LateCause, RankRow, Spread, Straggler
from traceadvisor.model.report import Overlap, Recording, Report, Work
from traceadvisor.rendering.charts.rank_lanes import rank_lanes
from traceadvisor.rendering.content.report.drawn import anchors
from traceadvisor.rendering.content.report.run_time import growth_sentence
from traceadvisor.rendering.document.blocks import Block, Fold, FoldLook, Group, Prose, Tone
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Column, Layout, Table, cells, measured_columns, timed, titled
from traceadvisor.rendering.origins import frame_words, location_words
from traceadvisor.rendering.units import NOT_MEASURED, count, duration, megahertz, number_of, percent
from traceadvisor.rendering.words import CATEGORY, COLLECTIVE, LATE_CAUSE

SUMMARY = Detail.SUMMARY
MOST_JOBS = 3
"""Sets of ranks recorded at the same time on the page; the JSON report has all."""

OPEN_ROWS = 12
MOST_NAMED = 8
MOST_GROWING = 3


def job_blocks(report: Report) -> Iterator[Block]:
    """The parts about the ranks that were recorded together, those that wait longest first."""
    in_order = _in_order(report)
    for number, job in enumerate(in_order[:MOST_JOBS], start=1):
        blocks = tuple(_blocks(report, job, f"job-{number}"))
        if len(in_order) == 1:
            yield from blocks
        else:
            yield Group(_name(job), blocks, f"job-{number}", SUMMARY)
    if len(in_order) > MOST_JOBS:
        left = len(in_order) - MOST_JOBS
        yield Prose(f"{number_of(left, 'more moment')} with less waiting: see the JSON report.", Tone.QUIET, SUMMARY)


def job_folds(report: Report) -> Iterator[Fold]:
    """All figures of the ranks that were recorded together."""
    in_order = _in_order(report)[:MOST_JOBS]
    for number, job in enumerate(in_order, start=1):
        of = f", {_name(job)}" if len(in_order) > 1 else ""
        ranks = number_of(len(job.ranks), "rank")
        yield _fold(f"All ranks{of}", ranks, rank_table(report, job), f"job-{number}-ranks", Prose(RANKS, Tone.QUIET))
        about = "lowest, median and highest rank of each category"
        yield _fold(f"Spread over the ranks{of}", about, _spread_table(job), f"job-{number}-spread")
        if job.collectives:
            about, table = "who came last, and what it did before", _collective_table(job)
            yield _fold(f"Collectives with the most waiting{of}", about, table, f"job-{number}-collectives")


def _in_order(report: Report) -> list[Job]:
    return sorted(report.jobs, key=lambda job: -(job.waiting_ns or 0.0))


def _name(job: Job) -> str:
    return f"{job.run or 'Job'}, recording {job.cycle + 1}"


def _blocks(report: Report, job: Job, anchor: str) -> Iterator[Block]:
    yield Prose(job_verdict(job), Tone.VERDICT, SUMMARY)
    yield from (Prose(sentence, Tone.NOTICE, SUMMARY) for sentence in _gaps(job))
    yield from (Prose(sentence, Tone.NOTICE, SUMMARY) for sentence in _growing(report, job))
    if chart := rank_lanes(job, f"{anchor}-lanes"):
        yield chart
    if clocks := _clocks(job):
        yield Prose(clocks, Tone.QUIET)
    if job.stragglers:
        yield _straggler_table(job)
    if sentence := _in_full(report, job):
        yield Prose(sentence, Tone.QUIET, SUMMARY)


def _growing(report: Report, job: Job) -> Iterator[str]:
    """Ranks whose steps grow over the run; all of them wait for each other, so the first few are enough."""
    growth = {one.id: one.run_growth for one in report.recordings if one.run_growth}
    growing = [(row.rank, found) for row in job.ranks if (found := growth.get(row.recording_id))]
    for rank, found in growing[:MOST_GROWING]:
        yield f"Rank {rank}: {growth_sentence(found)}"


def _fold(title: str, about: str, table: Table, anchor: str, *before: Block) -> Fold:
    return Fold(title, (*before, table), about, anchor, FoldLook.SECTION)


def job_verdict(job: Job) -> str:
    """The sentence on who is late."""
    if job.waiting_ns is None:
        return "The ranks cannot be compared: no step has the same collectives on all of them."
    step_ns = job.shown_step_ns
    if job.keeps_pace and job.waits_for_others:
        whom = "a rank that" if job.awaited_rank is None else f"rank {job.awaited_rank}, which"
        waited = _of_step(job.recorded_wait_ns, step_ns)
        return f"All recorded ranks wait for {whom} was not recorded: at least {waited}."
    if job.keeps_pace:
        return f"The ranks keep pace: on average a rank waits {_of_step(job.waiting_ns, step_ns)} for others."
    first = job.stragglers[0]
    share = percent(first.share_of_waiting)
    if first.is_persistent is False:
        return (
            f"Ranks take turns at being late: on average a rank waits {_of_step(job.waiting_ns, step_ns)} for others. "
            f"Rank {first.rank} causes the most, {share}: {_causes(first)}."
        )
    if job.lacks_cores:
        return (
            f"Rank {first.rank} arrives last in {first.late_steps} of {job.step_count} steps: the others wait "
            f"{_of_step(first.caused_ns, step_ns)} for it. Other programs used the CPU, so it may have lacked cores."
        )
    often = (
        f"It is the latest in {first.late_steps} of {job.step_count} steps."
        if first.is_persistent
        else f"With {number_of(job.step_count, 'compared step')}, that may be by chance."
    )
    return (
        f"Rank {first.rank} is late: the others wait {_of_step(first.caused_ns, step_ns)} for it, {share} of all "
        f"waiting. The reason: {_causes(first)}.{_line(first)} {often}"
    )


def _of_step(ns: float, step_ns: float) -> str:
    return f"{duration(ns)} per step" + (f" ({percent(ns / step_ns)})" if step_ns else "")


def _causes(one: Straggler, most: int = 2) -> str:
    """The causes of a late rank, with the share of the wait where there are several causes."""
    causes = list(one.causes.items())[:most]
    if len(one.causes) == 1:
        return LATE_CAUSE[causes[0][0]]
    return ", ".join(f"{LATE_CAUSE[cause]} ({percent(share)})" for cause, share in causes)


def _line(one: Straggler) -> str:
    """The line or function that delays it, with the function and the call that takes the time."""
    place = one.location
    if place is None:
        return ""
    function = f" ({place.function})" if place.is_line and place.function else ""
    owner = f", in {frame_words(place.owner)}" if place.owner else ""
    extra = f": {duration(one.location_ns)} per step" if one.location_ns else ""
    what = "line" if place.is_line else "code"
    return f" The {what} with the most extra time is {location_words(place)}{function}{owner}{extra}."


def _gaps(job: Job) -> Iterator[str]:
    """The parts that are not compared, and why."""
    if job.missing:
        were, one = ("was", "it") if len(job.missing) == 1 else ("were", "one of them")
        yield f"{_ranks(job.missing)} of {job.world_size} {were} not recorded: {one} may be later still."
    if job.other_steps:
        yield (
            f"{_ranks(job.other_steps)} recorded other steps, or other collectives in them, than most ranks, so "
            f"{'it is' if len(job.other_steps) == 1 else 'they are'} not compared."
        )


def _ranks(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - MOST_NAMED} more" if len(ranks) > MOST_NAMED else ""
    return f"Rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:MOST_NAMED]))}{more}"


def _clocks(job: Job) -> str | None:
    """How well the clocks agree, and how long transfers take."""
    if job.transfer_ns is None or job.waiting_ns is None:
        return None
    compared = f"{number_of(job.collective_count, 'collective')} in {number_of(job.step_count, 'step')}"
    agree = (
        "The clocks are aligned by its end; how well they agree is unknown."
        if job.clock_error_ns is None
        else f"The clocks are aligned by their ends, 95% of which agree within {duration(job.clock_error_ns)}."
    )
    return (
        f"{compared} are compared. {agree} Their transfers take at most {duration(job.transfer_ns)} per step; a rank "
        f"waits {duration(job.waiting_ns)} on average."
    )


def _straggler_table(job: Job) -> Table:
    titles = ("Rank", "Others wait for it", "Share of waiting", "Latest in", "What it does longer", "Line")
    rows = tuple(
        (
            Cell(f"rank {one.rank}"),
            timed(one.caused_ns),
            Cell(percent(one.share_of_waiting)),
            Cell(f"{one.late_steps} of {job.step_count} steps" if job.step_count > 1 else NOT_MEASURED),
            Cell(_causes(one, 3)),
            Cell(location_words(one.location)) if one.location else Cell(NOT_MEASURED),
        )
        for one in job.stragglers
    )
    columns = tuple(Column(title, numeric=title not in {"What it does longer", "Line"}) for title in titles)
    detail = SUMMARY if len(job.stragglers) > 1 else Detail.PAGE  # of one, the sentence above has the figures
    return measured_columns(
        Table("Late ranks", columns, rows, layout=Layout.STACKED, is_named=True, detail=detail, noun="rank")
    )


def _in_full(report: Report, job: Job) -> str | None:
    """The ranks that were judged; None if all were."""
    if len(_judged(report, job)) == len(job.ranks):
        return None
    first, *others = job.in_full
    slowest = "which the others wait for most" if job.stragglers else "the slowest"
    roles = zip(("median", "fastest"), others, strict=False)
    by_work = "".join(f", rank {rank} (the {role} by its time without waiting)" for role, rank in roles)
    return (
        f"Shown in full: rank {first} ({slowest}){by_work}. The findings are about these ranks; of the others only the "
        "figures of the ranks were kept."
    )


def _judged(report: Report, job: Job) -> Mapping[int, Recording]:
    """The recordings of this job, by rank."""
    return {
        one.distributed.rank: one
        for one in report.recordings
        if (one.run, one.cycle) == (job.run, job.cycle) and one.distributed and one.distributed.rank is not None
    }


_PARTS = (
    Category.DATA_WAIT,
    Category.KERNEL,
    Category.FORWARD,
    Category.BACKWARD,
    Category.OPTIMIZER,
    Category.IDLE_LAUNCH,
    Category.IDLE_HOST,
    Category.OTHER_HOST,
)
"""Categories with a column of their own: those that make a rank late."""


RANKS = (
    "Means per step. Exposed is communication that no compute overlaps: only this part makes the step longer. Waiting "
    "for a late rank counts as communication."
)


def rank_table(report: Report, job: Job) -> Table:
    """The figures of each rank; its communication as a whole only where all ranks were judged."""
    judged, places = _judged(report, job), anchors(report)
    totals = {rank: one.overlaps.get(Work.COMMUNICATION) for rank, one in judged.items()}
    totals = totals if len(totals) == len(job.ranks) else {}
    parts = [part for part in _PARTS if any(row.parts_ns.get(part) for row in job.ranks)]
    times = ("Step", "Without waiting", "Others wait for it", "Waits", "Enters last")
    communicating = ("Communication", "Overlapped", "Exposed", "Clock agrees within", "GPU clock")
    columns = tuple(map(Column, ("Rank", *times, *communicating, *(CATEGORY[part] for part in parts))))
    linked = {rank: places.get(one.id) for rank, one in judged.items()}
    rows = tuple(_rank_row(row, linked.get(row.rank), totals.get(row.rank), parts) for row in job.ranks)
    about = "Ranks: means per step"
    return measured_columns(Table(about, columns, rows, OPEN_ROWS, Layout.COMPARISON, is_sortable=True, noun="rank"))


def _rank_row(
    row: RankRow, anchor: str | None, communication: Overlap | None, parts: Sequence[Category]
) -> tuple[Cell, ...]:
    times = (row.step_ns, row.work_ns, row.caused_ns, row.wait_ns)
    total = communication.total_ns if communication else None
    hidden = communication.total_ns - communication.exposed_ns if communication else None
    communicating = (total, hidden, row.parts_ns.get(Category.COMMUNICATION))
    return (
        Cell(f"{row.rank}", href=anchor and f"#{anchor}"),
        *map(timed, times),
        Cell(count(row.last_count)),
        *map(timed, communicating),
        Cell(duration(row.clock_error_ns)),
        Cell(megahertz(row.sm_clock_mhz)),
        *map(timed, map(row.parts_ns.get, parts)),
    )


def _spread_table(job: Job) -> Table:
    columns = titled("Category", "Lowest", "Rank", "Median", "Highest", "Rank")
    rows = (("Step", job.step_spread), *((CATEGORY[category], spread) for category, spread in job.spread.items()))
    return Table("Categories over the ranks, per step", columns, tuple(_spread_row(*row) for row in rows))


def _spread_row(name: str, spread: Spread) -> tuple[Cell, ...]:
    low, median, high = map(duration, (spread.low_ns, spread.median_ns, spread.high_ns))
    return cells(name, low, f"{spread.low_rank}", median, high, f"{spread.high_rank}")


def _collective_table(job: Job) -> Table:
    titles = ("Step", "Collective", "Last rank", "Late by", "Others wait", "Transfer at most", "What it did longer")
    columns = tuple(Column(title, numeric=title not in {"Collective", "What it did longer"}) for title in titles)
    rows = tuple(
        (
            Cell(f"{one.step}"),
            Cell(f"{one.number}: {COLLECTIVE[one.kind]}"),
            Cell(f"{one.rank}"),
            timed(one.late_ns),
            timed(one.waited_ns),
            Cell(duration(one.transfer_ns)),
            Cell(_before(one.cause, one.extra_ns)),
        )
        for one in job.collectives
    )
    table = Table("Collectives with the most waiting", columns, rows, OPEN_ROWS, Layout.WIDE, is_sortable=True)
    return replace(table, noun="collective", left_out=job.collective_count - len(rows))


def _before(cause: LateCause, extra_ns: Mapping[Category, int]) -> str:
    longer = ", ".join(f"{CATEGORY[category]} {duration(ns)}" for category, ns in extra_ns.items())
    named = LATE_CAUSE[cause]
    if cause is LateCause.START:
        return named
    return f"{named}: {longer}" if longer else named
