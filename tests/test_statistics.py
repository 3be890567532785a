"""The verdict on alternating blocks, with effects that are known beforehand."""

import itertools
import math

import numpy as np
import pytest

from traceadvisor.model.verdict import Verdict
from traceadvisor.statistics import Comparison, compare, spread_of_one_more, student_t

NOISE = 0.02


def planted(effect: float, seed: int, *, rounds: int = 6, noise: float = NOISE) -> Comparison:
    """Rounds on a machine that drifts, with a changed setting that takes so many times as long."""
    chance = np.random.default_rng(seed)
    drift = np.cumsum(chance.normal(0, 0.05, rounds))
    first, second, third = (np.exp(drift + chance.normal(0, noise, rounds)) for _ in range(3))
    return compare(first.tolist(), second.tolist(), (third * effect).tolist())


def test_a_planted_tenth_is_found_in_at_least_18_of_20_runs() -> None:
    verdicts = [planted(0.9, seed).verdict for seed in range(20)]
    assert verdicts.count(Verdict.FASTER) >= 18


def test_a_planted_slowdown_is_called_slower() -> None:
    assert planted(1.25, 3).verdict is Verdict.SLOWER


def test_a_change_that_changes_nothing_is_never_called_in_40_runs() -> None:
    verdicts = {planted(1.0, seed).verdict for seed in range(40)}
    assert verdicts <= {Verdict.NO_DIFFERENCE, Verdict.INCONCLUSIVE}


def test_a_quiet_machine_shows_that_nothing_differs() -> None:
    assert planted(1.0, 1, rounds=8, noise=0.005).verdict is Verdict.NO_DIFFERENCE


def test_the_interval_holds_the_planted_ratio() -> None:
    found = [planted(0.8, seed, noise=0.05) for seed in range(100)]
    assert sum(row.low <= 0.8 <= row.high for row in found) >= 95


def test_without_noise_the_size_is_exact() -> None:
    found = compare([1.0, 2.0, 4.0, 1.0, 2.0], [1.0, 2.0, 4.0, 1.0, 2.0], [0.5, 1.0, 2.0, 0.5, 1.0])
    assert (found.ratio, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert found.p_value == pytest.approx(2 / 3**5)
    assert (found.null_ratio, found.null_low, found.null_high) == (1, 1, 1)


def test_four_rounds_decide_nothing() -> None:
    found = compare([1.0] * 4, [1.0] * 4, [0.5] * 4)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.low < 0.01
    assert found.high > 100


def test_the_p_value_is_that_of_all_labellings() -> None:
    """Counted the plain way: label each block of each round in turn as the changed one."""
    rounds = [(1.0, 1.1, 0.9), (1.2, 1.0, 0.7), (1.0, 0.9, 1.3)]
    logs = [[math.log(block) for block in row] for row in rounds]

    def statistic(labels: tuple[int, ...]) -> float:
        parts = [row[label] - (sum(row) - row[label]) / 2 for row, label in zip(logs, labels, strict=True)]
        return sum(parts) / len(parts)

    used = statistic((2, 2, 2))
    values = [statistic(labels) for labels in itertools.product(range(3), repeat=3)]
    tail = min(sum(value <= used + 1e-9 for value in values), sum(value >= used - 1e-9 for value in values))
    found = compare(*(list(column) for column in zip(*rounds, strict=True)))
    assert found.p_value == pytest.approx(min(1.0, 2 * tail / len(values)))


def test_a_change_smaller_than_what_the_same_setting_did_to_itself_is_inconclusive() -> None:
    found = compare([1.0] * 6, [1.2] * 6, [1.3] * 6)
    assert found.null_ratio == pytest.approx(1.2)
    assert found.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("times", [([1.0], [1.0, 2.0], [1.0]), ([], [], []), ([1.0], [0.0], [1.0])])
def test_times_that_cannot_be_compared_are_refused(times: tuple[list[float], ...]) -> None:
    with pytest.raises(ValueError, match=r"times are|each arm"):
        compare(*times)


@pytest.mark.parametrize(
    ("freedom", "quantile", "of_99_percent"),
    [
        (1, 12.706, 31.821),
        (2, 4.303, 6.965),
        (3, 3.182, 4.541),
        (4, 2.776, 3.747),
        (9, 2.262, 2.821),
        (29, 2.045, 2.462),
    ],
)
def test_quantiles_of_students_t_are_those_of_tables(freedom: int, quantile: float, of_99_percent: float) -> None:
    # https://www.itl.nist.gov/div898/handbook/eda/section3/eda3672.htm
    assert student_t(0.975, freedom) == pytest.approx(quantile, abs=0.001)
    assert student_t(0.99, freedom) == pytest.approx(of_99_percent, abs=0.001)


def test_students_t_becomes_normal() -> None:
    assert student_t(0.975, 100_000) == pytest.approx(1.95996, abs=0.0001)


def test_one_more_window_lies_in_its_interval_as_often_as_promised() -> None:
    generator = np.random.default_rng(3)
    inside = 0
    for _ in range(2000):
        *windows, other = generator.normal(5, 0.2, 7)
        half = spread_of_one_more(windows)
        assert half is not None
        inside += abs(other - np.mean(windows)) <= half
    assert 0.93 < inside / 2000 < 0.97


def test_three_windows_have_no_known_spread() -> None:
    assert spread_of_one_more([1.0, 1.1, 0.9]) is None
