"""Edits of communication, on steps that can be worked out by eye."""

from pathlib import Path

import numpy as np
import pytest

from tests.build import AUTOGRAD, TraceBuilder
from tests.replay.built import graph_of, steps_us
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import Kind
from traceadvisor.replay.fixes.communication import (
    AccumulatedGradients,
    FasterTransfers,
    HalvedMessages,
    OverlappedExchange,
    OverlappedGradients,
    unavoidable_ns,
)
from traceadvisor.replay.step_graph import StepGraph
from traceadvisor.replay.what_if import Scenario


def _graph(folder: Path, *reduced: tuple[int, int], backward: tuple[int, int] = (10, 410)) -> StepGraph:
    """A step that computes until ``backward`` ends, and reduces gradients on another stream afterwards."""
    builder = TraceBuilder().step(0, 0, 20).launch(0, 1, kernel=backward, thread=AUTOGRAD)
    for number, kernel in enumerate(reduced):
        at = 2 + 2 * number
        builder.runtime("cudaStreamWaitEvent", at, at + 0.5, thread=AUTOGRAD)
        builder.collective(at + 1, at + 1.5, kernel=kernel, thread=AUTOGRAD)
    return graph_of(builder, folder)


def _rows(graph: StepGraph, kind: Kind) -> Int64:
    return np.sort(graph.device.row[graph.device.kind == kind])


def _saved_us(graph: StepGraph, edited: StepGraph) -> float:
    return steps_us(graph)[0] - steps_us(edited)[0]


@pytest.mark.parametrize(
    ("total", "room", "share", "left"),
    [
        (100, 1000, 0.1, 10),  # the last bucket
        (1000, 500, 0.1, 550),  # 450 of the backward pass remain after the first bucket
        (100, 0, 0.1, 100),
        (100, 1000, 1.0, 100),  # one bucket for all gradients
        (0, 500, 0.5, 0),
    ],
)
def test_what_follows_the_backward_pass_in_any_case(total: float, room: float, share: float, left: float) -> None:
    assert unavoidable_ns(total, room, share) == pytest.approx(left)


def test_an_overlapped_all_reduce_leaves_its_last_bucket(tmp_path: Path) -> None:
    graph = _graph(tmp_path, (410, 510), (510, 610))
    edit = OverlappedGradients(_rows(graph, Kind.COLLECTIVE), _rows(graph, Kind.KERNEL), last_share=0.1)
    assert _saved_us(graph, edit.applied(graph, Scenario.EXPECTED)) == pytest.approx(180, abs=5)
    assert _saved_us(graph, edit.applied(graph, Scenario.HIGH)) == pytest.approx(190, abs=5)
    assert _saved_us(graph, edit.applied(graph, Scenario.LOW)) == pytest.approx(100, abs=5)  # half of the bytes


def test_an_all_reduce_longer_than_the_backward_pass_stays_exposed(tmp_path: Path) -> None:
    graph = _graph(tmp_path, (110, 1010), backward=(10, 110))
    edit = OverlappedGradients(_rows(graph, Kind.COLLECTIVE), _rows(graph, Kind.KERNEL), last_share=0.1)
    # 900 us beside a backward pass of 100, of which the first bucket takes a tenth.
    assert _saved_us(graph, edit.applied(graph, Scenario.EXPECTED)) == pytest.approx(90, abs=5)


def test_gradients_without_a_known_backward_pass_stay_as_they_are(tmp_path: Path) -> None:
    graph = _graph(tmp_path, (410, 510))
    edit = OverlappedGradients(_rows(graph, Kind.COLLECTIVE), np.empty(0, np.int64))
    assert steps_us(edit.applied(graph, Scenario.HIGH)) == steps_us(graph)


def test_two_batches_share_what_outlasts_the_backward_pass(tmp_path: Path) -> None:
    graph = _graph(tmp_path, (410, 610))
    edit = AccumulatedGradients(_rows(graph, Kind.COLLECTIVE), _rows(graph, Kind.KERNEL))
    assert _saved_us(graph, edit.applied(graph, Scenario.EXPECTED)) == pytest.approx(100, abs=5)
    assert _saved_us(graph, edit.applied(graph, Scenario.LOW)) == pytest.approx(50, abs=5)


def test_half_the_bytes_take_half_of_the_transfer_and_none_of_the_wait(tmp_path: Path) -> None:
    graph = _graph(tmp_path, (410, 610))
    edit = HalvedMessages(_rows(graph, Kind.COLLECTIVE), np.array([80_000]))
    assert _saved_us(graph, edit.applied(graph, Scenario.EXPECTED)) == pytest.approx(40)
    assert _saved_us(graph, edit.applied(graph, Scenario.LOW)) == pytest.approx(20)


def test_an_exchange_hides_behind_the_compute_beside_it_only(tmp_path: Path) -> None:
    graph = _graph(tmp_path, (410, 610))
    edit = OverlappedExchange(_rows(graph, Kind.COLLECTIVE), np.array([60_000]))
    saved = {scenario: _saved_us(graph, edit.applied(graph, scenario)) for scenario in Scenario}
    assert saved == pytest.approx({Scenario.LOW: 0, Scenario.EXPECTED: 30, Scenario.HIGH: 60})


def test_faster_transfers_gain_nothing_where_all_is_a_wait(tmp_path: Path) -> None:
    graph = _graph(tmp_path, (410, 610))
    edit = FasterTransfers(_rows(graph, Kind.COLLECTIVE), np.array([20_000]))
    saved = {scenario: _saved_us(graph, edit.applied(graph, scenario)) for scenario in Scenario}
    assert saved == pytest.approx({Scenario.LOW: 0, Scenario.EXPECTED: 90, Scenario.HIGH: 180})


def test_no_edit_makes_an_operation_shorter_than_nothing(tmp_path: Path) -> None:
    graph = _graph(tmp_path, (410, 420))
    edit = OverlappedExchange(_rows(graph, Kind.COLLECTIVE), np.array([90_000]))
    assert (edit.applied(graph, Scenario.HIGH).device.duration_ns >= 0).all()
