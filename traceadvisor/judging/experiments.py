"""Puts what `try` and `sweep` measured beside the findings of the same run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from traceadvisor.errors import InputError
from traceadvisor.model.experiment import ExperimentResult, MeasuredFix
from traceadvisor.model.health import HealthNote
from traceadvisor.model.report import RecordedFinding, Recording, RecordingNote, Report
from traceadvisor.results.experiment_json import experiments_at, read_experiment
from traceadvisor.statistics import FEWEST_ROUNDS

SAME_START_NS = 1_000_000
"""Two recordings of one start are the same one. A written start is rounded by less."""

Case = TypeVar("Case", bound=RecordedFinding)
Measured = Mapping[tuple[str, str], MeasuredFix]
"""By rule and proposed code."""


def with_experiments(report: Report, paths: Sequence[Path]) -> Report:
    """The report with the experiments at, in and beside some paths that are about one of its recordings.

    A result that cannot be read is a health note if it lies at or in a path, and ignored beside it.
    """
    found: list[ExperimentResult] = []
    notes: list[HealthNote] = []
    inside = [path.resolve() for path in paths]
    for file in experiments_at(paths):
        is_given = any(file == path or path in file.parents for path in inside)
        try:
            result = read_experiment(file)
        except InputError as error:
            if is_given:
                notes.append(HealthNote("unreadable", str(error.args[0])))
            continue
        if is_of(result, report.recordings, is_given=is_given):
            found.append(result)
    if not found and not notes:
        return report
    return replace(
        with_results(report, found),
        health=replace(report.health, notes=(*report.health.notes, *notes)),
        health_notes=(*report.health_notes, *(RecordingNote(note, None) for note in notes)),
    )


def with_results(report: Report, found: Sequence[ExperimentResult]) -> Report:
    """The report with these experiments, and with what they measured for each finding."""
    measured = measured_fixes(found)
    return replace(
        report,
        findings=tuple(
            replace(_with(row, measured), by_recording=tuple(_with(case, measured) for case in row.by_recording))
            for row in report.findings
        ),
        experiments=tuple(found),
    )


def is_of(result: ExperimentResult, recordings: Iterable[Recording], *, is_given: bool) -> bool:
    """Whether an experiment is about one of the recordings; ``is_given``: the user named it or its folder."""
    start_ns = result.recorded_start_ns
    starts = [recording.recorded_wall_ns[0] for recording in recordings if recording.recorded_wall_ns]
    if start_ns is None or not starts:
        return is_given
    return any(abs(start_ns - one) < SAME_START_NS for one in starts)


def measured_fixes(experiments: Iterable[ExperimentResult]) -> Measured:
    """What was measured in enough rounds; a later experiment counts for more than an earlier one."""
    return {
        (row.fix, row.change): MeasuredFix(settings=row.settings, measured=row.measured)
        for result in experiments
        for row in result.ledger
        if row.change and row.measured and not row.problem and row.measured.rounds >= FEWEST_ROUNDS
    }


def _with(case: Case, measured: Measured) -> Case:
    return replace(case, measured=measured.get((case.finding.rule.id, case.finding.fix.change or "")))
