from dataclasses import replace

import numpy as np
import pytest

from traceadvisor.analysis.steps.clocks import ClockJumps, clock_jumps, clock_notes, pauses
from traceadvisor.analysis.steps.run_time import run_time
from traceadvisor.model.run import ClockReading, Run, RunSettings, StepState, TimedStep
from traceadvisor.model.run_time import RunPart
from traceadvisor.model.telemetry import ProcessColumn, Series, Telemetry

S = 1_000_000_000
WALL = 10**18


def _run(*jumps_s: float, step_s: float = 0.5) -> Run:
    """Steps of half a second; before each, the wall clock jumps by so many seconds."""
    steps, wall = [], WALL
    for number, jump in enumerate(jumps_s):
        wall += round(jump * S)
        clock = round(number * step_s * S)
        steps.append(TimedStep(number, wall + clock, round(step_s * S), 0, 1, StepState.PLAIN, 0, clock, 0))
    return Run(("train.py",), "", tuple(steps), RunSettings(), None)


def _sampled(run: Run, times_s: list[float], cpu: list[float]) -> Run:
    """Samples of the processes at these seconds; NaN marks a gap."""
    times = np.array([WALL + round(at * S) for at in times_s], dtype=np.int64)
    series = Series(times, {ProcessColumn.CPU_PERCENT.value: np.array(cpu)})
    empty = Series(np.empty(0, np.int64), {})
    return replace(run, telemetry=Telemetry("host", (), empty, series, 2, None))


def test_clocks_that_agree_need_no_note() -> None:
    assert clock_jumps(_run(0, 0, 0)) == ClockJumps()
    assert list(clock_notes(_run(0, 0, 0))) == []


def test_a_clock_corrected_little_by_little_agrees() -> None:
    # Half a millisecond in a second is the fastest correction of NTP.
    assert clock_jumps(_run(*[0.9] * 3, step_s=1000)) == ClockJumps()


@pytest.mark.parametrize(
    ("jumps", "found", "words"),
    [
        ((0, 3600 * 8, 0), ClockJumps(forward_ns=3600 * 8 * S), "480 min ahead: the machine was suspended"),
        ((0, -30, 0), ClockJumps(back_ns=30 * S), "set back by 30.0 s"),
        ((0, -30, 40), ClockJumps(40 * S, 30 * S), "40.0 s ahead"),
    ],
)
def test_one_note_names_all_jumps(jumps: tuple[float, ...], found: ClockJumps, words: str) -> None:
    assert clock_jumps(_run(*jumps)) == found
    (note,) = clock_notes(_run(*jumps))
    assert words in note.message
    assert not note.degrades


def test_a_jump_before_the_first_step_and_after_the_last_counts() -> None:
    run = replace(_run(0, 0), started=ClockReading(WALL - 60 * S, -10 * S), ended=ClockReading(WALL, 5 * S))
    assert clock_jumps(run) == ClockJumps(forward_ns=50 * S, back_ns=5 * S)


def test_without_a_monotonic_clock_only_a_clock_set_back_shows() -> None:
    run = _run(0, 3600, -7200)
    steps = tuple(replace(step, clock_ns=None) for step in run.steps)
    assert clock_jumps(replace(run, steps=steps)) == ClockJumps(back_ns=7200 * S)


def test_processes_that_neither_ran_nor_sampled_were_paused() -> None:
    run = _sampled(_run(0), [0, 0.1, 30, 60, 60.1], [90, 95, np.nan, 0.2, 90])
    assert pauses(run) == ((WALL + S // 10, WALL + 60 * S),)
    (note,) = clock_notes(run)
    assert note.message == "The processes did not run for 59.9 s, as in a paused container."


@pytest.mark.parametrize(
    ("end_s", "cpu"),
    [(4, 0.0), (60, 80.0), (60, np.nan)],
    ids=["short", "busy meanwhile", "unknown"],
)
def test_a_silent_sampler_alone_is_no_pause(end_s: float, cpu: float) -> None:
    assert pauses(_sampled(_run(0), [0, 0.1, end_s / 2, end_s, end_s + 0.1], [90, 95, np.nan, cpu, 90])) == ()


def test_a_pause_is_no_training_time() -> None:
    steps = tuple(
        TimedStep(
            number, WALL + (number + 60 * (number > 5)) * S, (61 if number == 5 else 1) * S, 0, 1, StepState.PLAIN
        )
        for number in range(10)
    )
    run = _sampled(
        Run(("a",), "", steps, RunSettings(), None), [0, 5.5, 30, 65.4, 66, 70], [90, 90, np.nan, 0.1, 90, 90]
    )
    found = run_time(run)
    assert found is not None
    assert found.parts_ns[RunPart.PAUSED] == 59_900_000_000
    assert found.parts_ns[RunPart.TRAINING] + found.parts_ns[RunPart.SLOW] == 10 * S + 100_000_000
