from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest

from tests.analysis.sampled.sampling import Samples, user
from traceadvisor.analysis.steps.run_time import run_time
from traceadvisor.analysis.whole_run.sampled_steps import sampled_steps
from traceadvisor.model.run import ClockReading, Run, RunSettings, StepState, TimedStep
from traceadvisor.model.run_time import RunPart, RunTime
from traceadvisor.model.samples import OWN_WORK, TimedSample

MS = 1_000_000
WALL = 10**18
CLOCK = 5 * 10**9


class Log:
    """A run on one clock: each step begins where the step before it ended, after a gap."""

    def __init__(self, start_up_ms: float = 0) -> None:
        self.steps: list[TimedStep] = []
        self._at = 0
        self._begun = -round(start_up_ms * MS)

    def add(
        self,
        ms: float,
        state: StepState = StepState.PLAIN,
        *,
        count: int = 1,
        gap_ms: float = 0,
        loader_ms: float = 0,
        loader_start_ms: float = 0,
        checkpoint_ms: float = 0,
        fetches: int = 1,
    ) -> Log:
        for _ in range(count):
            self._at += round(gap_ms * MS)
            self.steps.append(
                TimedStep(
                    len(self.steps),
                    WALL + self._at,
                    round(ms * MS),
                    round(loader_ms * MS),
                    fetches,
                    state,
                    round(loader_start_ms * MS),
                    CLOCK + self._at,
                    round(checkpoint_ms * MS),
                )
            )
            self._at += round(ms * MS)
        return self

    def run(self, after_ms: float = 0, checkpoint_after_ms: float = 0) -> Run:
        end = self._at + round(after_ms * MS)
        return Run(
            ("train.py",),
            "ran to its end",
            tuple(self.steps),
            RunSettings(),
            None,
            started=ClockReading(WALL + self._begun, CLOCK + self._begun),
            ended=ClockReading(WALL + end, CLOCK + end),
            checkpoint_after_ns=round(checkpoint_after_ms * MS),
        )


def _parts(run: Run) -> dict[str, float]:
    """The parts with time, in milliseconds."""
    found = _found(run)
    return {part.value: ns / MS for part, ns in found.parts_ns.items() if ns}


def _found(run: Run) -> RunTime:
    found = run_time(run)
    assert found is not None
    assert sum(found.parts_ns.values()) == found.total_ns
    return found


def test_a_plain_run_is_start_up_steps_and_the_end() -> None:
    run = Log(start_up_ms=500).add(10, count=20).run(after_ms=30)
    assert _parts(run) == {"start_up": 500, "training_steps": 200, "after_last_step": 30}
    assert _found(run).is_whole
    assert _found(run).loop_ns == 200 * MS
    assert _found(run).training_share_of_loop == 1


def test_the_first_step_beyond_a_usual_one_is_start_up() -> None:
    assert _parts(Log().add(400).add(10, count=9).run()) == {"start_up": 390, "training_steps": 100}


def test_a_sole_step_stays_a_step() -> None:
    assert _parts(Log().add(400).run()) == {"training_steps": 400}


def test_loops_without_an_optimizer_step_are_validation() -> None:
    log = Log().add(10, count=10).add(300, StepState.OTHER, fetches=6).add(10, count=10)
    found = _found(log.run())
    assert _parts(log.run()) == {"training_steps": 200, "validation": 300}
    assert found.training_share_of_loop == pytest.approx(0.4)


def test_loops_of_one_batch_that_feed_each_step_are_training_and_a_long_stretch_of_them_is_validation() -> None:
    log = Log()
    for count in (2, 2, 2, 2, 2, 60, 2, 2):
        log.add(5, StepState.OTHER, count=count).add(10)
    assert _parts(log.run()) == {"training_steps": 150, "validation": 300}


def test_without_a_batch_it_is_no_validation() -> None:
    assert _parts(Log().add(10, count=4).add(7, StepState.OTHER, fetches=0).run())["other"] == 7


def test_checkpoints_are_taken_out_of_steps_validation_and_the_end() -> None:
    log = Log().add(10, count=9).add(60, checkpoint_ms=50).add(100, StepState.OTHER, checkpoint_ms=20).add(10, count=5)
    parts = _parts(log.run(after_ms=70, checkpoint_after_ms=65))
    assert parts == {"training_steps": 150, "validation": 80, "checkpoints": 135, "after_last_step": 5}


def test_an_epoch_start_is_the_new_iterator_and_the_extra_wait_for_its_first_batch() -> None:
    log = Log().add(10, loader_ms=1, count=10)
    log.add(45, loader_ms=11, loader_start_ms=25).add(10, loader_ms=1, count=10)
    assert _parts(log.run()) == {"training_steps": 210, "epoch_starts": 35}


def test_an_iterator_made_after_validation_is_taken_from_the_validation() -> None:
    log = Log().add(10, count=5).add(80, StepState.OTHER).add(10, loader_start_ms=30).add(10, count=5)
    assert _parts(log.run()) == {"training_steps": 110, "validation": 50, "epoch_starts": 30}


def test_an_iterator_made_after_a_break_is_taken_from_the_last_step_of_its_loop() -> None:
    log = Log().add(10, count=9).add(60).add(10, loader_start_ms=50).add(10, count=9)
    assert _parts(log.run()) == {"training_steps": 200, "epoch_starts": 50}


def test_gaps_between_steps_and_the_longer_profiled_steps_are_the_recording() -> None:
    log = Log().add(10, count=20).add(15, StepState.RECORDED, count=8, gap_ms=0)
    log.add(10, StepState.STALLED, gap_ms=700).add(10, count=10)
    assert _parts(log.run()) == {"training_steps": 390, "recording": 740}


def test_recorded_steps_that_are_shorter_take_nothing_away() -> None:
    log = Log().add(10, count=20).add(5, StepState.RECORDED, count=8)
    assert _parts(log.run()) == {"training_steps": 240}


def test_one_slow_recorded_step_is_not_the_profilers() -> None:
    log = Log().add(10, count=20).add(10, StepState.RECORDED, count=7).add(900, StepState.RECORDED)
    assert _parts(log.run()) == {"training_steps": 1170}


@pytest.mark.parametrize(("at_work_ms", "recording"), [(0, 42), (3_000, 3_042)])
def test_a_long_step_that_ended_a_recording_is_the_profilers_as_far_as_samples_show_it(
    at_work_ms: int, recording: float
) -> None:
    """Between rounds of short steps, the script searches for 5 s: in a step that warms up, and in one that stalled."""
    log = Log().add(10, count=20).add(5_010, StepState.WARMUP).add(12, StepState.WARMUP, count=2)
    run = log.add(15, StepState.RECORDED, count=6).add(8_010, StepState.STALLED).run()
    begun_ns = run.steps[-1].clock_ns or 0
    samples = Samples().add(1, user("search", 20)).add(1, OWN_WORK).build()
    doing = [(at, int(at < at_work_ms)) for at in range(0, 8_000, 100)]
    timed = tuple(TimedSample(begun_ns + at * MS, stack, 100 * MS, 0) for at, stack in doing)
    run = replace(run, stacks=replace(samples, timed=timed))
    found = run_time(run, sampled=sampled_steps(run, None))
    assert found is not None
    assert found.parts_ns[RunPart.RECORDING] / MS == pytest.approx(recording - 1, abs=2)


def test_validation_during_which_a_recording_is_saved_is_as_long_as_the_others() -> None:
    log = Log().add(10, count=10).add(300, StepState.OTHER, fetches=6).add(10, count=10)
    log.add(10, StepState.RECORDED, count=8).add(7_300, StepState.OTHER, fetches=6).add(10, count=10)
    assert _parts(log.run()) == {"training_steps": 380, "validation": 600, "recording": 7_000}


def test_validation_that_only_ever_follows_recorded_steps_stays_validation() -> None:
    log = Log().add(10, count=10).add(10, StepState.RECORDED, count=8).add(7_300, StepState.OTHER, fetches=6).add(10)
    assert _parts(log.run()) == {"training_steps": 190, "validation": 7_300}


def test_a_run_of_an_older_capture_is_known_from_its_first_step_to_its_last() -> None:
    steps = [
        replace(step, clock_ns=None, checkpoint_ns=None, loader_start_ns=None) for step in Log().add(10, count=5).steps
    ]
    found = _found(Run(("a",), "", tuple(steps), RunSettings(), None))
    assert not found.is_whole
    assert set(found.parts_ns) == {
        RunPart.START_UP,
        RunPart.TRAINING,
        RunPart.VALIDATION,
        RunPart.RECORDING,
        RunPart.OTHER,
    }
    assert found.total_ns == 50 * MS


def test_the_time_after_a_run_was_stopped_is_that_of_the_recording() -> None:
    run = replace(Log(start_up_ms=50).add(10, count=5).run(after_ms=900), was_stopped=True)
    assert _parts(run) == {"start_up": 50, "training_steps": 50, "recording": 900}


def test_a_killed_run_has_no_end() -> None:
    found = _found(replace(Log(start_up_ms=50).add(10, count=5).run(after_ms=9), ended=None))
    assert (found.total_ns, found.is_whole) == (50 * MS, False)


def test_a_clock_that_jumps_changes_no_duration() -> None:
    log = Log(start_up_ms=100).add(10, count=20)
    jumped = [replace(step, start_ns=step.start_ns - 3600 * 10**9 * (step.index > 9)) for step in log.steps]
    assert _parts(replace(log.run(), steps=tuple(jumped))) == _parts(log.run())
    without = [replace(step, clock_ns=None) for step in jumped]
    assert _found(replace(log.run(), steps=tuple(without))).total_ns == 200 * MS


def test_without_steps_nothing_is_known() -> None:
    assert run_time(Log().run()) is None


def test_steps_of_more_than_a_lifetime_are_not_divided() -> None:
    step = Log().add(1).steps[0]
    steps = tuple(replace(step, index=number, duration_ns=10**15 - 1) for number in range(10_000))
    assert run_time(Run(("a",), "", steps, RunSettings(), None)) is None


@pytest.mark.nightly("traceadvisor/analysis/steps")
def test_a_hundred_thousand_steps_are_divided_in_four_seconds_of_cpu_time() -> None:
    log, once = Log(1000), Log().add(1).steps[0]
    for number in range(100_000):
        log.steps.append(replace(once, index=number, start_ns=WALL + number * MS, clock_ns=CLOCK + number * MS))
    run, begin_s = log.run(), time.thread_time()
    assert run_time(run)
    assert time.thread_time() - begin_s < 4


@pytest.mark.parametrize("seed", range(40))
def test_parts_of_any_log_are_positive_and_sum_to_the_whole(seed: int) -> None:
    draw = random.Random(seed)
    huge = 10 ** draw.choice((3, 9, 15, 18))
    number = draw.randrange(huge)
    steps = tuple(
        TimedStep(
            draw.randrange(30),
            draw.randrange(huge),
            draw.randrange(1, 10**15),
            draw.randrange(huge),
            draw.randrange(3),
            draw.choice(list(StepState)),
            draw.choice((None, draw.randrange(huge))),
            draw.choice((None, draw.randrange(huge))) if seed % 2 else draw.randrange(huge),
            draw.choice((None, draw.randrange(huge))),
        )
        for _ in range(20)
    )
    reading = ClockReading(number, number)
    run = Run(("a",), "", steps, RunSettings(), None, started=reading, ended=reading, checkpoint_after_ns=number)
    found = _found(run)
    assert min(found.parts_ns.values()) >= 0
    assert found.loop_ns >= 0
