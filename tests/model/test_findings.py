import pytest

from traceadvisor.model.findings import Certainty, Estimate, Method
from traceadvisor.model.saving import Doubt, Reason, of_the_fix


@pytest.mark.parametrize(("low", "expected", "high"), [(2, 1, 3), (0, 3, 2), (-1, 0, 1)])
def test_an_estimate_out_of_order_cannot_be_built(low: float, expected: float, high: float) -> None:
    with pytest.raises(ValueError, match="not in order"):
        Estimate(low, expected, high, Method.REPLAY)


def test_a_bound_says_why_it_is_none_that_was_replayed() -> None:
    with pytest.raises(ValueError, match="without a reason"):
        Estimate(0, 1, 2, Method.BOUND)


def test_the_middle_of_a_bound_stands_for_the_expected_value() -> None:
    assert Estimate.bound(20, of_the_fix("nobody asked")) == Estimate(
        0, 10, 20, Method.BOUND, of_the_fix("nobody asked")
    )


def test_an_estimate_of_nothing_is_an_estimate() -> None:
    assert Estimate(0, 0, 0, Method.REPLAY).expected_ns == 0


def test_an_estimate_that_is_no_number_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="not in order"):
        Estimate(0, float("nan"), 1, Method.MODEL)


def test_a_saving_is_cut_to_a_limit_at_all_its_ends() -> None:
    assert Estimate(2, 5, 9, Method.REPLAY).up_to(4) == Estimate(2, 4, 4, Method.REPLAY)


@pytest.mark.parametrize(
    ("saving", "certainty"),
    [
        (Estimate(8, 10, 12, Method.REPLAY), Certainty.SIMULATED),
        (Estimate.simulated(10, 10, 10), Certainty.SIMULATED),
        (Estimate(1, 10, 30, Method.REPLAY), Certainty.UNSURE),
        (Estimate(8, 10, 12, Method.REPLAY, Reason(Doubt.WAITS_FOR_DEVICE)), Certainty.UNSURE),
        (Estimate(8, 10, 12, Method.MODEL), Certainty.CALCULATED),
        (Estimate.bound(20, of_the_fix("nobody asked")), Certainty.LIMIT),
        (Estimate.nothing(), Certainty.NONE),
    ],
)
def test_the_certainty_of_a_saving_follows_from_its_method_and_range(saving: Estimate, certainty: Certainty) -> None:
    assert saving.certainty is certainty


def test_a_part_of_a_saving_keeps_its_method_and_reason() -> None:
    assert Estimate.bound(20, of_the_fix("nobody asked")).part(0.25) == Estimate.bound(5, of_the_fix("nobody asked"))
