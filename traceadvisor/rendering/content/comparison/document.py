"""A comparison of two sides: the verdict, how certain it is, and what explains it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from traceadvisor.model.breakdown import MeanBreakdown
from traceadvisor.model.comparison import (
    SCHEMA,
    ComparedMemory,
    ComparedRank,
    ComparedRun,
    Comparison,
    OtherProgram,
)
from traceadvisor.model.explanation import StepExplanation
from traceadvisor.model.report import Recording
from traceadvisor.model.timeline import Timeline
from traceadvisor.rendering.charts.step_bar import comparison_bars
from traceadvisor.rendering.charts.step_dots import step_dots
from traceadvisor.rendering.charts.timeline import timeline
from traceadvisor.rendering.content.comparison.job import compared_job
from traceadvisor.rendering.content.comparison.sentences import (
    SIDES,
    UNKNOWN_PROGRAM,
    cause_sentence,
    certainty_sentences,
    changed_sentence,
    deciding_run,
    headline,
    hidden_sentence,
    predicted_peak,
    prediction_sentence,
    side_names,
    verdict_sentence,
    workers_differ,
)
from traceadvisor.rendering.content.comparison.settling import settling_commands
from traceadvisor.rendering.content.comparison.tables import (
    category_table,
    cause_tables,
    differences_table,
    findings_table,
    is_noted,
    lines_table,
    memory_table,
    names_table,
    ranks_table,
    runs_table,
)
from traceadvisor.rendering.content.report.run_time import growth_sentence
from traceadvisor.rendering.document.blocks import (
    Block,
    Code,
    Document,
    Fact,
    Facts,
    Fold,
    FoldLook,
    Group,
    Items,
    Prose,
    Section,
    Tone,
)
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.device_word import reworded
from traceadvisor.rendering.document.table import Table
from traceadvisor.rendering.units import number_of
from traceadvisor.rendering.words import CATEGORY, CPU_TIME_IS
from traceadvisor.results.redaction import shortened

SUMMARY = Detail.SUMMARY

LONGEST_TEXT = 600
"""Characters per string."""

_SIDE = re.compile(r"(?<![\w./(-])(?:BASE|HEAD)(?![\w/(-]|\.\w)")
"""The word for a side, and no name of the user's."""

MOST_TIMES = 4
"""Highest ratio of two steps whose timelines share one scale. At more, the shorter one shows little."""

MOST_RUNS, MOST_RANKS = 8, 4
"""Runs, and ranks of a run, that are explained on the page; the JSON has all."""

BYTES_OF_ONE, BYTES_PER_RUN, MOST_BYTES = 6_000, 1_500, 60_000
"""Longest comment on one run, what each further run adds, and the longest of all: forges refuse 65,536 characters."""


def comparison_document(comparison: Comparison) -> Document:
    """The document on a comparison; the run that decides comes first."""
    comparison = shortened(comparison, LONGEST_TEXT)
    first = deciding_run(comparison)
    runs = sorted(comparison.runs, key=lambda run: run is not first)
    several = len(runs) > 1
    name = first.name if first else "Comparison"
    shown = (_run(run, place, several=several) for place, run in enumerate(runs[:MOST_RUNS], start=1))
    blocks = tuple(block for one in comparison.memory[:MOST_RUNS] for block in _memory(one))
    memory = (Section("GPU memory", blocks, "memory"),) if blocks else ()
    table = Section("Runs compared", (runs_table(comparison),), "runs")
    document = Document(
        noun="comparison",
        title=name,
        window_title=f"{name}: comparison · TraceAdvisor",
        marker=SCHEMA,
        headline=headline(comparison),
        top=(*_result(first, "first", settling_commands(comparison, first)), *_left_out(comparison)) if first else (),
        sections=(*((table,) if several else ()), *shown, *memory, _about(comparison, len(runs) - MOST_RUNS)),
        footer=(
            Prose(f"Made by TraceAdvisor {comparison.tool_version}.", detail=Detail.COMMENT),
            Prose("This page is self-contained: it loads nothing."),
        ),
        tool_version=comparison.tool_version,
        most_bytes=min(BYTES_OF_ONE + BYTES_PER_RUN * (max(len(runs), 1) - 1), MOST_BYTES),
    )
    called = dict(zip(SIDES, side_names(comparison), strict=True))
    named: Document = reworded(document, lambda text: _SIDE.sub(lambda found: called[found[0]], text))
    return named


def _memory(memory: ComparedMemory) -> Iterator[Block]:
    if sentence := predicted_peak(memory):
        yield Prose(sentence, Tone.ACTION, SUMMARY)
    yield memory_table(memory)


def _left_out(comparison: Comparison) -> Iterator[Block]:
    """How many recordings of each side have no partner: they do not count, although they were given."""
    for side, count in Counter(one.side for one in comparison.unpaired).items():
        left_out = f"{number_of(count, 'recording')} of {side.value.upper()}"
        yield Prose(f"{left_out} left out: the other side has no such script, run or rank.", Tone.NOTICE, SUMMARY)


def _result(run: ComparedRun, anchor: str, commands: str | None = None) -> Iterator[Block]:
    """The changes of the program, the prediction for them, how certain it is, and the commands that would settle it."""
    for sentence in (changed_sentence(run), prediction_sentence(run), hidden_sentence(run)):
        if sentence:
            yield Prose(sentence, Tone.ACTION, SUMMARY)
    if run.work.program is OtherProgram.UNKNOWN:
        yield Prose(UNKNOWN_PROGRAM, Tone.SCOPE, SUMMARY)
    yield from _growth(run)
    if run.change and not run.work.is_other_program:
        if run.change.cpu:
            yield Prose(CPU_TIME_IS, Tone.SCOPE, SUMMARY)
        yield Prose(" ".join(certainty_sentences(run.change, run.work)), Tone.SCOPE, SUMMARY)
    yield from (Prose(caution, Tone.NOTICE, SUMMARY) for caution in run.cautions)
    if chart := step_dots(run, f"{anchor}-steps"):
        yield chart
    if commands:
        yield Prose("Captures that settle it, in turn:", Tone.NAME, SUMMARY)
        yield Code(commands, SUMMARY)


def _growth(run: ComparedRun) -> Iterator[Block]:
    """The growth of the steps of each side: their step time then depends on the length of the run."""
    for rank in run.ranks[:1]:
        for side, recording in (("BASE", rank.base), ("HEAD", rank.head)):
            if recording.run_growth:
                yield Prose(f"{side}: {growth_sentence(recording.run_growth)}", Tone.NOTICE, SUMMARY)


def _about(comparison: Comparison, not_shown: int) -> Section:
    lonely = tuple(f"{one.side.value.upper()}: {one.recording_id}: {one.reason}." for one in comparison.unpaired)
    blocks: list[Block] = []
    if not_shown > 0:
        blocks.append(Prose(f"{number_of(not_shown, 'more run')}: see the table above and the JSON.", Tone.NOTICE))
    blocks.append(Facts(tuple(Fact(name, paths) for name, paths in _inputs(comparison))))
    for title, items, noun in (
        ("Recordings without a partner", lonely, "recording"),
        ("Notes", comparison.notes, "note"),
    ):
        if items:
            blocks.append(Group(title, (Items(items, SUMMARY, noun),), detail=SUMMARY))
    return Section("About this comparison", tuple(blocks), "about")


def _inputs(comparison: Comparison) -> Iterator[tuple[str, str]]:
    sides = (("Before (BASE)", comparison.base_paths), ("After (HEAD)", comparison.head_paths))
    paths = (*sides, ("History", comparison.history_paths))
    for name, listed in paths:
        if listed:
            yield name, ", ".join(map(str, listed))


def _run(run: ComparedRun, place: int, *, several: bool) -> Section:
    """Changes in a run. Formats without much room show the one that decides, which is the first."""
    blocks = [*_repeated(run, f"run-{place}")] if place > 1 else []
    if sentence := cause_sentence(run):
        blocks.append(Prose(sentence, Tone.ACTION, SUMMARY))
    if run.diff:
        blocks.append(Group("Code that changed", (Code("\n".join(run.diff), SUMMARY),), detail=SUMMARY))
    blocks += [*_findings(run)]
    tables = (differences_table(run), ranks_table(run))
    blocks += [table for table in tables if table is not None]
    if run.job:
        blocks.append(compared_job(run.job, f"run-{place}-job"))
    explained = sorted(
        (rank for rank in run.ranks if rank.explanation),
        key=lambda rank: -abs(rank.explanation.delta_ns) if rank.explanation else 0.0,
    )
    if explained and workers_differ(run):
        blocks.append(Prose(BY_WORKERS, Tone.QUIET))
    for number, rank in enumerate(explained[:MOST_RANKS], start=1):
        if rank.explanation:
            title = WHERE if len(explained) == 1 else f"{WHERE}: {rank.name}"
            is_open = len(explained) == 1 and run.work.program not in {OtherProgram.FRAMEWORK, OtherProgram.CODE}
            blocks.append(_rank(rank, rank.explanation, title, f"run-{place}-{number}", is_open=is_open))
    if (more := len(explained) - MOST_RANKS) > 0:
        blocks.append(Prose(f"{number_of(more, 'more rank')}: see the table and the JSON.", Tone.NOTICE))
    if others := [one for one in run.findings if not is_noted(one)]:
        blocks.append(
            Fold(
                "Other findings",
                (findings_table(run, others, Detail.EXTRA),),
                "unchanged or not comparable",
                f"run-{place}-same",
                FoldLook.SECTION,
                Detail.EXTRA,
            )
        )
    title = run.name if several else "Both programs" if run.work.is_other_program else "What changed"
    return Section(title, tuple(blocks), f"run-{place}", Detail.PAGE if place > 1 else SUMMARY)


def _repeated(run: ComparedRun, anchor: str) -> Iterator[Block]:
    yield Prose(verdict_sentence(run), Tone.VERDICT)
    yield from _result(run, anchor)


def _findings(run: ComparedRun) -> Iterator[Block]:
    noted = [one for one in run.findings if is_noted(one)]
    if run.work.is_other_program:
        yield Prose("Findings are not compared: both sides are, or may be, different programs.", Tone.QUIET, SUMMARY)
        return
    if not noted:
        yield Prose("No finding is new, gone or changed.", Tone.QUIET, SUMMARY)
        return
    how = Prose("Findings are compared by rule, file and function. Lines may move.", Tone.QUIET)
    yield Group("Findings that changed", (how, findings_table(run, noted, SUMMARY)), detail=SUMMARY)


WHERE = "Where the difference comes from"

BY_WORKERS = "Tables by line are of the training process. A line that moved to loader workers is only in BASE there."


def _rank(rank: ComparedRank, explained: StepExplanation, title: str, anchor: str, *, is_open: bool) -> Block:
    """The explanation of one rank; folded if there are several, or if both sides are different programs."""
    blocks = tuple(_explanation(rank, explained, anchor))
    if not is_open:
        about = "by category, line, operator and kernel"
        return Fold(title, blocks, about, anchor, FoldLook.SECTION, Detail.COMMENT)
    how = "Differences are HEAD less BASE, per step. The rows of each table sum to the whole difference."
    return Group(title, (Prose(how, Tone.QUIET), *blocks), anchor, SUMMARY)


def _explanation(rank: ComparedRank, explained: StepExplanation, anchor: str) -> Iterator[Block]:
    recordings = [
        _with_mean(rank.base, "BASE", [row.base_ns for row in explained.categories], explained),
        _with_mean(rank.head, "HEAD", [row.head_ns for row in explained.categories], explained),
    ]
    if bars := comparison_bars(recordings, f"{anchor}-bars"):
        yield bars
    yield category_table(explained)
    yield from cause_tables(explained)
    if by_category := tuple(_by_category(explained)):
        about = f"{len(by_category)} that changed"
        title = "Each category by line and operator"
        yield Fold(title, by_category, about, f"{anchor}-categories", FoldLook.SECTION)
    about = "threads and streams of both sides"
    drawn = tuple(_timelines(rank, anchor))
    yield Fold("Timelines of a typical step", drawn, about, f"{anchor}-timelines", FoldLook.SECTION)


def _timelines(rank: ComparedRank, anchor: str) -> Iterator[Block]:
    sides = (("BASE", rank.base.timeline), ("HEAD", rank.head.timeline))
    scale_ns = _one_scale_ns([one for _, one in sides if one])
    charts = [
        replace(chart, title=f"{side}: {chart.title[:1].lower()}{chart.title[1:]}")
        for side, one in sides
        if (chart := timeline(one, f"{anchor}-{side.lower()}-timeline", scale_ns=scale_ns)) is not None
    ]
    if charts:
        each = "Each timeline fills the width: compare the times below them."
        yield Prose("Both have the same time scale." if scale_ns else each, Tone.QUIET)
    yield from charts
    if len(charts) < len(sides):
        yield Prose("A JSON report holds no timeline. Compare recordings to see both.", Tone.QUIET)


def _one_scale_ns(drawn: Sequence[Timeline]) -> int | None:
    """The longest of the steps, for one scale; None if the shortest would be too small to see."""
    lengths_ns = [one.end_ns - one.start_ns for one in drawn]
    longest = max(lengths_ns, default=0)
    return longest if len(lengths_ns) > 1 and 0 < longest <= MOST_TIMES * min(lengths_ns) else None


def _by_category(explained: StepExplanation) -> Iterator[Group]:
    for category, origin in explained.by_category.items():
        tables: list[Table] = []
        if origin.lines:
            tables.append(lines_table(f"{CATEGORY[category]} by line", origin.lines))
        if origin.operators:
            title = f"{CATEGORY[category]} by operator"
            tables.append(names_table(title, "Operator", origin.operators, "outside operators"))
        if tables:
            yield Group(CATEGORY[category], tuple(tables))


def _with_mean(recording: Recording, side: str, parts: list[float | None], explained: StepExplanation) -> Recording:
    """The recording with the name of its side and the mean over its captures, for the drawing."""
    categories = [row.category for row in explained.categories]
    mean = MeanBreakdown(sum(ns or 0.0 for ns in parts), dict(zip(categories, parts, strict=True)))
    return replace(recording, id=side, typical_breakdown=mean)
