"""The ranks of two jobs: rank against rank, spread against spread."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.model.comparison import ComparedJob
from traceadvisor.model.job import Job, RankRow, Spread
from traceadvisor.rendering.content.report.job import job_verdict
from traceadvisor.rendering.document.blocks import Block, Fold, FoldLook, Group, Prose, Tone
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Layout, Table, timed, titled
from traceadvisor.rendering.units import NOT_MEASURED, duration, number_of
from traceadvisor.rendering.words import CATEGORY

OPEN_ROWS = 12


def compared_job(job: ComparedJob, anchor: str) -> Group:
    """The ranks that are late in both jobs, how much the ranks differ, and each rank."""
    return Group("Ranks of both jobs", tuple(_blocks(job, anchor)), anchor, Detail.SUMMARY)


def _blocks(job: ComparedJob, anchor: str) -> Iterator[Block]:
    for side, one in (("BASE", job.base), ("HEAD", job.head)):
        yield Prose(f"{side}: {job_verdict(one)}", Tone.PLAIN, Detail.SUMMARY)
    yield Fold(
        "Spread over the ranks", (_spread_table(job),), "from lowest to highest", f"{anchor}-spread", FoldLook.SECTION
    )
    table = _rank_table(job)
    about = f"{number_of(len(table.rows), 'rank')} of both jobs, the largest change of work first"
    yield Fold("Rank by rank", (table,), about, f"{anchor}-ranks", FoldLook.SECTION)


def _spread_table(job: ComparedJob) -> Table:
    names = dict.fromkeys((*job.base.spread, *job.head.spread))
    spreads = ((CATEGORY[one], job.base.spread.get(one), job.head.spread.get(one)) for one in names)
    rows = (("Step", job.base.step_spread, job.head.step_spread), *spreads)
    figures = (f"{side}, {figure}" for side in ("BASE", "HEAD") for figure in ("median", "highest less lowest"))
    columns = titled("Category", *figures)
    return Table("Categories over the ranks", columns, tuple((Cell(name), *_ends(a), *_ends(b)) for name, a, b in rows))


def _ends(spread: Spread | None) -> tuple[Cell, Cell]:
    if spread is None:
        return Cell(NOT_MEASURED), Cell(NOT_MEASURED)
    return Cell(duration(spread.median_ns)), Cell(duration(spread.high_ns - spread.low_ns))


def _rank_table(job: ComparedJob) -> Table:
    """The ranks that both jobs have, the largest change of their work first."""
    base, head = _by_rank(job.base), _by_rank(job.head)
    both = sorted(base.keys() & head.keys(), key=lambda rank: (-abs(head[rank].work_ns - base[rank].work_ns), rank))
    titles = ("Step", "Without waiting", "Others wait for it")
    columns = titled("Rank", *(f"{title}, {side}" for title in titles for side in ("BASE", "HEAD")))
    rows = tuple((Cell(f"rank {rank}"), *map(timed, _times(base[rank], head[rank]))) for rank in both)
    return Table("Ranks of both jobs", columns, rows, OPEN_ROWS, Layout.COMPARISON, is_sortable=True, noun="rank")


def _by_rank(job: Job) -> dict[int, RankRow]:
    return {row.rank: row for row in job.ranks}


def _times(base: RankRow, head: RankRow) -> Iterator[float | None]:
    yield from (base.step_ns, head.step_ns, base.work_ns, head.work_ns, base.caused_ns, head.caused_ns)
