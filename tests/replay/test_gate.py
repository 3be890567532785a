from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.analysis.analysing import facts_of
from tests.build import TraceBuilder
from traceadvisor.facts import Facts
from traceadvisor.model.events import Kind
from traceadvisor.model.saving import Doubt, Reason
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step, StepSource, StepTable
from traceadvisor.replay.build_graph import build_graph
from traceadvisor.replay.fixes.copies import PinnedCopies
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.replay.fixes.kernels import FasterKernels
from traceadvisor.replay.gate import Gate, gate
from traceadvisor.replay.replay import Replay
from traceadvisor.replay.step_graph import chosen_steps
from traceadvisor.replay.what_if import Scenario
from traceadvisor.savings.estimates import simulated


def _replay(facts: Facts) -> Replay:
    assert facts.replay is not None
    return facts.replay


def _steps(count: int, kernel_us: int = 80) -> TraceBuilder:
    """Steps of 100 us: two kernels that the host waits for."""
    builder, middle = TraceBuilder(), kernel_us // 2
    for number in range(count):
        start = 100 * number
        first = (start + 13, start + 13 + middle)
        second = (first[1] + 1, first[1] + 1 + middle - 4)
        builder.step(number, start, start + 100).launch(start + 10, start + 12, kernel=first)
        builder.launch(start + 12, start + 14, kernel=second).sync(start + 15, second[1] + 2)
    return builder


def test_a_replay_that_reproduces_the_recorded_step_is_trusted(tmp_path: Path) -> None:
    gate = _replay(facts_of(_steps(4), tmp_path)).gate
    assert gate.judged_steps == 2
    assert (gate.doubt, gate.device_doubt) == (None, None)
    assert gate.error_share == pytest.approx(0, abs=0.01)
    # without the device the host's 14 us up to the wait, what follows it, and the wait's own cost are left
    assert gate.null_error_share == pytest.approx(-0.75, abs=0.05)


def test_a_replay_that_misses_the_step_is_not_trusted(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for start in builder.steps(4, 100):
        for at in (start, start + 10, start + 20):
            builder.launch(at, at + 2, kernel=(at + 3, at + 4))
        # 20 us late, for no reason, and the host waits for it
        builder.launch(start + 30, start + 32, kernel=(start + 53, start + 63)).sync(start + 35, start + 65)
    gate = _replay(facts_of(builder, tmp_path)).gate
    assert gate.doubt == Reason(Doubt.ERROR, gate.error_share)
    assert gate.error_share == pytest.approx(-0.2)
    assert gate.device_doubt == gate.doubt


def test_steps_of_which_much_is_unknown_are_not_replayed(tmp_path: Path) -> None:
    builder = _steps(4)
    builder.launch(195, 196)  # left out; its kernel may have run until the next step's first kernel, for 13 of 100 us
    gate = _replay(facts_of(builder, tmp_path)).gate
    assert gate.unknown_share == pytest.approx(0.13)
    assert gate.doubt == Reason(Doubt.UNKNOWN_TIME, gate.unknown_share)
    assert gate.device_doubt == gate.doubt


def test_too_few_steps_are_not_replayed(tmp_path: Path) -> None:
    gate = _replay(facts_of(_steps(2), tmp_path)).gate
    assert gate.doubt == Reason(Doubt.TWO_STEPS)


def test_device_changes_are_not_trusted_if_the_host_alone_explains_the_step(tmp_path: Path) -> None:
    gate = _replay(facts_of(_steps(4, kernel_us=10), tmp_path)).gate
    host_bound = Gate(4, gate.baseline_ns, gate.measured_ns, gate.measured_ns * 0.99, 0.0)
    assert host_bound.doubt is None
    assert host_bound.device_doubt == Reason(Doubt.CPU_EXPLAINS_STEP, abs(host_bound.null_error_share))


def test_a_second_device_of_the_process_is_a_reason_for_doubt(tmp_path: Path) -> None:
    builder = _steps(4)
    for number in range(4):
        builder.launch(100 * number + 2, 100 * number + 4, kernel=(100 * number + 5, 100 * number + 55), device=1)
    gate = _replay(facts_of(builder, tmp_path)).gate
    assert gate.doubt == Reason(Doubt.OTHER_DEVICE, gate.elsewhere_share)
    assert gate.elsewhere_share == pytest.approx(0.5, abs=0.01)


def test_a_mostly_idle_second_device_is_no_reason_for_doubt(tmp_path: Path) -> None:
    builder = _steps(4).launch(2, 4, kernel=(5, 6), device=1)
    assert _replay(facts_of(builder, tmp_path)).gate.doubt is None


def test_unexplained_waits_are_a_reason_for_doubt() -> None:
    assert Gate(4, 100.0, 100.0, 50.0, 0.11).doubt == Reason(Doubt.UNEXPLAINED_WAITS, 0.11)
    assert Gate(4, 100.0, 100.0, 50.0, 0.10).doubt is None


def test_where_the_cpu_alone_explains_the_step_a_saving_of_the_gpu_says_so(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for start in builder.steps(4, 100):
        builder.launch(start + 10, start + 12, kernel=(start + 13, start + 20))
    facts = facts_of(builder, tmp_path)
    pinned, ready = simulated(facts, PinnedCopies(frozenset())), simulated(facts, NoDataWait())
    assert pinned is not None
    assert pinned.reason is not None
    assert pinned.reason.doubt is Doubt.CPU_EXPLAINS_STEP
    assert ready is not None
    assert ready.reason is None


def _table(*durations: int) -> StepTable:
    steps, start = [], 0
    for index, duration in enumerate(durations):
        steps.append(Step(index, start, start + duration, start, start + duration))
        start += duration
    return StepTable(StepSource.MARKS, tuple(steps))


def test_the_steps_nearest_to_the_median_are_replayed_in_order_of_time() -> None:
    chosen = chosen_steps(_table(90, 100, 101, 99, 100, 102, 100, 98, 500, 103))
    assert [step.index for step in chosen] == [1, 2, 3, 4, 5, 6, 7, 9]


def test_a_slow_first_step_is_only_context_where_few_steps_are_typical() -> None:
    typical = _table(185, 100, 100)
    slow = replace(typical.steps[0], atypical="it takes longer")
    table = replace(typical, steps=(slow, *typical.steps[1:]))
    assert [step.index for step in chosen_steps(table)] == [0, 1, 2]


def test_a_slow_step_between_two_others_is_not_replayed() -> None:
    typical = _table(100, 185, 100)
    table = replace(typical, steps=(typical.steps[0], replace(typical.steps[1], atypical="slow"), typical.steps[2]))
    assert [step.index for step in chosen_steps(table)] == [0, 2]


def test_separate_steps_follow_one_another_in_the_replay(tmp_path: Path) -> None:
    # nine steps, of which the long one in the middle is left out: nothing of it is left
    builder, start = TraceBuilder(), 0
    for number in range(9):
        length = 900 if number == 4 else 100
        builder.step(number, start, start + length).launch(start + 10, start + 12, kernel=(start + 13, start + 53))
        builder.sync(start + 20, start + 55)
        start += length
    replay = _replay(facts_of(builder, tmp_path))
    assert replay.graph.step_count == 8
    assert replay.gate.baseline_ns == 100_000


SOUND = Gate(4, 100.0, 100.0, 50.0, 0.0)


@pytest.mark.parametrize(
    ("kept", "doubted"),
    [
        (replace(SOUND, baseline_ns=101.9), replace(SOUND, baseline_ns=102.1)),
        (replace(SOUND, baseline_ns=98.1), replace(SOUND, baseline_ns=97.9)),
        (replace(SOUND, unexplained_share=0.1), replace(SOUND, unexplained_share=0.101)),
        (replace(SOUND, elsewhere_share=0.02), replace(SOUND, elsewhere_share=0.021)),
        (replace(SOUND, unknown_share=0.02), replace(SOUND, unknown_share=0.021)),
        (replace(SOUND, paced_ns=101.9), replace(SOUND, paced_ns=102.1)),
        (Gate(4, 100.0, 100.0, 50.0, 0.0, 0.0, None, -0.1), Gate(4, 100.0, 100.0, 50.0, 0.0, 0.0, None, -0.101)),
        (
            Gate(4, 100.0, 100.0, 50.0, 0.0, 0.0, None, 0.0, 0.05),
            Gate(4, 100.0, 100.0, 50.0, 0.0, 0.0, None, 0.0, 0.051),
        ),
        (replace(SOUND, steps=3), replace(SOUND, steps=2)),
    ],
    ids=[
        "too long",
        "too short",
        "unexplained",
        "elsewhere",
        "unknown",
        "mean pace",
        "one turn",
        "late batches",
        "steps",
    ],
)
def test_a_replay_is_doubted_only_beyond_each_limit(kept: Gate, doubted: Gate) -> None:
    assert kept.doubt is None
    assert doubted.doubt is not None


@pytest.mark.parametrize(("null_model_ns", "is_doubted"), [(98.1, True), (97.9, False)])
def test_the_host_alone_explains_a_step_within_two_percent(null_model_ns: float, *, is_doubted: bool) -> None:
    assert (replace(SOUND, null_model_ns=null_model_ns).device_doubt is not None) is is_doubted


def test_unchecked_properties_are_no_reason_for_doubt() -> None:
    assert (SOUND.elsewhere_share, SOUND.paced_ns, SOUND.turn_error_share, SOUND.late_share) == (0, None, 0, 0)


def test_a_pause_of_the_host_as_long_as_it_was_ahead_delays_no_replayed_step(tmp_path: Path) -> None:
    builder, host = TraceBuilder(), 0
    for number in range(8):
        pause = 150 if number == 5 else 0  # the host launches each step in 60 us, of which the device works 100
        builder.step(number, host, host + 60 + pause)
        begin = 100 * number + 45
        builder.launch(host + 40 + pause, host + 42 + pause, kernel=(begin, begin + 99))
        host += 60 + pause
    facts = facts_of(builder, tmp_path)
    steps = facts.steps.steps[3:]
    graph = build_graph(facts.observation, steps)
    held = gate(graph, facts.observation, steps, SpanSet.empty())
    assert held.error_share == pytest.approx(0, abs=0.01)
    assert gate(replace(graph, leads=()), facts.observation, steps, SpanSet.empty()).error_share > 0.05


def test_work_left_on_the_device_shortens_no_step_of_a_host_that_limits(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number in range(12):  # the host takes 80 us for a step, the device 100, so it lags ever more
        host, begin = 80 * number, 100 * number + 50
        builder.step(number, host, host + 80).launch(host + 40, host + 42, kernel=(begin, begin + 99))
    facts = facts_of(builder, tmp_path)
    rows = facts.trace.events.rows(Kind.KERNEL)
    twice = np.full(rows.size, 2.0)
    replay = _replay(replace(facts))
    late = replace(replay, likely=replace(replay.likely, graph=replace(replay.graph, leads=(0.25,))))
    saved = late.saving_share((FasterKernels(rows, twice, twice, twice),), Scenario.EXPECTED)
    assert saved == pytest.approx(0.2, abs=0.01)
