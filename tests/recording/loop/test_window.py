from itertools import groupby

import pytest

from tests.recording.looping import EXTRA, VALID, Loop, states
from traceadvisor.bundle.layout import Schedule
from traceadvisor.model.run import StepState
from traceadvisor.recording.loop.window import EXTRA_ATTEMPTS, UNTRAINED_BATCHES, Plan

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
    assert runs(loop)[1:3] == [("warmup", 8), ("settling", 10)], "5 ns of a step of 11"
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


def test_the_note_asks_for_no_fewer_steps_than_there_were() -> None:
    loop = Loop(skip_first=5, wait=5, warmup=3)
    for _ in range(20):
        loop.steps(2)
        for _ in range(LONG):
            loop.fetch(VALID)
    loop.exhaust().finish()
    (note,) = loop.window.notes
    assert note.message.endswith("Train for longer, or with fewer validations and checkpoints.")


def test_the_note_on_an_early_end_names_the_flags_to_change() -> None:
    loop = Loop(skip_first=5, wait=5, warmup=3).steps(9).exhaust()
    loop.finish()
    (note,) = loop.window.notes
    assert note.code == "window-not-reached"
    assert "after 9 training steps" in note.message
    assert "--skip-first 0 --wait 0" in note.message


@pytest.mark.parametrize(
    ("failed", "words"), [(True, "ended with an error before its first"), (False, "No step was found")]
)
def test_the_note_on_a_run_without_steps_tells_an_error_from_a_loop_that_was_not_seen(
    words: str, *, failed: bool
) -> None:
    loop = Loop()
    loop.window.finish(failed=failed)
    (note,) = loop.window.notes
    assert words in note.message


def test_a_script_that_ends_within_the_window_keeps_its_whole_steps() -> None:
    loop = Loop(skip_first=2).steps(8)
    rows = loop.finish()
    assert states(rows)[-2:] == ["recorded", "stalled"], "the mark of the last one lasts until the profiler stops"
    assert loop.recorder.calls == ["prepare", "start", "save 0 cut"]
    assert loop.notes == ["window-incomplete"]


def test_a_run_without_training_says_so() -> None:
    loop = Loop().fetch().fetch().exhaust()
    loop.finish()
    assert "No step was found" in loop.window.notes[0].message


def test_another_profiler_takes_precedence() -> None:
    loop = Loop().steps(5)
    loop.window.give_way("own-profiler", "")
    rows = loop.steps(30).finish()
    assert loop.recorder.calls == ["prepare", "start", "discard"]
    assert states(rows)[-20:] == ["plain"] * 20


def long_validation(loop: Loop) -> None:
    for _ in range(LONG):
        loop.fetch(VALID)


def test_a_second_attempt_waits_and_settles_as_the_first() -> None:
    loop = Loop(wait=4, warmup=2, workers=2, prefetch=1).steps(10)
    long_validation(loop)
    loop.steps(60).exhaust()
    found = runs(loop)
    assert found[:5] == [("plain", 4), ("warmup", 2), ("settling", 1), ("recorded", 3), ("other", 1)]
    assert found[5:10] == [("settling", 4), ("plain", 4), ("warmup", 2), ("settling", 1), ("recorded", 8)]


def test_the_next_window_waits_until_one_fits_between_two_long_validations() -> None:
    loop = Loop(wait=6)
    for _ in range(4):
        loop.steps(14)
        long_validation(loop)
    rows = loop.finish()
    first, second = (
        row for row in rows if row.state is StepState.WARMUP and rows[row.index + 1].state is not row.state
    )
    assert first.index == 6, "nothing is known of validation yet: it cuts the window"
    assert second.index > 29, "6 steps are left before the second validation: too few for 10"
    assert loop.recorder.calls == ["prepare", "start", "save 0 cut", "prepare", "start", "save 1"]


def test_a_window_does_not_wait_for_a_validation_that_is_late() -> None:
    loop = Loop(wait=6).steps(14)
    long_validation(loop)
    loop.steps(60).exhaust().finish()
    assert loop.recorder.calls[-1] == "save 1"


def test_a_window_spans_epochs_with_a_short_validation_between() -> None:
    loop = Loop(wait=1)
    for _ in range(5):
        loop.steps(4).exhaust().work(40)
        for _ in range(UNTRAINED_BATCHES):
            loop.fetch(VALID)
        loop.exhaust(VALID)
    rows = loop.finish()
    recorded = [row.index for row in rows if row.state is StepState.RECORDED]
    assert len(recorded) == 8
    assert recorded[-1] - recorded[0] > 8, "with what lies between epochs in it"
    assert loop.recorder.calls == ["prepare", "start", "save 0"]
    assert loop.notes == []


def test_validation_in_several_short_parts_may_be_too_long_for_a_recording() -> None:
    loop = Loop()
    for _ in range(30):
        loop.steps(1)
        for _ in range(2 * UNTRAINED_BATCHES):
            loop.fetch(VALID)
    loop.finish()
    assert "save 0 cut" in loop.recorder.calls
    assert loop.notes == ["window-cut"]


def test_steps_that_prove_to_be_parts_of_steps_are_rejected_and_others_recorded() -> None:
    loop = Loop()
    for _ in range(30):
        for _ in range(12):
            loop.work(1).optimize(1)
        loop.work(1).optimize(2)
    rows = loop.finish()
    trained = [row for row in rows if row.state is not StepState.OTHER]
    assert {row.duration_ns for row in trained} == {26}
    assert sum(row.state is StepState.RECORDED for row in trained) == 8
    assert loop.recorder.calls[-1] in {"save 0", "save 1"}
    assert [note.code for note in loop.tracker.notes] == ["steps-uncertain"]


def test_rejected_steps_wake_no_window_that_gave_way_to_another_profiler() -> None:
    loop = Loop().steps(3)
    loop.window.give_way("own-profiler", "")
    loop.window.restart()
    rows = loop.steps(30).finish()
    assert states(rows)[3:] == ["plain"] * 30
    assert "save 0" not in loop.recorder.calls


def test_a_compilers_profiler_interrupts_the_warm_up_and_the_recording() -> None:
    loop = Loop(warmup=3).steps(3).fetch()
    loop.tracker.interrupted(lambda: loop.window.interrupt("a compiler measures"))
    assert loop.recorder.calls == ["prepare", "discard"]
    loop.optimize().steps(7).fetch()
    loop.tracker.interrupted(lambda: loop.window.interrupt("a compiler measures"))
    rows = loop.optimize().steps(30).exhaust().finish()
    assert loop.recorder.calls[2:] == ["prepare", "start", "save 0 cut", "prepare", "start", "save 1"]
    assert states(rows)[11] == "stalled"
    (note,) = loop.window.notes
    assert note.message == "A recording ended early: after 3 steps because a compiler measures. 1 other is whole."


def test_a_device_that_comes_into_use_after_the_recording_is_recorded() -> None:
    loop = Loop().steps(20)
    assert loop.recorder.calls == ["prepare", "start", "save 0"]
    loop.recorder.is_outdated = True
    loop.steps(20).exhaust().finish()
    assert loop.recorder.calls[3:] == ["prepare", "start", "save 1"]
    assert loop.notes == ["device-later"]


def test_a_device_that_comes_into_use_within_the_recording_cuts_it() -> None:
    loop = Loop().steps(6)
    loop.recorder.is_outdated = True
    loop.steps(30).exhaust().finish()
    assert loop.recorder.calls == ["prepare", "start", "save 0 cut", "prepare", "start", "save 1"]


def test_nothing_starts_or_ends_while_the_recorder_is_blocked() -> None:
    for first in range(12):
        loop = Loop().steps(first)
        calls = list(loop.recorder.calls)
        loop.recorder.is_blocked = True
        loop.steps(3)
        assert loop.recorder.calls == calls
        loop.recorder.is_blocked = False
        loop.steps(20).exhaust().finish()
        assert loop.recorder.calls == ["prepare", "start", "save 0"]


def test_a_compiler_that_always_interrupts_the_warm_up_is_named() -> None:
    loop = Loop(warmup=3)
    for _ in range(40):
        loop.fetch()
        if loop.recorder.calls[-1:] == ["prepare"]:
            loop.tracker.interrupted(lambda: loop.window.interrupt("a compiler measures"))
        loop.optimize()
    loop.exhaust().finish()
    assert loop.recorder.calls == ["prepare", "discard"] * 3
    (note,) = loop.window.notes
    assert note.message == "A recording ended early: before it began because a compiler measures."
    assert note.degrades


def test_a_profiler_that_fails_leaves_the_steps_timed() -> None:
    loop = Loop()

    def failing(cycle: int, *, whole: bool) -> bool:
        raise RuntimeError("CUDA error: device-side assert triggered")

    loop.recorder.save = failing  # type: ignore[method-assign]
    rows = loop.steps(30).exhaust().finish()
    assert len(rows) == 30
    (note,) = loop.window.notes
    assert note.code == "capture-failed"
    assert "device-side assert" in note.message


def _epochs(loop: Loop, count: int, *, steps: int = 10) -> Loop:
    for _ in range(count):
        loop.fetch(restarted=True).optimize().steps(steps - 1).exhaust()
    return loop


def test_a_new_loop_over_the_loader_ends_what_a_stall_left_in_the_queue() -> None:
    loop = _epochs(Loop(skip_first=12, warmup=3, workers=14, prefetch=2, stall_ns=5), 8)
    assert [run for run in runs(loop) if run[0] != "other"][:9] == [
        *(("plain", 10), ("plain", 2), ("warmup", 8), ("warmup", 1)),
        *(("settling", 9), ("settling", 1), ("recorded", 9), ("recorded", 5), ("stalled", 1)),
    ]


def test_a_stall_while_the_queue_of_a_new_loop_fills_lasts_until_the_next_one() -> None:
    loop = _epochs(Loop(skip_first=10, warmup=1, workers=14, prefetch=2, stall_ns=5), 9)
    assert [run for run in runs(loop) if run[0] != "other"][1:6] == [
        *(("warmup", 10), ("warmup", 1), ("settling", 9), ("settling", 1), ("recorded", 9)),
    ]


def test_loops_that_another_loader_begins_leave_the_queue_alone() -> None:
    loop = Loop(skip_first=2, warmup=1, workers=4, prefetch=2, stall_ns=5)
    for _ in range(60):
        loop.fetch().fetch(EXTRA, restarted=True).optimize()
    assert runs(loop.exhaust())[1:3] == [("warmup", 8), ("settling", 10)]


def test_a_loader_with_few_batches_never_has_more_than_those_ready() -> None:
    plan = Plan.of(Schedule(0, 0, 3, 8, 1), 14, 2, 10)
    assert (plan.settle, plan.warmup, plan.active) == (10, 10, 10)
    assert Plan.of(Schedule(0, 0, 3, 8, 1), 14, 2).settle == 28


@pytest.mark.parametrize(
    ("steps", "ends", "kept"),
    [
        *((10, "loop", 0), (11, "loop", 1), (18, "loop", 8), (19, "loop", 8)),
        *((11, "break", 0), (12, "break", 1), (19, "break", 8), (20, "break", 8)),
    ],
)
def test_a_script_that_ends_while_its_queue_settles_keeps_the_last_of_these_steps(
    steps: int, ends: str, kept: int
) -> None:
    """Ten steps settle the queue; the profiler starts in the first. A script that breaks its loop ends in the last."""
    loop = Loop(warmup=1, workers=8, prefetch=1, stall_ns=10).steps(steps)
    rows = (loop.exhaust() if ends == "loop" else loop).finish()
    assert loop.recorder.calls[-1] == ("save 0 cut" if kept else "discard")
    assert loop.window.counted_late == loop.window.saved_steps == kept
    assert states(rows).count("settling") > kept
    (note,) = loop.window.notes
    assert (note.code, note.degrades) == ("window-unsettled" if kept else "window-not-reached", True)


def test_late_steps_are_those_of_this_recording_where_a_new_loop_ends_the_settling() -> None:
    loop = Loop(warmup=1, workers=8, prefetch=1, stall_ns=10).steps(13).exhaust().fetch(restarted=True).optimize()
    rows = loop.finish()
    assert states(rows)[9:] == ["settling"] * 4 + ["other", "stalled"]
    assert (loop.window.counted_late, loop.window.saved_steps) == (3, 3)


def test_a_recording_that_cannot_be_written_counts_no_late_steps() -> None:
    loop = Loop(warmup=1, workers=8, prefetch=1, stall_ns=10).steps(15).exhaust()

    def unwritten(cycle: int, *, whole: bool) -> bool:
        return False

    loop.recorder.save = unwritten  # type: ignore[method-assign]
    loop.finish()
    assert loop.window.counted_late == 0


def test_a_second_recording_that_did_not_settle_adds_nothing_to_a_whole_one() -> None:
    loop = Loop(warmup=1, workers=8, prefetch=1, stall_ns=10, repeat=2).steps(48).exhaust()
    loop.finish()
    assert (loop.window.counted_late, loop.window.saved_steps, loop.notes) == (0, 8, [])


def test_settling_takes_half_of_a_recording_at_most() -> None:
    loop = Loop(warmup=1, workers=8, prefetch=8, stall_ns=10).steps(68)
    assert loop.recorder.calls == ["prepare", "start"]
    loop.recorder.used = 0.5
    rows = loop.steps(20).exhaust().finish()
    assert states(rows).count("recorded") == 8
    (note,) = loop.window.notes
    assert (note.code, note.degrades) == ("window-unsettled", True)
