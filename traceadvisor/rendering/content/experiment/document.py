"""All words and tables of an experiment."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.model.experiment import SCHEMA, ExperimentResult, MeasuredArm, MeasuredRatio
from traceadvisor.model.experiment import Section as MeasuredSection
from traceadvisor.model.patch import PatchOutcome
from traceadvisor.model.report import SCHEMA as REPORT_SCHEMA
from traceadvisor.rendering.content.code_change import code_sentences
from traceadvisor.rendering.content.experiment.chart import rates_chart
from traceadvisor.rendering.content.experiment.words import (
    FEWEST_ROUNDS,
    arm_words,
    axis_sentences,
    band,
    base_words,
    busy_sentences,
    change,
    counted_verdict,
    headline,
    interval,
    ledger_predicted,
    other_step,
    rate_of,
    rate_words,
    scope,
    settings_words,
    side_effects,
    title,
    verdict,
)
from traceadvisor.rendering.document.blocks import (
    Block,
    Code,
    Document,
    Fold,
    FoldLook,
    Group,
    Items,
    Prose,
    Section,
    Span,
    Tone,
)
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Column, Layout, Table, cells, measured_columns, titled
from traceadvisor.rendering.units import NOT_MEASURED, duration, money, percent, size, watts, whole_percent
from traceadvisor.results.redaction import cleaned
from traceadvisor.text.ranges import spread

SUMMARY = Detail.SUMMARY


def experiment_document(result: ExperimentResult) -> Document:
    """The document on a result, without secrets."""
    result = cleaned(result)
    name = " ".join(result.command)
    return Document(
        noun="result",
        title=name,
        window_title=f"{name} · TraceAdvisor experiment",
        marker=f"{REPORT_SCHEMA} {SCHEMA}",
        headline=headline(result),
        top=tuple(_top(result)),
        sections=(*_sections(result), _about(result)),
        footer=(Prose(f"TraceAdvisor {result.tool_version}", detail=Detail.COMMENT),),
        tool_version=result.tool_version,
    )


def measured_fold(result: ExperimentResult, number: int) -> Fold:
    """The result as a part of a report; ``number`` counts from the newest."""
    result = cleaned(result)
    anchor = f"measured-{number}"
    sections = (Group(one.title, one.blocks, one.anchor) for one in _sections(result, f"{anchor}-"))
    return Fold(
        f"Measured by {result.kind}",
        (Prose(scope(result), Tone.QUIET), *sections),
        remark=headline(result),
        anchor=anchor,
        look=FoldLook.SECTION,
    )


def measured_line(result: ExperimentResult) -> Prose:
    """The newest result in a line of the report's first screen."""
    result = cleaned(result)
    is_faster = result.recommended or (result.code and result.code.outcome is PatchOutcome.FASTER)
    tone = Tone.GAIN if is_faster else Tone.SCOPE
    return Prose((Span(f"Measured by {result.kind}", href="#measured-1"), f": {headline(result)}."), tone, SUMMARY)


def _top(result: ExperimentResult) -> Iterator[Block]:
    yield Prose(scope(result), Tone.SCOPE, SUMMARY)
    yield from (Prose(sentence, Tone.NOTICE, SUMMARY) for sentence in busy_sentences(result))
    if result.problem:
        yield Prose(result.problem, Tone.NOTICE, SUMMARY)
    if result.lines:
        to_paste = not any("..." in line for line in result.lines)  # stands for the arguments of the script
        yield Prose("To paste:" if to_paste else "To change in the script:", Tone.NAME, SUMMARY)
        yield Code("\n".join(result.lines), SUMMARY)
    if result.trace_report:
        yield Prose(("The same run's trace report: ", Span(result.trace_report, href="report.html"), "."), Tone.QUIET)


def _sections(result: ExperimentResult, anchor: str = "") -> Iterator[Section]:
    if ledger := _ledger(result):
        yield Section(
            "Predicted and measured", (Prose(f"{ledger.caption}.", Tone.QUIET, SUMMARY), ledger), f"{anchor}ledger"
        )
    if result.code:
        yield Section("Patch", (Items(tuple(code_sentences(result)), SUMMARY),), f"{anchor}patch")
    for place, section in enumerate(result.sections, 1):
        part = f"{anchor}part-{place}"
        yield Section(title(section.name), tuple(_section(section, part, result)), part)


def _section(section: MeasuredSection, anchor: str, result: ExperimentResult) -> Iterator[Block]:
    if section.base:
        yield Prose(f"All rows with {settings_words(section.base)}.", Tone.QUIET, SUMMARY)
    if section.axis:
        yield from (Prose(sentence, detail=SUMMARY) for sentence in axis_sentences(section.axis, result.cores))
    chart = rates_chart(section, anchor)
    if chart:
        yield chart
    yield _table(section, result.currency, in_bars=chart is not None)


def _about(result: ExperimentResult) -> Section:
    """How to read the tables, and what was not measured."""
    reasons = (result.unavailable | result.not_applicable).items()
    missing = (*result.left_out, *(f"{name}: {reason}." for name, reason in reasons))
    notes = (*other_step(result), *result.notes)
    groups = (("Notes", notes), ("Not measured", missing), ("Side effects", tuple(side_effects(result))))
    lists = (Group(name, (Items(items, SUMMARY),), detail=SUMMARY) for name, items in groups if items)
    return Section("About this measurement", (Items(_READING, Detail.COMMENT), *lists), "method")


_READING = (
    "Change: samples per second compared with the script as it is, or steps where these are unknown; 99% interval.",
    "As it is, again: the script against itself, in its lowest and highest round. No change within it counts.",
    "Visible from: the smallest change that these rounds could have shown.",
    "Verdicts come from a randomisation test at 1%: blocks of all settings alternate in random order in one process.",
    "Not shown: measure longer (`--minutes`), or on an idle machine.",
)


NOISE = frozenset({"As it is, again", "Visible from"})
IN_BARS = NOISE | {"Verdict", "Samples per s", "Change"}


def _table(section: MeasuredSection, currency: str | None, *, in_bars: bool) -> Table:
    """The figures of each setting; a terminal leaves out those that its bars show (``in_bars``)."""
    columns = (
        "Setting",
        "Verdict",
        "Samples per s",
        "Step",
        "Change",
        "As it is, again",
        "Visible from",
        "Peak memory",
        "GPU busy",
        "Power",
        "Cost per million",
    )
    base = (
        Cell(base_words(section)),
        Cell("the base"),
        *_figures(section.base_samples_per_s, section.base_step_ns),
        *cells("", "", ""),
        *_device(section.base_peak_bytes, section.base_gpu_busy_share, section.base_gpu_power_watts),
        _cost(section.base_cost_per_million_samples, currency),
    )
    table = Table(
        caption=title(section.name),
        columns=tuple(
            Column(
                name,
                numeric=name not in {"Setting", "Verdict"},
                detail=Detail.COMMENT if name in (IN_BARS if in_bars else NOISE) else SUMMARY,
            )
            for name in columns
        ),
        rows=(base, *(_row(arm, section, currency) for arm in section.arms)),
        layout=Layout.ARMS,
        detail=SUMMARY,
    )
    return measured_columns(table)


def _row(arm: MeasuredArm, section: MeasuredSection, currency: str | None) -> tuple[Cell, ...]:
    found = arm.measured if arm.measured and arm.measured.rounds > 1 else None
    figures = (rate_of(arm, section.base_samples_per_s), arm.step_ns) if found else (None, None)
    ratio = cells("", "", "")
    if found:
        ratio = (Cell(change(found.ratio), remark=interval(found)), *cells(band(found), _visible(found)))
    return (
        Cell(arm_words(arm, section), code=True),
        Cell(verdict(arm)),
        *_figures(*figures),
        *ratio,
        *_device(arm.peak_bytes, arm.gpu_busy_share, arm.gpu_power_watts),
        _cost(arm.cost_per_million_samples, currency),
    )


def _visible(found: MeasuredRatio) -> str:
    return "" if found.rounds < FEWEST_ROUNDS else percent(found.smallest_visible)


def _figures(samples_per_s: float | None, step_ns: float | None) -> Iterator[Cell]:
    yield Cell(NOT_MEASURED if samples_per_s is None else rate_words(samples_per_s))
    yield Cell(duration(step_ns))


def _device(peak_bytes: int | None, busy_share: float | None, power_watts: float | None) -> Iterator[Cell]:
    yield from cells(size(peak_bytes), percent(busy_share), watts(power_watts))


def _cost(cost: float | None, currency: str | None) -> Cell:
    return Cell(NOT_MEASURED if cost is None or currency is None else money(cost, currency))


def _ledger(result: ExperimentResult) -> Table | None:
    if not result.ledger:
        return None
    rows = []
    for row in result.ledger:
        found = row.measured
        low, high = row.predicted_low, row.predicted_high
        is_range = low is not None and high is not None and row.predicted is not None
        predicted = spread(whole_percent(low), whole_percent(high)) if is_range else None
        measured = whole_percent(found.ratio) if found else "not measured"
        ends = spread(whole_percent(found.low), whole_percent(found.high)) if found and interval(found) else None
        rows.append(
            (
                Cell(row.fix, remark=row.title),
                Cell(settings_words(row.settings), code=True),
                Cell(ledger_predicted(row.predicted_low, row.predicted), remark=predicted),
                Cell(measured, remark=ends),
                Cell(row.problem or (counted_verdict(found) if found else "")),
            )
        )
    return Table(
        caption="Step time with each fix, as a share of the step as it is",
        columns=titled("Fix", "Setting", "Predicted step", "Measured step", "Verdict", words=("Setting", "Verdict")),
        rows=tuple(rows),
        layout=Layout.STACKED,
        detail=SUMMARY,
    )
