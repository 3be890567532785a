"""The evidence of every finding explains its saving, and every passed check passes in the direction that it says."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from tests.shared import SAMPLES, SHARED_TRACES
from traceadvisor import load
from traceadvisor.model.findings import Clear, Finding, Method, Unit
from traceadvisor.model.report import FoundFigures, Recording, Report

SAME = 1.05
"""The error of a trusted simulation, and the pauses of the GPU that end with what a fix removes."""


@cache
def reports() -> tuple[Report, ...]:
    """A report on each public recording and each sample."""
    return tuple(load(path, processes=1) for path in (*sorted(SHARED_TRACES.rglob("*.json.gz")), *SAMPLES))


def longest_evidence_ns(finding: Finding, recording: Recording) -> float:
    """The longest time in the evidence, in the unit of the saving: the step that it refers to."""
    times = [row.value for row in finding.evidence if row.unit in {Unit.NS, Unit.NS_PER_STEP}]
    longest_ns = max((float(value) for value in times), default=0.0)
    undisturbed_ns, mean_ns = recording.undisturbed_median_step_ns, recording.mean_step_ns
    return longest_ns * max(undisturbed_ns / mean_ns if undisturbed_ns and mean_ns else 1.0, 1.0)


def findings() -> Iterator[tuple[Recording, Finding]]:
    for report in reports():
        recordings = {one.id: one for one in report.recordings}
        evidence = {
            (row.rule_id, id_): row.outcome.evidence
            for row in report.outcomes
            if isinstance(row.outcome, FoundFigures)
            for id_ in row.recording_ids or recordings
        }
        for case in (case for row in report.findings for case in row.by_recording or (row,)):
            id_ = case.recording_ids[0]
            yield recordings[id_], case.finding
            for one in case.folded:
                figures = evidence[one.rule.id, id_]
                yield recordings[id_], replace(case.finding, rule=one.rule, saving=one.saving, evidence=figures)


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
@pytest.mark.usefixtures("shared_traces")
def test_no_saving_exceeds_every_time_in_its_evidence() -> None:
    shown = list(findings())
    assert len(shown) > 30
    unexplained = [
        (recording.id, finding.rule.id, finding.saving, finding.evidence)
        for recording, finding in shown
        for saving in (finding.saving,)
        for claimed_ns in (saving.expected_ns if saving.method is Method.REPLAY else saving.high_ns,)
        if claimed_ns > SAME * longest_evidence_ns(finding, recording)
    ]
    assert unexplained == []


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
@pytest.mark.usefixtures("shared_traces")
def test_every_passed_check_lies_on_the_side_of_its_limit_that_it_names() -> None:
    clears = [
        (row.recording_ids, row.rule_id, row.outcome)
        for report in reports()
        for row in report.outcomes
        if isinstance(row.outcome, Clear)
    ]
    assert len(clears) > 100
    beyond = [
        each
        for each in clears
        for clear in (each[2],)
        if clear.remark is None and (clear.value < clear.limit if clear.at_least else clear.value > clear.limit)
    ]
    assert beyond == []
