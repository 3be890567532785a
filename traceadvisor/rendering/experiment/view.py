"""All words and tables of an experiment, for every format."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.frozen import frozen
from traceadvisor.model.experiment import ExperimentResult, MeasuredArm, MeasuredRatio, Section
from traceadvisor.rendering.charts.drawing import Chart
from traceadvisor.rendering.experiment.chart import axis_chart
from traceadvisor.rendering.experiment.words import (
    FEWEST_ROUNDS,
    axis_sentences,
    band,
    change,
    counted_verdict,
    headline,
    interval,
    ledger_predicted,
    other_step,
    scope,
    settings_words,
    side_effects,
    title,
    verdict,
)
from traceadvisor.rendering.table import Cell, Column, Table, cells, measured_columns
from traceadvisor.rendering.units import NOT_MEASURED, duration, money, percent, size, whole_percent
from traceadvisor.results.redaction import redacted_experiment


@frozen
class SectionView:
    """One part."""

    anchor: str
    title: str
    base: str | None
    """What differs from the script's own settings in all rows."""

    sentences: tuple[str, ...]
    chart: Chart | None
    table: Table


@frozen
class ExperimentView:
    """All content."""

    anchor: str
    """Beginning of the anchors of its parts; empty on a page of its own."""

    kind: str
    """``sweep`` or ``try``."""

    title: str
    headline: str
    scope: str
    problem: str | None
    lines: tuple[str, ...]
    ledger: Table | None
    sections: tuple[SectionView, ...]
    unavailable: tuple[str, ...]
    notes: tuple[str, ...]
    side_effects: tuple[str, ...]
    reading: tuple[str, ...]
    """How to read the tables."""

    trace_report: str | None
    tool_version: str


def experiment_view(result: ExperimentResult, anchor: str = "") -> ExperimentView:
    """The words of a result, without secrets.

    Args:
        result: what was measured.
        anchor: beginning of the anchors of its parts, where it is one of several on a page.
    """
    result = redacted_experiment(result)
    return ExperimentView(
        anchor=anchor,
        kind=result.kind,
        title=" ".join(result.command),
        headline=headline(result),
        scope=scope(result),
        problem=result.problem,
        lines=result.lines,
        ledger=_ledger(result),
        sections=tuple(
            _section(section, f"{anchor}part-{place}", result.currency)
            for place, section in enumerate(result.sections, 1)
        ),
        unavailable=(
            *result.left_out,
            *(f"{name}: {reason}." for name, reason in (result.unavailable | result.not_applicable).items()),
        ),
        notes=(*other_step(result), *result.notes),
        side_effects=tuple(side_effects(result)),
        reading=_READING,
        trace_report=result.trace_report,
        tool_version=result.tool_version,
    )


_READING = (
    "Change: samples per second compared with the script as it is, with the 99% interval.",
    "A/A: the script as it is against itself. A change inside this band is noise.",
    "Visible from: the smallest change that these rounds could have shown.",
    "Verdicts come from a randomisation test at 1%: blocks of all settings alternate in random order in one process.",
    "Inconclusive: measure longer, or on a machine without other load.",
)


def _section(section: Section, anchor: str, currency: str | None) -> SectionView:
    return SectionView(
        anchor=anchor,
        title=title(section.name),
        base=f"All rows with {settings_words(section.base)}." if section.base else None,
        sentences=tuple(axis_sentences(section.axis)) if section.axis else (),
        chart=axis_chart(section.axis, anchor) if section.axis else None,
        table=_table(section, currency),
    )


def _table(section: Section, currency: str | None) -> Table:
    columns = (
        "Samples per s",
        "Step",
        "Change",
        "A/A",
        "Visible from",
        "Peak memory",
        "GPU busy",
        "Power",
        "Cost per million",
    )
    base = (
        Cell("as it is"),
        Cell("the base"),
        *_figures(section.base_samples_per_s, section.base_step_us),
        *cells("", "", ""),
        *_device(section.base_peak_bytes, section.base_gpu_busy_share, section.base_gpu_power_watts),
        _cost(section.base_cost_per_million_samples, currency),
    )
    table = Table(
        caption=title(section.name),
        columns=(Column("Setting", numeric=False), Column("Verdict", numeric=False), *map(Column, columns)),
        rows=(base, *(_row(arm, currency) for arm in section.arms)),
    )
    return measured_columns(table)


def _row(arm: MeasuredArm, currency: str | None) -> tuple[Cell, ...]:
    found = arm.measured
    ratio = cells("", "", "")
    if found:
        ratio = (Cell(change(found.ratio), remark=interval(found)), *cells(band(found), _visible(found)))
    return (
        Cell(arm.name, code=True),
        Cell(verdict(arm)),
        *_figures(arm.samples_per_s, arm.step_us),
        *ratio,
        *_device(arm.peak_bytes, arm.gpu_busy_share, arm.gpu_power_watts),
        _cost(arm.cost_per_million_samples, currency),
    )


def _visible(found: MeasuredRatio) -> str:
    return "" if found.rounds < FEWEST_ROUNDS else percent(found.smallest_visible)


def _figures(samples_per_s: float | None, step_us: float | None) -> Iterator[Cell]:
    yield Cell(
        NOT_MEASURED
        if samples_per_s is None
        else f"{samples_per_s:,.4g}"
        if samples_per_s < 10
        else f"{samples_per_s:,.0f}"
    )
    yield Cell(duration(None if step_us is None else step_us * 1000))


def _device(peak_bytes: int | None, busy_share: float | None, watts: float | None) -> Iterator[Cell]:
    yield Cell(NOT_MEASURED if peak_bytes is None else size(peak_bytes))
    yield Cell(NOT_MEASURED if busy_share is None else percent(busy_share))
    yield Cell(NOT_MEASURED if watts is None else f"{watts:,.0f} W")


def _cost(cost: float | None, currency: str | None) -> Cell:
    return Cell(NOT_MEASURED if cost is None or currency is None else money(cost, currency))


def _ledger(result: ExperimentResult) -> Table | None:
    if not result.ledger:
        return None
    rows = []
    for row in result.ledger:
        found = row.measured
        low, high = row.predicted_low, row.predicted_high
        between = "" if low is None or high is None else f"{whole_percent(low)} to {whole_percent(high)}"
        measured = whole_percent(found.ratio) if found else "not measured"
        ends = (
            "" if not found or interval(found) is None else f"{whole_percent(found.low)} to {whole_percent(found.high)}"
        )
        rows.append(
            (
                Cell(row.fix, remark=row.title),
                Cell(settings_words(row.settings), code=True),
                Cell(ledger_predicted(row.predicted_low, row.predicted), remark=between or None),
                Cell(measured, remark=ends or None),
                Cell(row.problem or (counted_verdict(found) if found else "")),
            )
        )
    return Table(
        caption="Predicted and measured step time, as a share of the step as it is",
        columns=(
            Column("Fix", numeric=False),
            Column("Setting", numeric=False),
            Column("Predicted step"),
            Column("Measured step"),
            Column("Verdict", numeric=False),
        ),
        rows=tuple(rows),
    )
