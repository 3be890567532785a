from __future__ import annotations

import math

from tests.experiments.building import round_of
from traceadvisor.experiments.curves import compared, knee, points
from traceadvisor.model.verdict import Verdict


def _curve(*values: tuple[int, list[float]]) -> dict[int, dict[tuple[str, int], float]]:
    return {
        value: {("axis", number): math.log(ratio) for number, ratio in enumerate(ratios)} for value, ratios in values
    }


def test_the_knee_is_the_smallest_value_within_three_percent_of_the_best() -> None:
    found = knee(_curve((1, [1.0, 1.001] * 3), (2, [0.51, 0.511] * 3), (4, [0.5, 0.501] * 3)))
    assert found is not None
    assert (found.value, found.best) == (2, 4)
    assert (found.low, found.high) == (2, 2)


def test_a_knee_in_noise_is_a_range() -> None:
    noisy = [0.50, 0.53, 0.52, 0.55, 0.49, 0.54]
    found = knee(_curve((1, [1.0] * 6), (2, noisy), (4, [0.5] * 6)))
    assert found is not None
    assert found.low == 2
    assert found.high == 4


def test_values_with_too_few_rounds_do_not_count() -> None:
    found = knee(_curve((1, [1.0, 1.0, 1.0, 1.0, 1.01]), (2, [0.1, 0.1])))
    assert found is not None
    assert found.best == 1
    assert knee(_curve((1, [1.0] * 4))) is None


def test_a_point_is_the_ratio_to_the_mean_of_both_base_arms() -> None:
    row = round_of("num_workers", {"A'": 4.0, "num_workers=2": 1.0})
    assert math.isclose(points([row])["num_workers=2"]["num_workers", 0], math.log(0.5))


def test_an_arm_is_compared_over_the_rounds_that_have_it() -> None:
    rounds = [round_of("x", {"B": 0.5}) for _ in range(5)] + [round_of("x", {})]
    found = compared(rounds, "B")
    assert found is not None
    assert (found.rounds, found.verdict) == (5, Verdict.FASTER)
    assert compared(rounds, "C") is None
