from __future__ import annotations

from pathlib import Path

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence
from traceadvisor.model.findings import Skipped
from traceadvisor.model.location import Location
from traceadvisor.model.run import SameResults
from traceadvisor.rules.gpu.gpu025_same_results import SameResults as Rule

FIRST, AGAIN = Location("train.py", 21, "train"), Location("train.py", 26, "train")


def _captured(folder: Path, *found: SameResults, again_us: int = 20) -> Captured:
    """A step of 100 us in which an operator runs for 20, and again."""
    builder = TraceBuilder().step(0, 0, 100)
    builder = builder.op("aten::linear", 0, 20)
    builder = builder.op("aten::linear", 40, 40 + again_us)
    return Captured(builder, folder).with_settings(same_results=found)


def _same(*, is_constant: bool = False) -> SameResults:
    return SameResults(FIRST, AGAIN, "Generator", is_constant, 8, ((2, 2, 1, 1),))


def test_a_module_that_runs_again_saves_its_time(tmp_path: Path) -> None:
    found = _captured(tmp_path, _same()).finding(Rule())
    assert found.fix.summary == "Keep the result of Generator at the first of these lines, and use it at the second"
    assert found.locations == (AGAIN, FIRST)
    assert found.claims.total_ns == 20_000
    assert found.saving.low_ns < 20_000 <= found.saving.high_ns
    assert evidence(found, "calls that compute the same again") == 1


def test_what_is_the_same_in_each_step_is_computed_before_the_training(tmp_path: Path) -> None:
    assert "before the training" in _captured(tmp_path, _same(is_constant=True)).finding(Rule()).fix.summary


def test_a_short_call_is_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, _same(), again_us=4).clear(Rule()).value == 0.04


def test_nothing_that_is_the_same_is_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path).clear(Rule()).value == 0


def test_a_capture_that_did_not_look_is_skipped(tmp_path: Path) -> None:
    captured = Captured(TraceBuilder().step(0, 0, 100), tmp_path)
    assert isinstance(captured.outcome(Rule()), Skipped)
