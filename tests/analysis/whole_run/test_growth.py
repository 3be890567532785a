import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.analysis.whole_run.building import LOOP, MS, Runs, line
from traceadvisor.analysis.whole_run.growth import change_probability, is_in_phases, run_growth, theil_sen
from traceadvisor.analysis.whole_run.sampled_steps import sampled_steps
from traceadvisor.model.run import Run, StepState
from traceadvisor.model.run_time import RunGrowth
from traceadvisor.model.samples import SampledFrame

STEPS = 200


def growth_of(run: Run, *, has_device: bool = False, is_busy: bool = False) -> RunGrowth | None:
    return run_growth(run, sampled_steps(run, LOOP), has_device=has_device, is_busy=is_busy)


def run_of(metric_ms: Callable[[int], float], model_ms: Callable[[int], float], cpu: float = 1.0) -> Run:
    """Steps with 5 ms of the model at line 11, and a metric at line 14, both with some noise."""
    noise, runs = random.Random(3), Runs()
    for step in range(STEPS):
        spread = noise.uniform(0.95, 1.05)
        runs.step([(line(11), model_ms(step) * spread), (line(14), metric_ms(step) * spread)], cpu=cpu)
    return runs.run()


def five(_: int) -> float:
    return 5.0


def test_a_line_that_grows_is_found_with_its_slope() -> None:
    """The metric takes 0.05 ms more in each step: the first step's 6 ms are doubled after 120 steps."""
    found = growth_of(run_of(lambda step: 1 + 0.05 * step, five))
    assert found
    assert found.of_cpu
    assert found.line
    assert found.line.line == 14
    assert found.line_share == pytest.approx(1, abs=0.1)
    assert found.ns_per_step == pytest.approx(0.05 * MS, rel=0.1)
    assert found.low_ns_per_step < found.ns_per_step < found.high_ns_per_step
    assert not found.is_level
    assert found.doubles_in == pytest.approx(140, rel=0.2)  # of the first quarter's median, 7.2 ms


@pytest.mark.parametrize(("shares", "named"), [((1.0, 0.0), 70), ((0.5, 0.5), 14)])
def test_a_line_inside_of_it_is_named_if_that_grows_alone(shares: tuple[float, float], named: int) -> None:
    runs = Runs()
    for step in range(STEPS):
        inside = [
            (line(14, SampledFrame("walk", "hooks.py", at, is_user=True)), 0.5 + 0.05 * step * share)
            for at, share in zip((70, 80), shares, strict=True)
        ]
        runs.step([(line(11), 5), *inside])
    found = growth_of(runs.run())
    assert found
    assert found.line
    assert found.line.line == named


def test_validation_between_steps_is_no_step_in_which_they_grow() -> None:
    """With three rows of validation after each tenth step, the metric still takes 0.05 ms more in each step."""
    runs = Runs()
    for step in range(STEPS):
        runs.step([(line(11), 5), (line(14), 1 + 0.05 * step)])
        for _ in range(3 * (step % 10 == 9)):
            runs.step([(line(11), 5)], state=StepState.OTHER)
    found = growth_of(runs.run())
    assert found
    assert found.ns_per_step == pytest.approx(0.05 * MS, rel=0.1)


def test_steady_steps_do_not_grow() -> None:
    assert growth_of(run_of(lambda _: 1.0, five)) is None


def test_phases_of_a_training_are_no_growth() -> None:
    """Four times as many pictures from each quarter of the run to the next, as by a schedule."""
    assert growth_of(run_of(lambda _: 1.0, lambda step: 5.0 * 2 ** (4 * step // STEPS))) is None


@pytest.mark.parametrize("count", [8, 12, 16, 23])
def test_few_stretches_show_no_levels(count: int) -> None:
    assert not is_in_phases(range(count), [2.0 ** (4 * at // count) for at in range(count)])


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        pytest.param(lambda at: 1 + (3 * at // 32), True, id="three levels"),
        pytest.param(lambda at: 2 ** (4 * at // 32), True, id="four levels that double"),
        pytest.param(lambda at: 1 + (at >= 16), False, id="one jump"),
        pytest.param(lambda at: 1 + at / 16, False, id="a line"),
        pytest.param(lambda at: 1 + (at / 16) ** 2, False, id="a parabola"),
        pytest.param(lambda at: 1 + (at / 16) ** 0.5, False, id="a root"),
        pytest.param(lambda _: 1.0, False, id="nothing"),
    ],
)
def test_levels_are_no_steady_rise(shape: Callable[[int], float], *, expected: bool) -> None:
    for seed in range(20):
        noise = random.Random(seed)
        values = [shape(at) * noise.uniform(0.93, 1.07) for at in range(32)]
        assert is_in_phases(range(32), values) is expected


def test_all_lines_that_grow_alike_by_half_may_be_other_programs() -> None:
    assert growth_of(run_of(lambda step: 1 + step / 400, lambda step: 5 + step / 80)) is None


@pytest.mark.parametrize(("noise", "is_found"), [(0.1, True), (0.6, False)])
def test_the_only_line_of_the_loop_counts_for_less_growth_if_it_is_steady(noise: float, *, is_found: bool) -> None:
    """Samples of one line cannot be later in the run than those of others."""
    spread, runs = random.Random(3), Runs()
    for step in range(STEPS):
        runs.step([(line(14), 5 * (1 + step / STEPS) * spread.uniform(1 - noise, 1 + noise))])
    assert (growth_of(runs.run()) is not None) is is_found


def test_all_lines_that_grow_alike_by_much_grow() -> None:
    found = growth_of(run_of(lambda step: 1 + step / 50, lambda step: 5 + step / 10))
    assert found
    assert found.last_ns > 2 * found.first_ns


def test_without_a_core_a_step_takes_longer_but_does_not_grow() -> None:
    """The clock shows steps of 6 to 36 ms, of which the thread computes 6."""
    runs = Runs()
    for step in range(STEPS):
        times = 1 + step / 40
        runs.step([(line(11), 5 * times), (line(14), 1 * times)], cpu=1 / times)
    assert growth_of(runs.run()) is None


def test_a_device_may_make_steps_grow_without_the_cpu() -> None:
    runs = Runs()
    for step in range(STEPS):
        runs.step([(line(11), 5), (line(14), 1 + step / 5)], cpu=5 / (6 + step / 5))
    found = growth_of(runs.run(), has_device=True)
    assert found
    assert not found.of_cpu


def test_a_line_that_waits_longer_and_longer_grows_by_the_clock() -> None:
    runs = Runs()
    for step in range(STEPS):
        runs.step([(line(11), 5), (line(14), 1 + step / 5)], cpu=5 / (6 + step / 5))
    found = growth_of(runs.run())
    assert found
    assert (found.of_cpu, found.line and found.line.line) == (False, 14)


def test_growing_cpu_time_of_steps_that_mostly_wait_is_a_small_share_of_them() -> None:
    """The thread waits 95 ms, and computes 1 ms at first and 6 at last: 2.5 ms more than at first, of 99 on average."""
    runs = Runs()
    for step in range(STEPS):
        computes = 1 + step / 40
        runs.step([(line(11), 95), (line(14), computes)], cpu=computes / (95 + computes))
    found = growth_of(runs.run())
    assert found
    assert found.of_cpu
    assert found.excess_share == pytest.approx(0.025, abs=0.002)


@pytest.mark.parametrize(("late_ms", "is_found"), [(4.0, False), (8.0, True)])
def test_steps_that_rise_and_stay_count_from_nearly_twice_the_time_on(late_ms: float, *, is_found: bool) -> None:
    found = growth_of(run_of(lambda step: 1.0 if step < 70 else late_ms, five))
    assert (found is not None) is is_found
    if found:
        assert found.is_level
        assert found.doubles_in is None


def test_steps_that_rise_late_and_stay_count_too() -> None:
    found = growth_of(run_of(lambda step: 1.0 if step < 0.65 * STEPS else 12.0, five))
    assert found
    assert found.is_level


def test_beside_other_programs_steps_that_rise_in_all_lines_and_stay_may_be_as_they_were() -> None:
    """A line that rises alone is no other program."""

    def rises(step: int) -> float:
        return 5.0 if step < 70 else 10.0

    everywhere, alone = run_of(rises, rises), run_of(lambda step: 1.0 if step < 70 else 30.0, five)
    assert growth_of(everywhere) is not None
    assert growth_of(everywhere, is_busy=True) is None
    assert growth_of(alone, is_busy=True) is not None


def test_a_single_slow_stretch_is_no_growth() -> None:
    assert growth_of(run_of(lambda step: 9.0 if 80 <= step < 120 else 1.0, five)) is None


def test_growth_has_the_share_of_subnormal_numbers() -> None:
    run = run_of(lambda step: 1 + 0.05 * step, five)
    found = growth_of(replace(run, settings=replace(run.settings, subnormal_share=0.3)))
    assert found
    assert found.subnormal_share == 0.3


def test_few_steps_do_not_show_growth() -> None:
    runs = Runs()
    for step in range(20):
        runs.step([(line(11), 5 + step)])
    assert growth_of(runs.run()) is None


def test_recorded_steps_do_not_count() -> None:
    runs = Runs()
    for step in range(STEPS):
        state = StepState.RECORDED if step > 100 else StepState.PLAIN
        runs.step([(line(11), 5 + 50 * (step > 100))], state=state)
    assert growth_of(runs.run()) is None


def test_the_slope_is_the_median_of_all_pairs() -> None:
    """One of ten points on a line of slope 2 is far off."""
    found = theil_sen(range(10), [0, 2, 4, 6, 100, 10, 12, 14, 16, 18])
    assert found.slope == 2
    assert found.low <= 2 <= found.high


def test_a_change_has_the_probability_of_pettitts_test() -> None:
    """Eight small values, then eight large ones: the largest sum is 64, so 2 exp(-6 64^2 / (16^3 + 16^2))."""
    assert change_probability([1.0] * 8 + [2.0] * 8) == pytest.approx(0.00705, abs=1e-4)
    assert change_probability([1.0, 2.0] * 8) == 1.0
