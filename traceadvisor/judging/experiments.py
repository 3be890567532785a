"""Puts what `try` and `sweep` measured beside the findings of the same run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from traceadvisor.errors import InputError
from traceadvisor.model.experiment import FILE, ExperimentResult, MeasuredFix, MeasuredRatio
from traceadvisor.model.findings import Severity
from traceadvisor.model.health import HealthNote
from traceadvisor.model.report import RankedFinding, RecordedFinding, Recording, RecordingNote, Report
from traceadvisor.model.verdict import Verdict
from traceadvisor.statistics import FEWEST_ROUNDS

MOST_FOUND = 20
"""Experiments that a report shows, the newest ones."""

SAME_START_NS = 1_000_000
"""Two recordings of one start are the same one. A written start is rounded by less."""

Case = TypeVar("Case", bound=RecordedFinding)
Measured = Mapping[tuple[str, str, str], tuple[MeasuredFix, bool]]
"""By recording, rule and proposed code: the measurement, and whether its step was about that of the recording."""


def with_experiments(report: Report, paths: Sequence[Path], within: Sequence[Path] = ()) -> Report:
    """The report with the experiments at, in and beside some paths that are about one of its recordings.

    A result that cannot be read is a health note if it lies at or in a path, and ignored beside it. Files outside of
    the folders ``within`` are ignored.
    """
    found: list[ExperimentResult] = []
    notes: list[HealthNote] = []
    inside = [path.resolve() for path in paths]
    for file in reversed(_experiments_at(paths, within)):
        if len(found) == MOST_FOUND:
            break
        is_given = any(file == path or path in file.parents for path in inside)
        try:
            result = _read(file)
        except InputError as error:
            if is_given:
                notes.append(HealthNote("unreadable", str(error.args[0])))
            continue
        if is_of(result, report.recordings, is_given=is_given):
            found.append(result)
    if not found and not notes:
        return report
    return replace(
        with_results(report, found[::-1]),
        health=replace(report.health, notes=(*report.health.notes, *notes)),
        health_notes=(*report.health_notes, *(RecordingNote(note, None) for note in notes)),
    )


def _read(file: Path) -> ExperimentResult:
    from traceadvisor.results.experiment_json import read_experiment  # noqa: PLC0415  # slow to import, seldom needed

    return read_experiment(file)


def with_results(report: Report, found: Sequence[ExperimentResult]) -> Report:
    """The report with these experiments, and with what they measured for each finding."""
    measured = _measured_fixes(found, report.recordings)
    rows = [
        replace(_with(row, measured), by_recording=tuple(_with(case, measured) for case in row.by_recording))
        for row in report.findings
    ]
    return replace(report, findings=tuple(_in_order(rows)), experiments=tuple(found))


def _in_order(rows: Sequence[RankedFinding]) -> list[RankedFinding]:
    """The findings whose fix was refuted after the others.

    What one of the others adds to a refuted fix above it, it surely adds without that fix, too; the first one of a
    recording saves what it saves alone.
    """
    refuted = [row for row in rows if row.is_refuted]
    kept: list[RankedFinding] = []
    for row in rows if refuted else ():
        if not row.is_refuted:
            is_first = not any(set(one.recording_ids) & set(row.recording_ids) for one in kept)
            kept.append(replace(row, further_saving=row.finding.saving) if is_first else row)
    return [*kept, *refuted] if refuted else list(rows)


def is_of(result: ExperimentResult, recordings: Iterable[Recording], *, is_given: bool) -> bool:
    """Whether an experiment is about one of the recordings; ``is_given``: the user named it or its folder."""
    same = _of_same_start(result, recordings)
    return is_given if same is None else bool(same)


def _of_same_start(result: ExperimentResult, recordings: Iterable[Recording]) -> list[Recording] | None:
    """The recordings that began when that of the experiment did; None if a start is not known."""
    start_ns = result.recorded_start_ns
    starts = [(one.recorded_wall_ns[0], one) for one in recordings if one.recorded_wall_ns]
    if start_ns is None or not starts:
        return None
    return [one for begun_ns, one in starts if abs(start_ns - begun_ns) < SAME_START_NS]


def _measured_fixes(experiments: Iterable[ExperimentResult], recordings: Sequence[Recording]) -> Measured:
    """Fixes that were measured in enough rounds; a later experiment counts for more than an earlier one.

    An experiment of unknown start is about all recordings if they are of one run, and else about none.
    """
    of_one_run = recordings if len({one.run for one in recordings}) == 1 else ()
    measured: dict[tuple[str, str, str], tuple[MeasuredFix, bool]] = {}
    for result in experiments:
        same = _of_same_start(result, recordings)
        for row in result.ledger:
            if row.change and row.measured and not row.problem and row.measured.rounds >= FEWEST_ROUNDS:
                fix = MeasuredFix(settings=row.settings, measured=row.measured), result.is_as_recorded is not False
                measured |= {(one.id, row.fix, row.change): fix for one in (of_one_run if same is None else same)}
    return measured


def _with(case: Case, measured: Measured) -> Case:
    rule, change = case.finding.rule.id, case.finding.fix.change or ""
    found = (measured.get((recording, rule, change)) for recording in case.recording_ids)
    fix, is_as_recorded = next((one for one in found if one), (None, False))
    if fix is None or not is_as_recorded or not _refutes(fix.measured, case.saving_share):
        return replace(case, measured=fix)
    return replace(case, measured=fix, is_refuted=True, severity=Severity.LOW, worth=None)


def _refutes(found: MeasuredRatio, expected_share: float) -> bool:
    """Whether a step is slower, outside of noise, or no different although more than that was expected."""
    is_same = found.verdict == Verdict.NO_DIFFERENCE.value and expected_share > 1 - found.low
    return found.verdict == Verdict.SLOWER.value or is_same


def _experiments_at(paths: Iterable[Path], within: Sequence[Path]) -> tuple[Path, ...]:
    """The results at some paths, in the folders there, and in the folders beside them; the newest last."""
    files: dict[Path, int] = {}
    for path in paths:
        folders = (path, *_folders(path), *_folders(path.absolute().parent)) if _is_folder(path) else (path.parent,)
        for file in [path] if path.name == FILE else [folder / FILE for folder in folders]:
            with suppress(OSError):
                real = file.resolve()
                if not within or any(real.is_relative_to(one.resolve()) for one in within):
                    files[real] = file.stat().st_mtime_ns
    return tuple(sorted(files, key=lambda file: (files[file], file)))


def _is_folder(path: Path) -> bool:
    """Whether a path is a folder; False if that cannot be told, as of a URL that nobody answers."""
    with suppress(OSError):
        return path.is_dir()
    return False


def _folders(folder: Path) -> Sequence[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return ()
