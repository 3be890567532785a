"""Makes answers of reports, comparisons, experiments and changes that are simulated."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import isfinite
from pathlib import Path

from traceadvisor.config import Settings
from traceadvisor.errors import UsageError
from traceadvisor.experiments.next_experiment import ALL_FIXES
from traceadvisor.integrations.agents.answers import (
    ChangedRow,
    CompareAnswer,
    ComparedRow,
    DifferenceRow,
    EndedRun,
    EvidenceRow,
    ExplainAnswer,
    FindingChangeRow,
    FindingDetails,
    FindingRow,
    Interval,
    Measured,
    NextCall,
    Paragraph,
    Place,
    PredictionRow,
    ProgramRow,
    Quoted,
    RecordingRow,
    Remark,
    ReportAnswer,
    SmallFix,
    Tool,
    TriedRow,
    TryAnswer,
    WhatifAnswer,
    Whole,
    quoted,
    quoted_line,
)
from traceadvisor.judging.catalogue import read_catalogue, rule_text
from traceadvisor.model.comparison import ComparedRun, Comparison, PredictionCheck
from traceadvisor.model.experiment import ExperimentResult, LedgerRow, MeasuredRatio
from traceadvisor.model.findings import Estimate
from traceadvisor.model.report import RankedFinding, Recording, Report
from traceadvisor.model.verdict import Verdict
from traceadvisor.model.whatif import Answer, Program, Range, Row
from traceadvisor.results.redaction import cleaned, redacted
from traceadvisor.rules.base import Rule

MOST_PLACES = 3
LONGEST_CODE = 1_500
"""Characters of a change or of lines."""

UNKNOWN = "unknown"
"""In place of a rule that this program does not have: its id may say anything."""

ALL = "all"
VERDICTS = frozenset(one.value for one in Verdict)


def report_answer(report: Report, paths: tuple[str, ...], most: int, page: str | None = None) -> ReportAnswer:
    """The answer on a report of some paths."""
    report = redacted(report)
    rows = report.findings[:most]
    return ReportAnswer(
        recordings=tuple(map(_recording, report.recordings[:most])),
        findings=tuple(map(_finding, rows)),
        findings_left_out=len(report.findings) - len(rows),
        not_worth_doing=tuple(
            SmallFix(quoted_line(one.what), _finite(one.saving_share)) for one in report.not_worth_doing[:most]
        ),
        remarks=tuple(Remark(quoted_line(one.note.message), one.note.degrades) for one in report.health_notes[:most]),
        page=page,
        next_calls=_next_calls(rows, paths),
    )


def _next_calls(rows: tuple[RankedFinding, ...], paths: tuple[str, ...]) -> tuple[NextCall, ...]:
    if not rows or len(paths) != 1:
        return ()
    (run,) = paths
    explain = NextCall(Tool.EXPLAIN, {"rule": _id(rows[0].finding.rule.id), "run": run})
    measure = NextCall(Tool.TRY, {"run": run}, ("script",))
    compare = NextCall(Tool.COMPARE, {"base": run}, ("head",))
    return (explain, *([measure] if any(row.has_settings for row in rows) else []), compare)


def _recording(one: Recording) -> RecordingRow:
    breakdown = one.breakdown
    shares = {category: breakdown.share(category) for category in breakdown.parts_ns} if breakdown else {}
    return RecordingRow(
        quoted_line(one.id),
        _ms(one.step_now_ns),
        _finite(one.samples_per_s),
        {category.value: round(share, 4) for category, share in shares.items() if share},
    )


def _finding(row: RankedFinding) -> FindingRow:
    finding, saving = row.finding, row.finding.saving
    rule = _id(finding.rule.id)
    return FindingRow(
        rule,
        _title(rule),
        row.severity.value,
        finding.confidence.value,
        finding.effort.value,
        Whole.RUN if finding.of_run else Whole.RECORDING if row.of_window else Whole.STEP,
        _interval(saving, 1e6) if saving.high_ns else None,
        _interval(saving, row.step_ns) if saving.high_ns and row.step_ns else None,
        saving.certainty.value,
        quoted_line(finding.fix.summary),
        quoted(finding.fix.change, LONGEST_CODE) if finding.fix.change else None,
        _places(row),
        row.has_settings,
        _measured(row.measured.measured) if row.measured else None,
        tuple(map(_id, _rules_to_try(row))),
    )


def _rules_to_try(row: RankedFinding) -> list[str]:
    own = [row.finding.rule.id] if row.finding.fix.settings else []
    return [*own, *(one.rule.id for one in row.folded if one.fix.settings)]


def _places(row: RankedFinding) -> tuple[Place, ...]:
    edit = row.finding.fix.edit
    return tuple(
        Place(
            quoted_line(one.file),
            one.line,
            quoted_line(one.function) if one.function else None,
            is_to_edit=edit is not None and one == edit.place,
        )
        for one in row.finding.places[:MOST_PLACES]
    )


def _interval(saving: Estimate, of: float) -> Interval:
    expected = None if saving.is_limit else _rounded(saving.expected_ns / of)
    low = 0.0 if saving.is_limit else saving.low_ns / of
    return Interval(_rounded(low), expected, _rounded(saving.high_ns / of))


def explain_answer(rule: str, report: Report | None, most: int) -> ExplainAnswer:
    """The answer on a rule, and on its finding in a report.

    Raises:
        UsageError: there is no such rule, or the report has no finding of it.
    """
    known = next((one for one in _rules().values() if rule.lower() in {one.meta.id.lower(), one.meta.name}), None)
    if known is None:
        raise UsageError(f"There is no rule {rule!r}. The answer of the tool report has the ids of rules.")
    text = rule_text(known)
    found = None
    if report:
        rows = [row for row in redacted(report).findings if row.finding.rule.id == text.id]
        if not rows:
            raise UsageError(f"The report has no finding of {text.id}.")
        found = _details(rows[0], most)
    paragraphs = (Paragraph("Summary", text.summary), *(Paragraph(one.title, one.text) for one in text.sections))
    return ExplainAnswer(rule=text.id, title=text.title, documentation=paragraphs, found=found)


def _details(row: RankedFinding, most: int) -> FindingDetails:
    finding, edit = row.finding, row.finding.fix.edit
    return FindingDetails(
        finding=_finding(row),
        evidence=tuple(
            EvidenceRow(quoted_line(one.label), _value(one.value), one.unit.value) for one in finding.evidence[:most]
        ),
        caveats=tuple(map(quoted_line, finding.caveats[:most])),
        lines_before=quoted(edit.before, LONGEST_CODE) if edit and edit.before else None,
        lines_after=quoted(edit.after, LONGEST_CODE) if edit and edit.after else None,
    )


def _value(value: float | str) -> float | Quoted:
    return quoted_line(value) if isinstance(value, str) or not isfinite(value) else value


def compare_answer(comparison: Comparison, most: int) -> CompareAnswer:
    """The answer on a comparison."""
    runs = comparison.runs[:most]
    return CompareAnswer(
        verdict=comparison.verdict.value,
        certainty=comparison.certainty.value,
        runs=tuple(_compared(run, most) for run in runs),
        runs_left_out=len(comparison.runs) - len(runs),
        remarks=tuple(
            map(quoted_line, (*comparison.notes, *(one.reason for one in comparison.unpaired))[:most]),
        ),
    )


def _compared(run: ComparedRun, most: int) -> ComparedRow:
    change = run.change
    return ComparedRow(
        name=quoted_line(run.name),
        verdict=change.verdict.value if change else None,
        certainty=change.certainty.value if change else None,
        base_step_ms=_ms(change.base_ns) if change else None,
        head_step_ms=_ms(change.head_ns) if change else None,
        ratio=Interval(_rounded(change.ratio_low), _rounded(change.ratio), _rounded(change.ratio_high))
        if change and change.ratio_low is not None and change.ratio_high is not None
        else None,
        captures_needed=change.captures_needed if change else None,
        smallest_visible_share=_finite(change.smallest_visible_share) if change else None,
        predictions=tuple(map(_prediction, run.predictions[:most])),
        findings=tuple(
            FindingChangeRow(rule := _id(one.rule.id), _title(rule), one.status.value) for one in run.findings[:most]
        ),
        differences=tuple(
            DifferenceRow(one.kind.value, *map(quoted_line, (one.name, one.base, one.head)))
            for one in run.differences[:most]
        ),
        cautions=tuple(map(quoted_line, run.cautions[:most])),
    )


def _prediction(one: PredictionCheck) -> PredictionRow:
    predicted = one.predicted
    expected = None if one.is_limit else _rounded(predicted.expected_ns / 1e6)
    return PredictionRow(
        tuple(_id(rule.id) for rule in one.rules),
        Interval(_rounded(predicted.low_ns / 1e6), expected, _rounded(predicted.high_ns / 1e6)),
        _rounded(one.measured_step_ns / 1e6),
        one.agreement.value,
    )


def try_answer(result: ExperimentResult | None, folder: Path, ended: EndedRun, most: int) -> TryAnswer:
    """The answer on what ``try`` measured; without a result, how the run ended."""
    if result is None:
        return TryAnswer(run=str(folder), ended=ended, fixes=(), recommended=None, lines=(), is_busy_machine=None)
    result = cleaned(result)
    known = result.others_cpu_share is not None
    problems = (*([result.problem] if result.problem else []), *result.not_applicable.values(), *result.notes)
    return TryAnswer(
        run=str(folder),
        ended=ended,
        fixes=tuple(map(_tried, result.ledger[:most])),
        recommended=_settings(result.recommended) if result.recommended else None,
        lines=tuple(map(quoted_line, result.lines[:most])),
        is_busy_machine=result.is_busy if known else None,
        problems=tuple(map(quoted_line, problems[:most])),
    )


def _tried(row: LedgerRow) -> TriedRow:
    low, high = row.predicted_low, row.predicted_high
    return TriedRow(
        rule=ALL if row.fix == ALL_FIXES else _id(row.fix),
        settings=_settings(row.settings),
        predicted=None if low is None or high is None else Interval(_rounded(low), row.predicted, _rounded(high)),
        measured=_measured(row.measured) if row.measured else None,
        problem=quoted_line(row.problem) if row.problem else None,
    )


def whatif_answer(answer: Answer, most: int) -> WhatifAnswer:
    """The answer on simulated changes."""
    programs = answer.programs[:most]
    return WhatifAnswer(
        programs=tuple(_program(one, most) for one in programs),
        programs_left_out=len(answer.programs) - len(programs),
        currency=answer.currency,
        remarks=tuple(map(quoted_line, answer.notes[:most])),
    )


def _program(one: Program, most: int) -> ProgramRow:
    return ProgramRow(
        name=quoted_line(one.name),
        gpu=None if one.device is None else quoted_line(one.device),
        batch=one.batch,
        recorded=_changed(one.recorded),
        changes=tuple(map(_changed, one.rows[:most])),
        changes_left_out=max(len(one.rows) - most, 0),
        speed_up_of_a_gpu_twice_as_fast=_range(one.faster_gpu),
    )


def _changed(row: Row) -> ChangedRow:
    change, memory = row.change, row.memory
    return ChangedRow(
        gpu=change.gpu,
        batch=change.batch,
        workers=change.workers,
        cpu_cores=change.cpu_cores,
        gpus=change.ranks,
        unknown_because=row.unknown.value if row.unknown else None,
        step_ms=_range(row.step_ns, 1e6),
        samples_per_s=_range(row.samples_per_s),
        gpu_busy_share=_range(row.gpu_busy),
        limit=row.limit.value if row.limit else None,
        memory_gb=_range(memory.needed_bytes, 1e9) if memory else None,
        fits=memory.fit.value if memory else None,
        largest_batch=memory.largest_batch if memory else None,
        cost_per_million_samples=_range(row.cost_per_million),
        rests_on=tuple(dict.fromkeys(one.basis.value for one in row.grounds)),
    )


def _range(found: Range | None, of: float = 1.0) -> Interval | None:
    if found is None:
        return None
    return Interval(_rounded(found.low / of), _rounded(found.expected / of), _rounded(found.high / of))


def _settings(settings: Mapping[str, object]) -> Quoted:
    return quoted_line(", ".join(f"{name}={value!r}" for name, value in settings.items()))


def _measured(one: MeasuredRatio) -> Measured:
    verdict = one.verdict if one.verdict in VERDICTS else UNKNOWN  # a file beside a recording may say anything
    return Measured(_rounded(one.ratio), _rounded(one.low), _rounded(one.high), one.rounds, verdict)


@cache
def _rules() -> Mapping[str, Rule]:
    return {rule.meta.id: rule for rule in read_catalogue(Settings()).known}


def _id(rule: str) -> str:
    return rule if rule in _rules() else UNKNOWN


def _title(rule: str) -> str:
    return _rules()[rule].meta.title if rule in _rules() else UNKNOWN


def _ms(ns: float | None) -> float | None:
    return None if ns is None else _finite(ns / 1e6)


def _finite(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else _rounded(value)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
