from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.dist.communicating import collective, reduced, steps
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.model.findings import Method
from traceadvisor.rules.dist.dist011_tensor_parallel import TensorParallel

GROUP = {"Process Group Description": "mesh_tp", "Group size": 4}


def _partial(until: float) -> TraceBuilder:
    return collective(steps(), "allreduce", (700, until), args=GROUP)


def test_exposed_tensor_parallel_communication_is_found(tmp_path: Path) -> None:
    found = finding(TensorParallel(), _partial(900), tmp_path)
    assert found.claims.total_ns == 200_000
    assert evidence(found, "ranks of the tensor-parallel group") == 4
    assert (found.saving.method, found.saving.high_ns) == (Method.BOUND, 200_000)


def test_a_frameworks_own_all_reduce_kernel_counts(tmp_path: Path) -> None:
    name = "void vllm::cross_device_reduce_1stage<half, 4>(vllm::RankData*)"
    builder = steps().launch(40, 41, kernel=(700, 900), name=name)
    assert finding(TensorParallel(), builder, tmp_path).claims.total_ns == 200_000


def test_overlapped_communication_is_clear(tmp_path: Path) -> None:
    builder = collective(steps(), "allreduce", (400, 690), args=GROUP)
    assert clear(TensorParallel(), builder, tmp_path).value == 0


def test_without_tensor_parallelism_it_is_skipped(tmp_path: Path) -> None:
    assert "tensor-parallel" in skipped(TensorParallel(), reduced(steps(), (700, 900)), tmp_path)


@pytest.mark.parametrize(("until", "found"), [(749, False), (750, True)])
def test_five_percent_of_the_step_count(until: float, tmp_path: Path, *, found: bool) -> None:
    assert is_found(TensorParallel(), _partial(until), tmp_path) is found
