"""The figures of a report as pandas tables. Times are nanoseconds, shares 0..1; what was not measured is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, assert_never, get_args

from traceadvisor.errors import UsageError
from traceadvisor.model.findings import Clear, Failed, RuleMeta, Skipped
from traceadvisor.model.report import FoundFigures, RecordedFinding, Recording, Report
from traceadvisor.results.redaction import redacted

if TYPE_CHECKING:
    import pandas as pd

FrameName: TypeAlias = Literal["steps", "recordings", "findings", "categories", "kernels", "operators", "checks"]
"""The tables that a report can be read as."""

_Rows: TypeAlias = Callable[[Report], Iterator[tuple[object, ...]]]


def frame_of(report: Report, table: FrameName = "steps") -> pd.DataFrame:
    """One of the report's tables; its texts are clean and without secrets.

    Raises:
        UsageError: there is no such table.
    """
    import pandas as pd  # noqa: PLC0415  # takes a third of a second to import

    report = redacted(report)
    if table == "steps":
        steps = list(_steps(report))
        return pd.DataFrame(steps) if steps else pd.DataFrame(columns=list(STEP_COLUMNS))
    if table not in _TABLES:
        raise UsageError(f"Unknown table {table!r}. Known tables: {', '.join(get_args(FrameName))}.")
    columns, rows = _TABLES[table]
    return pd.DataFrame.from_records(list(rows(report)), columns=list(columns))


STEP_COLUMNS = ("recording", "step", "kept", "start_ns", "duration_ns")
"""Beside these, a table of steps has a column per category."""


def _steps(report: Report) -> Iterator[dict[str, object]]:
    for recording in report.recordings:
        for row in recording.steps:
            step = row.step
            figures = (recording.id, step.index, step.kept, step.start_ns, step.duration_ns)
            categories = {category.value: part for category, part in row.breakdown.parts_ns.items()}
            yield dict(zip(STEP_COLUMNS, figures, strict=True)) | categories


_RECORDING: Mapping[str, Callable[[Recording], object]] = {
    "recording": lambda one: one.id,
    "run": lambda one: one.run,
    "worker": lambda one: one.worker,
    "span": lambda one: one.span,
    "device": lambda one: one.device.name if one.device else None,
    "typical_step_ns": lambda one: one.step_ns,
    "median_step_ns": lambda one: one.median_step_ns,
    "undisturbed_median_step_ns": lambda one: one.undisturbed_median_step_ns,
    "samples_per_s": lambda one: one.samples_per_s,
    "busy_share": lambda one: one.shown_figures.busy_share,
    "busy_share_high": lambda one: one.shown_figures.busy_share_high,
    "step_with_all_fixes_ns": lambda one: one.replay.joint_step_ns if one.replay else None,
}
"""The columns of a recording."""


def _recordings(report: Report) -> Iterator[tuple[object, ...]]:
    return (tuple(of(recording) for of in _RECORDING.values()) for recording in report.recordings)


class _Case(NamedTuple):
    """A finding in one recording."""

    rank: int
    rule: RuleMeta
    recording_id: str
    figures: RecordedFinding


_FINDING: Mapping[str, Callable[[_Case], object]] = {
    "rank": lambda one: one.rank,
    "rule": lambda one: one.rule.id,
    "title": lambda one: one.rule.title,
    "recording": lambda one: one.recording_id,
    "severity": lambda one: one.figures.severity.value,
    "confidence": lambda one: one.figures.finding.confidence.value,
    "certainty": lambda one: one.figures.finding.saving.certainty.value,
    "saving_low_ns": lambda one: one.figures.finding.saving.low_ns,
    "saving_ns": lambda one: one.figures.finding.saving.expected_ns,
    "saving_high_ns": lambda one: one.figures.finding.saving.high_ns,
    "saving_share": lambda one: one.figures.saving_share,
    "further_saving_ns": lambda one: one.figures.further_saving.expected_ns if one.figures.further_saving else None,
    "step_ns": lambda one: one.figures.step_ns,
    "location": lambda one: next((f"{place.file}:{place.line}" for place in one.figures.finding.locations), None),
    "fix": lambda one: one.figures.finding.fix.summary,
    "change": lambda one: one.figures.finding.fix.change,
}
"""The columns of a finding."""


def _findings(report: Report) -> Iterator[tuple[object, ...]]:
    """A row for each finding and recording, in the order of the ranking."""
    cases = (
        _Case(rank, ranked.finding.rule, recording_id, figures)
        for rank, ranked in enumerate(report.findings, start=1)
        for figures in ranked.by_recording or (ranked,)
        for recording_id in figures.recording_ids
    )
    return (tuple(of(case) for of in _FINDING.values()) for case in cases)


def _categories(report: Report) -> Iterator[tuple[object, ...]]:
    """The parts of the typical step."""
    for recording in report.recordings:
        if mean := recording.breakdown:
            for category, part in mean.parts_ns.items():
                yield recording.id, category.value, part, mean.share(category)


def _kernels(report: Report) -> Iterator[tuple[object, ...]]:
    for recording in report.recordings:
        for row in recording.kernels:
            counts = (row.calls_per_step, row.total_ns_per_step, row.share_of_kernel_time)
            yield recording.id, row.name, *counts, row.blocks_per_sm, row.occupancy_share


def _operators(report: Report) -> Iterator[tuple[object, ...]]:
    for recording in report.recordings:
        for row in recording.operators:
            yield recording.id, row.name, row.calls_per_step, row.host_self_ns_per_step, row.device_ns_per_step


def _checks(report: Report) -> Iterator[tuple[object, ...]]:
    """A row for each check and recording."""
    everywhere = tuple(recording.id for recording in report.recordings)
    names = {one.id: one.name for one in report.rules}
    for row in report.outcomes:
        match row.outcome:
            case FoundFigures():
                outcome, why = "found", None
            case Clear():
                outcome, why = "clear", row.outcome.remark
            case Skipped():
                outcome, why = "skipped", row.outcome.reason
            case Failed():
                outcome, why = "failed", row.outcome.error
            case _:
                assert_never(row.outcome)
        for recording_id in row.recording_ids or everywhere:
            yield row.rule_id, names.get(row.rule_id, ""), recording_id, outcome, why


_TABLES: dict[str, tuple[tuple[str, ...], _Rows]] = {
    "recordings": (tuple(_RECORDING), _recordings),
    "findings": (tuple(_FINDING), _findings),
    "categories": (("recording", "category", "ns_per_step", "share"), _categories),
    "kernels": (
        (
            "recording",
            "kernel",
            "calls_per_step",
            "ns_per_step",
            "share_of_kernel_time",
            "blocks_per_sm",
            "occupancy_share",
        ),
        _kernels,
    ),
    "operators": (("recording", "operator", "calls_per_step", "cpu_self_ns_per_step", "gpu_ns_per_step"), _operators),
    "checks": (("rule", "name", "recording", "outcome", "reason"), _checks),
}
"""Columns and rows of each table but the steps."""
