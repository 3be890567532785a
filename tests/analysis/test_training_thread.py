from pathlib import Path

from tests.build import AUTOGRAD, MAIN, TraceBuilder
from traceadvisor.analysis.observation import training_thread
from traceadvisor.model.events import NONE


def thread_of(builder: TraceBuilder, folder: Path) -> str | None:
    trace = builder.trace(folder)
    number = training_thread(trace)
    return None if number == NONE else trace.threads[number].thread


def test_the_training_thread_owns_the_step_marks(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("a", 0, 5).op("b", 0, 90, thread=AUTOGRAD)
    assert thread_of(builder, tmp_path) == str(MAIN)


def test_without_operators_on_the_marks_thread_the_busiest_thread_trains(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100, thread=55).op("a", 0, 5).op("b", 0, 90, thread=AUTOGRAD)
    assert thread_of(builder, tmp_path) == str(AUTOGRAD)


def test_without_operators_the_owner_of_the_marks_trains(tmp_path: Path) -> None:
    assert thread_of(TraceBuilder().step(0, 0, 100, thread=55).launch(0, 1), tmp_path) == "55"


def test_without_marks_the_thread_of_the_optimizer_trains(tmp_path: Path) -> None:
    builder = TraceBuilder().optimizer(90, 95).op("a", 0, 5).op("b", 0, 90, thread=AUTOGRAD)
    assert thread_of(builder, tmp_path) == str(MAIN)


def test_without_marks_or_optimizer_the_busiest_operator_thread_trains(tmp_path: Path) -> None:
    assert thread_of(TraceBuilder().op("a", 0, 5).op("b", 0, 90, thread=AUTOGRAD), tmp_path) == str(AUTOGRAD)


def test_without_marks_and_operators_there_is_no_training_thread(tmp_path: Path) -> None:
    assert thread_of(TraceBuilder().kernel(0, 10), tmp_path) is None


def test_a_thread_without_operators_does_not_train_even_if_operators_take_no_time(tmp_path: Path) -> None:
    builder = TraceBuilder().python("train.py(1): main", 0, 5, thread=55).annotation("x", 0, 5, thread=56).op("a", 1, 1)
    assert thread_of(builder, tmp_path) == str(MAIN)
