"""The table that compares recordings."""

from __future__ import annotations

from traceadvisor.model.breakdown import Category, Totals
from traceadvisor.model.report import Recording, Report
from traceadvisor.rendering.content.report.drawn import anchors
from traceadvisor.rendering.content.report.recordings import cost_words, largest_category
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Column, Layout, Table, measured_columns
from traceadvisor.rendering.headline import recorded_time, step_time
from traceadvisor.rendering.units import NOT_MEASURED, count, duration, percent, percent_range
from traceadvisor.rendering.words import CATEGORY

OPEN_ROWS = 12
"""Rows shown unfolded."""

MOST_COMPARED = 200
"""Recordings in the table; the JSON report has all."""

_TOTALS = ("Data wait", "CPU-to-GPU copy", "Kernels", "Commu\u00adnication", "Other copies", "Idle")


def comparison_table(report: Report) -> Table | None:
    """One row per recording with its totals; None for a single recording."""
    if len(report.recordings) < 2:
        return None
    linked = anchors(report)
    titles = total_titles(report)
    shown = report.recordings[:MOST_COMPARED]
    rows = tuple(_row(report, recording, len(titles), linked.get(recording.id)) for recording in shown)
    columns = (
        Column("Recording", numeric=False),
        Column("Step time"),
        Column("Samples/s", detail=Detail.COMMENT),
        Column("Cost", detail=Detail.COMMENT),
        Column("GPU busy"),
        *(Column(title, detail=Detail.PAGE) for title in titles),
        Column("Largest category", numeric=False),
        Column("Top finding", numeric=False, detail=Detail.PAGE),
    )
    whole = Table(
        "Recordings compared: totals as shares of the typical step",
        columns,
        rows,
        OPEN_ROWS,
        Layout.COMPARISON,
        is_sortable=True,
        detail=Detail.SUMMARY,
        noun="recording",
        left_out=len(report.recordings) - len(rows),
    )
    return measured_columns(whole)


def total_titles(report: Report) -> tuple[str, ...]:
    """The titles of the totals; unknown time has a column only if some recording has any."""
    breakdowns = (recording.breakdown for recording in report.recordings)
    return (*_TOTALS, "Unknown") if any(one and one.totals.unknown_ns for one in breakdowns) else _TOTALS


def _total_shares(recording: Recording) -> tuple[float | None, ...]:
    """The seven totals as shares of the typical step; None if not measured."""
    mean = recording.breakdown
    if mean is None or not mean.duration_ns:
        return (None,) * (len(_TOTALS) + 1)
    totals: Totals = mean.totals
    seven = (
        totals.data_wait_ns,
        totals.h2d_copy_ns,
        totals.kernel_ns,
        mean.parts_ns.get(Category.COMMUNICATION) if totals.communication_ns is None else totals.communication_ns,
        totals.other_copy_ns,
        totals.idle_ns,
        totals.unknown_ns,
    )
    return tuple(None if ns is None else ns / mean.duration_ns for ns in seven)


def _row(report: Report, recording: Recording, totals: int, anchor: str | None) -> tuple[Cell, ...]:
    return (
        Cell(recording.id, href=anchor and f"#{anchor}"),
        _step(recording),
        Cell(count(recording.samples_per_s)),
        Cell(cost_words(recording) or NOT_MEASURED),
        Cell(percent_range(recording.shown_figures.busy_share, recording.shown_figures.busy_share_high)),
        *(Cell(percent(share)) for share in _total_shares(recording)[:totals]),
        Cell(NOT_MEASURED if (largest := largest_category(recording)) is None else CATEGORY[largest[0]]),
        _first_finding(report, recording),
    )


def _step(recording: Recording) -> Cell:
    time = step_time(recording)
    if recording.undisturbed_median_step_ns is None:
        return Cell(duration(time.ns), remark=time.beside)
    recorded = recorded_time(recording).ns
    return Cell(duration(time.ns), remark="undisturbed" if recorded is None else f"recorded {duration(recorded)}")


def _first_finding(report: Report, recording: Recording) -> Cell:
    for rank, ranked in enumerate(report.findings, start=1):
        if recording.id in ranked.recording_ids:
            return Cell(ranked.finding.rule.title, href=f"#finding-{rank}")
    return Cell("no finding")
