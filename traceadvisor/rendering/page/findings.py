"""Findings as the templates show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from traceadvisor.model.findings import Confidence, Estimate, Location, Method, Severity
from traceadvisor.model.report import RankedFinding, Recording, Report, Umbrella
from traceadvisor.rendering.charts.drawing import across
from traceadvisor.rendering.headline import step_time
from traceadvisor.rendering.table import Cell, Column, Table
from traceadvisor.rendering.units import duration, evidence_value, money, percent
from traceadvisor.rendering.words import CONFIDENCE, EFFORT, METHOD, SEVERITY


@dataclass(frozen=True, slots=True)
class Row:
    """A labelled figure."""

    label: str
    value: str


@dataclass(frozen=True, slots=True)
class Place:
    """A source line."""

    where: str
    function: str | None


@dataclass(frozen=True, slots=True)
class SavingView:
    """The saving of a fix, in words as certain as its estimate."""

    headline: str
    """``about 51.0 ms per step``, ``up to 51.0 ms per step`` or, without a saving, ``prevents errors``."""

    share: str
    """``28.7% of the step``, ``up to 28.7% of the step`` or ``no speed-up``."""

    sentence: str
    """``Saves about 51.0 ms per step (28.7%)`` or ``Prevents errors; no speed-up``."""

    range: str | None
    """``45.0 ms to 55.0 ms`` if the headline shows only the expected figure and the estimate is a range."""

    predicted: str | None
    """The step with the fix: ``121.8 ms (118.2 ms to 130.0 ms), now 177.4 ms``; None if the fix was not simulated."""

    method: str | None
    """The method of the estimate, with the reason for it; None without a saving."""

    span_start: str | None
    """Low end of the range as a share of the step, ``12.5%``; None if the step time is unknown."""

    span_length: str | None
    expected_length: str | None


@dataclass(frozen=True, slots=True)
class FindingView:
    """One finding in the ranked list."""

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
    """The plugin distribution that provides the rule; None for built-in rules."""

    worth: str | None
    """The saving in money; None without a price."""


def finding_views(report: Report) -> tuple[FindingView, ...]:
    """The findings, ranked as in the report."""
    recordings = {recording.id: recording for recording in report.recordings}
    return tuple(
        _view(rank, ranked, recordings, report.settings.providers.get(ranked.finding.rule.id))
        for rank, ranked in enumerate(report.findings, start=1)
    )


def location_words(location: Location) -> str:
    """``train.py:41``, or ``train.py:41 (train)`` if only the function is known."""
    if location.is_call or location.function is None:
        return f"{location.file}:{location.line}"
    return f"{location.file}:{location.line} ({location.function})"


def _place(location: Location) -> Place:
    return Place(location_words(location), location.function if location.is_call else None)


def saving_words(saving: Estimate) -> str:
    """The saving per step: ``about`` an estimate, ``up to`` an upper limit, or ``prevents errors``."""
    if not saving.high_ns:
        return "prevents errors"
    match saving.method:
        case Method.BOUND:
            return f"{_range(saving)} per step"
        case Method.REPLAY | Method.MODEL:
            return f"about {duration(saving.expected_ns)} per step"
        case _:
            assert_never(saving.method)


def share_words(saving: Estimate, expected_share: float) -> str:
    """The saving as a share of the step: the expected share, or the highest share of an upper limit."""
    if not saving.high_ns:
        return "no speed-up"
    match saving.method:
        case Method.BOUND:
            return f"up to {_share(saving, expected_share)} of the step"
        case Method.REPLAY | Method.MODEL:
            return f"{_share(saving, expected_share)} of the step"
        case _:
            assert_never(saving.method)


def saving_sentence(saving: Estimate, expected_share: float) -> str:
    """The saving as a sentence without a full stop."""
    if not saving.high_ns:
        return "Prevents errors; no speed-up"
    return f"Saves {saving_words(saving)} ({_share(saving, expected_share)})"


def _share(saving: Estimate, expected_share: float) -> str:
    """The expected share of the step; for an upper limit, the highest."""
    if saving.method is not Method.BOUND:
        return percent(expected_share)
    high_over_expected = saving.high_ns / saving.expected_ns if saving.expected_ns else 1.0
    return percent(min(1.0, expected_share * high_over_expected))


def worth_words(ranked: RankedFinding) -> str | None:
    """The saving in money, per million samples or per hour of training; None without a price or a saving."""
    worth = ranked.worth
    if worth is None or not ranked.finding.saving.high_ns:
        return None
    amounts = worth.per_hour if worth.per_million_samples is None else worth.per_million_samples
    of_what = "hour of training" if worth.per_million_samples is None else "million samples"
    match ranked.finding.saving.method:
        case Method.BOUND:
            return f"up to {money(amounts.high, worth.currency)} per {of_what}"
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
        sentence=saving_sentence(saving, ranked.saving_share),
        range=None if bound or duration(saving.low_ns) == duration(saving.high_ns) else _range(saving),
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


def _range(saving: Estimate) -> str:
    if saving.low_ns == saving.high_ns:
        return duration(saving.expected_ns)
    if saving.low_ns == 0:
        return f"up to {duration(saving.high_ns)}"
    return f"{duration(saving.low_ns)} to {duration(saving.high_ns)}"


def _predicted(ranked: RankedFinding, recordings: Sequence[Recording]) -> str | None:
    step = ranked.predicted_step
    if step is None or ranked.step_ns is None:
        return None
    low, high = duration(step.low_ns), duration(step.high_ns)
    range_ = "" if low == high else f" ({low} to {high})"
    return f"{duration(step.expected_ns)}{range_}, now {_step_words(ranked.step_ns, recordings)}"


def _step_words(step_ns: float, recordings: Sequence[Recording]) -> str:
    """The step time that a saving refers to, with a remark if it differs from the recording's headline."""
    step = duration(step_ns)
    is_headed = any(duration(step_time(recording).ns) == step for recording in recordings)
    return step if is_headed else f"{step} (typical recorded step)"


@dataclass(frozen=True, slots=True)
class UmbrellaView:
    """One umbrella finding: a summary of the step as a whole, with its figures."""

    summary: str
    table: Table


def umbrella_views(recording: Recording) -> tuple[UmbrellaView, ...]:
    """The umbrella findings on one recording."""
    return tuple(map(_umbrella_view, recording.umbrellas))


def umbrella_table(report: Report) -> Table:
    """The umbrella findings on all recordings."""
    columns = (
        Column("Recording", numeric=False),
        Column("Summary", numeric=False),
        Column("Measured", numeric=False),
        Column("Figure"),
    )
    rows = tuple(
        (Cell(recording.id), Cell(umbrella.rule.title), Cell(row.label), Cell(evidence_value(row)))
        for recording in report.recordings
        for umbrella in recording.umbrellas
        for row in umbrella.evidence
    )
    return Table("The step as a whole", columns, rows)


def _umbrella_view(umbrella: Umbrella) -> UmbrellaView:
    columns = (Column("Measured", numeric=False), Column("Figure"))
    rows = tuple((Cell(row.label), Cell(evidence_value(row))) for row in umbrella.evidence)
    return UmbrellaView(f"{umbrella.fix.summary}.", Table(umbrella.rule.title, columns, rows))
