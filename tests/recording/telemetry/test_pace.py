import pytest

from traceadvisor.recording.telemetry.sampler import Pace, Turns


def test_expensive_figures_are_due_at_once_and_then_every_second() -> None:
    pace = Pace(0.5)
    assert [pace.expensive(now_s) for now_s in (5.0, 5.5, 6.0, 6.5, 7.0)] == [True, False, True, False, True]


def test_cheap_samples_keep_the_requested_interval() -> None:
    pace = Pace(0.1)
    pace.plan(0.0, cpu_s=0.0005)
    assert pace.interval_s == 0.1


def test_expensive_samples_are_thinned_to_a_hundredth_of_a_core() -> None:
    pace = Pace(0.1)
    pace.plan(0.0, cpu_s=0.005)
    assert pace.interval_s == pytest.approx(0.5)


def test_a_long_run_is_sampled_more_sparsely() -> None:
    pace = Pace(0.1)
    pace.expensive(0.0)
    pace.plan(36_000.0, cpu_s=0.0)
    assert pace.interval_s == pytest.approx(2.0)


def test_items_take_turns_with_one_round_a_second_at_most() -> None:
    turns = Turns("ab")
    assert [turns.take(now_s) for now_s in (0.0, 0.1, 0.2, 0.9, 1.0, 1.1)] == ["a", "b", None, None, "a", "b"]


def test_without_items_there_are_no_turns() -> None:
    assert Turns("").take(0.0) is None


def test_short_steps_are_interrupted_less_often() -> None:
    pace = Pace(0.1)
    for number in range(20):
        pace.expensive(0.1 * number)
        pace.plan(0.1 * number, 0.0001, has_short_steps=number >= 10)
        assert pace.interval_s == (0.25 if number >= 10 else 0.1)
    for run_s, interval_s in ((5, 0.25), (10, 0.5), (60, 1.0)):
        pace.plan(run_s, 0.0001, has_short_steps=True)
        assert pace.interval_s == interval_s, "less and less, once there are enough"
