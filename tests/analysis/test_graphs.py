"""One launch of a captured graph starts many kernels: all of them count, and the host is not blamed for their gaps."""

from pathlib import Path

import pytest

from tests.analysis.analysing import breakdown_us, facts_of
from tests.build import TraceBuilder
from tests.rules.judging import clear
from traceadvisor.analysis.operators.tables import kernel_table
from traceadvisor.model.health import HealthStatus
from traceadvisor.rules.idle.idle002_launch_bound import LaunchBound

KERNELS = 20
GRAPH_LAUNCHES = ["cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch"]


def graphs(call: str, steps: int = 3) -> TraceBuilder:
    """Steps of 100 us: a launch of 10 us, and behind it twenty kernels of 3 us with 1 us between them."""
    builder = TraceBuilder()
    for step, start in enumerate(builder.steps(steps, 100)):
        builder.loader(start, start + 5).op("graph replay", start + 5, start + 16)
        builder.launch(start + 5, start + 15, kernel=(start + 15, start + 18), call=call, correlation=step + 1)
        for number in range(1, KERNELS):
            at = start + 15 + 4 * number
            builder.kernel(at, at + 3, name=f"kernel {number % 3}", correlation=step + 1)
    return builder


@pytest.mark.parametrize("call", GRAPH_LAUNCHES)
def test_every_kernel_of_a_graph_counts(call: str, tmp_path: Path) -> None:
    facts = facts_of(graphs(call), tmp_path)
    rows = kernel_table(facts.trace, facts.launches, facts.steps)
    assert sum(row.calls_per_step for row in rows) == KERNELS
    assert [step.kept for step in facts.steps.steps] == [True] * 3
    assert facts.trace.health.status is HealthStatus.OK


@pytest.mark.parametrize("call", GRAPH_LAUNCHES)
def test_the_gaps_between_the_kernels_of_a_graph_are_the_devices(call: str, tmp_path: Path) -> None:
    parts = breakdown_us(graphs(call), tmp_path, step=1)
    assert (parts["kernel"], parts["idle_device"], parts["idle_launch"]) == (3 * KERNELS, KERNELS - 1, 10)


@pytest.mark.parametrize("call", GRAPH_LAUNCHES)
def test_fewer_launches_are_not_advised_for_cuda_graphs(call: str, tmp_path: Path) -> None:
    builder = graphs(call)
    for step in range(3):
        builder.launch(
            100 * step + 16, 100 * step + 17, kernel=(100 * step + 95, 100 * step + 100), correlation=10 + step
        )
    assert clear(LaunchBound(min_share=0.11), builder, tmp_path).value == pytest.approx(0.1)


def test_the_kernels_of_a_graph_belong_to_the_step_that_launched_it(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 20).op("graph replay", 0, 15)
    builder.launch(5, 15, kernel=(16, 30), call="cudaGraphLaunch", correlation=1).kernel(31, 60, correlation=1)
    builder.step(1, 20, 80).op("graph replay", 20, 30).launch(25, 30, kernel=(60, 70), correlation=2)
    assert [(step.start_ns, step.end_ns) for step in facts_of(builder, tmp_path).steps.steps] == [
        (0, 60_000),
        (60_000, 80_000),
    ]
