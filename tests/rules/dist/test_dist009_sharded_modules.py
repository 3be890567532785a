from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.dist.communicating import collective, reduced, steps
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.model.findings import Method
from traceadvisor.rules.dist.dist009_sharded_modules import ShardedModules

WRAPPER, FULLY = "FullyShardedDataParallel._pre_forward", "FSDP::pre_forward (layers.0)"


def _gathered(until: float, around: str = FULLY) -> TraceBuilder:
    return collective(steps(), "_allgather_base", (700, until), around=around)


def test_exposed_communication_of_sharded_modules_is_found(tmp_path: Path) -> None:
    builder = collective(_gathered(800), "_reduce_scatter_base", (800, 850), at=60, around="FSDP::post_backward_reduce")
    found = finding(ShardedModules(), builder, tmp_path)
    assert found.claims.total_ns == 150_000
    assert evidence(found, "exposed all-gather") == 100_000
    assert evidence(found, "exposed reduce-scatter") == 50_000


def test_its_saving_is_a_limit_with_the_reason(tmp_path: Path) -> None:
    saving = finding(ShardedModules(), _gathered(800), tmp_path).saving
    assert (saving.low_ns, saving.high_ns, saving.method) == (0, 100_000, Method.BOUND)
    assert "validated" in str(saving.reason)


@pytest.mark.parametrize(
    ("around", "expected"),
    [(FULLY, "reshard_after_forward=False"), (WRAPPER, "forward_prefetch=True")],
)
def test_the_change_is_for_the_recorded_library(around: str, expected: str, tmp_path: Path) -> None:
    assert expected in (finding(ShardedModules(), _gathered(800, around), tmp_path).fix.change or "")


def test_deepspeed_has_a_change_of_its_own_and_an_unknown_library_none(tmp_path: Path) -> None:
    builder = collective(steps(), "_allgather_base", (700, 800), args={"Process Group Description": "data_parallel"})
    assert finding(ShardedModules(), builder, tmp_path).fix.change is None
    builder.optimizer(950, 960, name="DeepSpeedZeroOptimizer_Stage3.step")
    assert "overlap_comm" in (finding(ShardedModules(), builder, tmp_path).fix.change or "")


def test_overlapped_gathering_is_clear(tmp_path: Path) -> None:
    builder = collective(steps(), "_allgather_base", (400, 690), around=FULLY)
    assert clear(ShardedModules(), builder, tmp_path).value == 0


def test_without_sharded_modules_it_is_skipped(tmp_path: Path) -> None:
    assert "sharded modules" in skipped(ShardedModules(), reduced(steps(), (700, 900)), tmp_path)


@pytest.mark.parametrize(("until", "found"), [(749, False), (750, True)])
def test_five_percent_of_the_step_count(until: float, tmp_path: Path, *, found: bool) -> None:
    assert is_found(ShardedModules(), _gathered(until), tmp_path) is found


@pytest.mark.parametrize(
    ("operator", "change"),
    [("_c10d_functional::all_gather_into_tensor_out", ""), ("c10d::_allgather_base_", "fully_shard")],
)
def test_a_device_mesh_is_no_deepspeed(operator: str, change: str, tmp_path: Path) -> None:
    args = {"Process Group Description": "mesh_dp_shard"}
    builder = collective(steps().op(operator, 40, 48), "_allgather_base", (700, 900), args=args)
    found = finding(ShardedModules(), builder, tmp_path).fix.change or ""
    assert change in found
    assert "config" not in found
