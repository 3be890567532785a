from __future__ import annotations

from itertools import groupby

import pytest

from tests.recording.looping import VALID, Loop, states
from traceadvisor.model.run import StepState
from traceadvisor.recording.loop.window import EXTRA_ATTEMPTS, UNTRAINED_BATCHES

LONG = 8 * UNTRAINED_BATCHES + 1
"""Batches of a validation that is too long to record."""


def runs(loop: Loop) -> list[tuple[str, int]]:
    """States of the steps, each with how often in a row."""
    return [(state, len(list(rows))) for state, rows in groupby(states(loop.finish()))]


def test_warm_up_lasts_until_a_loader_queue_has_settled() -> None:
    loop = Loop(skip_first=3, wait=2, warmup=1, workers=4, prefetch=2).steps(40).exhaust()
    assert runs(loop)[:4] == [("plain", 5), ("warmup", 8), ("settling", 1), ("recorded", 8)]


def test_after_an_export_the_queue_settles_before_steps_count_again() -> None:
    loop = Loop(skip_first=5, workers=4, prefetch=2).steps(50).exhaust()
    assert runs(loop)[4:] == [("stalled", 1), ("settling", 9), ("plain", 18)], "8 batches shrink by 10 in 11 a step"


def test_a_queue_takes_longer_to_drain_if_the_loop_hardly_waits() -> None:
    loop = Loop(skip_first=5, workers=2, prefetch=2)
    for _ in range(80):
        loop.fetch().work(9).optimize()
    loop.exhaust()
    assert runs(loop)[5] == ("settling", 8), "4 batches shrink by 10 in 20 a step"
    loop = Loop(skip_first=5, workers=2, prefetch=2)
    for _ in range(80):
        loop.fetch().work(999).optimize()
    loop.exhaust()
    assert runs(loop)[5] == ("settling", 16), "no more than four times its length"


def test_a_start_that_takes_long_is_settled_too() -> None:
    loop = Loop(skip_first=5, workers=4, prefetch=2, stall_ns=5).steps(40).exhaust()
    assert runs(loop)[1:3] == [("warmup", 9), ("settling", 10)], "5 ns of a step of 11"
    loop = Loop(skip_first=5, workers=4, prefetch=2, stall_ns=1).steps(40).exhaust()
    assert runs(loop)[2] == ("settling", 1)


@pytest.mark.parametrize(("asked", "workers", "recorded"), [(3, 0, 8), (8, 12, 12), (20, 4, 20), (8, 3, 9)])
def test_the_window_is_no_shorter_than_8_steps_and_holds_whole_bursts_of_the_workers(
    asked: int, workers: int, recorded: int
) -> None:
    loop = Loop(active=asked, workers=workers, prefetch=1).steps(60).exhaust()
    assert ("recorded", recorded) in runs(loop)


def test_marks_carry_the_numbers_of_the_log() -> None:
    loop = Loop(skip_first=4).steps(30).exhaust()
    rows = loop.finish()
    assert (
        loop.recorder.marks == [row.index for row in rows if row.state in {StepState.SETTLING, StepState.RECORDED}][:9]
    )
    assert loop.recorder.calls == ["prepare", "start", "save 0"]


def test_a_schedule_repeats() -> None:
    loop = Loop(skip_first=2, wait=3, repeat=2).steps(60).exhaust()
    assert [state for state, _ in runs(loop)] == [
        *("plain", "warmup", "settling", "recorded", "stalled"),
        *("plain", "warmup", "settling", "recorded", "stalled", "plain"),
    ]
    assert loop.recorder.calls.count("save 1") == 1


def test_a_long_validation_ends_a_recording_and_the_window_is_recorded_again() -> None:
    loop = Loop().steps(6)
    for _ in range(LONG):
        loop.fetch(VALID)
    loop.steps(30).exhaust()
    loop.finish()
    assert loop.recorder.calls == ["prepare", "start", "save 0 cut", "prepare", "start", "save 1"]
    (note,) = loop.window.notes
    assert (note.code, note.degrades) == ("window-cut", False)
    assert note.message == "A recording ended early: after 3 steps because validation began. 1 other is whole."


@pytest.mark.parametrize("repeat", [1, 3])
def test_a_window_that_validation_always_cuts_gets_two_extra_attempts(repeat: int) -> None:
    loop = Loop(repeat=repeat)
    for _ in range(repeat + EXTRA_ATTEMPTS + 4):
        loop.steps(6)
        for _ in range(LONG):
            loop.fetch(VALID)
    loop.steps(30).exhaust().finish()
    assert EXTRA_ATTEMPTS == 2
    assert loop.recorder.calls.count("prepare") == repeat + EXTRA_ATTEMPTS
    (note,) = loop.window.notes
    assert (note.code, note.degrades) == ("window-cut", True)


def test_a_window_that_is_cut_once_costs_no_repetition() -> None:
    loop = Loop(repeat=2).steps(6)
    for _ in range(LONG):
        loop.fetch(VALID)
    loop.steps(60).exhaust().finish()
    assert loop.recorder.calls.count("prepare") == 3


def test_a_short_validation_is_recorded_and_left_out() -> None:
    loop = Loop().steps(6).exhaust().fetch(VALID).exhaust(VALID).steps(20).exhaust()
    rows = loop.finish()
    assert loop.recorder.calls == ["prepare", "start", "save 0"]
    assert states(rows).count("recorded") == 8
    assert rows[6].state is StepState.OTHER
    assert 6 in loop.recorder.marks


def test_the_note_on_an_early_end_names_the_flags_to_change() -> None:
    loop = Loop(skip_first=5, wait=5, warmup=3).steps(9).exhaust()
    loop.finish()
    (note,) = loop.window.notes
    assert note.code == "window-not-reached"
    assert "after 9 training steps" in note.message
    assert "--skip-first 0 --wait 0" in note.message


def test_a_script_that_ends_within_the_window_keeps_its_whole_steps() -> None:
    loop = Loop(skip_first=2).steps(8)
    rows = loop.finish()
    assert states(rows)[-2:] == ["recorded", "stalled"], "the mark of the last one lasts until the profiler stops"
    assert loop.recorder.calls == ["prepare", "start", "save 0 cut"]
    assert loop.notes == ["window-incomplete"]


def test_a_run_without_training_says_so() -> None:
    loop = Loop().fetch().fetch().exhaust()
    loop.finish()
    assert "No training step was found" in loop.window.notes[0].message


def test_another_profiler_takes_precedence() -> None:
    loop = Loop().steps(5)
    loop.window.give_way("own-profiler", "")
    rows = loop.steps(30).finish()
    assert loop.recorder.calls == ["prepare", "start", "discard"]
    assert states(rows)[-20:] == ["plain"] * 20
