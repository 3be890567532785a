"""The JSON form of a report: the public interface, version 1.

Everything in the model but the timeline, which is a picture.
"""

from __future__ import annotations

from typing import assert_never

import msgspec
import numpy as np

from traceadvisor.model.cost import Amounts, Worth
from traceadvisor.model.findings import Clear, Evidence, Failed, Found, Skipped, Unit
from traceadvisor.model.report import OutcomeRow, PredictedStep, RankedFinding, Report, UsedSettings
from traceadvisor.model.spans import SpanSet
from traceadvisor.results.recording_json import in_us, in_us_or_null, recording_document
from traceadvisor.results.redaction import redacted, shortened
from traceadvisor.results.report_document import (
    AmountsDocument,
    DocumentUnit,
    EvidenceDocument,
    FindingDocument,
    FixDocument,
    HealthDocument,
    LocationDocument,
    NoteDocument,
    NotWorthDoingDocument,
    OutcomeDocument,
    OutcomeStatus,
    PredictedStepDocument,
    ReportDocument,
    SavingDocument,
    SourceDocument,
    ThresholdDocument,
    TimeRangeDocument,
    UsedSettingsDocument,
    WorthDocument,
)

LONGEST_TEXT = 10_000
"""Characters of one text: no real kernel name is longer, and a hostile one must not make the document."""

LONGEST_RANGES = 20
"""Time ranges shown of one finding: enough to find it in the trace, few enough to keep the document small."""


def render(report: Report) -> bytes:
    """The report as UTF-8 JSON, cleaned of control characters and secrets; a number that JSON lacks becomes null."""
    fit = shortened(redacted(report), LONGEST_TEXT)
    encoded = msgspec.json.encode(_document(fit), enc_hook=_plain_number)
    return msgspec.json.format(encoded, indent=2) + b"\n"


def _plain_number(value: object) -> object:
    """A numpy number is a number to the type checker, but not to the encoder."""
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(type(value).__name__)


def _document(report: Report) -> ReportDocument:
    health = report.health
    return ReportDocument(
        schema="traceadvisor.report/1",
        tool_version=report.tool_version,
        source=SourceDocument(paths=[str(path) for path in report.source.paths], kind=report.source.kind),
        health=HealthDocument(
            status=health.status,
            events_read=health.events_read,
            events_dropped=health.events_dropped,
            events_repaired=health.events_repaired,
            notes=[
                NoteDocument(
                    code=row.note.code,
                    message=row.note.message,
                    recording=row.recording_id,
                    degrades=row.note.degrades,
                )
                for row in report.health_notes
            ],
        ),
        recordings=[recording_document(recording) for recording in report.recordings],
        findings=[_finding(ranked) for ranked in report.findings],
        not_worth_doing=[
            NotWorthDoingDocument(
                what=row.what, saving_share=row.saving_share, reason=row.reason, recordings=list(row.recording_ids)
            )
            for row in report.not_worth_doing
        ],
        outcomes=[_outcome(row) for row in report.outcomes],
        settings=_settings(report.settings),
    )


def _settings(settings: UsedSettings) -> UsedSettingsDocument:
    price = settings.price
    return UsedSettingsDocument(
        file=None if settings.file is None else str(settings.file),
        select=list(settings.select),
        ignore=list(settings.ignore),
        thresholds={rule: dict(values) for rule, values in settings.thresholds.items()},
        plugins=dict(settings.providers),
        gpu_price_per_hour=price.per_gpu_hour if price else None,
        currency=price.currency if price else None,
    )


def _finding(ranked: RankedFinding) -> FindingDocument:
    finding = ranked.finding
    saving = finding.saving
    return FindingDocument(
        rule_id=finding.rule.id,
        rule=finding.rule.name,
        title=finding.rule.title,
        recordings=list(ranked.recording_ids),
        severity=ranked.severity,
        confidence=finding.confidence,
        effort=finding.effort,
        saving_us_per_step=SavingDocument(
            low=in_us(saving.low_ns),
            expected=in_us(saving.expected_ns),
            high=in_us(saving.high_ns),
            method=saving.method,
            reason=saving.reason,
        ),
        saving_share=ranked.saving_share,
        step_us=in_us_or_null(ranked.step_ns),
        predicted_step_us=_predicted_step(ranked.predicted_step),
        evidence=[_evidence(row) for row in finding.evidence],
        locations=[
            LocationDocument(file=place.file, line=place.line, function=place.function, is_call=place.is_call)
            for place in finding.locations
        ],
        time_ranges_us=_time_ranges(ranked.recording_ids[0], finding.claims),
        fix=FixDocument(summary=finding.fix.summary, change=finding.fix.change),
        caveats=list(finding.caveats),
        also=list(ranked.also),
        worth=_worth(ranked.worth),
    )


def _predicted_step(step: PredictedStep | None) -> PredictedStepDocument | None:
    if step is None:
        return None
    return PredictedStepDocument(low=in_us(step.low_ns), expected=in_us(step.expected_ns), high=in_us(step.high_ns))


def _worth(worth: Worth | None) -> WorthDocument | None:
    if worth is None:
        return None
    samples = worth.per_million_samples
    return WorthDocument(
        currency=worth.currency,
        per_hour=_amounts(worth.per_hour),
        per_million_samples=None if samples is None else _amounts(samples),
    )


def _amounts(amounts: Amounts) -> AmountsDocument:
    return AmountsDocument(low=amounts.low, expected=amounts.expected, high=amounts.high)


def _time_ranges(recording_id: str, claims: SpanSet) -> list[TimeRangeDocument]:
    longest = np.sort(np.argsort(claims.starts_ns - claims.ends_ns, kind="stable")[:LONGEST_RANGES])
    return [
        TimeRangeDocument(recording=recording_id, start=in_us(start_ns), end=in_us(end_ns))
        for start_ns, end_ns in zip(claims.starts_ns[longest].tolist(), claims.ends_ns[longest].tolist(), strict=True)
    ]


def _outcome(row: OutcomeRow) -> OutcomeDocument:
    reason: str | None = None
    evidence: tuple[Evidence, ...] = ()
    threshold: ThresholdDocument | None = None
    match row.outcome:
        case Found(finding):
            status = OutcomeStatus.FOUND
            evidence = finding.evidence
        case Clear(label, value, limit, unit, remark):
            status = OutcomeStatus.CLEAR
            reason = remark
            evidence = (Evidence(label, value, unit),)
            threshold = ThresholdDocument(value=_number(limit, unit), unit=_UNITS[unit])
        case Skipped(missing):
            status = OutcomeStatus.SKIPPED
            reason = missing
        case Failed(error):
            status = OutcomeStatus.FAILED
            reason = error
        case _:
            assert_never(row.outcome)
    return OutcomeDocument(
        rule_id=row.rule.id,
        recordings=list(row.recording_ids),
        status=status,
        reason=reason,
        evidence=[_evidence(figure) for figure in evidence],
        threshold=threshold,
    )


def _evidence(evidence: Evidence) -> EvidenceDocument:
    value = evidence.value
    return EvidenceDocument(
        label=evidence.label,
        value=value if isinstance(value, str) else _number(value, evidence.unit),
        unit=_UNITS[evidence.unit],
    )


def _number(value: float, unit: Unit) -> float:
    return in_us(value) if unit in (Unit.NS, Unit.NS_PER_STEP) else value


_UNITS = {
    Unit.SHARE: DocumentUnit.SHARE,
    Unit.NS: DocumentUnit.US,
    Unit.NS_PER_STEP: DocumentUnit.US_PER_STEP,
    Unit.PER_STEP: DocumentUnit.PER_STEP,
    Unit.COUNT: DocumentUnit.COUNT,
    Unit.BYTES: DocumentUnit.BYTES,
    Unit.BYTES_PER_STEP: DocumentUnit.BYTES_PER_STEP,
    Unit.BYTES_PER_S: DocumentUnit.BYTES_PER_S,
    Unit.FLOPS_PER_S: DocumentUnit.FLOPS_PER_S,
    Unit.RATIO: DocumentUnit.RATIO,
    Unit.CELSIUS: DocumentUnit.CELSIUS,
    Unit.WATTS: DocumentUnit.WATTS,
    Unit.TEXT: DocumentUnit.TEXT,
}
