from pathlib import Path

import pytest

from tests.analysis.analysing import facts_of, spans_us
from tests.build import AUTOGRAD, TraceBuilder
from traceadvisor.analysis.steps.timeline import representative_step, step_timeline
from traceadvisor.model.breakdown import Category
from traceadvisor.model.steps import Step, StepSource, StepTable
from traceadvisor.model.timeline import Activity, Lane, Timeline


def _timeline(builder: TraceBuilder, folder: Path, position: int = 0) -> Timeline:
    facts = facts_of(builder, folder)
    return step_timeline(facts.observation, facts.partition, facts.steps.steps[position])


def _drawn(lane: Lane) -> dict[Category | Activity, list[tuple[float, float]]]:
    return {name: spans_us(spans) for name, spans in lane.spans.items() if spans}


def _two_steps() -> TraceBuilder:
    """The second step, from 120 to 200, with all that lanes can hold; an operator of the first reaches into it."""
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 80, 130).launch(82, 84, kernel=(85, 120))
    builder.step(1, 100, 200).loader(130, 140).op("aten::conv2d", 140, 150).launch(142, 145, kernel=(150, 165))
    builder.optimizer(150, 190).sync(155, 166).op("aten::add", 170, 180, thread=AUTOGRAD)
    builder.launch(172, 175, kernel=(176, 179), thread=AUTOGRAD, stream=9)
    return builder.copy(180, 182, on_device=(183, 187), stream=9).memset(190, 191, on_device=(192, 193), stream=9)


def test_the_training_thread_comes_first_with_what_it_does_in_the_step(tmp_path: Path) -> None:
    training, autograd = _timeline(_two_steps(), tmp_path, 1).host
    assert (training.title, autograd.title) == ("training thread", f"thread {AUTOGRAD}")
    assert _drawn(training) == {
        Activity.LOADING: [(130, 140)],
        Activity.OPTIMIZER: [(150, 190)],
        Activity.OPERATOR: [(120, 130), (140, 150)],
        Activity.RUNTIME_CALL: [(142, 145), (155, 166), (180, 182), (190, 191)],
        Activity.BLOCKED: [(155, 166), (180, 182)],
    }
    assert _drawn(autograd) == {Activity.OPERATOR: [(170, 180)], Activity.RUNTIME_CALL: [(172, 175)]}


def test_a_stream_holds_kernels_and_copies_the_busiest_stream_first(tmp_path: Path) -> None:
    first, second = _timeline(_two_steps(), tmp_path, 1).streams
    assert (first.title, second.title) == ("stream 7", "stream 9")
    assert _drawn(first) == {Category.KERNEL: [(150, 165)]}
    assert _drawn(second) == {
        Category.KERNEL: [(176, 179)],
        Category.H2D_COPY: [(183, 187)],
        Category.OTHER_COPY: [(192, 193)],
    }


def test_a_thread_with_a_name_goes_by_it(tmp_path: Path) -> None:
    builder = _two_steps().thread_name("pt_autograd_0", thread=AUTOGRAD)
    assert [lane.title for lane in _timeline(builder, tmp_path, 1).host] == ["training thread", "pt_autograd_0"]


def _steps(*durations_ns: int, left_out: str | None = None) -> StepTable:
    steps = [Step(number, 0, duration, 0, duration, left_out) for number, duration in enumerate(durations_ns)]
    return StepTable(StepSource.MARKS, tuple(steps))


@pytest.mark.parametrize(("durations_ns", "index"), [((5, 9, 7), 2), ((5, 9, 7, 6), 3), ((4,), 0)])
def test_the_step_that_is_drawn_is_the_median_or_the_shorter_of_two(durations_ns: tuple[int, ...], index: int) -> None:
    step = representative_step(_steps(*durations_ns))
    assert step is not None
    assert step.index == index


def test_where_no_step_counts_the_median_of_all_is_drawn() -> None:
    step = representative_step(_steps(5, 9, 7, left_out="it is no training step"))
    assert step is not None
    assert step.index == 2
    assert representative_step(_steps()) is None


@pytest.mark.parametrize(("threads", "lanes"), [(4, 4), (5, 4)])
def test_four_threads_are_drawn_at_most_the_busiest_beside_the_training_thread(
    threads: int, lanes: int, tmp_path: Path
) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10)
    for number in range(1, threads):
        builder.op("aten::mm", 10, 10 + 10 * number, thread=100 + number)
    titles = [lane.title for lane in _timeline(builder, tmp_path).host]
    assert len(titles) == lanes
    assert titles[:2] == ["training thread", f"thread {100 + threads - 1}"]


@pytest.mark.parametrize(("streams", "lanes"), [(6, 6), (7, 6)])
def test_six_streams_are_drawn_at_most_the_busiest_first(streams: int, lanes: int, tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100)
    for number in range(1, streams + 1):
        builder.launch(number, number + 0.5, kernel=(10, 10 + 10 * number), stream=number)
    titles = [lane.title for lane in _timeline(builder, tmp_path).streams]
    assert titles == [f"stream {number}" for number in range(streams, 0, -1)][:lanes]


def test_a_stream_that_is_idle_in_the_step_is_not_drawn(tmp_path: Path) -> None:
    builder = _two_steps().launch(10, 11, kernel=(12, 30), stream=11)
    assert [lane.title for lane in _timeline(builder, tmp_path, 1).streams] == ["stream 7", "stream 9"]
    assert "stream 11" in [lane.title for lane in _timeline(builder, tmp_path, 0).streams]


def test_collectives_on_cpu_threads_have_a_lane_and_names(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 20)
    builder.annotation("gloo:all_reduce", 20, 90, thread=AUTOGRAD)
    drawn = _timeline(builder, tmp_path)
    assert _drawn(drawn.host[1]) == {Category.COMMUNICATION: [(20, 90)]}
    assert drawn.trace is not None
    lane = drawn.trace.lanes[1]
    assert [drawn.trace.kinds[kind] for kind in lane.kind.tolist()] == [Category.COMMUNICATION]
    assert [drawn.trace.names[name] for name in lane.name.tolist()] == ["gloo:all_reduce"]


def test_with_a_gpu_collectives_are_on_streams_and_not_on_threads(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 20).launch(2, 4, kernel=(5, 30))
    builder.annotation("nccl:all_reduce", 20, 90, thread=AUTOGRAD)
    assert [lane.title for lane in _timeline(builder, tmp_path).host] == ["training thread"]
