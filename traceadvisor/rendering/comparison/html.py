"""A comparison as one self-contained page: no network, no script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from traceadvisor.frozen import frozen
from traceadvisor.model.breakdown import MeanBreakdown
from traceadvisor.model.comparison import ComparedRank, ComparedRun, Comparison, FindingStatus, StepChange
from traceadvisor.model.explanation import StepExplanation
from traceadvisor.model.report import Recording
from traceadvisor.model.timeline import Timeline
from traceadvisor.rendering.charts.drawing import Chart
from traceadvisor.rendering.charts.palette import ALL_PAINTS, SAVING, SAVING_RANGE, TRACK
from traceadvisor.rendering.charts.step_bar import comparison_bars
from traceadvisor.rendering.charts.timeline import timeline
from traceadvisor.rendering.comparison.sentences import (
    MEASURE,
    cause_sentence,
    certainty_sentences,
    deciding_run,
    headline,
    signed_percent,
    verdict_sentence,
)
from traceadvisor.rendering.comparison.tables import (
    category_table,
    cause_tables,
    differences_table,
    findings_table,
    lines_table,
    names_table,
    predictions_table,
    ranks_table,
    runs_table,
)
from traceadvisor.rendering.formats import COMPARISON_MARKER
from traceadvisor.rendering.page.html import style_hash
from traceadvisor.rendering.page.recordings import Figure
from traceadvisor.rendering.table import Table
from traceadvisor.rendering.templates import html_environment
from traceadvisor.rendering.units import duration, number_of
from traceadvisor.rendering.words import CATEGORY
from traceadvisor.results.redaction import shortened

LONGEST_TEXT = 600
"""Characters per string."""

MOST_TIMES = 4
"""Highest ratio of two steps whose timelines share one scale. At more, the shorter one shows little."""

MOST_RUNS, MOST_RANKS = 8, 4
"""Runs, and ranks of a run, that are explained on the page; the JSON has all."""

OPEN_ROWS = 8


@frozen
class RankView:
    """The explanation of one rank."""

    name: str
    anchor: str
    bars: Chart | None
    """Both steps on one axis."""

    categories: Table
    causes: tuple[Table, ...]
    by_category: tuple[tuple[str, tuple[Table, ...]], ...]
    """Lines and operators of each category that changed."""

    timelines: tuple[Chart, ...]
    scale: str
    """What their widths stand for."""

    no_timelines: str | None
    """Why a side has no timeline."""


@frozen
class RunView:
    """One run of the comparison."""

    name: str
    anchor: str
    verdict: str
    cautions: tuple[str, ...]
    figures: tuple[Figure, ...]
    certainty: tuple[str, ...]
    cause: str | None
    findings: Table | None
    """New, changed and gone ones."""

    other_findings: Table | None
    predictions: Table | None
    differences: Table | None
    ranks_table: Table | None
    ranks: tuple[RankView, ...]
    not_drawn: str | None


@frozen
class PageView:
    """All content of the page."""

    title: str
    headline: str
    runs_table: Table | None
    runs: tuple[RunView, ...]
    not_shown: str | None
    unpaired: tuple[str, ...]
    notes: tuple[str, ...]
    inputs: tuple[tuple[str, str], ...]
    tool_version: str
    rules: tuple[str, ...] = ()
    """Rules that the page explains: none, the report on each side does."""


def render(comparison: Comparison) -> bytes:
    """The page, UTF-8."""
    return page(comparison).encode()


def page(comparison: Comparison) -> str:
    """The page as text, also used for the PDF."""
    return (
        html_environment()
        .get_template("comparison.html.j2")
        .render(
            view=page_view(shortened(comparison, LONGEST_TEXT)),
            marker=COMPARISON_MARKER,
            style_hash=style_hash(),
            paints=ALL_PAINTS,
            saving_paint=SAVING,
            saving_range_paint=SAVING_RANGE,
            track_paint=TRACK,
        )
    )


def page_view(comparison: Comparison) -> PageView:
    """The content of the page; the run that decides comes first."""
    first = deciding_run(comparison)
    runs = sorted(comparison.runs, key=lambda run: run is not first)
    several = len(runs) > 1
    more = len(runs) - MOST_RUNS
    return PageView(
        title=first.name if first else "Comparison",
        headline=headline(comparison),
        runs_table=replace(runs_table(comparison, len(runs)), open_rows=OPEN_ROWS) if several else None,
        runs=tuple(_run(run, place) for place, run in enumerate(runs[:MOST_RUNS], start=1)),
        not_shown=f"{number_of(more, 'more run')}: see the table above and the JSON." if more > 0 else None,
        unpaired=tuple(f"{one.side.value.upper()}: {one.recording_id}: {one.reason}." for one in comparison.unpaired),
        notes=comparison.notes,
        inputs=tuple(_inputs(comparison)),
        tool_version=comparison.tool_version,
    )


def _inputs(comparison: Comparison) -> Iterator[tuple[str, str]]:
    paths = (("BASE", comparison.base_paths), ("HEAD", comparison.head_paths), ("History", comparison.history_paths))
    for name, listed in paths:
        if listed:
            yield name, ", ".join(map(str, listed))


def _run(run: ComparedRun, place: int) -> RunView:
    noted = [one for one in run.findings if one.status not in {FindingStatus.SAME, FindingStatus.UNKNOWN}]
    others = [one for one in run.findings if one not in noted]
    explained = sorted(
        (rank for rank in run.ranks if rank.explanation),
        key=lambda rank: -abs(rank.explanation.delta_ns) if rank.explanation else 0.0,
    )
    more = len(explained) - MOST_RANKS
    return RunView(
        name=run.name,
        anchor=f"run-{place}",
        verdict=verdict_sentence(run),
        cautions=run.cautions,
        figures=tuple(_figures(run.change)) if run.change else (),
        certainty=tuple(certainty_sentences(run.change)) if run.change else (),
        cause=cause_sentence(run),
        findings=findings_table(noted) if noted else None,
        other_findings=findings_table(others) if others else None,
        predictions=predictions_table(run),
        differences=differences_table(run),
        ranks_table=ranks_table(run),
        ranks=tuple(
            _rank(rank, rank.explanation, f"run-{place}-{number}")
            for number, rank in enumerate(explained[:MOST_RANKS], start=1)
            if rank.explanation
        ),
        not_drawn=f"{number_of(more, 'more rank')}: see the table and the JSON." if more > 0 else None,
    )


def _figures(change: StepChange) -> Iterator[Figure]:
    measured = MEASURE[change.measure].removeprefix("the ").capitalize()
    captures = (number_of(count, "capture") for count in (change.base_captures, change.head_captures))
    for side, ns, counted in zip(("BASE", "HEAD"), (change.base_ns, change.head_ns), captures, strict=True):
        yield Figure(f"{measured}, {side}", duration(ns), counted)
    interval = None
    if change.ratio_low is not None and change.ratio_high is not None:
        interval = f"{signed_percent(change.ratio_low - 1)} to {signed_percent(change.ratio_high - 1)}"
    yield Figure("Change", signed_percent(change.change_share), interval or "interval unknown")


def _rank(rank: ComparedRank, explained: StepExplanation, anchor: str) -> RankView:
    recordings = [
        _with_mean(rank.base, "BASE", [row.base_ns for row in explained.categories], explained),
        _with_mean(rank.head, "HEAD", [row.head_ns for row in explained.categories], explained),
    ]
    scale_ns = _one_scale_ns([one.timeline for one in (rank.base, rank.head) if one.timeline])
    timelines = [
        replace(chart, title=f"{side}: {chart.title[:1].lower()}{chart.title[1:]}")
        for side, one in (("BASE", rank.base), ("HEAD", rank.head))
        if (chart := timeline(one.timeline, f"{anchor}-{side.lower()}-timeline", scale_ns=scale_ns)) is not None
    ]
    return RankView(
        name=rank.name,
        anchor=anchor,
        bars=comparison_bars(recordings, f"{anchor}-bars"),
        categories=category_table(explained),
        causes=tuple(replace(table, open_rows=OPEN_ROWS) for table in cause_tables(explained)),
        by_category=tuple(_by_category(explained)),
        timelines=tuple(timelines),
        scale="Both have the same time scale."
        if scale_ns
        else "Each timeline fills the width: compare the times below them.",
        no_timelines=None
        if len(timelines) == 2
        else "A JSON report holds no timeline. Compare recordings to see both.",
    )


def _one_scale_ns(drawn: Sequence[Timeline]) -> int | None:
    """The longest of the steps, for one scale; None if the shortest would be too small to see."""
    lengths_ns = [one.end_ns - one.start_ns for one in drawn]
    longest = max(lengths_ns, default=0)
    return longest if len(lengths_ns) > 1 and 0 < longest <= MOST_TIMES * min(lengths_ns) else None


def _by_category(explained: StepExplanation) -> Iterator[tuple[str, tuple[Table, ...]]]:
    for category, origin in explained.by_category.items():
        tables = []
        if origin.lines:
            tables.append(lines_table(f"{CATEGORY[category]} by line", origin.lines))
        if origin.operators:
            title = f"{CATEGORY[category]} by operator"
            tables.append(names_table(title, "Operator", origin.operators, "outside operators"))
        if tables:
            yield CATEGORY[category], tuple(replace(table, open_rows=OPEN_ROWS) for table in tables)


def _with_mean(recording: Recording, side: str, parts: list[float | None], explained: StepExplanation) -> Recording:
    """The recording with the name of its side and the mean over its captures, for the drawing."""
    categories = [row.category for row in explained.categories]
    mean = MeanBreakdown(sum(ns or 0.0 for ns in parts), dict(zip(categories, parts, strict=True)))
    return replace(recording, id=side, typical_breakdown=mean)
