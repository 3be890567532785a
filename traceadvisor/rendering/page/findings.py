"""Findings as the templates read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from traceadvisor.model.findings import Confidence, Estimate, Finding, Location, Method, Severity
from traceadvisor.model.report import RankedFinding, Recording, Report
from traceadvisor.rendering.charts.drawing import across
from traceadvisor.rendering.headline import step_time
from traceadvisor.rendering.table import Cell, Column, Table
from traceadvisor.rendering.units import duration, evidence_value, money, percent
from traceadvisor.rendering.words import CONFIDENCE, EFFORT, METHOD, SEVERITY


@dataclass(frozen=True, slots=True)
class Row:
    """A figure with its label."""

    label: str
    value: str


@dataclass(frozen=True, slots=True)
class Place:
    """A source line."""

    where: str
    function: str | None


@dataclass(frozen=True, slots=True)
class SavingView:
    """What the fix would gain, in words that promise no more than is known."""

    headline: str
    """``about 51.0 ms per step``, or ``between 0 ns and 51.0 ms per step``."""

    share: str
    """The same as a share of the step."""

    range: str | None
    """The low and high figure where the headline has only the expected one, and they differ."""

    predicted: str | None
    """The step with the fix: ``about 121.8 ms, between 118.2 ms and 130.0 ms, instead of 177.4 ms``; None where the fix
    was not replayed."""

    method: str | None
    """How it was found; None where there is none to find."""

    span_start: str | None
    """Low end of the range drawn in the step's length, ``12.5%``; None where the step's length is not known."""

    span_length: str | None
    expected_length: str | None


@dataclass(frozen=True, slots=True)
class FindingView:
    """A card in the ranked list."""

    rank: int
    anchor: str
    title: str
    rule_id: str
    recordings: tuple[str, ...]
    severity: Severity
    severity_words: str
    saving: SavingView
    confidence: str
    unsure: bool
    effort: str
    evidence: tuple[Row, ...]
    places: tuple[Place, ...]
    fix: str
    change: str | None
    caveats: tuple[str, ...]
    also: tuple[str, ...]
    provider: str | None
    """The distribution that brings the rule, where it is not this one."""

    worth: str | None
    """The saving in money, where a price is set."""


def finding_views(report: Report) -> tuple[FindingView, ...]:
    """The findings in the report's own order."""
    recordings = {recording.id: recording for recording in report.recordings}
    return tuple(
        _view(rank, ranked, recordings, report.settings.providers.get(ranked.finding.rule.id))
        for rank, ranked in enumerate(report.findings, start=1)
    )


def location_words(location: Location) -> str:
    """``train.py:41``, or which function where the line of the call is not known."""
    if location.is_call or location.function is None:
        return f"{location.file}:{location.line}"
    return f"{location.file}:{location.line} ({location.function})"


def _place(location: Location) -> Place:
    return Place(location_words(location), location.function if location.is_call else None)


def saving_words(saving: Estimate) -> str:
    """The saving per step, as surely as it is known."""
    if not saving.high_ns:
        return "memory or trouble"
    match saving.method:
        case Method.BOUND:
            return f"{_between(saving)} per step"
        case Method.REPLAY | Method.MODEL:
            return f"about {duration(saving.expected_ns)} per step"
        case _:
            assert_never(saving.method)


def share_words(saving: Estimate, expected_share: float) -> str:
    """The saving as a share of the step, as surely as it is known."""
    if not saving.high_ns:
        return "no time"
    match saving.method:
        case Method.BOUND:
            of_expected = saving.high_ns / saving.expected_ns if saving.expected_ns else 1.0
            return f"at most {percent(min(1.0, expected_share * of_expected))} of the step"
        case Method.REPLAY | Method.MODEL:
            return f"{percent(expected_share)} of the step"
        case _:
            assert_never(saving.method)


def worth_words(ranked: RankedFinding) -> str | None:
    """The saving in money, as surely as it is known: of a million samples, else of an hour."""
    worth = ranked.worth
    if worth is None or not ranked.finding.saving.high_ns:
        return None
    amounts = worth.per_hour if worth.per_million_samples is None else worth.per_million_samples
    of_what = "hour of training" if worth.per_million_samples is None else "million samples"
    match ranked.finding.saving.method:
        case Method.BOUND:
            return f"at most {money(amounts.high, worth.currency)} per {of_what}"
        case Method.REPLAY | Method.MODEL:
            return f"about {money(amounts.expected, worth.currency)} per {of_what}"
        case _:
            assert_never(ranked.finding.saving.method)


def _view(rank: int, ranked: RankedFinding, recordings: dict[str, Recording], provider: str | None) -> FindingView:
    finding = ranked.finding
    return FindingView(
        rank=rank,
        anchor=f"finding-{rank}",
        title=finding.rule.title,
        rule_id=finding.rule.id,
        recordings=ranked.recording_ids,
        severity=ranked.severity,
        severity_words=SEVERITY[ranked.severity],
        saving=_saving(ranked, [recordings[id_] for id_ in ranked.recording_ids if id_ in recordings]),
        confidence=CONFIDENCE[finding.confidence],
        unsure=finding.confidence is Confidence.LOW,
        effort=EFFORT[finding.effort],
        evidence=tuple(Row(evidence.label, evidence_value(evidence)) for evidence in finding.evidence),
        places=tuple(_place(location) for location in finding.locations),
        fix=finding.fix.summary,
        change=finding.fix.change,
        caveats=finding.caveats,
        also=ranked.also,
        provider=provider,
        worth=worth_words(ranked),
    )


def _saving(ranked: RankedFinding, recordings: Sequence[Recording]) -> SavingView:
    saving, step_ns = ranked.finding.saving, ranked.step_ns
    bound = saving.method is Method.BOUND
    drawn = step_ns is not None and step_ns > 0 and saving.high_ns > 0
    scale = step_ns if step_ns else 1.0
    return SavingView(
        headline=saving_words(saving),
        share=share_words(saving, ranked.saving_share),
        range=None if bound or duration(saving.low_ns) == duration(saving.high_ns) else _between(saving),
        predicted=_predicted(ranked, recordings),
        method=_method(saving) if saving.high_ns else None,
        span_start=across(min(1.0, saving.low_ns / scale)) if drawn else None,
        span_length=across(min(1.0, (saving.high_ns - saving.low_ns) / scale)) if drawn else None,
        expected_length=across(min(1.0, saving.expected_ns / scale)) if drawn and not bound else None,
    )


def _method(saving: Estimate) -> str:
    if saving.reason is None:
        return METHOD[saving.method]
    return f"{METHOD[saving.method]} {saving.reason[:1].upper()}{saving.reason[1:]}."


def _between(saving: Estimate) -> str:
    if saving.low_ns == saving.high_ns:
        return duration(saving.expected_ns)
    low = "nothing" if saving.low_ns == 0 else duration(saving.low_ns)
    return f"between {low} and {duration(saving.high_ns)}"


def _predicted(ranked: RankedFinding, recordings: Sequence[Recording]) -> str | None:
    step = ranked.predicted_step
    if step is None or ranked.step_ns is None:
        return None
    low, high = duration(step.low_ns), duration(step.high_ns)
    between = "" if low == high else f", between {low} and {high}"
    return f"about {duration(step.expected_ns)}{between}, instead of {_step_words(ranked.step_ns, recordings)}"


def _step_words(step_ns: float, recordings: Sequence[Recording]) -> str:
    """The step that a saving is of, and which that is where it is not the one that heads the recording."""
    step = duration(step_ns)
    is_headed = any(duration(step_time(recording).ns) == step for recording in recordings)
    return step if is_headed else f"{step} (the median without the first and the last step)"


@dataclass(frozen=True, slots=True)
class UmbrellaView:
    """One verdict with its figures."""

    summary: str
    table: Table


def umbrella_views(recording: Recording) -> tuple[UmbrellaView, ...]:
    """The verdicts on one recording."""
    return tuple(_umbrella_view(finding) for finding in recording.umbrellas)


def umbrella_table(report: Report) -> Table:
    """The verdicts on all recordings."""
    columns = (
        Column("Recording", numeric=False),
        Column("What", numeric=False),
        Column("Measured", numeric=False),
        Column("Figure"),
    )
    rows = tuple(
        (Cell(recording.id), Cell(finding.rule.title), Cell(row.label), Cell(evidence_value(row)))
        for recording in report.recordings
        for finding in recording.umbrellas
        for row in finding.evidence
    )
    return Table("The step as a whole", columns, rows)


def _umbrella_view(finding: Finding) -> UmbrellaView:
    columns = (Column("Measured", numeric=False), Column("Figure"))
    rows = tuple((Cell(row.label), Cell(evidence_value(row))) for row in finding.evidence)
    return UmbrellaView(f"{finding.fix.summary}.", Table(finding.rule.title, columns, rows))
