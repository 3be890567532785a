"""The content of the pull request comment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import Recording, Report
from traceadvisor.model.steps import StepSource
from traceadvisor.rendering.headline import step_time, verdict, verdict_scope
from traceadvisor.rendering.page.comparison import total_cells, total_titles
from traceadvisor.rendering.page.findings import FindingView, finding_views, umbrella_table
from traceadvisor.rendering.page.health import HealthView, health_view
from traceadvisor.rendering.page.outcomes import outcomes_view
from traceadvisor.rendering.page.recordings import busy_words, cost_words
from traceadvisor.rendering.page.settings import settings_facts
from traceadvisor.rendering.run_time import (
    distortion_table,
    first_run_sentence,
    run_time_of,
    run_time_table,
    timed_runs,
)
from traceadvisor.rendering.savings import joint_sentences
from traceadvisor.rendering.table import Cell, Column, Table, measured_columns
from traceadvisor.rendering.units import NOT_MEASURED, count, duration, milliseconds, percent
from traceadvisor.rendering.words import CATEGORY
from traceadvisor.results.redaction import shortened

TOP_FINDINGS = 3


@dataclass(frozen=True, slots=True)
class Room:
    """Limits on the size of the comment."""

    rows: int
    """Rows per table or list."""

    characters: int
    """Characters per text."""


@dataclass(frozen=True, slots=True)
class Fold:
    """A folded table; ``cut`` is a sentence on rows left out, if any."""

    title: str
    table: Table
    cut: str | None


@dataclass(frozen=True, slots=True)
class MarkdownView:
    """All content of the comment."""

    verdict: str
    verdict_scope: str | None
    health: HealthView
    totals: Table
    totals_cut: str | None
    top: tuple[FindingView, ...]
    run: str | None
    """The time of the first run in a sentence; None if none was timed."""

    joint: tuple[str, ...]
    """The step with all simulated fixes, a sentence for each recording."""

    several: bool
    folds: tuple[Fold, ...]
    settings: tuple[str, ...]
    """Settings of the report that are not defaults, a phrase each."""

    tool_version: str


def markdown_view(report: Report, room: Room) -> MarkdownView:
    """The view of a redacted report, cut to the given size."""
    report = shortened(report, room.characters)
    findings = finding_views(report)
    outcomes = outcomes_view(report)
    health = health_view(report)
    tables = (
        _all_findings(findings),
        _by_recording(findings),
        _categories(report),
        *_runs(report),
        umbrella_table(report),
        outcomes.not_worth_doing,
        outcomes.clear,
        outcomes.skipped,
        outcomes.failed,
    )
    return MarkdownView(
        verdict=verdict(report),
        verdict_scope=verdict_scope(report),
        health=HealthView(
            health.title, health.unusable, health.problems[: room.rows], health.remarks[: room.rows], health.quiet
        ),
        totals=_cut(_totals(report), room),
        totals_cut=_cut_words(_totals(report), room),
        top=tuple(_short(finding, room) for finding in findings[:TOP_FINDINGS]),
        run=first_run_sentence(report.recordings),
        joint=joint_sentences(report),
        several=len(report.recordings) > 1,
        folds=tuple(
            Fold(f"{table.caption} ({len(table.rows)})", _cut(table, room), _cut_words(table, room))
            for table in tables
            if table is not None and table.rows
        ),
        settings=tuple(f"{label}: {value}" for label, value in settings_facts(report)),
        tool_version=report.tool_version,
    )


def _cut(table: Table, room: Room) -> Table:
    return Table(table.caption, table.columns, table.rows[: room.rows])


def _cut_words(table: Table, room: Room) -> str | None:
    more = len(table.rows) - room.rows
    return f"{more} more in the full report." if more > 0 else None


def _short(finding: FindingView, room: Room) -> FindingView:
    """The finding without evidence and caveats, which the folded table shows."""
    return FindingView(
        **{name: getattr(finding, name) for name in FindingView.__slots__}
        | {
            "recordings": finding.recordings[: room.rows],
            "by_recording": None,
            "evidence": (),
            "caveats": (),
            "places": finding.places[: min(3, room.rows)],
            "also": finding.also[: room.rows],
            "origin": None,
        }
    )


def _totals(report: Report) -> Table:
    timed = any(recording.undisturbed_median_step_ns is not None for recording in report.recordings)
    priced = any(recording.cost is not None for recording in report.recordings)
    counted = any(recording.samples_per_s is not None for recording in report.recordings)
    columns = (
        Column("Recording", numeric=False),
        *((Column("Step", numeric=False), Column("Recorded step")) if timed else (Column("Step"),)),
        *((Column("Samples/s"),) if counted else ()),
        *((Column("Cost"),) if priced else ()),
        Column("GPU busy"),
        *(Column(title.replace("\u00ad", "")) for title in total_titles(report)),
    )
    rows = (
        _totals_row(report, recording, timed=timed, counted=counted, priced=priced) for recording in report.recordings
    )
    return measured_columns(Table("Recordings", columns, tuple(rows)))


def _totals_row(report: Report, recording: Recording, *, timed: bool, counted: bool, priced: bool) -> tuple[Cell, ...]:
    return (
        Cell(recording.id),
        *((Cell(_step(recording)),) if timed else ()),
        Cell(_recorded(recording)),
        *((Cell(count(recording.samples_per_s)),) if counted else ()),
        *((Cell(cost_words(recording) or NOT_MEASURED),) if priced else ()),
        Cell(busy_words(recording)[0]),
        *total_cells(report, recording),
    )


def _recorded(recording: Recording) -> str:
    whole = recording.step_source is StepSource.WINDOW and recording.step_ns is not None
    return f"{duration(recording.step_ns)}{', the whole recording' if whole else ''}"


def _step(recording: Recording) -> str:
    time = step_time(recording)
    return duration(None) if time.ns is None else f"{duration(time.ns)}, {time.kind}"


def _all_findings(findings: tuple[FindingView, ...]) -> Table:
    columns = (
        Column("Rank"),
        Column("Finding", numeric=False),
        Column("Recording", numeric=False),
        Column("Saving", numeric=False),
        Column("Share", numeric=False),
        Column("Method", numeric=False),
        Column("Cause", numeric=False),
        Column("Evidence", numeric=False),
        Column("Also", numeric=False),
        Column("Caveats", numeric=False),
    )
    return Table("All findings", columns, tuple(map(_finding_row, findings)))


def _finding_row(finding: FindingView) -> tuple[Cell, ...]:
    return (
        Cell(f"{finding.rank}"),
        Cell(f"{finding.title} ({', '.join(filter(None, (finding.rule_id, finding.provider)))})"),
        Cell(finding.where),
        Cell(
            "; ".join(
                filter(None, (finding.saving.headline, finding.saving.range, _alone(finding), _predicted(finding)))
            )
        ),
        Cell(finding.saving.share),
        Cell(finding.saving.method or ""),
        Cell(f"{finding.confidence} confidence"),
        Cell("; ".join(f"{row.label}: {row.value}" for row in finding.evidence)),
        Cell("; ".join(finding.also)),
        Cell(" ".join(finding.caveats)),
    )


def _alone(finding: FindingView) -> str | None:
    return finding.saving.alone and f"alone: {finding.saving.alone}"


def _predicted(finding: FindingView) -> str | None:
    alone = " with this fix alone" if finding.saving.adds else ""
    return finding.saving.predicted and f"predicted step{alone}: {finding.saving.predicted}"


def _by_recording(findings: tuple[FindingView, ...]) -> Table | None:
    """The figures of each recording, for findings in several recordings; None without such findings."""
    tables = [(finding, finding.by_recording) for finding in findings if finding.by_recording]
    if not tables:
        return None
    rows = tuple((Cell(f"{finding.rank}"), *row) for finding, table in tables for row in table.rows)
    return Table("Findings by recording", (Column("Rank"), *tables[0][1].columns), rows)


def _runs(report: Report) -> Iterator[Table]:
    """Where the time of each run goes, and how far its recorded steps lie from undisturbed ones."""
    for first in timed_runs(report.recordings):
        named = f" of {first.id}" if len(report.recordings) > 1 else ""
        if time := run_time_of(first):
            table = run_time_table(time)
            yield replace(table, caption=f"{table.caption}{named}")
        if first.distortion:
            table = distortion_table(first.distortion)
            yield replace(table, caption=f"{table.caption}{named}")


def _categories(report: Report) -> Table:
    columns = (
        Column("Recording", numeric=False),
        Column("Category", numeric=False),
        Column("ms per step"),
        Column("Share"),
    )
    rows = (
        (Cell(recording.id), Cell(CATEGORY[category]), Cell(milliseconds(ns)), Cell(percent(mean.share(category))))
        for recording in report.recordings
        if (mean := recording.breakdown) is not None
        for category in Category
        if category in mean.parts_ns
        for ns in (mean.parts_ns[category],)
    )
    return Table("Typical step by category", columns, tuple(rows))
