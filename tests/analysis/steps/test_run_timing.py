import math

import numpy as np
import pytest

from traceadvisor.analysis.recording_health import timing_notes
from traceadvisor.analysis.steps.run_timing import run_timing
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.model.saving import Doubt, Reason

PLAIN, RECORDED = StepState.PLAIN, StepState.RECORDED


def _steps(*durations: int, state: StepState = PLAIN, first: int = 1) -> list[TimedStep]:
    """Steps of the given durations, half of each in the loader, one batch each."""
    return [TimedStep(first + at, 0, ns, ns // 2, 1, state) for at, ns in enumerate(durations)]


def test_the_undisturbed_median_is_of_steps_that_no_profiler_touched() -> None:
    timing = run_timing([*_steps(10, 30, 20), *_steps(90, state=StepState.WARMUP)], 1)
    assert timing.undisturbed_ns == 20
    assert timing.undisturbed_loader_ns == 10


def test_the_first_step_of_the_run_counts_nowhere() -> None:
    assert run_timing(_steps(1000, 10, 10, first=0), 1).undisturbed_ns == 10


def test_batches_that_come_in_bursts_do_not_hide_the_wait() -> None:
    # Four workers deliver together: one step in four waits 60 for all of them.
    assert run_timing(_steps(*[60, 4, 4, 4] * 5), 4).undisturbed_ns == 18


@pytest.mark.parametrize(
    ("durations", "pace_ns"),
    [([10] * 9 + [910], 100), ([10] * 10, None), ([85] * 10, 85)],
    ids=["the last step waits for the GPU", "no step waits for it", "as long as the work"],
)
def test_steps_that_the_cpu_launches_faster_than_the_gpu_works_show_the_step_time_by_their_mean_at_most(
    durations: list[int], pace_ns: float | None
) -> None:
    timing = run_timing([*_steps(*durations), *_steps(10, 10, state=RECORDED, first=11)], 1, work_ns=100)
    assert timing.pace_ns == pace_ns
    assert timing.recorded_loader_ns == 5
    ran_ahead = timing.undisturbed_ns is None
    assert ran_ahead == (durations[0] < 80)
    assert ("ran-ahead" in [note.code for note in timing_notes(timing)]) == ran_ahead


@pytest.mark.parametrize(("ahead", "host_ns"), [((20, 24, 22), 11), ((20, 24), None), ((85, 85, 85), None)])
def test_three_steps_launched_ahead_of_the_gpu_show_the_time_of_the_cpu(
    ahead: tuple[int, ...], host_ns: int | None
) -> None:
    # Half of each is in the loader.
    timing = run_timing(_steps(*[100] * 9, *ahead), 1, work_ns=95)
    assert timing.host_ns == host_ns
    assert timing.undisturbed_ns == 100


def test_steps_launched_after_the_recording_take_longer_to_launch() -> None:
    before, recorded = _steps(100, 40, 44), _steps(100, 100, state=RECORDED, first=4)
    steps = [*before, *recorded, *_steps(*[60] * 20, first=6)]
    assert run_timing(steps, 1, work_ns=95).host_ns == 21


def test_fewer_steps_than_a_burst_give_their_mean() -> None:
    assert run_timing(_steps(10, 20), 4).undisturbed_ns == 15


@pytest.mark.parametrize(("recorded", "share"), [(100, 0.0), (125, 0.25), (80, -0.2)])
def test_the_disturbance_is_how_much_longer_recorded_steps_take(recorded: int, share: float) -> None:
    timing = run_timing([*_steps(100, 100), *_steps(recorded, recorded, state=RECORDED, first=3)], 1)
    assert timing.disturbance_share == pytest.approx(share)


def test_without_undisturbed_steps_no_disturbance_is_claimed() -> None:
    assert run_timing(_steps(10, state=RECORDED), 1).disturbance_share is None


@pytest.mark.parametrize(("loader_ns", "codes"), [(50, []), (41, []), (39, ["loader-disturbed"])])
def test_a_wait_that_recording_hides_is_reported(loader_ns: int, codes: list[str]) -> None:
    # Undisturbed steps of 100 are 50 in the loader.
    recorded = [TimedStep(3, 0, 100, loader_ns, 1, RECORDED)]
    assert [note.code for note in timing_notes(run_timing([*_steps(100, 100), *recorded], 1))] == codes


def test_without_steps_all_medians_are_none() -> None:
    timing = run_timing([], 1)
    assert (timing.undisturbed_ns, timing.recorded_ns, timing.fetches_per_step) == (None, None, None)


@pytest.mark.parametrize(("recorded", "share"), [(200, 0.5), (100, 1.0), (80, 1.0)])
def test_undisturbed_steps_take_their_share_of_recorded_ones_and_no_more(recorded: int, share: float) -> None:
    timing = run_timing([*_steps(100, 100), *_steps(recorded, recorded, state=RECORDED, first=3)], 1)
    assert timing.undisturbed_share == share
    assert run_timing(_steps(100), 1).undisturbed_share == 1


@pytest.mark.parametrize(("recorded", "codes"), [(109, []), (111, ["disturbed"]), (91, []), (89, ["disturbed"])])
def test_steps_are_disturbed_beyond_a_tenth(recorded: int, codes: list[str]) -> None:
    timing = run_timing([*_steps(100, 100), *_steps(recorded, recorded, state=RECORDED, first=3)], 1)
    assert [note.code for note in timing_notes(timing) if "loader" not in note.code] == codes


@pytest.mark.parametrize(("recorded", "codes"), [(50, ["other-steps"]), (51, ["disturbed"])])
def test_recorded_steps_of_half_the_time_or_less_are_of_another_kind(recorded: int, codes: list[str]) -> None:
    """Five steps of 60 before them and after them, then many of 100."""
    before, after = _steps(*[60] * 5), _steps(*[60] * 5, *[100] * 30, first=8)
    timing = run_timing([*before, *_steps(recorded, recorded, state=RECORDED, first=6), *after], 1)
    notes = [note for note in timing_notes(timing) if "loader" not in note.code]
    assert [note.code for note in notes] == codes
    assert ("take 2.0 times as long" in notes[0].message) is (codes == ["other-steps"])
    busy = " ".join(note.message for note in timing_notes(timing, is_busy=True))
    assert ("first repeat on an idle one" in busy) is (codes == ["other-steps"])
    assert "--skip-first" not in busy  # one thing to do


def test_short_recorded_steps_among_steps_as_long_as_all_are_chance() -> None:
    timing = run_timing([*_steps(100, 100), *_steps(40, 40, state=RECORDED, first=3), *_steps(100, 100, first=5)], 1)
    assert [note.code for note in timing_notes(timing) if "loader" not in note.code] == ["disturbed"]


def test_excess_and_shares_of_the_loader_are_of_recorded_and_undisturbed_steps() -> None:
    recorded = [TimedStep(3, 0, 160, 40, 1, RECORDED)]
    timing = run_timing([*_steps(100, 100), *recorded], 1)
    assert timing.excess_ns == (60, -10)
    assert timing.loader_shares == (0.5, 0.25)
    assert run_timing(_steps(100), 1).excess_ns == (0, 0)
    assert run_timing(_steps(100), 1).loader_shares is None


def _correlated(count: int, seed: int, *, sigma: float = 0.1) -> list[int]:
    """Step times whose logarithms keep 0.7 of their difference from one step to the next."""
    generator = np.random.default_rng(seed)
    level, times = 0.0, []
    for shock in generator.normal(0, sigma, count):
        level = 0.7 * level + shock
        times.append(round(1e7 * math.exp(level)))
    return times


@pytest.mark.parametrize("effect", [1.0, 1.4])
def test_the_interval_of_the_ratio_holds_the_planted_one_although_steps_depend_on_each_other(effect: float) -> None:
    held = 0
    for seed in range(300):
        times = _correlated(79, seed)
        plain, recorded = times[:71], [round(effect * each) for each in times[71:]]
        steps = [*_steps(*plain), *_steps(*recorded, state=RECORDED, first=72)]
        found = run_timing(steps, 1).distortion()
        assert found is not None
        assert found.ratio_low is not None
        assert found.ratio_high is not None
        held += found.ratio_low <= effect <= found.ratio_high
    assert 0.92 <= held / 300 <= 0.99


def test_too_few_undisturbed_steps_give_a_ratio_without_an_interval() -> None:
    found = run_timing([*_steps(*[100] * 7), *_steps(*[150] * 8, state=RECORDED, first=8)], 1).distortion()
    assert found is not None
    assert (found.ratio, found.ratio_low, found.is_strong) == (1.5, None, True)


def test_a_window_does_not_reach_over_a_missing_step() -> None:
    steps = [step for step in _steps(*[100] * 17) if step.index % 2]
    assert run_timing([*steps, *_steps(150, state=RECORDED, first=18)], 1).spread is None


def test_a_ratio_that_the_run_shows_by_itself_is_no_distortion() -> None:
    plain = _steps(*[100, 100, 250, 250] * 10)
    found = run_timing([*plain, *_steps(*[300] * 2, state=RECORDED, first=41)], 1).distortion()
    assert found is not None
    assert found.is_random
    assert not found.is_strong
    assert found.doubt is None


def test_added_time_is_split_into_the_loader_and_the_rest() -> None:
    plain, recorded = _steps(*[100] * 40), _steps(*[160] * 8, state=RECORDED, first=41)
    found = run_timing([*plain, *recorded], 1).distortion(gpu_work_ns=20.0)
    assert found is not None
    assert (found.added_ns, found.recorded_loader_ns - found.undisturbed_loader_ns) == (60, 30)
    assert (found.undisturbed_rest_ns, found.undisturbed_loader_share, found.gpu_work_ns) == (50, 0.5, 20.0)
    assert found.doubt == Reason(Doubt.DISTORTED, 1.6)


@pytest.mark.parametrize(("recorded", "words"), [(120, "Findings about the CPU"), (160, "the shares are rough")])
def test_distortion_is_a_quiet_note_with_its_interval(recorded: int, words: str) -> None:
    steps = [*_steps(*[100, 102] * 20), *_steps(*[recorded] * 8, state=RECORDED, first=41)]
    (note,) = timing_notes(run_timing(steps, 1))
    assert f"{recorded / 101:.2f} times as long as undisturbed ones (95% interval " in note.message
    assert words in note.message
    assert not note.degrades
