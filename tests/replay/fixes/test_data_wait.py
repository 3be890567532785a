"""What batches that are always ready do to the rest of the host's work."""

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.replay.built import graph_of, steps_us
from traceadvisor.replay.fixes.data_wait import CROWDED_HOST_FACTOR, FETCH_NS, HOST_FACTOR, NoDataWait
from traceadvisor.replay.fixes.loader_workers import LoaderWorkers
from traceadvisor.replay.step_graph import StepGraph
from traceadvisor.replay.what_if import Scenario


def _graph(folder: Path, kind: str) -> StepGraph:
    """A step of 100 ms, of which the training thread is in the loader for 2."""
    builder = TraceBuilder().step(0, 0, 100_000)
    builder.annotation(f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__", 0, 2_000)
    return graph_of(builder.op("aten::conv2d", 2_000, 100_000), folder)


@pytest.mark.parametrize("scenario", Scenario)
@pytest.mark.parametrize(
    ("kind", "factors"), [("SingleProcess", HOST_FACTOR), ("MultiProcessing", CROWDED_HOST_FACTOR)]
)
def test_the_host_slows_down_where_workers_are_new(
    kind: str, factors: dict[Scenario, float], scenario: Scenario, tmp_path: Path
) -> None:
    """Workers that keep up with the loop are there all the same."""
    ready = NoDataWait().applied(_graph(tmp_path, kind), scenario)
    gained = 0.3 * 2 / 98 if kind == "SingleProcess" and scenario is Scenario.HIGH else 0.0  # by caches that are kept
    step_us = 98_000 * (factors[scenario] - gained) + FETCH_NS[scenario] / 1_000
    assert steps_us(ready) == pytest.approx([step_us], abs=1)


def test_the_host_slows_down_once_for_workers_that_then_have_every_batch_ready(tmp_path: Path) -> None:
    crowded = LoaderWorkers(2).applied(_graph(tmp_path, "SingleProcess"), Scenario.EXPECTED)
    ready = NoDataWait().applied(crowded, Scenario.EXPECTED)
    assert steps_us(ready) == pytest.approx([98_000 * HOST_FACTOR[Scenario.EXPECTED] + 700])


@pytest.mark.parametrize(
    ("kind", "steps"),
    [("SingleProcess", (119_000, 105_560, 97_480)), ("MultiProcessing", (109_200, 98_700, 98_080))],
)
def test_the_host_takes_up_to_a_fifth_longer_and_taking_a_batch_up_to_1_4_ms(
    kind: str, steps: tuple[float, ...], tmp_path: Path
) -> None:
    # 98 ms of work times 1.2, 1.07 and 1, or 1.1, 1 and 1; and 1.4, 0.7 and 0.08 ms; 0.3 of 2 ms are gained by caches.
    graph = _graph(tmp_path, kind)
    assert [steps_us(NoDataWait().applied(graph, scenario))[0] for scenario in Scenario] == pytest.approx(steps)
