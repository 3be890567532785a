"""Time of the training thread over the whole run by line, in words and a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from traceadvisor.model.location import Location
from traceadvisor.model.report import Report
from traceadvisor.model.run_time import LineRow, LineTime, RunLines
from traceadvisor.model.workload import Workload
from traceadvisor.rendering.document.blocks import Fold, Prose, Tone
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Column, Table, titled
from traceadvisor.rendering.origins import LONGEST_PHRASE, OTHER, place_cell, place_words
from traceadvisor.rendering.units import count, duration, percent, percent_range
from traceadvisor.text.cleaning import clipped_inside

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
    return Fold(_title(lines, steps), (explanation, _table(lines, steps)), detail=Detail.COMMENT)


def _steps(*, of_inference: bool) -> str:
    return "steps" if of_inference else "training steps"


def first_line(lines: RunLines | None) -> str | None:
    """The line of the user's code with the most time in training steps, and that time's share of the run.

    What the line calls is named if most of its time passes there. None if none was sampled.
    """
    places: dict[tuple[Location | None, Location | None], list[LineRow]] = {}
    for row in lines.rows if lines else ():
        if row.line and row.time.step_ns:
            places.setdefault((row.line, row.inner), []).append(row)
    rows = max(places.values(), key=_in_steps, default=None)
    if lines is None or rows is None:
        return None
    row, whole_ns = max(rows, key=lambda row: row.time.step_ns), _in_steps(rows)
    named = row if 2 * row.time.step_ns > whole_ns else replace(row, owner=None)
    share = percent(_share(whole_ns, lines.whole))
    return f"{clipped_inside(place_words(named), LONGEST_PHRASE)} ({share} of the run)"


def _in_steps(rows: Iterable[LineRow]) -> int:
    return sum(row.time.step_ns for row in rows)


def line_sentence(report: Report) -> str | None:
    """The line with the most time in training steps; None if none was sampled.

    In a job with a late rank, it is a line of that rank: the others mostly wait.
    """
    late = {(job.run, job.cycle, job.late_rank) for job in report.jobs if job.late_rank is not None}
    ranks = [one.distributed.rank if one.distributed else None for one in report.recordings]
    found = [
        ((one.run, one.cycle, rank) not in late, rank, _steps(of_inference=one.workload is Workload.INFERENCE), line)
        for one, rank in zip(report.recordings, ranks, strict=True)
        if (line := first_line(one.run_lines))
    ]
    is_other, rank, steps, line = min(found, key=lambda one: one[0], default=(True, None, "", None))
    of = "" if is_other else f" of rank {rank}, which is late"
    return line and f"Line with the most time in {steps}{of}: {line}"


def _title(lines: RunLines, steps: str) -> str:
    first = first_line(lines)
    return CAPTION + (f", in {steps} mostly {first}" if first else "")


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
