import random
import threading
import time
import tracemalloc
from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest

from traceadvisor.bundle.steps import BLOCK_STEPS, StepLog, read_steps
from traceadvisor.model.run import StepState, TimedStep

STEPS = tuple(
    TimedStep(number, 100 + number, 20, 4, 2, state, 7, 900 + number, 3) for number, state in enumerate(StepState)
)


def written(log: StepLog, path: Path) -> None:
    half = len(log) // 2
    path.write_bytes(log.header + log.encoded(0, half) + log.encoded(half, len(log)))


def test_steps_are_read_as_they_were_written(tmp_path: Path) -> None:
    log = StepLog()
    for step in STEPS:
        log.add(step)
    written(log, tmp_path / "steps.0.csv")
    assert read_steps(tmp_path / "steps.0.csv") == (STEPS, ())
    assert tuple(log) == STEPS
    assert (len(log), log.count(StepState.PLAIN)) == (len(StepState), 1)


def test_later_columns_follow_those_that_captures_have_always_written() -> None:
    header = b"step,start_ns,duration_ns,loader_ns,fetches,state,loader_start_ns,clock_ns,checkpoint_ns\n"
    assert StepLog.header == header


@pytest.mark.parametrize("left_out", [1, 2, 30])
def test_a_last_step_that_was_not_written_whole_is_left_out(tmp_path: Path, left_out: int) -> None:
    log = StepLog()
    for step in STEPS:
        log.add(step)
    written(log, tmp_path / "steps.0.csv")
    content = (tmp_path / "steps.0.csv").read_bytes()
    (tmp_path / "steps.0.csv").write_bytes(content[:-left_out])
    steps, notes = read_steps(tmp_path / "steps.0.csv")
    assert notes == ()
    assert steps == STEPS[: len(steps)]
    assert len(steps) == len(STEPS) - (1 if left_out < 20 else 2)


def test_steps_are_encoded_while_more_are_added(tmp_path: Path) -> None:
    log = StepLog()
    adding = threading.Thread(target=lambda: deque(map(log.add, [STEPS[0]] * 50_000), maxlen=0))
    adding.start()
    lines, count = 0, 0
    while adding.is_alive() or count < len(log):
        end = len(log)
        lines += log.encoded(count, end).count(b"\n")
        count = end
    assert lines == 50_000


def test_columns_that_no_capture_writes_cost_no_time_in_each_row(tmp_path: Path) -> None:
    log = StepLog()
    log.add(STEPS[0])
    rows = log.encoded(0, 1) + b"1\n" * 10_000

    def cost_s(columns: int) -> float:
        """Least of three processor times."""
        path = tmp_path / "steps.0.csv"
        path.write_bytes(log.header.rstrip() + b"," * columns + b"\n" + rows)
        times = []
        for _ in range(3):
            begin_s = time.thread_time()
            steps, notes = read_steps(path)
            times.append(time.thread_time() - begin_s)
            assert (steps, [note.code for note in notes]) == (STEPS[:1], ["steps-dropped"])
        return min(times)

    assert cost_s(3000) < 6 * cost_s(0)  # 3,000 columns in each row take 20 times as long


def uneven_steps(count: int) -> list[TimedStep]:
    """Steps of about 2 ms with noise, a slow one, validation, epoch starts and checkpoints."""
    chosen, clock_ns, steps = random.Random(3), 10**15, []
    for number in range(count):
        length_ns = round(2e6 * chosen.lognormvariate(0, 0.1)) * (5000 if number == 700 else 1)
        start_ns = clock_ns + 17 * 10**17 + chosen.randrange(300)
        state = StepState.OTHER if number % 100 == 99 else StepState.PLAIN
        saved_ns, begun_ns = (10**6 * (number % every == 0) for every in (300, 100))
        loader_ns = chosen.randrange(20_000, 40_000)
        steps.append(TimedStep(number, start_ns, length_ns, loader_ns, 1, state, begun_ns, clock_ns, saved_ns))
        clock_ns += length_ns + chosen.randrange(3_000, 9_000)
    return steps


def test_a_million_steps_take_less_than_20_mb() -> None:
    steps = uneven_steps(20_000)
    tracemalloc.start()
    log = StepLog()
    for step in steps:
        log.add(step)
    held_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held_bytes / len(log) < 20


def test_steps_of_several_blocks_are_found_again_and_changed() -> None:
    steps = uneven_steps(2 * BLOCK_STEPS + 50)
    log = StepLog()
    for step in steps:
        log.add(step)
    assert list(log) == steps
    assert log.encoded(500, 1030) == b"".join(log.encoded(place, place + 1) for place in range(500, 1030))
    chosen = [0, BLOCK_STEPS - 1, BLOCK_STEPS, 2 * BLOCK_STEPS + 49]
    assert [log.clock_ns(place) for place in chosen] == [steps[place].clock_ns for place in chosen]
    log.reject(BLOCK_STEPS - 2)
    assert [log.state(BLOCK_STEPS - place) for place in (3, 2, 0)] == [StepState.PLAIN, *[StepState.OTHER] * 2]
    assert list(log)[BLOCK_STEPS - 2 :] == [replace(step, state=StepState.OTHER) for step in steps[BLOCK_STEPS - 2 :]]
    assert log.count(StepState.PLAIN) == sum(step.state is StepState.PLAIN for step in steps[: BLOCK_STEPS - 2])


def test_to_reject_many_steps_takes_the_training_no_time() -> None:
    log = StepLog()
    for step in uneven_steps(20_000):
        log.add(step)
    begin_s = time.thread_time()
    log.reject(0)
    assert time.thread_time() - begin_s < 0.01  # to pack them again takes 0.05 to 0.3 s
    assert log.count(StepState.OTHER) == len(log)


def test_steps_after_rejected_ones_count_also_if_later_ones_are_rejected_too() -> None:
    log, steps = StepLog(), [replace(step, state=StepState.PLAIN) for step in uneven_steps(3 * BLOCK_STEPS)]
    for place, step in enumerate(steps):
        if place in {300, BLOCK_STEPS + 40}:
            log.reject(200)
        if place == 2 * BLOCK_STEPS + 9:
            log.reject(2 * BLOCK_STEPS - 1)
        log.add(step)
    rejected = {*range(200, BLOCK_STEPS + 40), *range(2 * BLOCK_STEPS - 1, 2 * BLOCK_STEPS + 9)}
    expected = [StepState.OTHER if place in rejected else StepState.PLAIN for place in range(len(steps))]
    assert [step.state for step in log] == expected
    assert [log.state(place) for place in range(len(steps))] == expected
    assert log.encoded(0, len(log)).count(b",other,") == len(rejected)
    assert log.changes == 3


def test_an_empty_file_has_no_steps(tmp_path: Path) -> None:
    (tmp_path / "steps.0.csv").touch()
    assert read_steps(tmp_path / "steps.0.csv") == ((), ())


def test_rejected_steps_are_no_training_steps_and_their_file_must_be_written_anew() -> None:
    log = StepLog()
    for step in STEPS:
        log.add(step)
    assert log.undisturbed_ns() == {0: 9}, "20 without 4 and 7 in the loader"
    assert not log.is_replacing
    log.reject(1)
    assert [step.state for step in log] == [StepState.PLAIN] + [StepState.OTHER] * (len(STEPS) - 1)
    assert log.is_replacing


def test_the_last_steps_after_a_pause_count_as_recorded_where_validation_lay_between_them() -> None:
    log, pause, valid = StepLog(), StepState.SETTLING, StepState.OTHER
    for state in (StepState.PLAIN, pause, pause, valid, pause):
        log.add(replace(STEPS[0], state=state))
    log.count_last(0)
    assert (log.is_replacing, log.changes) == (False, 0)
    log.count_last(2)
    assert [step.state for step in log] == [StepState.PLAIN, pause, StepState.RECORDED, valid, StepState.RECORDED]
    assert (log.is_replacing, log.changes) == (True, 1)


def test_undisturbed_steps_are_numbered_among_the_training_steps() -> None:
    log = StepLog()
    for number, state in enumerate([StepState.PLAIN, StepState.OTHER, StepState.RECORDED, StepState.PLAIN]):
        log.add(replace(STEPS[0], index=number, duration_ns=20 + number, state=state))
    assert log.undisturbed_ns() == {0: 9, 2: 12}


def test_a_start_of_the_loop_that_lies_in_the_step_before_does_not_shorten_the_step() -> None:
    log = StepLog()
    for index, state in enumerate((StepState.OTHER, StepState.PLAIN)):
        log.add(replace(STEPS[0], index=index, duration_ns=20, loader_ns=4, loader_start_ns=60, state=state))
    assert log.undisturbed_ns() == {0: 16}


def test_steps_of_older_captures_have_no_monotonic_clock(tmp_path: Path) -> None:
    path = tmp_path / "steps.0.csv"
    path.write_text("step,start_ns,duration_ns,loader_ns,fetches,state\n0,5,10,4,1,plain\n")
    (step,), notes = read_steps(path)
    assert (step.clock_ns, step.checkpoint_ns, step.loader_start_ns, notes) == (None, None, None, ())


def test_empty_values_are_unknown(tmp_path: Path) -> None:
    path = tmp_path / "steps.0.csv"
    path.write_bytes(StepLog.header + b"2,1,5,1,1,plain,,,\n3,,5,1,1,plain,,,\n")
    (step,), _ = read_steps(path)
    assert (step.index, step.loader_start_ns, step.clock_ns, step.checkpoint_ns) == (2, None, None, None)


def test_impossible_clocks_drop_the_row(tmp_path: Path) -> None:
    path = tmp_path / "steps.0.csv"
    header = "step,start_ns,duration_ns,loader_ns,fetches,state,loader_start_ns,clock_ns,checkpoint_ns\n"
    path.write_text(f"{header}0,5,10,4,1,plain,0,-1,0\n1,5,10,4,1,plain,0,7,{1 << 62}\n2,5,10,4,1,plain,0,7,0\n")
    steps, (note,) = read_steps(path)
    assert ([step.index for step in steps], note.code) == ([2], "steps-dropped")


@pytest.mark.parametrize(
    ("lengths_ms", "is_short"), [([], False), ([2] * 3, True), ([4] * 3, False), ([9] + [2] * 50, True)]
)
def test_the_latest_steps_tell_whether_steps_are_short(lengths_ms: list[int], *, is_short: bool) -> None:
    log, at_ns = StepLog(), 0
    for number, length_ms in enumerate(lengths_ms):
        log.add(TimedStep(number, at_ns, length_ms * 10**6, 0, 1, StepState.PLAIN, 0, at_ns, 0))
        at_ns += length_ms * 10**6
    assert log.has_short_steps is is_short
