from pathlib import Path

import pytest

from tests.build import AUTOGRAD, Generation, TraceBuilder
from traceadvisor.analysis.steps.detection import find_marks, recording_extent
from traceadvisor.model.steps import StepSource

Found = tuple[StepSource, list[tuple[int, float, float]]]


def marks_us(builder: TraceBuilder, folder: Path) -> Found:
    source, marks = find_marks(builder.trace(folder))
    return source, [(mark.index, mark.start_ns / 1000, mark.end_ns / 1000) for mark in marks]


@pytest.mark.parametrize("generation", list(Generation))
def test_host_marks_separate_steps(generation: Generation, tmp_path: Path) -> None:
    builder = TraceBuilder(generation).step(7, 0, 100).step(8, 100, 180)
    assert marks_us(builder, tmp_path) == (StepSource.MARKS, [(7, 0, 100), (8, 100, 180)])


def test_the_mirror_images_of_marks_on_the_device_are_no_marks(tmp_path: Path) -> None:
    builder = TraceBuilder().step(7, 0, 100).device_annotation("ProfilerStep#7", 20, 130)
    assert marks_us(builder, tmp_path) == (StepSource.MARKS, [(7, 0, 100)])


@pytest.mark.parametrize("name", ["ProfilerStep#seven", "ProfilerStep#", "ProfilerStep#-1", "ProfilerStep#" + "9" * 19])
def test_a_name_that_only_starts_like_a_mark_is_not_a_mark(name: str, tmp_path: Path) -> None:
    builder = TraceBuilder().step(7, 0, 100).annotation(name, 100, 200)
    assert marks_us(builder, tmp_path) == (StepSource.MARKS, [(7, 0, 100)])


def test_marks_of_a_second_thread_do_not_count(tmp_path: Path) -> None:
    builder = TraceBuilder().step(7, 0, 100).step(7, 10, 110, thread=AUTOGRAD)
    assert marks_us(builder, tmp_path) == (StepSource.MARKS, [(7, 0, 100)])


def test_a_mark_that_outlives_the_recording_is_clipped_to_it(tmp_path: Path) -> None:
    builder = TraceBuilder().profiler_span(0, 150).step(7, 0, 100).step(8, 100, 13_000_000)
    assert marks_us(builder, tmp_path) == (StepSource.MARKS, [(7, 0, 100), (8, 100, 150)])


def test_a_mark_after_the_recording_does_not_count(tmp_path: Path) -> None:
    builder = TraceBuilder().profiler_span(0, 100).step(7, 0, 100).step(8, 100, 200)
    assert marks_us(builder, tmp_path) == (StepSource.MARKS, [(7, 0, 100)])


def test_without_marks_n_optimizer_steps_make_n_minus_one_steps(tmp_path: Path) -> None:
    builder = TraceBuilder().optimizer(40, 50).optimizer(90, 100).optimizer(150, 160)
    assert marks_us(builder, tmp_path) == (StepSource.OPTIMIZER, [(1, 10, 60), (2, 60, 120)])


def test_the_most_frequent_of_several_optimizers_counts(tmp_path: Path) -> None:
    builder = TraceBuilder().op("a", 0, 1).optimizer(40, 50, name="Adam.step")
    for end in (10, 20, 60):
        builder.optimizer(end - 5, end)
    assert marks_us(builder, tmp_path) == (StepSource.OPTIMIZER, [(1, 10, 20), (2, 20, 60)])


def test_optimizer_steps_that_end_together_make_no_step_between_them(tmp_path: Path) -> None:
    builder = TraceBuilder().op("a", 0, 1).optimizer(5, 10).optimizer(7, 10).optimizer(30, 40)
    assert marks_us(builder, tmp_path) == (StepSource.OPTIMIZER, [(1, 10, 40)])


def _update(builder: TraceBuilder, at: int, *, passes: int = 1, name: str = "SGD.step") -> TraceBuilder:
    """A forward pass, backward passes and an optimizer step, within ten microseconds."""
    builder.op("aten::mm", at, at + 1, sequence=at)
    for number in range(passes):
        builder.op("autograd::engine::evaluate_function: MmBackward0", at + 2 + number, at + 3 + number, sequence=at)
    return builder.optimizer(at + 8, at + 9, name=name)


def test_optimizer_steps_without_a_forward_pass_between_them_are_one_step(tmp_path: Path) -> None:
    builder = _update(_update(_update(TraceBuilder(), 0), 20), 40)
    for end in (11, 32, 50):
        builder.optimizer(end - 1, end)
    assert marks_us(builder, tmp_path) == (StepSource.OPTIMIZER, [(1, 11, 32), (2, 32, 50)])


def test_an_optimizer_that_steps_twice_as_often_as_another_does_so_in_each_step(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number in range(6):
        _update(builder, 20 * number, name="SGD.step" if number % 3 < 2 else "Adam.step")
    assert marks_us(builder, tmp_path) == (StepSource.OPTIMIZER, [(1, 49, 109)])


def test_optimizers_of_one_class_that_step_in_turn_differ_by_their_backward_passes(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number in range(6):
        _update(builder, 20 * number, passes=1 + number % 2)
    assert marks_us(builder, tmp_path) == (StepSource.OPTIMIZER, [(1, 29, 69), (2, 69, 109)])


def test_a_step_has_all_updates_until_the_next_batch(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number in range(7):
        _update(builder, 20 * number)
    for number in (0, 2, 3, 5):
        builder.loader(20 * number, 20 * number + 1)
    assert marks_us(builder, tmp_path) == (StepSource.OPTIMIZER, [(1, 29, 49), (2, 49, 89), (3, 89, 129)])


def test_a_last_batch_with_fewer_updates_makes_no_step(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number in range(5):
        _update(builder, 20 * number)
        if number % 2 == 0:
            builder.loader(20 * number, 20 * number + 1)
    assert marks_us(builder, tmp_path) == (StepSource.OPTIMIZER, [(1, 29, 69)])


def test_batches_of_a_validation_make_no_step(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number in range(4):
        _update(builder, 20 * number)
    builder.loader(51, 52).loader(53, 54)
    assert marks_us(builder, tmp_path) == (StepSource.OPTIMIZER, [(1, 9, 29), (2, 29, 49), (3, 49, 69)])


def test_launches_of_a_graph_between_optimizer_steps_separate_them(tmp_path: Path) -> None:
    builder = _update(_update(TraceBuilder(), 0), 20)
    for at in (40, 60):
        builder.runtime("cudaGraphLaunch", at, at + 1).optimizer(at + 8, at + 9)
    assert marks_us(builder, tmp_path) == (StepSource.OPTIMIZER, [(1, 9, 29), (2, 29, 49), (3, 49, 69)])


def test_with_one_optimizer_step_the_whole_recording_is_one_step(tmp_path: Path) -> None:
    builder = TraceBuilder().op("a", 0, 1).optimizer(40, 50).kernel(60, 90)
    assert marks_us(builder, tmp_path) == (StepSource.WINDOW, [(0, 0, 90)])


def test_the_whole_recording_includes_its_python_calls(tmp_path: Path) -> None:
    builder = TraceBuilder().op("a", 10, 20).python("train.py(3): main", 0, 90)
    assert marks_us(builder, tmp_path) == (StepSource.WINDOW, [(0, 0, 90)])


def test_marks_come_before_optimizer_steps(tmp_path: Path) -> None:
    builder = TraceBuilder().step(7, 0, 100).optimizer(40, 50).optimizer(90, 95)
    assert marks_us(builder, tmp_path)[0] is StepSource.MARKS


def test_a_recording_is_as_long_as_its_events_not_as_the_span_of_the_profiler(tmp_path: Path) -> None:
    builder = TraceBuilder().profiler_span(0, 13_800_000).op("aten::mm", 100, 200)
    builder.launch(110, 120, kernel=(150, 150_000))
    assert recording_extent(builder.trace(tmp_path)) == (100_000, 150_000_000)
