"""The verdict on separate runs, with differences that are known beforehand."""

import math
from statistics import fmean, stdev

import numpy as np
import pytest

from tests.comparing.simulation import Conditions, verdicts
from traceadvisor.comparing.verdict import compare_runs
from traceadvisor.model.verdict import FAR_TIMES, USUAL_NOISE, Verdict, VerdictCertainty
from traceadvisor.statistics import error_of_middle, student_t

THREE = Conditions(captures=3, between=0.03)
PAIRS = 300


@pytest.mark.nightly("traceadvisor/comparing")
@pytest.mark.parametrize("conditions", [THREE, Conditions(5, 0.05), Conditions(1, 0.03, history=8)])
def test_captures_that_do_not_differ_are_called_in_less_than_a_twentieth(conditions: Conditions) -> None:
    counted = verdicts(1.0, PAIRS, conditions, seed=2)
    assert counted[Verdict.SLOWER] + counted[Verdict.FASTER] <= 0.05 * PAIRS


def test_most_slowdowns_by_a_fifth_are_found_by_three_captures_a_side() -> None:
    counted = verdicts(1.2, PAIRS, THREE, seed=3)
    assert counted[Verdict.SLOWER] >= 0.8 * PAIRS
    assert counted[Verdict.FASTER] == 0


def test_single_captures_that_usually_differ_by_less_than_a_seventh_are_not_called() -> None:
    counted = verdicts(1.0, PAIRS, Conditions(captures=1, between=0.05), seed=4)
    assert counted == {Verdict.INCONCLUSIVE: PAIRS}


def test_three_quiet_captures_a_side_show_that_nothing_differs() -> None:
    found = compare_runs([100.0, 100.5, 99.8], [100.2, 100.1, 100.4])
    assert (found.verdict, found.certainty) == (Verdict.NO_DIFFERENCE, VerdictCertainty.SHOWN)
    assert found.ratio == pytest.approx(1.001, abs=0.001)


def test_the_interval_is_that_of_welch() -> None:
    base, head = [100.0, 104.0, 98.0], [120.0, 118.0, 127.0]
    logs = [[math.log(ms) for ms in side] for side in (base, head)]
    errors = [stdev(side) ** 2 / 3 for side in logs]
    freedom = sum(errors) ** 2 / sum(error**2 / 2 for error in errors)
    half = student_t(0.99, round(freedom, 1)) * sum(errors) ** 0.5
    found = compare_runs(base, head)
    assert found.low == pytest.approx(math.exp(fmean(logs[1]) - fmean(logs[0]) - half))
    assert found.high == pytest.approx(math.exp(fmean(logs[1]) - fmean(logs[0]) + half))
    assert found.smallest_visible == pytest.approx(math.exp(half) - 1)


def test_two_captures_a_side_settle_nothing() -> None:
    found = compare_runs([100.0, 101.0], [110.0, 111.0], within=0.01)
    assert (found.low, found.verdict) == (None, Verdict.INCONCLUSIVE)
    assert found.certainty is VerdictCertainty.NOT_SHOWN
    assert math.log1p(found.smallest_visible) == pytest.approx(FAR_TIMES * math.hypot(math.log1p(USUAL_NOISE), 0.01))


def test_earlier_captures_settle_what_one_capture_a_side_cannot() -> None:
    history = [100.0, 101.0, 99.0, 100.5, 99.5]
    assert compare_runs([100.0], [112.0], within=0.01).verdict is Verdict.INCONCLUSIVE
    assert compare_runs([100.0], [112.0], history=history).verdict is Verdict.SLOWER
    assert compare_runs([100.0], [90.0], history=history).verdict is Verdict.FASTER


def test_two_earlier_captures_are_too_few() -> None:
    assert compare_runs([100.0], [112.0], history=[100.0, 101.0], within=0.01).low is None


@pytest.mark.parametrize(
    ("head", "within", "verdict"),
    [
        (200.0, 0.02, Verdict.SLOWER),
        (50.0, 0.02, Verdict.FASTER),
        (129.0, 0.001, Verdict.INCONCLUSIVE),  # under twice the usual noise
        (200.0, 0.35, Verdict.INCONCLUSIVE),  # under twice the interval
        (200.0, None, Verdict.INCONCLUSIVE),
    ],
)
def test_one_capture_a_side_is_likely_only_far_beyond_noise(
    head: float, within: float | None, verdict: Verdict
) -> None:
    found = compare_runs([100.0], [head], within=within)
    assert found.verdict is verdict
    likely = VerdictCertainty.NOT_SHOWN if verdict is Verdict.INCONCLUSIVE else VerdictCertainty.LIKELY
    assert (found.low, found.certainty) == (None, likely)


def test_two_earlier_captures_that_differ_raise_the_noise() -> None:
    assert compare_runs([100.0], [160.0], within=0.01).certainty is VerdictCertainty.LIKELY
    found = compare_runs([100.0], [160.0], history=[100.0, 140.0], within=0.01)
    assert found.certainty is VerdictCertainty.NOT_SHOWN
    assert found.noise == pytest.approx(0.4)


def test_two_captures_that_differ_widen_the_interval_within_runs() -> None:
    assert compare_runs([100.0, 100.0], [200.0], within=0.01).verdict is Verdict.SLOWER
    assert compare_runs([80.0, 125.0], [200.0], within=0.01).verdict is Verdict.INCONCLUSIVE


def test_the_captures_that_would_settle_a_difference_are_counted() -> None:
    found = compare_runs([100.0, 110.0, 95.0], [108.0, 115.0, 101.0])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.captures_needed is not None
    assert 4 <= found.captures_needed <= 20
    uneven = compare_runs([30.0, 30.1, 30.2], [10.0, 12.0, 20.0])
    assert (uneven.verdict, uneven.captures_needed) == (Verdict.INCONCLUSIVE, 4)  # more than there are
    assert compare_runs([100.0, 110.0, 95.0], [100.1, 110.0, 95.0]).captures_needed is None


def test_equal_captures_have_an_interval_without_width() -> None:
    found = compare_runs([100.0] * 3, [110.0] * 3)
    assert (found.low, found.high) == pytest.approx((1.1, 1.1))
    assert found.verdict is Verdict.SLOWER


@pytest.mark.parametrize("times", [([], [1.0]), ([1.0], []), ([0.0], [1.0]), ([1.0], [math.inf]), ([math.nan], [1.0])])
def test_times_that_cannot_be_compared_are_refused(times: tuple[list[float], list[float]]) -> None:
    with pytest.raises(ValueError, match="each side needs a run"):
        compare_runs(*times)


def test_the_mean_of_windows_lies_in_its_interval_as_often_as_promised() -> None:
    chance = np.random.default_rng(5)
    inside = 0
    for _ in range(1000):
        windows = chance.normal(3, 0.2, 8).tolist()
        half = error_of_middle(windows)
        assert half is not None
        inside += abs(fmean(windows) - 3) <= half
    assert 0.93 < inside / 1000 < 0.97


def test_three_windows_have_no_known_error() -> None:
    assert error_of_middle([1.0, 1.1, 0.9]) is None
