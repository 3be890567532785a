import math
from collections.abc import Sequence

from msgspec.structs import replace

from tests.experiments.building import round_of
from traceadvisor.experiments.curves import are_enough, are_precise, compared, knee, noise, points
from traceadvisor.experiments.journal import Round
from traceadvisor.experiments.plan import Plan
from traceadvisor.experiments.settings import Settings
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


def test_a_larger_value_in_noise_may_be_the_knee() -> None:
    noisy = [0.9, 1.3, 0.8, 1.2, 1.1, 0.95]
    found = knee(_curve((0, [1.0] * 6), (1, noisy), (2, [3.0] * 6)))
    assert found is not None
    assert (found.value, found.low, found.high) == (0, 0, 1)


def test_values_that_differ_by_less_than_the_base_from_itself_are_not_told_apart() -> None:
    curve = _curve((0, [1.0, 1.001] * 3), (1, [1.1, 1.101] * 3), (2, [2.0, 2.001] * 3))
    quiet, busy = knee(curve), knee(curve, noise=math.log(1.2))
    assert quiet is not None
    assert busy is not None
    assert (quiet.low, quiet.high) == (0, 0)
    assert (busy.low, busy.high) == (0, 1)


def test_the_noise_is_the_largest_difference_of_the_base_from_itself() -> None:
    rounds = [round_of("x", {"A'": 0.8}), round_of("x", {"A'": 1.04})]
    assert math.isclose(noise(points(rounds)), -math.log(0.8))


def test_a_change_within_the_spread_of_the_base_is_not_shown() -> None:
    quiet = [round_of("x", {"B": 0.9}) for _ in range(9)]
    one_noisy_round = [*quiet, round_of("x", {"A'": 0.8, "B": 0.9})]
    found, in_noise = compared(quiet, "B"), compared(one_noisy_round, "B")
    assert found is not None
    assert in_noise is not None
    assert found.verdict is Verdict.FASTER
    assert in_noise.high < 1, "significant, but smaller than what the base does to itself"
    assert in_noise.verdict is Verdict.INCONCLUSIVE


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


def _rounds(seconds: Sequence[float], cpu_s: Sequence[float], others: float) -> list[Round]:
    """Rounds of a change with these times; the base takes a second of both."""
    return [
        replace(round_of("x", {"B": wall}), cpu_s={"A": 1.0, "A'": 1.0, "B": cpu}, others={"B": others})
        for wall, cpu in zip(seconds, cpu_s, strict=True)
    ]


_PRECISE, _NOISY = [0.9, 0.901] * 3, [0.7, 1.1] * 3


def test_on_a_busy_machine_the_cpu_time_tells_whether_the_rounds_are_enough() -> None:
    arms = {"B": Settings.of({"fused": True})}
    assert are_precise(_rounds(_NOISY, _PRECISE, 0.5), arms)
    assert not are_precise(_rounds(_PRECISE, _NOISY, 0.5), arms)
    assert not are_precise(_rounds(_NOISY, _PRECISE, 0.0), arms)
    assert are_precise(_rounds(_PRECISE, _NOISY, 0.0), arms)


def test_an_undecided_change_is_measured_on_and_looked_at_with_twice_as_many_rounds_each_time() -> None:
    arms = {"B": Settings.of({"fused": True})}
    faster = [0.5, 0.6]

    def enough(seconds: Sequence[float], *, until_decided: bool = True) -> bool:
        plan = Plan(most_rounds=6, until_decided=until_decided)
        return are_enough(plan, _rounds(seconds, seconds, 0.0), arms)

    assert enough(_NOISY, until_decided=False)
    assert not enough(_NOISY)
    assert enough(faster * 3)
    assert [enough(faster * pairs) for pairs in (4, 6, 9, 12)] == [False, True, False, True]


def test_the_cpu_time_does_not_decide_where_it_tells_nothing() -> None:
    busy = _rounds(_NOISY, _PRECISE, 0.5)
    assert not are_precise(busy, {"B": Settings.of({"num_workers": 2})}), "workers take it over"
    gaps = [replace(busy[0], cpu_s={}), *busy[1:]]
    assert not are_precise(gaps, {"B": Settings.of({"fused": True})}), "the step is more waiting than work"
