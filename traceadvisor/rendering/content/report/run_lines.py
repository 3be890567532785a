"""Time of the training thread over the whole run by line, in words and a table."""

from __future__ import annotations

from traceadvisor.model.report import Report
from traceadvisor.model.run_time import LineTime, RunLines
from traceadvisor.rendering.costliest_line import sentence
from traceadvisor.rendering.document.blocks import Fold, Prose, Tone
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Column, Table, titled
from traceadvisor.rendering.origins import OTHER, place_cell
from traceadvisor.rendering.units import count, duration, percent, percent_range

CAPTION = "Time of the training thread by line"
OPEN_ROWS = 12
"""Rows that are not folded."""

NO_USER_CODE = "no user code"


def lines_fold(lines: RunLines | None, *, of_inference: bool = False) -> Fold | None:
    """The lines of a run; None if the stack was not sampled. ``of_inference``: whether it does not train."""
    if lines is None:
        return None
    steps = _steps(of_inference=of_inference)
    explanation = Prose(_explanation(lines, steps), Tone.QUIET)
    return Fold(CAPTION, (explanation, _table(lines, steps)), detail=Detail.COMMENT)


def _steps(*, of_inference: bool) -> str:
    return "steps" if of_inference else "training steps"


def line_sentence(report: Report) -> str | None:
    """The line with the most time in the training loop; None if none was sampled.

    In a job with a late rank, it is a line of that rank: the others mostly wait.
    """
    late = {(job.run, job.cycle, job.late_rank) for job in report.jobs if job.late_rank is not None}
    known = [one for one in report.recordings if one.costliest_line]
    ranks = {one.id: one.distributed.rank if one.distributed else None for one in known}
    is_late = {one.id: (one.run, one.cycle, ranks[one.id]) in late for one in known}
    first = max(known, key=lambda one: is_late[one.id], default=None)
    if first is None:
        return None
    return sentence(first, of_rank=f" of rank {ranks[first.id]}, which is late" if is_late[first.id] else "")


def _explanation(lines: RunLines, steps: str) -> str:
    whole = lines.whole
    return (
        f"The Python stack of the training thread was sampled over the whole run, start-up included: "
        f"{count(whole.sample_count)} samples in {duration(whole.total_ns)}, one per {duration(lines.interval_ns)}. "
        f"{steps.capitalize()} are {percent(_share(whole.step_ns, whole))} of this time, "
        f"getting batches is {percent(_share(whole.fetch_ns, whole))}. "
        "Each line is that of the call. The range covers the chance of sampling, at 95%. "
        f"{_late(lines)}"
        f"Sampling took {percent(lines.sampler_share)} of one CPU core."
    )


def _late(lines: RunLines) -> str:
    if not lines.late_share:
        return ""
    return (
        f"Samples of {percent(lines.late_share)} of the time had to wait for running Python code, "
        f"{duration(lines.late_by_ns)} on average: they may name the next call instead. "
    )


def _table(lines: RunLines, steps: str) -> Table:
    columns = (
        *titled("Line", "Time", "Share of the run", f"In {steps}"),
        Column("Outside of steps", detail=Detail.PAGE),
        Column("Getting a batch", detail=Detail.PAGE),
    )
    rows = [
        (place_cell(row, NO_USER_CODE), *_figures(row.time, lines.whole, percent_range(row.share_low, row.share_high)))
        for row in lines.rows
    ]
    if lines.other.total_ns:
        rows.append((Cell(OTHER), *_figures(lines.other, lines.whole, None)))
    return Table(CAPTION, columns, tuple(rows), OPEN_ROWS, detail=Detail.SUMMARY, noun="line")


def _figures(time: LineTime, whole: LineTime, remark: str | None) -> tuple[Cell, ...]:
    return (
        Cell(duration(time.total_ns)),
        Cell(percent(_share(time.total_ns, whole)), remark=remark),
        Cell(duration(time.step_ns)),
        Cell(duration(time.total_ns - time.step_ns)),
        Cell(duration(time.fetch_ns)),
    )


def _share(part_ns: int, whole: LineTime) -> float | None:
    return part_ns / whole.total_ns if whole.total_ns else None
