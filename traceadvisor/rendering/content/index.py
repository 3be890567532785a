"""The index of many runs: what stands in the row of each, and how the step of a program changed from run to run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from statistics import median

from traceadvisor.frozen import frozen
from traceadvisor.model.command import script_name
from traceadvisor.model.findings import RuleMeta
from traceadvisor.model.index import SCHEMA, FirstFinding, Index, IndexedRun, RunFigures
from traceadvisor.model.report import RecordedFinding, Report
from traceadvisor.rendering.charts.run_trend import run_trend
from traceadvisor.rendering.content.report.document import report_headline
from traceadvisor.rendering.content.report.health import is_damaged
from traceadvisor.rendering.content.report.run_time import growth_sentence
from traceadvisor.rendering.document.blocks import Block, Document, Figure, Figures, Prose, Section, Tone
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Column, Layout, Table, sorted_by, titled, with_columns
from traceadvisor.rendering.headline import first_of, recording_of_verdict, step_time
from traceadvisor.rendering.savings import saved_share, saves_nothing, stated_share
from traceadvisor.rendering.units import NOT_MEASURED, duration, number_of, percent, whole_percent
from traceadvisor.results.redaction import redacted, shortened
from traceadvisor.text.cleaning import clipped, clipped_inside

SUMMARY = Detail.SUMMARY

MOST_ROWS = 2_000
"""Runs in the table, the newest: the page stays below 2 MB. The JSON has all."""

OPEN_ROWS = 25
MOST_TRENDS = 12
MOST_GROWING = 5
"""Runs whose steps grow to name."""

FEWEST_RUNS = 3
"""Fewer show no trend."""

BEFORE = 10
"""Runs before the newest one that it is compared with."""

SLOWER = 0.15
"""Identical runs differ by up to 14%."""

WORTH_FIXING = 0.1
LONGEST_NAME, LONGEST_RESULT = 60, 80


def run_figures(report: Report) -> RunFigures:
    """Return the figures of a report that the row of its run shows."""
    headline = report_headline(report)
    report = redacted(report)
    ranks = max((len(job.ranks) for job in report.jobs), default=1)
    if not report.recordings:
        return RunFigures(headline, len(report.memory), ranks, is_damaged=is_damaged(report))
    recording = recording_of_verdict(report)
    run, first = recording.captured, first_of(report, recording.id)
    start_ns = recording.recorded_wall_ns[0] if recording.recorded_wall_ns else None
    figures = RunFigures(
        headline,
        len(report.recordings),
        max(ranks, recording.rank_count),
        script=script_name(run.command) if run else None,
        device=recording.device.name if recording.device else None,
        recorded_ns=start_ns,
        step_ns=step_time(recording).ns,
        busy_share=recording.shown_figures.busy_share,
        finding=_first(first) if first and not first.is_refuted else None,
        growth=recording.run_growth,
        is_damaged=is_damaged(report),
    )
    return shortened(figures, LONGEST_HEADLINE)


def _first(row: RecordedFinding) -> FirstFinding:
    return FirstFinding(row.finding.rule, row.severity, row.finding.saving, row.saving_share, row.finding.of_run)


LONGEST_HEADLINE = 300


@frozen
class _Program:
    """The runs of a program on one kind of device that have a step time, the newest first."""

    name: str
    runs: tuple[IndexedRun, ...]
    steps_ns: tuple[float, ...]

    @property
    def before_ns(self) -> float:
        """The median step of some runs before the newest one."""
        return median(self.steps_ns[1 : BEFORE + 1])

    @property
    def change(self) -> float:
        """How much longer the step of the newest run is, as a share."""
        return self.steps_ns[0] / self.before_ns - 1 if self.before_ns else 0.0


def index_document(index: Index) -> Document:
    """The document on many runs."""
    programs = _programs(index)
    title = index.paths[0].name if len(index.paths) == 1 else "Runs"
    return Document(
        noun="index",
        title=title,
        window_title=f"{title} · TraceAdvisor",
        marker=SCHEMA,
        headline=_headline(index),
        top=tuple(_top(index, programs)),
        sections=(
            Section("Runs, newest first", (_run_table(index), *_without_page(index)), "runs"),
            *((Section("Step time from run to run", tuple(_trends(programs)), "trends"),) if programs else ()),
            *((Section("First findings", (table,), "findings"),) if (table := _finding_table(index)) else ()),
        ),
        footer=(
            Prose(f"Made by TraceAdvisor {index.tool_version}.", detail=Detail.COMMENT),
            Prose("The reports lie in the folder beside this page. Copy both together."),
        ),
        tool_version=index.tool_version,
    )


def _headline(index: Index) -> str:
    worth = sum(_saving(run) >= WORTH_FIXING for run in index.runs)
    runs = number_of(len(index.runs), "run")
    least = whole_percent(WORTH_FIXING)
    if not worth:
        return f"{runs}: no first fix may save {least} of the step or more."
    return f"{runs}: in {worth:,} of them, the first fix may save {least} of the step or more."


def _saving(run: IndexedRun) -> float:
    """The saving of the first fix as a share of the step: the expected one, or the highest of an upper limit."""
    finding = run.figures.finding if run.figures else None
    return stated_share(finding.saving, finding.saving_share) if finding else 0.0


def _top(index: Index, programs: Sequence[_Program]) -> Iterator[Block]:
    for program in programs:
        if program.change > SLOWER:
            yield Prose(_change(program), Tone.NOTICE, SUMMARY)
    growing = [run for run in index.runs if run.figures and run.figures.growth]
    for run in growing[:MOST_GROWING]:
        if run.figures and run.figures.growth:
            name = clipped_inside(run.name, LONGEST_NAME)
            yield Prose(f"{name}: {growth_sentence(run.figures.growth)}", Tone.NOTICE, SUMMARY)
    if len(growing) > MOST_GROWING:
        left = number_of(len(growing) - MOST_GROWING, "more run")
        yield Prose(f"Steps grow in {left}: see the reports.", Tone.NOTICE, SUMMARY)
    unread = sum(run.error is not None for run in index.runs)
    yield Figures(
        (
            Figure("Runs", f"{len(index.runs):,}", f"{unread:,} could not be read" if unread else None),
            Figure("Programs", f"{len({run.program for run in index.runs}):,}"),
            Figure("Newest", _date(index.runs[0]) if index.runs else NOT_MEASURED),
        ),
        SUMMARY,
    )


def _change(program: _Program) -> str:
    newest, before, others = program.steps_ns[0], program.before_ns, len(program.steps_ns[1 : BEFORE + 1])
    share = f"{percent(abs(program.change))} {'more' if newest > before else 'less'} than"
    return (
        f"{program.name}: a step of the newest run takes {duration(newest)}. That is "
        f"{'as long as' if newest == before else share} the median of the {others} runs before it ({duration(before)})."
    )


def _programs(index: Index) -> list[_Program]:
    """Programs with enough runs for a trend, that of the newest run first."""
    by_program: defaultdict[tuple[str, str | None, int], list[tuple[IndexedRun, float]]] = defaultdict(list)
    for run in index.runs:
        if run.figures and run.figures.step_ns:
            key = run.program, run.figures.device, run.figures.ranks
            by_program[key].append((run, run.figures.step_ns))
    return [
        _Program(
            " on ".join(filter(None, (clipped_inside(program, LONGEST_NAME), _devices(device, ranks)))),
            *map(tuple, zip(*found, strict=True)),
        )
        for (program, device, ranks), found in by_program.items()
        if len(found) >= FEWEST_RUNS
    ]


def _devices(device: str | None, ranks: int) -> str | None:
    if ranks > 1:
        return f"{ranks:,} x {device}" if device else number_of(ranks, "rank")
    return device


def _trends(programs: Sequence[_Program]) -> Iterator[Block]:
    yield Prose(
        "A dot is a run: the oldest on the left, the newest on the right. Other runs of the same program may differ by "
        f"{whole_percent(SLOWER)} without a cause; `traceadvisor compare` tells.",
        Tone.QUIET,
    )
    for number, program in enumerate(programs[:MOST_TRENDS], start=1):
        points = [
            (_date(run), clipped_inside(run.name, LONGEST_NAME), ns)
            for run, ns in zip(program.runs, program.steps_ns, strict=True)
        ]
        yield run_trend(program.name, points[::-1], f"trend-{number}")
        if program.change <= SLOWER:  # the others are named above
            yield Prose(_change(program), Tone.QUIET)
    if len(programs) > MOST_TRENDS:
        yield Prose(f"{number_of(len(programs) - MOST_TRENDS, 'more program')} in the JSON index.", Tone.QUIET)


_COLUMNS = (
    Column("Run", numeric=False),
    Column("Date (UTC)", numeric=False),
    Column("Script", numeric=False, detail=Detail.COMMENT),
    Column("Device", numeric=False, detail=Detail.COMMENT),
    Column("Step time"),
    Column("GPU busy", detail=Detail.COMMENT),
    Column("First finding, else the verdict", numeric=False),
    Column("Its fix saves", detail=Detail.COMMENT),
)


def _run_table(index: Index) -> Table:
    rows = tuple(map(_row, index.runs[:MOST_ROWS]))
    table = Table(
        "Runs, newest first",
        _COLUMNS,
        rows,
        OPEN_ROWS,
        Layout.ARMS,
        is_sortable=True,
        detail=SUMMARY,
        noun="run",
        left_out=len(index.runs) - len(rows),
    )
    return with_columns(table, [place for place, _ in enumerate(_COLUMNS) if any(row[place].text for row in rows)])


def _without_page(index: Index) -> Iterator[Prose]:
    """A sentence on the runs that have no page, beside those that have one."""
    count = sum(run.page is not None for run in index.runs)
    if count and any(run.page is None and run.figures for run in index.runs):
        yield Prose(
            f"{count:,} runs have a page, those with the newest files. `traceadvisor report` makes that of another."
        )


def _row(run: IndexedRun) -> tuple[Cell, ...]:
    figures, date = run.figures, Cell(_date(run))
    name = Cell(clipped_inside(run.name, LONGEST_NAME), href=run.page)
    if figures is None:
        why = Cell(f"Could not be read: {clipped(run.error or '', 2 * LONGEST_RESULT)}")
        return (name, date, *(Cell(""),) * 4, why, Cell(""))
    finding, is_timed = figures.finding, figures.step_ns is not None
    result = finding.rule.title if finding else figures.headline
    return (
        name,
        date,
        Cell(clipped_inside(figures.script or "", LONGEST_NAME)),
        Cell(clipped(_devices(figures.device, figures.ranks) or "", LONGEST_NAME)),
        sorted_by(duration(figures.step_ns), figures.step_ns) if is_timed else Cell("", value=""),
        Cell("" if figures.busy_share is None else percent(figures.busy_share)),
        Cell(("Damaged recording. " if figures.is_damaged else "") + clipped(result, LONGEST_RESULT)),
        sorted_by(_saves(finding), _saving(run)) if finding else Cell("", value=""),
    )


def _saves(finding: FirstFinding) -> str:
    if saves_nothing(finding.saving):
        return "no speed-up"
    share = saved_share(finding.saving, finding.saving_share)
    if finding.saving.is_of_place:
        return f"takes {share}"
    return f"up to {share}" if finding.saving.is_bound or finding.of_run else share


def _date(run: IndexedRun) -> str:
    try:
        return f"{datetime.fromtimestamp(run.time_ns / 1e9, UTC):%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):  # no recording was made then
        return NOT_MEASURED


def _finding_table(index: Index) -> Table | None:
    """How often each finding is the first one."""
    found: defaultdict[RuleMeta, list[IndexedRun]] = defaultdict(list)
    for run in index.runs:
        if run.figures and run.figures.finding:
            found[run.figures.finding.rule].append(run)
    rows = tuple(
        (
            Cell(f"{rule.title} ({rule.id})"),
            Cell(f"{len(runs):,}"),
            sorted_by(percent(saving := median(map(_saving, runs))), saving),
            Cell(_date(runs[0])),
            Cell(clipped_inside(runs[0].name, LONGEST_NAME), href=runs[0].page),
        )
        for rule, runs in sorted(found.items(), key=lambda item: -len(item[1]))
    )
    if not rows:
        return None
    columns = titled("Finding", "Runs", "Median saving, at most", "Last seen", "In", words=("Last seen", "In"))
    return Table("First findings of all runs", columns, rows, 12, Layout.ARMS, detail=SUMMARY, noun="finding")
