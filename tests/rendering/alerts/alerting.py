"""Reports with findings at lines of code."""

from dataclasses import replace

from tests.build_report import launch_finding, loader_finding, one_recording, ranked
from tests.rendering.captures import captured
from traceadvisor.model.findings import Location, Severity
from traceadvisor.model.report import Report
from traceadvisor.model.run import Repository

REPOSITORY = Repository("/repo", "a" * 40, "main", dirty=False, folder="src")


def located(*places: Location, severity: Severity = Severity.HIGH) -> Report:
    """One recording with one finding, at these places."""
    report = one_recording()
    finding = replace(loader_finding(), locations=places)
    return replace(report, findings=(ranked(finding, report.recordings[0], severity),))


def of_repository(*places: Location) -> Report:
    """The same of a captured run of ``/repo/src/train.py``."""
    report = captured()
    (recording,) = report.recordings
    assert recording.captured is not None
    run = replace(recording.captured, command=("src/train.py", "--epochs", "1"), repository=REPOSITORY)
    recording = replace(recording, captured=run)
    row = ranked(replace(loader_finding(), locations=places), recording, Severity.HIGH)
    return replace(report, recordings=(recording,), findings=(row,))


def many(count: int, severity: Severity) -> Report:
    """So many findings at different lines of one function."""
    report = one_recording()
    rows = (
        ranked(replace(launch_finding(), locations=(Location("a.py", line, "f"),)), report.recordings[0], severity)
        for line in range(1, count + 1)
    )
    return replace(report, findings=tuple(rows))
