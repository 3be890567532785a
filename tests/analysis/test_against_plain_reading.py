"""Random small traces: the figures are those that an independent, simple and slow derivation finds."""

from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import plain_reading
from tests.analysis.analysing import facts_of
from tests.build import AUTOGRAD, MAIN, Generation, TraceBuilder
from traceadvisor.analysis.steps.detection import recording_extent
from traceadvisor.facts import Facts
from traceadvisor.model.spans import SpanSet

Draw = tuple[int, int, int, int, int, int]
"""Thread, start, length on the host, lag of the device, length on the device, stream."""

Action = Callable[[TraceBuilder, Draw], None]


def launch(builder: TraceBuilder, draw: Draw) -> None:
    thread, start, length, lag, running, stream = draw
    ran = (start + lag, start + lag + running)
    builder.launch(start, start + length, kernel=ran, thread=thread, stream=stream)


def collective(builder: TraceBuilder, draw: Draw) -> None:
    thread, start, length, lag, running, stream = draw
    builder.collective(start, start + length, kernel=(start + lag, start + lag + running), thread=thread, stream=stream)


def copy(builder: TraceBuilder, draw: Draw) -> None:
    thread, start, length, lag, running, stream = draw
    builder.copy(
        start,
        start + length,
        on_device=(start + lag, start + lag + running),
        direction=("h2d", "d2h", "d2d")[running % 3],
        pinned=lag % 2 == 0,
        call="cudaMemcpy" if lag % 5 == 0 else "cudaMemcpyAsync",
        thread=thread,
        stream=stream,
    )


def memset(builder: TraceBuilder, draw: Draw) -> None:
    thread, start, length, lag, running, stream = draw
    ran = (start + lag, start + lag + running)
    builder.memset(start, start + length, on_device=ran, thread=thread, stream=stream)


def lost_launch(builder: TraceBuilder, draw: Draw) -> None:
    builder.launch(draw[1], draw[1] + draw[2], thread=draw[0])


def unlaunched_kernel(builder: TraceBuilder, draw: Draw) -> None:
    builder.kernel(draw[1], draw[1] + draw[4], stream=draw[5])


def operator(builder: TraceBuilder, draw: Draw) -> None:
    builder.op("aten::mm", draw[1], draw[1] + draw[2] + draw[3], thread=draw[0])


def backward(builder: TraceBuilder, draw: Draw) -> None:
    name = "autograd::engine::evaluate_function: MmBackward0"
    builder.op(name, draw[1], draw[1] + draw[2] + draw[3], thread=draw[0], sequence=draw[4] % 3)


def linked(builder: TraceBuilder, draw: Draw) -> None:
    builder.op("aten::mm", draw[1], draw[1] + draw[2], thread=draw[0], sequence=draw[4] % 3)


def item(builder: TraceBuilder, draw: Draw) -> None:
    thread, start, length, lag, running, stream = draw
    copied = (start + 1 + lag, start + 2 + lag)
    builder.item(start, copied[1] + length + running, copy=copied, thread=thread, stream=stream)


def sync(builder: TraceBuilder, draw: Draw) -> None:
    name = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize")[draw[4] % 3]
    builder.sync(draw[1], draw[1] + draw[2] + draw[3], thread=draw[0], name=name)


def allocate(builder: TraceBuilder, draw: Draw) -> None:
    name = ("cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaFuncGetAttributes")[draw[4] % 4]
    builder.allocate(draw[1], draw[1] + draw[2], thread=draw[0], name=name)


def overhead(builder: TraceBuilder, draw: Draw) -> None:
    name = ("Activity Buffer Request", "Instrumentation", "Lazy Function Loading")[draw[4] % 3]
    builder.overhead(draw[1], draw[1] + draw[2] + draw[3], thread=draw[0], name=name)


def loader(builder: TraceBuilder, draw: Draw) -> None:
    builder.loader(draw[1], draw[1] + draw[2] + draw[3], thread=draw[0])


def annotation(builder: TraceBuilder, draw: Draw) -> None:
    name = ("forward", "nccl:all_reduce", "Optimizer.zero_grad#SGD.zero_grad", "gloo:all_reduce")[draw[4] % 4]
    builder.annotation(name if draw[4] % 2 == 0 else "forward", draw[1], draw[1] + draw[2] + draw[3], thread=draw[0])


def optimizer(builder: TraceBuilder, draw: Draw) -> None:
    builder.optimizer(draw[1], draw[1] + draw[2] + draw[3] + 1, thread=MAIN)


def graphs(builder: TraceBuilder, draw: Draw) -> None:
    """Three launches of a graph, one of them perhaps without all of its kernels."""
    thread, start, length, lag, running, stream = draw
    for place in range(3):
        recorded = running % 5 if place == lag % 3 else 4
        graph(builder, (thread, start + place * (length + lag), length, lag, recorded, stream))


def graph(builder: TraceBuilder, draw: Draw) -> None:
    """A graph of four kernels, of which only the first ones may have a record."""
    thread, start, length, lag, recorded, stream = draw
    builder.runtime("cudaGraphLaunch", start, start + length, thread=thread)
    key = builder.events[-1]["args"]["correlation"]
    for number in range(min(recorded, 4)):
        at = start + lag + number * (length + 1)
        builder.kernel(at, at + length, name=f"kernel {number % 2}", stream=stream, correlation=key)


def capture(builder: TraceBuilder, draw: Draw) -> None:
    """The capture of a graph; begin or end may be missing."""
    thread, start, length, lag, running, _ = draw
    if running % 4:
        builder.runtime("cudaStreamBeginCapture", start, start + 1, thread=thread)
    if running % 5:
        builder.runtime("cudaStreamEndCapture", start + 1 + lag, start + 1 + lag + length, thread=thread)


def captured_launch(builder: TraceBuilder, draw: Draw) -> None:
    thread, start, length, _, _, _ = draw
    builder.runtime("cudaStreamBeginCapture", start, start + 1, thread=thread)
    builder.launch(start + 1, start + 1 + length, thread=thread)
    builder.runtime("cudaStreamEndCapture", start + 1 + length, start + 2 + length, thread=thread)


def mirrored_mark(builder: TraceBuilder, draw: Draw) -> None:
    builder.device_annotation("ProfilerStep#0", draw[1], draw[1] + draw[3] + draw[4], stream=draw[5])


def python_call(builder: TraceBuilder, draw: Draw) -> None:
    builder.python("train.py(3): main", draw[1], draw[1] + draw[2] + draw[3], thread=draw[0])


HOST: list[Action] = [
    operator,
    backward,
    linked,
    loader,
    annotation,
    optimizer,
    overhead,
    allocate,
    sync,
    lost_launch,
    python_call,
    capture,
    captured_launch,
]
DEVICE: list[Action] = [
    launch,
    launch,
    launch,
    launch,
    collective,
    copy,
    memset,
    unlaunched_kernel,
    item,
    mirrored_mark,
    graph,
    graphs,
]

SCALES = st.sampled_from([1, 1, 100])
"""Microseconds per unit of time; with the larger one, some waits are longer than launching ever takes."""

ACTION_DRAWS = st.tuples(
    st.sampled_from([MAIN, MAIN, AUTOGRAD]),
    st.integers(0, 90),
    st.integers(0, 8),
    st.integers(0, 25),
    st.integers(0, 20),
    st.sampled_from([7, 7, 8]),
)

MARKS = st.lists(st.integers(10, 90), max_size=4, unique=True).map(sorted)
"""Where steps begin and end; launches before the first are carry-in. Fewer than two make no step."""

SPAN_ENDS = st.none() | st.integers(85, 130)
"""Where the profiler says that its recording ended."""


def actions(kinds: list[Action]) -> st.SearchStrategy[list[tuple[Action, Draw]]]:
    return st.lists(st.tuples(st.sampled_from(kinds), ACTION_DRAWS), min_size=1, max_size=16)


def build(  # noqa: PLR0917  # one argument per strategy
    generation: Generation,
    origin_us: int,
    marks: list[int],
    span_end: int | None,
    acts: list[tuple[Action, Draw]],
    scale: int = 1,
) -> TraceBuilder:
    builder = TraceBuilder(generation, origin_us=origin_us).annotation(
        "a recording needs something of the host's", 0, 0
    )
    for number, (start, end) in enumerate(pairwise(marks), 3):
        builder.step(number, start * scale, end * scale)
    if span_end is not None:
        builder.profiler_span(0, span_end * scale)
    for act, (thread, start, length, lag, running, stream) in acts:
        act(builder, (thread, start * scale, length * scale, lag * scale, running * scale, stream))
    return builder


def assert_whole(facts: Facts) -> None:
    """The categories are disjoint, fill the recording and sum to each step (which StepBreakdown checks)."""
    sets = list(facts.partition.values())
    assert all(not one & other for one, other in combinations(sets, 2))
    assert SpanSet.union_all(sets) == SpanSet.of(recording_extent(facts.trace))
    assert len(facts.step_rows) == len(facts.steps.steps)


def assert_the_same(facts: Facts, plain: plain_reading.PlainReading, first_ns: int) -> None:
    assert facts.steps.source.value == plain.step_source
    assert [index for index, _ in facts.steps.dropped] == list(plain.dropped)
    found = [(row.step.index, row.step.start_ns, row.step.end_ns, row.step.kept) for row in facts.step_rows]
    assert found == [(s.index, s.start_ns - first_ns, s.end_ns - first_ns, s.kept) for s in plain.steps]
    if len(facts.steps.kept) != 2:
        assert [step.typical for step in facts.steps.steps] == [step.typical for step in plain.steps]
    parts = [{category.value: part for category, part in row.breakdown.parts_ns.items()} for row in facts.step_rows]
    assert parts == [step.breakdown_ns for step in plain.steps]


def check(builder: TraceBuilder) -> None:
    with TemporaryDirectory() as folder:
        facts = facts_of(builder, Path(folder))
        events = plain_reading.load_events(facts.trace.origin.path)
        if facts.partition and recording_extent(facts.trace)[1]:
            assert_whole(facts)
        assert_the_same(facts, plain_reading.Recording(events).reading(), min(event.start for event in events))


@pytest.mark.nightly("traceadvisor/analysis")
@settings(max_examples=300)
@given(
    st.sampled_from(Generation),
    st.sampled_from([0, 1623142623460111]),
    MARKS,
    SPAN_ENDS,
    actions(HOST + DEVICE),
    SCALES,
)
def test_a_recording_with_a_device_is_read_the_same_twice(  # noqa: PLR0917  # one argument per strategy
    generation: Generation,
    origin_us: int,
    marks: list[int],
    span_end: int | None,
    acts: list[tuple[Action, Draw]],
    scale: int,
) -> None:
    check(build(generation, origin_us, marks, span_end, acts, scale))


@pytest.mark.nightly("traceadvisor/analysis")
@settings(max_examples=100)
@given(MARKS, SPAN_ENDS, actions(HOST))
def test_a_recording_without_a_device_is_read_the_same_twice(
    marks: list[int], span_end: int | None, acts: list[tuple[Action, Draw]]
) -> None:
    check(build(Generation.CURRENT, 0, marks, span_end, acts))
