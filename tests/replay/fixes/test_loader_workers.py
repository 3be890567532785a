"""Workers that have to share cores with the training thread."""

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.replay.built import graph_of
from traceadvisor.replay.fixes.data_wait import FETCH_NS, HOST_FACTOR, KEPT_CACHES_SHARE
from traceadvisor.replay.fixes.loader_workers import LoaderWorkers, MadeBatch
from traceadvisor.replay.simulate import simulate
from traceadvisor.replay.what_if import Scenario

LOW, EXPECTED, HIGH = Scenario


def _step_ms(folder: Path, workers: LoaderWorkers, scenario: Scenario) -> float:
    """What is left of steps of 100 ms in which the training thread loads for 40, beside what taking a batch costs."""
    builder = TraceBuilder()
    for start in builder.steps(20, 100000):
        kind = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        builder.annotation(kind, start, start + 40_000).op("aten::conv2d", start + 40_000, start + 100_000)
    step = simulate(workers.applied(graph_of(builder, folder), scenario)).durations_ns[-2]
    return (step - FETCH_NS[scenario]) / 1e6


def _host_ms(scenario: Scenario) -> float:
    """60 ms of other work; at best 40 ms of CPU time beside it are gained in caches, unless cores are known to lack."""
    gained = KEPT_CACHES_SHARE * 40 / 60 if scenario is HIGH else 0.0
    return 60 * (HOST_FACTOR[scenario] - gained)


@pytest.mark.parametrize("cores", [None, 3.0, 8.0])
@pytest.mark.parametrize("scenario", Scenario)
def test_with_a_core_for_each_nobody_waits(cores: float | None, scenario: Scenario, tmp_path: Path) -> None:
    step = _step_ms(tmp_path, LoaderWorkers(2, cores), scenario)
    assert step == pytest.approx(_host_ms(scenario), abs=0.001)


def test_batches_that_only_wait_leave_the_caches_alone(tmp_path: Path) -> None:
    step = _step_ms(tmp_path, LoaderWorkers(2, 8.0, made=MadeBatch(0, 40e6)), HIGH)
    assert step == pytest.approx(60, abs=0.001)


def test_workers_that_take_turns_leave_the_training_thread_its_core_of_two(tmp_path: Path) -> None:
    """At the least all work at once: three on two cores, so that 48 ms of loading hold 72 ms of work up by 12."""
    assert _step_ms(tmp_path, LoaderWorkers(2, 2.0), EXPECTED) == pytest.approx(64.2, abs=0.001)
    assert _step_ms(tmp_path, LoaderWorkers(2, 2.0), LOW) == pytest.approx(72 + 12, abs=0.001)


def test_on_one_and_a_half_cores_a_worker_holds_the_training_thread_up(tmp_path: Path) -> None:
    """Each of the two gets three quarters of a core: 42.8 ms of loading take 57.1, in which 14.3 of work are lost."""
    assert _step_ms(tmp_path, LoaderWorkers(1, 1.5), EXPECTED) == pytest.approx(64.2 + 42.8 / 3, abs=0.001)


@pytest.mark.parametrize("scenario", Scenario)
def test_a_measured_time_to_take_a_batch_is_never_saved(scenario: Scenario, tmp_path: Path) -> None:
    step = _step_ms(tmp_path, LoaderWorkers(2, 8.0, taking_ns=2e6), scenario)
    assert step + FETCH_NS[scenario] / 1e6 == pytest.approx(_host_ms(scenario) + 2, abs=0.001)


@pytest.mark.parametrize("cores", [0.5, 1.0])
def test_on_one_core_nothing_is_made_beside_the_work(cores: float, tmp_path: Path) -> None:
    """A share of a core is what the recording was made with, too."""
    assert _step_ms(tmp_path, LoaderWorkers(1, cores), EXPECTED) == pytest.approx(64.2 + 42.8, abs=0.001)
    assert _step_ms(tmp_path, LoaderWorkers(2, cores), HIGH) + 0.08 == pytest.approx(100, abs=0.001)


def test_each_worker_may_be_two_batches_ahead(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 40, kind="_SingleProcessDataLoaderIter")
    graph = LoaderWorkers(3).applied(graph_of(builder.op("aten::conv2d", 40, 100), tmp_path), EXPECTED)
    assert graph.workers is not None
    assert (graph.workers.count, graph.workers.ahead) == (3, 6)
