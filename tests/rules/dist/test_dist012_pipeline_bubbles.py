from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.dist.communicating import collective, reduced, steps
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.model.findings import Method
from traceadvisor.rules.dist.dist012_pipeline_bubbles import PipelineBubbles


def _received(until: float, messages: int = 1) -> TraceBuilder:
    builder = steps()
    for number in range(messages):
        collective(builder, "recv", (700, until), at=40 + 10 * number)
    return builder


def test_waiting_for_another_stage_is_found(tmp_path: Path) -> None:
    found = finding(PipelineBubbles(), _received(900), tmp_path)
    assert found.claims.total_ns == 200_000
    assert (found.saving.method, found.saving.high_ns) == (Method.BOUND, 200_000)


def test_twice_the_recorded_microbatches_are_proposed(tmp_path: Path) -> None:
    found = finding(PipelineBubbles(), _received(900, 8), tmp_path)
    assert evidence(found, "messages between stages") == 8
    assert "n_microbatches=8" in (found.fix.change or "")


def test_overlapped_messages_are_clear(tmp_path: Path) -> None:
    assert clear(PipelineBubbles(), collective(steps(), "send", (400, 690)), tmp_path).value == 0


def test_without_messages_it_is_skipped(tmp_path: Path) -> None:
    assert "pipeline stages" in skipped(PipelineBubbles(), reduced(steps(), (700, 900)), tmp_path)


@pytest.mark.parametrize(("until", "found"), [(799, False), (800, True)])
def test_a_tenth_of_the_step_counts(until: float, tmp_path: Path, *, found: bool) -> None:
    assert is_found(PipelineBubbles(), _received(until), tmp_path) is found
