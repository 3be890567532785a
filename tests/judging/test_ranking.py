from __future__ import annotations

from dataclasses import replace

import pytest

from tests.build_report import one_recording
from tests.shared import SHARED_TRACES
from traceadvisor.api import load
from traceadvisor.judging.ranking import ranked
from traceadvisor.model.findings import Confidence, Effort
from traceadvisor.model.report import RankedFinding

HIGH, MEDIUM, LOW = Confidence


def _row(share: float, confidence: Confidence = HIGH, effort: Effort = Effort.LINE) -> RankedFinding:
    first = one_recording().findings[0]
    return replace(first, saving_share=share, finding=replace(first.finding, confidence=confidence, effort=effort))


def test_nearly_equal_savings_rank_by_confidence() -> None:
    unsure, sure = _row(0.194, LOW), _row(0.192, HIGH)
    assert ranked([unsure, sure]) == (sure, unsure)


def test_equal_confidence_ranks_by_effort() -> None:
    hard, easy = _row(0.2, effort=Effort.REFACTOR), _row(0.181, effort=Effort.SETTING)
    assert ranked([hard, easy]) == (easy, hard)


def test_equal_confidence_and_effort_rank_by_saving() -> None:
    rows = [_row(0.19), _row(0.2), _row(0.185)]
    assert [row.saving_share for row in ranked(rows)] == [0.2, 0.19, 0.185]


def test_a_clearly_larger_saving_comes_first_at_any_confidence() -> None:
    large, sure = _row(0.2, LOW, Effort.REFACTOR), _row(0.179, HIGH, Effort.SETTING)
    assert ranked([sure, large]) == (large, sure)


def test_many_small_differences_make_no_large_one() -> None:
    rows = [_row(0.20, LOW), _row(0.185, MEDIUM), _row(0.17, HIGH)]
    assert [row.saving_share for row in ranked(rows)] == [0.185, 0.20, 0.17]


def test_savings_of_zero_are_equal() -> None:
    unsure, sure = _row(0.0, LOW), _row(0.0, HIGH)
    assert ranked([unsure, sure]) == (sure, unsure)


@pytest.mark.usefixtures("shared_traces")
def test_workers_come_before_a_refactoring_with_a_similar_saving() -> None:
    report = load(SHARED_TRACES / "formats/array-form-v100.pt.trace.json.gz")
    assert [row.finding.rule.id for row in report.findings[:2]] == ["DATA002", "IDLE002"]
