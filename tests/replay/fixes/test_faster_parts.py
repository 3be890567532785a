from dataclasses import replace
from pathlib import Path

from tests.build import TraceBuilder
from tests.replay.built import graph_of, steps_us
from traceadvisor.replay.fixes.kernels import FasterDevice, FasterHost, FasterLoader
from traceadvisor.replay.fixes.loader_workers import LoaderWorkers
from traceadvisor.replay.what_if import Scenario

EXPECTED = Scenario.EXPECTED


def _step() -> TraceBuilder:
    """40 us in the loader, 10 of host work, a launch of 2, 1 until the kernel starts, which takes 100."""
    builder = TraceBuilder().step(0, 0, 60).loader(0, 40, kind="_SingleProcessDataLoaderIter")
    return builder.op("aten::mm", 48, 53).launch(50, 52, kernel=(53, 153))


def test_a_faster_device_halves_its_kernels_and_nothing_else(tmp_path: Path) -> None:
    assert steps_us(FasterDevice(2).applied(graph_of(_step(), tmp_path), EXPECTED)) == [103]


def test_collectives_follow_the_links_and_not_the_device(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 10).collective(0, 2, kernel=(3, 103))
    assert steps_us(FasterDevice(2).applied(graph_of(builder, tmp_path), EXPECTED)) == [103]


def test_a_faster_host_halves_loading_work_and_calls(tmp_path: Path) -> None:
    # 20 + 5 + 1, and then as before
    assert steps_us(FasterHost(2).applied(graph_of(_step(), tmp_path), EXPECTED)) == [127]


def test_a_faster_loader_halves_what_it_takes_to_make_batches(tmp_path: Path) -> None:
    assert steps_us(FasterLoader(2).applied(graph_of(_step(), tmp_path), EXPECTED)) == [133]


def test_batches_of_workers_are_made_faster_too(tmp_path: Path) -> None:
    graph = LoaderWorkers(2).applied(graph_of(_step(), tmp_path), Scenario.HIGH)
    faster = FasterLoader(2).applied(graph, EXPECTED)
    assert graph.workers is not None
    assert faster.workers == replace(graph.workers, load_ns=(20_000,))
