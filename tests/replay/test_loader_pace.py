"""When the workers of a loader are taken to set the pace, and whether one pace stands for all their batches."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.analysis.analysing import facts_of
from tests.build import TraceBuilder
from tests.replay.programs import Shape, program
from tests.replay.replaying import Replayed, replayed
from traceadvisor.facts import Facts
from traceadvisor.model.saving import Doubt, Reason
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
from traceadvisor.replay.build_graph import build_graph
from traceadvisor.replay.fixes.spared_work import ClaimedTimeGone
from traceadvisor.replay.gate import paced, turn_of
from traceadvisor.replay.replay import Replay, replay


def _late_now_and_then(workers: int, late_ns: int) -> Replayed:
    """Steps of 3.8 ms, whose batches take 1 ms to make, but one in eight of them longer."""
    shape = Shape(steps=56, first_recorded=48, loader_ns=1_000_000, workers=workers, python_ns=3_000_000)
    made = program(replace(shape, forward_ns=3_000, backward_ns=6_000, optimizer_ns=3_000))
    batches = [ns + late_ns * (number % 8 == 3) for number, ns in enumerate(made.loader.batch_ns)]
    return replayed(replace(made, loader=replace(made.loader, batch_ns=tuple(batches))))


@pytest.mark.parametrize(("workers", "late_ns"), [(1, 9_000_000), (2, 20_000_000), (4, 38_000_000)])
def test_a_late_batch_in_eight_does_not_tell_what_pace_the_workers_could_keep(workers: int, late_ns: int) -> None:
    before = _late_now_and_then(workers, late_ns)
    assert max(step.fetch_ns for step in before.truth.recorded) > 2_000_000
    assert before.replay.graph.workers is None
    assert before.replay.gate.doubt is not None
    assert before.replay.gate.doubt.doubt is Doubt.LATE_BATCHES


def test_batches_that_are_always_ready_are_no_reason_for_doubt() -> None:
    before = _late_now_and_then(workers=2, late_ns=0)
    assert (before.replay.graph.workers, before.replay.gate.doubt) == (None, None)


def _facts(folder: Path, waits_ms: Sequence[float], work_ms: Sequence[float]) -> Facts:
    """Steps that wait for a batch, and then work."""
    builder, start = TraceBuilder(), 0.0
    for number, (wait, work) in enumerate(zip(waits_ms, work_ms, strict=True)):
        begun, end = start + wait * 1000, start + (wait + work) * 1000
        builder.step(number, start, end).op("aten::linear", begun, end)
        builder.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", start, begun)
        start = end
    return facts_of(builder, folder)


def _replay(folder: Path, waits_ms: Sequence[float], work_ms: Sequence[float], workers: int | None = None) -> Replay:
    facts = _facts(folder, waits_ms, work_ms)
    result = replay(facts.observation, facts.steps.with_all_typical(), facts.timing, workers)
    assert result is not None
    return result


def test_steps_that_all_wait_go_at_the_pace_of_the_workers(tmp_path: Path) -> None:
    gate = _replay(tmp_path, [60] * 6, [40] * 6).gate
    assert (gate.paced_ns, gate.turn_error_share, gate.doubt) == (100e6, 0, None)


def test_waits_for_workers_that_set_the_pace_can_be_claimed(tmp_path: Path) -> None:
    """60 of 100 ms: the simulated fetch ends when a worker is done, and takes no time of its own."""
    events, result = _facts(tmp_path, [60] * 6, [40] * 6).trace.events, _replay(tmp_path, [60] * 6, [40] * 6)
    waits = SpanSet.of(*((number * 100_000_000, number * 100_000_000 + 60_000_000) for number in range(6)))
    none, half, all_ = result.saving_shares((ClaimedTimeGone(events, SpanSet.empty(), waits, SpanSet.empty()),))
    assert (none, half) == (0, 0)
    assert all_ == pytest.approx(0.6, abs=0.02)


def test_waits_of_half_a_percent_are_none(tmp_path: Path) -> None:
    gate = _replay(tmp_path, [0.5] * 6, [99.5] * 6).gate
    assert (gate.paced_ns, gate.doubt) == (None, None)


def test_two_workers_that_deliver_together_have_one_pace(tmp_path: Path) -> None:
    """One fetch waits for both batches, the next for none: 100 ms for two steps."""
    gate = _replay(tmp_path, [0.1, 60, 0.1, 60, 0.1, 60, 0.1, 60], [20] * 8, workers=2).gate
    assert gate.paced_ns == pytest.approx(50.05e6)
    assert abs(gate.turn_error_share) < 0.001
    assert gate.doubt is None


def test_without_their_number_it_is_not_known_that_they_do(tmp_path: Path) -> None:
    gate = _replay(tmp_path, [0.1, 60, 0.1, 60, 0.1, 60, 0.1, 60], [20] * 8).gate
    assert gate.paced_ns is None
    assert gate.doubt is not None
    assert gate.doubt.doubt is Doubt.LATE_BATCHES


def test_one_pace_has_to_stand_for_each_batch_and_not_for_their_mean(tmp_path: Path) -> None:
    """All steps wait, those of 80 ms and those of 120: at the mean pace each takes 100."""
    gate = _replay(tmp_path, [40, 40, 80, 40, 80, 40], [40] * 6).gate
    assert gate.paced_error_share == pytest.approx(0, abs=0.01)
    assert gate.turn_error_share == pytest.approx(0.25, abs=0.01)
    assert gate.doubt == Reason(Doubt.UNEVEN_BATCHES, gate.turn_error_share)


def test_at_their_mean_pace_batches_have_to_give_the_mean_step(tmp_path: Path) -> None:
    """Steps of 100 ms, and a last one whose 130 of work hid the wait: at a pace of 105 it waits for 35."""
    gate = _replay(tmp_path, [30, 30, 30, 30, 30, 30, 0.5, 30], [70] * 6 + [130, 70]).gate
    assert gate.error_share == 0
    assert gate.doubt == Reason(Doubt.PACE_ERROR, gate.paced_error_share)
    assert gate.paced_error_share == pytest.approx(0.095, abs=0.001)


@pytest.mark.parametrize(("late_ms", "is_pace"), [(4.9, False), (5.2, True)])
def test_waits_set_the_pace_from_a_twentieth_of_the_step_on(late_ms: float, tmp_path: Path, *, is_pace: bool) -> None:
    # Beyond 0.7 ms, which taking a batch that is ready may cost, of steps of 100 ms.
    gate = _replay(tmp_path, [late_ms + 0.7] * 6, [99.3 - late_ms] * 6).gate
    assert (gate.paced_ns is not None) is is_pace


@pytest.mark.parametrize(("steps", "turn"), [(5, 1), (6, 2)])
def test_two_turns_beside_the_first_and_the_last_step_tell_of_workers(steps: int, turn: int) -> None:
    assert turn_of(2, [Step(number, 0, 1, 0, 1) for number in range(steps)]) == turn


def test_fewer_fetches_than_one_turn_of_the_workers_show_no_pace(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number, start in enumerate(builder.steps(12, 100000)):
        builder.op("aten::linear", start + 60_000, start + 100_000)
        if number == 5:
            builder.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", start, start + 60_000)
    facts = facts_of(builder, tmp_path)
    steps = facts.steps.with_all_typical().kept
    graph = build_graph(facts.observation, steps)
    assert paced(graph, steps, turn=4) is graph
