from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.dist.communicating import MIB, collective, steps
from tests.rules.judging import clear, evidence, finding, skipped
from traceadvisor.rules.dist.dist009_sharded_modules import ShardedModules
from traceadvisor.rules.dist.dist017_gathers_behind_scatters import GathersBehindScatters

SHARDED = {"Process Group Description": "mesh_dp_shard"}


def _backward(*, streams: tuple[int, int] = (13, 13), launched: float = 120, count: int = 3) -> TraceBuilder:
    """Steps in which a reduce-scatter runs from 700 to 800 us, and an all-gather from 801 to 850 us, both alone."""
    builder = TraceBuilder().distributed(0, 16)
    for at in builder.steps(count, 1000):
        builder.op("aten::bmm", at + 10, at + 12).launch(at + 10, at + 11, kernel=(at + 12, at + 700))
        for stream, name, call, kernel in (
            (streams[0], "_reduce_scatter_base", at + 100, (at + 700, at + 800)),
            (streams[1], "_allgather_base", at + launched, (at + 801, at + 850)),
        ):
            args = {"Collective name": name, "Group size": 16, **SHARDED}
            kernel_name = "ncclDevKernel_ReduceScatter_Sum_f32" if "scatter" in name else "ncclDevKernel_AllGather"
            builder.collective(
                call, call + 2, kernel=kernel, stream=stream, message=(MIB, "Float"), args=args, name=kernel_name
            )
        builder.launch(at + 130, at + 132, kernel=(at + 851, at + 990))
    return builder


def test_an_all_gather_behind_a_reduce_scatter_waits_for_it(tmp_path: Path) -> None:
    found = finding(GathersBehindScatters(), _backward(), tmp_path)
    assert evidence(found, "time they waited") == 100_000
    assert found.saving.high_ns == 100_000
    assert found.fix.change is None  # the library is unknown


def test_its_time_is_no_time_that_prefetching_saves(tmp_path: Path) -> None:
    assert clear(ShardedModules(), _backward(), tmp_path).value == 0


def test_fully_shard_has_a_setting_for_it(tmp_path: Path) -> None:
    builder = _backward().annotation("FSDP::post_backward_reduce", 99, 104)
    assert "set_separate_reduce_scatter_group" in (finding(GathersBehindScatters(), builder, tmp_path).fix.change or "")


@pytest.mark.parametrize(
    "builder",
    [
        pytest.param(_backward(streams=(13, 17)), id="on another stream it waits for something else"),
        pytest.param(_backward(launched=810 - 15), id="it was launched when the reduce-scatter was nearly done"),
    ],
)
def test_other_all_gathers_do_not_wait(builder: TraceBuilder, tmp_path: Path) -> None:
    assert clear(GathersBehindScatters(), builder, tmp_path).value < 0.03


def test_without_sharded_modules_it_is_skipped(tmp_path: Path) -> None:
    builder = collective(steps(3), "allreduce", (700, 900), args={"Process Group Description": "mesh_tp"})
    assert "sharded modules" in skipped(GathersBehindScatters(), builder, tmp_path)
