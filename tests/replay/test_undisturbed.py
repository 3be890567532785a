"""Of recorded steps that take longer than undisturbed ones, a fix saves what it saves of the undisturbed ones."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.analysing import facts_of
from tests.build import TraceBuilder
from tests.replay.edits import (
    with_batches_ready,
    with_cheap_launches,
    with_faster_kernels,
    with_less_in,
    with_slower_host,
)
from tests.replay.forward import simulate
from tests.replay.program import Program
from tests.replay.programs import LOGGING, Shape, program
from tests.replay.replaying import Replayed, faster, replayed, replayed_undisturbed
from tests.replay.shapes import EXAMPLES
from traceadvisor.analysis.operators.names import rows_named
from traceadvisor.analysis.steps.run_timing import RunTiming
from traceadvisor.model.events import Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.data_wait import FETCH_NS, HOST_FACTOR, NoDataWait
from traceadvisor.replay.fixes.host_work import WithoutHostWork
from traceadvisor.replay.fixes.launches import LAUNCH_FACTOR, AmortisedLaunches
from traceadvisor.replay.replay import Replay, replay
from traceadvisor.replay.what_if import Edit, Scenario

CLOSE = 0.01
"""Share of the step, where it has a few dozen events: its mark is counted among them and costs nothing here."""

SLOW_HOST = st.builds(
    Shape,
    loader_ns=st.sampled_from([0, 300_000, 2_000_000]),
    upload_ns=st.sampled_from([0, 40_000]),
    layers=st.integers(2, 5),
    kernels=st.integers(1, 4),
    operator_ns=st.sampled_from([20_000, 60_000]),
    forward_ns=st.just(3_000),
    backward_ns=st.just(6_000),
    optimizer_ns=st.just(3_000),
    python_ns=st.sampled_from([300_000, 1_500_000]),
)


# -- where recording events slows the host ----------------------------------------------------------------------------


@pytest.mark.nightly("traceadvisor/replay")
@settings(max_examples=EXAMPLES)
@given(SLOW_HOST, st.sampled_from([1_000, 4_000]))
def test_python_in_which_nothing_is_recorded_saves_all_that_it_takes(shape: Shape, event_ns: int) -> None:
    before = program(shape)
    was = replayed_undisturbed(before, event_ns)
    agree(was, WithoutHostWork(_logging(was)), with_less_in(before, LOGGING, 1.0), Scenario.HIGH)


@pytest.mark.nightly("traceadvisor/replay")
@settings(max_examples=EXAMPLES)
@given(SLOW_HOST.filter(lambda shape: shape.loader_ns > 0), st.sampled_from([1_000, 4_000]))
def test_loading_saves_what_it_takes_undisturbed(shape: Shape, event_ns: int) -> None:
    before = program(shape)
    ready = with_batches_ready(with_slower_host(before, HOST_FACTOR[Scenario.EXPECTED]), FETCH_NS[Scenario.EXPECTED])
    agree(replayed_undisturbed(before, event_ns), NoDataWait(), ready, Scenario.EXPECTED)


@pytest.mark.nightly("traceadvisor/replay")
@settings(max_examples=EXAMPLES)
@given(SLOW_HOST, st.sampled_from([1_000, 4_000]))
def test_cheaper_launches_save_no_time_of_the_profilers(shape: Shape, event_ns: int) -> None:
    before = program(shape)
    was = replayed_undisturbed(before, event_ns)
    operators = was.facts.trace.events.spans(was.facts.trace.events.rows(Kind.OPERATOR))
    after = with_cheap_launches(before, LAUNCH_FACTOR[Scenario.EXPECTED])
    agree(was, AmortisedLaunches(operators), after, Scenario.EXPECTED)


def test_without_undisturbed_steps_what_is_saved_is_a_share_of_the_recorded_one() -> None:
    before = program(Shape(operator_ns=60_000, forward_ns=3_000, backward_ns=6_000, python_ns=1_500_000))
    told, untold = replayed_undisturbed(before, 4_000), replayed(replace(before, event_ns=4_000))
    true = told.true(with_less_in(before, LOGGING, 1.0))
    assert told.predicted(WithoutHostWork(_logging(told)), scenario=Scenario.HIGH) == pytest.approx(true, abs=CLOSE)
    share = untold.predicted(WithoutHostWork(_logging(untold)), scenario=Scenario.HIGH)
    assert share == pytest.approx(1.5e6 / untold.truth.step_ns(), abs=0.001)
    assert share < true - 2 * CLOSE


@pytest.mark.nightly("traceadvisor/replay")
@settings(max_examples=EXAMPLES)
@given(st.integers(3, 6), st.sampled_from([2_000, 4_000]))
def test_overhead_that_the_device_hides_is_known_from_steps_launched_ahead(layers: int, event_ns: int) -> None:
    before = program(
        Shape(layers=layers, operator_ns=10_000, forward_ns=150_000, backward_ns=300_000, python_ns=300_000)
    )
    host_ns = simulate(with_faster_kernels(before, 1_000)).step_ns()
    told, untold = replayed_undisturbed(before, event_ns, host_ns), replayed_undisturbed(before, event_ns)
    shares = {scenario: told.replay.saving_share((faster(told, 20),), scenario) for scenario in Scenario}
    assert shares[Scenario.EXPECTED] == pytest.approx(told.true(with_faster_kernels(before, 20)), abs=3 * CLOSE)
    assert shares[Scenario.LOW] == pytest.approx(untold.predicted(faster(untold, 20)), abs=CLOSE)
    assert shares[Scenario.LOW] < shares[Scenario.EXPECTED] - CLOSE


def test_nothing_saves_nothing_beside_a_host_that_no_capture_slows_down() -> None:
    before = program(Shape(operator_ns=10_000, forward_ns=150_000, backward_ns=300_000, device_sync=True))
    host_ns = simulate(with_faster_kernels(before, 1_000)).step_ns()
    replay = replayed_undisturbed(before, 2_000, host_ns).replay
    assert replay.fast is not None
    assert replay.saving_share((), Scenario.HIGH) == 0


def test_where_the_device_hides_some_of_it_the_overhead_is_unknown() -> None:
    """The host is slower than the kernels of the forward pass, and then waits for those of the backward pass."""
    before = replayed_undisturbed(program(Shape(forward_ns=3_000, device_sync=True)), 8_000)
    assert before.truth.step_ns() < 0.95 * before.replay.gate.measured_ns
    assert before.replay.baseline_ns == before.replay.gate.baseline_ns


# -- where operators compute on the host ------------------------------------------------------------------------------


def _on_the_host(folder: Path, undisturbed_us: float, recorded_us: float = 100) -> Replay:
    """Steps of 100 us: 20 of loading, 30 forward, 20 backward, 10 in the optimizer and 20 for a log."""
    builder = TraceBuilder()
    for start in builder.steps(4, 100):
        builder.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start, start + 20)
        builder.op("aten::conv2d", start + 20, start + 50)
        builder.op("autograd::engine::evaluate_function: ConvolutionBackward0", start + 50, start + 70)
        builder.annotation("Optimizer.step#SGD.step", start + 70, start + 80)
        builder.annotation("log", start + 80, start + 100)
    facts = facts_of(builder, folder)
    timing = RunTiming(undisturbed_us * 1000, 18_000, recorded_us * 1000, 20_000, 1.0)
    result = replay(facts.observation, facts.steps, timing)
    assert result is not None
    return result


def test_without_a_device_the_passes_take_what_was_added_but_for_the_loaders_part(tmp_path: Path) -> None:
    before = _on_the_host(tmp_path, undisturbed_us=88)
    assert _step_work_us(before) == [18, 40, 10, 20]
    assert before.baseline_ns == 88_000


def test_a_part_that_goes_takes_what_was_recorded(tmp_path: Path) -> None:
    before = _on_the_host(tmp_path, undisturbed_us=88)
    log = SpanSet.of(*((start + 80_000, start + 100_000) for start in range(0, 400_000, 100_000)))
    assert 88_000 * before.saving_shares((WithoutHostWork(log),))[2] == pytest.approx(20_000)


def test_steps_that_are_no_longer_for_being_recorded_stay_as_they_are(tmp_path: Path) -> None:
    before = _on_the_host(tmp_path, undisturbed_us=104)
    assert _step_work_us(before)[1:] == [50, 10, 20]


def test_no_more_is_taken_off_than_there_is(tmp_path: Path) -> None:
    before = _on_the_host(tmp_path, undisturbed_us=47.5)
    assert _step_work_us(before) == [18, 0, 10, 20]


@pytest.mark.parametrize(("undisturbed_us", "recorded_us"), [(40, 100), (10, 200)])
def test_where_less_can_be_taken_off_than_was_added_steps_stay_as_recorded(
    undisturbed_us: float, recorded_us: float, tmp_path: Path
) -> None:
    """48 us would be left, which is not the undisturbed step: what is saved is a share of the recorded one."""
    before = _on_the_host(tmp_path, undisturbed_us, recorded_us)
    assert _step_work_us(before) == [20, 50, 10, 20]
    assert before.baseline_ns == before.gate.baseline_ns
    log = SpanSet.of(*((start + 80_000, start + 100_000) for start in range(0, 400_000, 100_000)))
    assert 10_000 * before.saving_shares((WithoutHostWork(log),))[2] == pytest.approx(2_000)


def test_work_that_another_edit_changed_is_found_where_it_was_recorded(tmp_path: Path) -> None:
    """Of a log that takes half its time for another fix, no more than that can go."""
    before = _on_the_host(tmp_path, undisturbed_us=100)
    log = SpanSet.of(*((start + 80_000, start + 100_000) for start in range(0, 400_000, 100_000)))
    half = WithoutHostWork(log).applied(before.graph, Scenario.LOW)
    both = WithoutHostWork(log).applied(half, Scenario.HIGH)
    assert both.host.work_ns.sum() == before.graph.host.work_ns.sum() - 4 * 20_000
    assert np.array_equal(both.host.recorded_work_ns, before.graph.host.recorded_work_ns)


def test_where_workers_set_the_pace_the_wait_hides_what_was_added(tmp_path: Path) -> None:
    """Undisturbed steps are as long, of which the loop waits for 40 ms: the passes take 15 ms longer."""
    paced = _with_workers(tmp_path, RunTiming(100e6, 40e6, 100e6, 25e6, 1.0))
    assert paced.baseline_ns == 100e6
    assert 100e6 * paced.saving_shares((NoDataWait(),))[2] == pytest.approx(40e6 - FETCH_NS[Scenario.HIGH])


def test_the_pace_of_workers_is_that_of_undisturbed_steps(tmp_path: Path) -> None:
    paced = _with_workers(tmp_path, RunTiming(80e6, 25e6, 100e6, 25e6, 1.0))
    assert (paced.baseline_ns, paced.gate.baseline_ns, paced.gate.paced_ns) == (80e6, 100e6, 100e6)


def _with_workers(folder: Path, timing: RunTiming) -> Replay:
    """Steps of 100 ms, of which the loop waits for its workers for 25."""
    builder = TraceBuilder()
    for start in builder.steps(6, 100000):
        builder.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", start, start + 25_000)
        builder.op("autograd::engine::evaluate_function: AddmmBackward0", start + 25_000, start + 100_000)
    facts = facts_of(builder, folder)
    result = replay(facts.observation, facts.steps, timing)
    assert result is not None
    return result


def _step_work_us(result: Replay) -> list[float]:
    """Of the second step: loading, both passes, the optimizer, the log."""
    host = result.graph.host
    return [ns / 1000 for ns in host.work_ns[(host.step == 1) & (host.recorded_work_ns > 0)].tolist()]


# -- what is compared --------------------------------------------------------------------------------------------------


def _logging(was: Replayed) -> SpanSet:
    return was.facts.trace.events.spans(rows_named(was.facts.trace, Kind.ANNOTATION, LOGGING.__eq__))


def agree(was: Replayed, edit: Edit, mended: Program, scenario: Scenario) -> None:
    assert was.predicted(edit, scenario=scenario) == pytest.approx(was.true(mended), abs=CLOSE)
