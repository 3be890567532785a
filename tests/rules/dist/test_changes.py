"""The changes that rules on communication propose are code that runs with the installed torch."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.build import TraceBuilder
from tests.rules.dist.communicating import MIB, collective, reduced, steps
from tests.rules.judging import finding
from traceadvisor.rules.base import Rule
from traceadvisor.rules.dist.dist003_exposed_communication import ExposedCommunication
from traceadvisor.rules.dist.dist004_poor_overlap import PoorOverlap
from traceadvisor.rules.dist.dist006_small_messages import SmallMessages
from traceadvisor.rules.dist.dist009_sharded_modules import ShardedModules
from traceadvisor.rules.dist.dist010_all_to_all import AllToAll
from traceadvisor.rules.dist.dist011_tensor_parallel import TensorParallel
from traceadvisor.rules.dist.dist012_pipeline_bubbles import PipelineBubbles
from traceadvisor.rules.dist.dist013_buffer_broadcast import BufferBroadcast

torch = pytest.importorskip("torch")

SHARDS = "_allgather_base"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A process group of one rank."""
    import torch.distributed as dist  # noqa: PLC0415

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _model(*, wrapped: bool = False) -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    return torch.nn.parallel.DistributedDataParallel(model) if wrapped else model


def _space(*, wrapped: bool) -> dict[str, Any]:
    """What a training script has at hand."""
    model, space = _model(wrapped=wrapped), {"torch": torch, "os": os}
    return space | {
        "model": model,
        "loader": [(torch.ones(3, 4), torch.ones(3, 2))] * 4,
        "loss_fn": torch.nn.functional.mse_loss,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "values": [torch.ones(2), torch.ones(3, 4)],
        "metrics": [torch.ones(()), torch.ones(())],
        "step": 100,
        "sent": torch.ones(4),
        "received": torch.zeros(4),
        "dense": torch.nn.Linear(4, 4),
        "features": torch.ones(2, 4),
        "config": {"zero_optimization": {"stage": 3}},
    }


def _twice(kind: str, around: str | None) -> TraceBuilder:
    """A step with two small messages."""
    builder = collective(steps(), kind, (700, 800), message=(4, "Float"), around=around)
    return collective(builder, kind, (800, 900), at=50, message=(4, "Float"), around=around)


@pytest.mark.parametrize(
    ("rule", "builder", "wrapped"),
    [
        (ExposedCommunication(), reduced(steps(), (600, 950)), True),
        (ExposedCommunication(), reduced(steps(), (600, 950), dtype="Half"), True),
        (PoorOverlap(), reduced(steps(), (700, 900)), False),
        (
            SmallMessages(),
            reduced(reduced(steps(), (700, 800), elements=1000), (800, 900), at=45, elements=1000),
            False,
        ),
        (SmallMessages(), _twice("allreduce", None), False),
        (SmallMessages(), _twice(SHARDS, "FSDP::all_gather"), False),
        (ShardedModules(), collective(steps(), SHARDS, (700, 900), around="FSDP::all_gather"), False),
        (
            ShardedModules(),
            collective(steps(), SHARDS, (700, 900), around="FullyShardedDataParallel._pre_forward"),
            False,
        ),
        (
            ShardedModules(),
            collective(
                steps().op("DeepSpeedEngine.step", 20, 22),
                SHARDS,
                (700, 900),
                args={"Process Group Description": "dp"},
            ),
            False,
        ),
        (AllToAll(), collective(steps(), "all_to_all", (700, 900)), False),
        (
            TensorParallel(),
            collective(steps(), "allreduce", (700, 900), args={"Process Group Description": "tp"}),
            False,
        ),
        (
            BufferBroadcast(),
            collective(
                steps(), "broadcast", (700, 900), around="DistributedDataParallel.forward", message=(MIB, "Float")
            ),
            False,
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Rule) else "",
)
@pytest.mark.usefixtures("group")
def test_a_proposed_change_runs(rule: Rule, builder: TraceBuilder, tmp_path: Path, *, wrapped: bool) -> None:
    change = finding(rule, builder, tmp_path).fix.change or ""
    assert change
    space = _space(wrapped=wrapped)
    if "FullyShardedDataParallel" in change and not torch.accelerator.is_available():
        compile(change, "change", "exec")
        assert torch.distributed.fsdp.BackwardPrefetch.BACKWARD_PRE
        assert torch.distributed.fsdp.ShardingStrategy.SHARD_GRAD_OP
        return
    exec(change, space)  # noqa: S102  # that is what is tested
    if space["model"] is not None and wrapped:
        space["model"](torch.ones(3, 4)).sum().backward()


@pytest.mark.usefixtures("group")
def test_the_pipeline_schedule_that_is_proposed_exists(tmp_path: Path) -> None:
    from torch.distributed.pipelining import PipelineStage  # noqa: PLC0415

    change = finding(PipelineBubbles(), collective(steps(), "recv", (700, 900)), tmp_path).fix.change or ""
    stage = PipelineStage(_model(), 0, 1, torch.device("cpu"))
    space = {"torch": torch, "stage": stage, "loss_fn": torch.nn.functional.mse_loss}
    exec(change, space)  # noqa: S102  # that is what is tested
    assert type(space["schedule"]).__name__ == "Schedule1F1B"
