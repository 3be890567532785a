"""How long copies take from pinned memory, worked out by eye."""

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.replay.built import graph_of
from traceadvisor.model.events import Kind
from traceadvisor.replay.fixes.copies import FASTEST_LINK_BYTES_PER_S, OverlappedCopies, PinnedCopies
from traceadvisor.replay.step_graph import Action, StepGraph
from traceadvisor.replay.what_if import Scenario


def _graph(folder: Path, *, byte_count: int = 12_000_000) -> StepGraph:
    """A step of 20 ms, all of which one copy from pageable memory takes."""
    builder = TraceBuilder().step(0, 0, 20_010).copy(0, 20_006, on_device=(5, 20_005), byte_count=byte_count)
    return graph_of(builder, folder)


def _copy_us(graph: StepGraph, scenario: Scenario, link_bytes_per_s: float | None) -> float:
    fix = PinnedCopies(frozenset(graph.device.row.tolist()), link_bytes_per_s)
    (duration_ns,) = fix.applied(graph, scenario).device.duration_ns.tolist()
    return float(duration_ns / 1000)


@pytest.mark.parametrize("scenario", Scenario)
def test_without_a_known_link_only_the_highest_saving_has_faster_copies(scenario: Scenario, tmp_path: Path) -> None:
    fastest_us = 12e6 / FASTEST_LINK_BYTES_PER_S * 1e6
    copy_us = fastest_us if scenario is Scenario.HIGH else 20_000
    assert _copy_us(_graph(tmp_path), scenario, None) == pytest.approx(copy_us, abs=0.001)


@pytest.mark.parametrize(
    ("scenario", "copy_us"), [(Scenario.LOW, 20_000), (Scenario.EXPECTED, 1_500), (Scenario.HIGH, 1_200)]
)
def test_of_a_known_link_four_fifths_are_reached(scenario: Scenario, copy_us: float, tmp_path: Path) -> None:
    # 12 MB at 8 and at 10 GB/s.
    assert _copy_us(_graph(tmp_path), scenario, 10e9) == copy_us


def test_a_copy_that_is_faster_already_stays(tmp_path: Path) -> None:
    assert _copy_us(_graph(tmp_path), Scenario.HIGH, 0.1e9) == 20_000


def test_the_call_no_longer_waits(tmp_path: Path) -> None:
    graph = _graph(tmp_path)
    assert Action.LAUNCH_AND_WAIT in graph.host.action.tolist()
    edited = PinnedCopies(frozenset(graph.device.row.tolist())).applied(graph, Scenario.EXPECTED)
    assert Action.LAUNCH_AND_WAIT not in edited.host.action.tolist()


def test_copies_ahead_have_a_stream_of_their_own_and_kernels_wait_for_those_of_the_step_before(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in builder.steps(3, 100):
        builder.copy(at, at + 2, on_device=(at + 5, at + 25), pinned=True)
        builder.launch(at + 3, at + 4, kernel=(at + 26, at + 60)).launch(at + 5, at + 6, kernel=(at + 61, at + 90))
    graph = graph_of(builder, tmp_path)
    edited = OverlappedCopies().applied(graph, Scenario.EXPECTED)
    is_copy = edited.device.kind == Kind.COPY_H2D
    assert edited.stream_count == graph.stream_count + 1
    assert set(edited.device.stream[is_copy].tolist()) == {graph.stream_count}
    # Of tasks copy, kernel, kernel of each step, the first kernel of a later step waits for the copy of the one before.
    assert edited.device.after[~is_copy].tolist() == [-1, -1, 0, -1, 3, -1]
