"""What batches that take less time do to the step."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.replay.built import graph_of, steps_us
from traceadvisor.replay.fixes.data_wait import CheaperBatches
from traceadvisor.replay.fixes.loader_workers import LoaderWorkers
from traceadvisor.replay.step_graph import StepGraph, Workers
from traceadvisor.replay.what_if import Scenario


def _graph(folder: Path, kind: str = "SingleProcess") -> StepGraph:
    """A step of 100 ms, of which the training thread is in the loader for 60."""
    builder = TraceBuilder().step(0, 0, 100_000)
    builder.annotation(f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__", 0, 60_000)
    return graph_of(builder.op("aten::conv2d", 60_000, 100_000), folder)


def test_the_training_thread_loads_for_a_shorter_time(tmp_path: Path) -> None:
    # half of 60 ms, of which 0.5 goes; 0.6, of which 0.9 go; or three quarters
    graph = _graph(tmp_path)
    after = [steps_us(CheaperBatches(0.5, 0.6, 0.75).applied(graph, scenario))[0] for scenario in Scenario]
    assert after == pytest.approx([85_000, 67_600, 55_000])


def test_workers_take_less_time_for_a_batch(tmp_path: Path) -> None:
    graph = replace(_graph(tmp_path, "MultiProcessing"), workers=Workers(1, 2, (50_000,)))
    after = CheaperBatches(0.5, 0.5, 0.75).applied(graph, Scenario.HIGH)
    assert after.workers == Workers(1, 2, (12_500,))
    assert after.host is graph.host


def test_workers_that_keep_up_change_nothing(tmp_path: Path) -> None:
    graph = _graph(tmp_path, "MultiProcessing")
    assert steps_us(CheaperBatches(0.5, 0.5, 0.75).applied(graph, Scenario.HIGH)) == steps_us(graph)


def test_more_workers_are_an_alternative() -> None:
    assert CheaperBatches(0.5, 0.5, 0.75).excludes(LoaderWorkers(2))
