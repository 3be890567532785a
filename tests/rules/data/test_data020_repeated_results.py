from pathlib import Path

import pytest

from tests.analysis.sampled.sampling import Samples, library, user
from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import skipped
from traceadvisor.model.findings import Certainty, Skipped
from traceadvisor.model.location import Location
from traceadvisor.model.run import RepeatedResult, RepeatedResults
from traceadvisor.rules.data.data020_repeated_results import RepeatedResults as Rule
from traceadvisor.statistics import share_interval

MAIN = user("main", 30)
ENCODED = user("main", 31), library("_call_impl", 1784, "torch/nn/modules/module.py")
MASKED = user("main", 32), user("mask", 12)
LINE = RepeatedResult(Location("train.py", 31, "main"), is_same=False, operator_share=0.4, operator_count=7)
MASK = RepeatedResult(Location.of_function("train.py", 10, "mask"), is_same=True, operator_share=0.2, operator_count=9)


def _run(
    folder: Path, *places: RepeatedResult, encoded: int = 40, masked: int = 0, builder: TraceBuilder | None = None
) -> Captured:
    """Steps of 100 us with 100 samples, of which so many are in each place."""
    builder = builder or TraceBuilder()
    for start in builder.steps(3, 100):
        builder.op("aten::mm", start, start + 40)
        builder.op("autograd::engine::evaluate_function: MmBackward0", start + 45, start + 90)
    samples = Samples().add(100 - encoded - masked, MAIN).add(encoded, *ENCODED).add(masked, *MASKED)
    run = Captured(builder, folder).with_steps([0] * 30).with_run(stacks=samples.build())
    return run.with_settings(repeated_results=RepeatedResults(places, are_drawn=False))


def test_what_follows_from_the_batch_is_kept_for_each_sample(tmp_path: Path) -> None:
    found = _run(tmp_path, LINE).finding(Rule())
    assert found.fix.summary.startswith("Compute this once for each sample")
    assert found.saving.certainty is Certainty.LIMIT
    assert found.saving.high_ns == pytest.approx(share_interval(0.4, 100)[1] * 1e5)
    assert found.locations == (LINE.place,)
    assert found.caveats


def test_what_is_the_same_in_each_step_is_computed_once(tmp_path: Path) -> None:
    found = _run(tmp_path, LINE, MASK, encoded=5, masked=20).finding(Rule())
    assert found.fix.summary.startswith("Compute this once, before the loop")
    assert found.saving.certainty is Certainty.CALCULATED
    assert (found.saving.expected_ns, found.saving.high_ns) == pytest.approx((19e3, share_interval(0.2, 100)[1] * 1e5))
    assert [place.function for place in found.locations] == ["mask"]


def test_both_are_kept_where_most_follows_from_the_batch(tmp_path: Path) -> None:
    found = _run(tmp_path, LINE, MASK, encoded=30, masked=20).finding(Rule())
    assert [place.function for place in found.locations] == ["main", "mask"]
    assert found.saving.high_ns == pytest.approx(share_interval(0.5, 100)[1] * 1e5)


def test_a_place_that_mostly_runs_other_code_may_change(tmp_path: Path) -> None:
    other = RepeatedResult(LINE.place, is_same=False, operator_share=0.05, operator_count=1)
    assert _run(tmp_path, other).clear(Rule()).value == 0


@pytest.mark.parametrize(("place", "encoded", "masked"), [(LINE, 8, 0), (MASK, 0, 5)])
def test_a_small_share_is_not_worth_it(place: RepeatedResult, encoded: int, masked: int, tmp_path: Path) -> None:
    assert _run(tmp_path, place, encoded=encoded, masked=masked).is_found(Rule())
    assert not _run(tmp_path, place, encoded=max(encoded - 1, 0), masked=max(masked - 1, 0)).is_found(Rule())


def test_the_time_of_a_gpu_for_it_is_unknown(tmp_path: Path) -> None:
    found = _run(tmp_path, LINE, builder=TraceBuilder().launch(10, 12, kernel=(12, 35))).finding(Rule())
    assert found.saving.high_ns == 0


def test_without_a_capture_that_followed_results_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 40)
    builder.op("autograd::engine::evaluate_function: MmBackward0", 45, 90)
    assert "traceadvisor capture" in skipped(Rule(), builder, tmp_path)
    outcome = _run(tmp_path).with_settings(repeated_results=None).outcome(Rule())
    assert isinstance(outcome, Skipped)
    assert "followed no results" in outcome.reason
