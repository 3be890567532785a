"""The content of the pull request comment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from traceadvisor.frozen import frozen
from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import Recording, Report
from traceadvisor.model.steps import StepSource
from traceadvisor.rendering.code import fitted_code
from traceadvisor.rendering.headline import recording_of_verdict, step_time, verdict, verdict_scope
from traceadvisor.rendering.lists import listed
from traceadvisor.rendering.page.findings import FindingView, finding_views, umbrella_table
from traceadvisor.rendering.page.health import HealthView, NoteView, health_view
from traceadvisor.rendering.page.outcomes import nothing_found, outcomes_view
from traceadvisor.rendering.page.recordings import busy_words, cost_words, largest_category
from traceadvisor.rendering.page.settings import settings_facts
from traceadvisor.rendering.run_lines import short_lines_table
from traceadvisor.rendering.run_time import (
    distortion_table,
    first_run_sentence,
    run_time_of,
    run_time_table,
    timed_runs,
)
from traceadvisor.rendering.savings import joint_sentences, scale_sentence
from traceadvisor.rendering.table import Cell, Column, Table, measured_columns
from traceadvisor.rendering.units import (
    NOT_MEASURED,
    count,
    duration,
    milliseconds,
    number_of,
    percent,
)
from traceadvisor.rendering.words import CATEGORY
from traceadvisor.text.cleaning import clipped, clipped_inside

TOP_FINDINGS = 3
MOST_LINES = 8
"""Lines in the table of the training thread's time."""

MOST_RECORDINGS = 10
"""Recordings in the table: the first finding must stay in sight."""

LONGEST_TEXT = 1_200
"""Characters of any text of the report, before it is cut further to the size of the comment.

A code change of this length is left out, because a part of it would not run.
"""

CODE_COLUMNS = 84
"""Characters of a line of code that fit into the column of a comment."""


@frozen
class Room:
    """Limits on the size of the comment."""

    rows: int
    """Items per table or list."""

    check_rows: int
    """Passed and skipped checks; with 0, only their number is given."""

    details: int
    """Folded sentences per finding, the most important first."""

    characters: int
    """Characters per text."""


@frozen
class FindingParts:
    """One finding in the comment."""

    title: str
    where: str | None
    """The recordings; None for the only one."""

    saving: str
    certainty: str | None
    worth: str | None
    measured: str | None
    fix: str
    change: str | None
    details: tuple[str, ...]
    """Folded sentences: evidence, prediction, caveats."""


@frozen
class Fold:
    """A folded table or list; ``cut`` says how much is left out, if anything."""

    title: str
    table: Table | None = None
    items: tuple[str, ...] = ()
    cut: str | None = None


@frozen
class MarkdownView:
    """All content of the comment."""

    warning: str | None
    """A problem that a reader must know first: damaged input."""

    caution: str | None
    """Any other problem that makes figures less certain."""

    verdict: str
    verdict_scope: str | None
    nothing_found: str
    """Stands in place of the findings where there are none."""

    quiet: tuple[NoteView, ...]
    """How the run differs from its recording: lines under the verdict."""

    run: str | None
    """The time of the first run in a sentence; None if none was timed."""

    recordings: Table
    recordings_cut: str | None
    findings: tuple[FindingParts, ...]
    """All findings; the first `TOP_FINDINGS` are unfolded."""

    findings_cut: str | None
    scale: str | None
    """Which steps evidence and savings refer to; None if these hardly differ."""

    joint: tuple[str, ...]
    """The step with all simulated fixes, a sentence for each recording."""

    folds: tuple[Fold, ...]
    checks: str | None
    """The number of checks, where they are not listed."""

    settings: tuple[str, ...]
    """Settings of the report that are not defaults, a phrase each."""

    tool_version: str
    top_findings: int = TOP_FINDINGS


def markdown_view(report: Report, room: Room) -> MarkdownView:
    """The view of a redacted report with short texts, cut to the given size."""
    findings = finding_views(report)
    health = health_view(report)
    several = len(report.recordings) > 1
    shown = findings[: max(TOP_FINDINGS, room.rows)]
    settings = [clipped(f"{label}: {value}", room.characters) for label, value in settings_facts(report)]
    return MarkdownView(
        warning=_clipped_or_none(health.line if health.damaged else None, room.characters),
        caution=_clipped_or_none(None if health.damaged else health.line, room.characters),
        verdict=clipped(verdict(report), max(room.characters, 160)),
        verdict_scope=_clipped_or_none(verdict_scope(report), 2 * room.characters),
        quiet=tuple(
            replace(note, message=clipped(note.message, room.characters)) for note in health.quiet[: room.rows]
        ),
        run=_clipped_or_none(first_run_sentence(report.recordings), room.characters),
        recordings=_recordings(report, room),
        recordings_cut=_recordings_cut(report, room),
        findings=tuple(_finding(finding, room, several=several) for finding in shown),
        findings_cut=_more(len(findings) - len(shown), "finding"),
        nothing_found=nothing_found(report),
        scale=scale_sentence(report),
        joint=tuple(clipped(sentence, room.characters) for sentence in joint_sentences(report)[: max(1, room.rows)]),
        folds=tuple(_folds(report, health, room)),
        checks=_check_counts(report) if not room.check_rows else None,
        settings=tuple(settings[: room.rows]),
        tool_version=report.tool_version,
    )


def _recordings(report: Report, room: Room) -> Table:
    """One row per recording, narrow enough for a comment; the recording of the verdict is always among them."""
    shown = list(report.recordings[: min(room.rows, MOST_RECORDINGS)])
    if report.recordings and (judged := recording_of_verdict(report)) not in shown:
        shown[-1] = judged
    timed = any(recording.undisturbed_median_step_ns is not None for recording in shown)
    columns = (
        Column("Recording", numeric=False),
        Column("Step"),
        Column("Recorded step"),
        Column("Samples/s"),
        Column("Cost"),
        Column("GPU busy"),
        Column("Largest category", numeric=False),
    )
    rows = tuple(_recording_row(recording, room, timed=timed) for recording in shown)
    return measured_columns(Table("Recordings", columns, rows))


def _recording_row(recording: Recording, room: Room, *, timed: bool) -> tuple[Cell, ...]:
    largest = largest_category(recording)
    is_whole = recording.step_source is StepSource.WINDOW and recording.step_ns is not None
    recorded = f"{duration(recording.step_ns)}{', the whole recording' if is_whole else ''}"
    return (
        Cell(clipped_inside(recording.id, room.characters)),
        Cell(duration(step_time(recording).ns) if timed else recorded),
        Cell(recorded if timed else NOT_MEASURED),
        Cell(count(recording.samples_per_s)),
        Cell(cost_words(recording) or NOT_MEASURED),
        Cell(busy_words(recording)[0]),
        Cell(f"{CATEGORY[largest[0]]} {percent(largest[1])}" if largest else NOT_MEASURED),
    )


def _recordings_cut(report: Report, room: Room) -> str | None:
    more = len(report.recordings) - min(room.rows, MOST_RECORDINGS)
    times = [ns for recording in report.recordings if (ns := step_time(recording).ns) is not None]
    if more <= 0:
        return None
    ends = " to ".join(dict.fromkeys((duration(min(times)), duration(max(times))))) if times else ""
    range_ = f" The step takes {ends} over all {len(times):,}." if times else ""
    return f"And {number_of(more, 'more recording')} in the full report.{range_}"


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


def _finding(finding: FindingView, room: Room, *, several: bool) -> FindingParts:
    change = finding.change if finding.change and len(finding.change) < _longest_change(room) else None
    first = finding.places[0] if finding.places else None
    owner = f" (time in {clipped_inside(first.owner, room.characters)})" if first and first.owner else ""
    place = f" at {clipped_inside(first.where, room.characters)}{owner}" if first else ""
    return FindingParts(
        title=clipped(f"{finding.rank}. {finding.title}", room.characters),
        where=clipped(finding.where, room.characters) if several else None,
        saving=finding.saving.sentence,
        certainty=finding.saving.certainty if finding.saving.is_certainty_shown else None,
        worth=finding.worth,
        measured=_clipped_or_none(finding.measured, room.characters),
        fix=f"Fix{place}: {clipped(finding.fix, room.characters)}.",
        change="\n".join(fitted_code(change, CODE_COLUMNS)) if change else None,
        details=tuple(clipped(text, 2 * room.characters) for text in islice(_details(finding, room), room.details)),
    )


def _longest_change(room: Room) -> int:
    return min(LONGEST_TEXT, 5 * room.characters)


def _details(finding: FindingView, room: Room) -> Iterator[str]:
    """Sentences on a finding, the most important first."""
    if finding.change and len(finding.change) >= _longest_change(room):
        yield "Change: in the full report."
    evidence = [f"{row.label}: {row.value}" for row in finding.evidence]
    if evidence:
        yield f"Evidence: {listed(evidence, room.rows, '; ')}."
    alone = " with this fix alone" if finding.saving.adds else ""
    figures = (
        finding.saving.range and f"Range: {finding.saving.range}.",
        finding.saving.alone and f"Alone: {finding.saving.alone}.",
        finding.over_recordings and f"{finding.over_recordings}.",
        finding.saving.predicted and f"Predicted step{alone}: {finding.saving.predicted}.",
    )
    if sentences := " ".join(filter(None, figures)):
        yield sentences
    if finding.caveats:
        yield " ".join(finding.caveats[: room.rows])
    if finding.origin_phrase:
        yield f"Origin: {finding.origin_phrase}."
    provided = f"{finding.rule_id}{f' from {finding.provider}' if finding.provider else ''}"
    yield f"Rule {provided}; {finding.confidence} confidence in the cause; effort: {finding.effort}."
    if finding.also:
        yield f"Also: {listed(finding.also, room.rows, '; ')}."
    if finding.saving.method:
        yield finding.saving.method


def _folds(report: Report, health: HealthView, room: Room) -> Iterator[Fold]:
    outcomes = outcomes_view(report)
    notes = (*health.problems, *health.remarks)
    if notes:
        items = tuple(_note(note, room) for note in notes[: room.rows])
        yield Fold(f"Notes ({len(notes)})", items=items, cut=_more(len(notes) - len(items), "note"))
    if categories := _categories(report):
        yield Fold("Typical step by category", _cut(categories, room.rows, room))
    for of_run in islice(_runs(report), room.rows):
        yield Fold(of_run.caption, _cut(of_run, room.rows, room))
    if lines := short_lines_table(report.recordings):
        yield Fold(lines.caption, _cut(lines, min(room.rows, MOST_LINES), room))
    for table, rows in (
        (umbrella_table(report), room.rows),
        (outcomes.not_worth_doing, room.rows),
        (outcomes.failed, room.rows),
        (outcomes.clear, room.check_rows),
        (outcomes.skipped, room.check_rows),
    ):
        if table is not None and table.rows and rows:
            title = f"{table.caption} ({len(table.rows)})"
            yield Fold(title, _cut(_slim(table), rows, room), cut=_more(len(table.rows) - rows, "row"))


def _note(note: NoteView, room: Room) -> str:
    about = f" ({clipped(note.about, room.characters)})" if note.about else ""
    return f"{clipped(note.message, 2 * room.characters)}{about}"


def _slim(table: Table) -> Table:
    """The table without columns for which a comment is too narrow."""
    kept = [place for place, column in enumerate(table.columns) if column.title not in {"Recording", JUDGED}]
    return replace(
        table,
        columns=tuple(table.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
    )


JUDGED = "Kernel time judged"


def _cut(table: Table, rows: int, room: Room) -> Table:
    shown = (tuple(Cell(clipped(cell.text, room.characters)) for cell in row) for row in table.rows[:rows])
    return Table(table.caption, table.columns, tuple(shown))


def _check_counts(report: Report) -> str | None:
    outcomes = outcomes_view(report)
    counted = ((outcomes.clear, "passed"), (outcomes.skipped, "skipped"))
    parts = [f"{table.caption}: {len(table.rows)}" for table, _ in counted if table]
    return f"{', '.join(parts)}. They are listed in the full report." if parts else None


def _categories(report: Report) -> Table | None:
    """The parts of the typical step; over several recordings, the lowest and highest share of each."""
    means = [mean for recording in report.recordings if (mean := recording.breakdown) and mean.duration_ns]
    rows = []
    for category in Category:
        shares = [share for mean in means if (share := mean.share(category)) is not None]
        if not shares or not max(shares):
            continue
        range_ = " to ".join(dict.fromkeys((percent(min(shares)), percent(max(shares)))))
        times = (Cell(milliseconds(means[0].parts_ns[category])),) if len(means) == 1 else ()
        rows.append((Cell(CATEGORY[category]), *times, Cell(range_)))
    timed = (Column("ms per step"),) if len(means) == 1 else ()
    columns = (Column("Category", numeric=False), *timed, Column("Share of the step"))
    return Table("Typical step by category", columns, tuple(rows)) if rows else None


def _more(things: int, one: str) -> str | None:
    return f"And {number_of(things, f'more {one}')} in the full report." if things > 0 else None


def _clipped_or_none(text: str | None, longest: int) -> str | None:
    return None if text is None else clipped(text, longest)
