from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found
from traceadvisor.rules.dist.dist002_gloo_on_gpu import GlooOnGpu

WORKER = 7


def _step(exchange_until: float) -> TraceBuilder:
    """One step of 100 us, 60 of them busy; a thread of Gloo's exchanges gradients from 50 on."""
    builder = TraceBuilder().step(0, 0, 100).distributed(0, 2, backend="gloo").launch(0, 1, kernel=(0, 60))
    return builder.annotation("gloo:all_reduce", 50, exchange_until, thread=WORKER)


def test_a_cpu_collective_with_an_idle_gpu_is_found(tmp_path: Path) -> None:
    found = finding(GlooOnGpu(), _step(90), tmp_path)
    assert found.claims.total_ns == 30_000
    assert evidence(found, "total time in CPU collectives") == 40_000


def test_a_cpu_collective_that_overlaps_kernels_is_clear(tmp_path: Path) -> None:
    assert clear(GlooOnGpu(), _step(60), tmp_path).value == 0


@pytest.mark.parametrize(("until", "found"), [(61.9, False), (62, True)])
def test_cpu_collectives_count_from_two_percent_of_the_step(until: float, tmp_path: Path, *, found: bool) -> None:
    assert is_found(GlooOnGpu(), _step(until), tmp_path) is found


def test_collectives_outside_the_steps_do_not_count(tmp_path: Path) -> None:
    builder = _step(90).annotation("gloo:all_reduce", 150, 190, thread=WORKER)
    assert evidence(finding(GlooOnGpu(), builder, tmp_path), "total time in CPU collectives") == 40_000
