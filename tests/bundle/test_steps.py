from __future__ import annotations

import threading
from collections import deque
from pathlib import Path

import pytest

from traceadvisor.bundle.steps import StepLog, read_steps
from traceadvisor.model.run import StepState, TimedStep

STEPS = tuple(TimedStep(number, 100 + number, 10, 4, 2, state, 7) for number, state in enumerate(StepState))


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


def test_the_columns_are_those_that_captures_have_always_written(tmp_path: Path) -> None:
    assert StepLog.header == b"step,start_ns,duration_ns,loader_ns,fetches,state,loader_start_ns\n"


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


def test_an_empty_file_has_no_steps(tmp_path: Path) -> None:
    (tmp_path / "steps.0.csv").touch()
    assert read_steps(tmp_path / "steps.0.csv") == ((), ())
