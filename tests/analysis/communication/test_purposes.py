"""Purposes of collectives, in traces written like those of each framework.

The names of ranges, operators and groups are those that PyTorch, Megatron, DeepSpeed and vLLM give them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.analysing import facts_of
from tests.build import AUTOGRAD, TraceBuilder
from traceadvisor.analysis.communication.purposes import Role, role_of
from traceadvisor.model.communication import CollectiveKind, Purpose

NODE = "autograd::engine::evaluate_function: "
LARGE, TINY = (1 << 20, "Float"), (4, "Float")


class Launched:
    """One step of 1 ms with a kernel, and collectives of 10 us at the places that a test gives."""

    def __init__(self) -> None:
        self.builder = TraceBuilder().step(0, 0, 1000).distributed(0, 8).op("aten::mm", 0, 10)
        self.builder.launch(0, 1, kernel=(1, 900))
        self.builder.op(NODE + "MmBackward0", 500, 510, thread=AUTOGRAD).launch(
            501, 502, kernel=(900, 901), thread=AUTOGRAD
        )
        self._at = 20

    def collective(  # what surrounds a launch
        self,
        name: str,
        *,
        operators: tuple[str, ...] = (),
        ranges: tuple[str, ...] = (),
        message: tuple[int, str] | None = LARGE,
        group: str = "default_pg",
        backward: bool = False,
        kernel: str | None = None,
    ) -> Launched:
        at, thread = self._at, AUTOGRAD if backward else 100
        self._at += 20
        for around in ranges:
            self.builder.annotation(around, at, at + 9, thread=thread)
        for around in operators:
            self.builder.op(around, at + 1, at + 8, thread=thread)
        args: Mapping[str, Any] = {"Collective name": name, "Group size": 8, "Process Group Description": group}
        self.builder.collective(
            at + 2,
            at + 3,
            kernel=(at + 4, at + 14),
            thread=thread,
            message=message,
            args=args if name else None,
            name=kernel or "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        )
        return self

    def purposes(self, folder: Path) -> tuple[Purpose, ...]:
        return facts_of(self.builder, folder).collectives.purposes

    def purpose(self, folder: Path) -> Purpose:
        (one,) = self.purposes(folder)
        return one


def test_a_reducer_reduces_gradients(tmp_path: Path) -> None:
    hook = NODE + "torch::autograd::AccumulateGrad"
    launched = Launched().collective("allreduce", operators=(hook, "c10d::allreduce_"), backward=True)
    assert launched.purpose(tmp_path) is Purpose.GRADIENTS


def test_the_reducers_last_bucket_needs_no_node_around_it(tmp_path: Path) -> None:
    launched = Launched().collective("allreduce", operators=("c10d::allreduce_",), backward=True)
    assert launched.purpose(tmp_path) is Purpose.GRADIENTS


def test_megatrons_data_parallel_group_reduces_gradients_after_backward(tmp_path: Path) -> None:
    launched = Launched().collective("allreduce", group="DATA_PARALLEL_GROUP_WITH_CP")
    assert launched.purpose(tmp_path) is Purpose.GRADIENTS


@pytest.mark.parametrize(
    ("name", "around"),
    [
        ("_allgather_base", "FullyShardedDataParallel._pre_forward"),
        ("_allgather_base", "FullyShardedDataParallel._pre_backward_prefetch"),
        ("_reduce_scatter_base", "FullyShardedDataParallel._post_backward_hook"),
        ("_allgather_base", "FSDP::all_gather (layers.0)"),
        ("_reduce_scatter_base", "FSDP::post_backward_reduce (layers.0)"),
        ("allreduce", "FSDP::post_backward_reduce (layers.0)"),
    ],
)
def test_sharded_modules_are_recognised_by_their_ranges(name: str, around: str, tmp_path: Path) -> None:
    assert Launched().collective(name, ranges=(around,)).purpose(tmp_path) is Purpose.SHARDS


def test_a_foreign_all_reduce_in_the_forward_of_a_sharded_model_is_not_the_shards(tmp_path: Path) -> None:
    launched = Launched().collective("allreduce", ranges=("FullyShardedDataParallel.forward",), group="mesh_tp")
    assert launched.purpose(tmp_path) is Purpose.TENSOR_PARALLEL


def test_zero_is_recognised_by_gradients_scattered_from_hooks(tmp_path: Path) -> None:
    launched = Launched().collective("_allgather_base")
    launched.collective("_reduce_scatter_base", operators=(NODE + "torch::autograd::AccumulateGrad",), backward=True)
    assert launched.purposes(tmp_path) == (Purpose.SHARDS, Purpose.SHARDS)


def test_an_all_gather_alone_tells_nothing(tmp_path: Path) -> None:
    assert Launched().collective("_allgather_base").purpose(tmp_path) is Purpose.UNKNOWN


@pytest.mark.parametrize("backward", [False, True])
def test_all_to_all_is_an_exchange_in_both_passes(tmp_path: Path, *, backward: bool) -> None:
    assert Launched().collective("all_to_allv", backward=backward).purpose(tmp_path) is Purpose.EXCHANGE


@pytest.mark.parametrize(
    ("operators", "backward", "group"),
    [
        ((), False, "TENSOR_MODEL_PARALLEL_GROUP"),
        ((), True, "mesh_tp"),
        (("_ReduceFromModelParallelRegion",), False, "default_pg"),
        ((NODE + "_CopyToModelParallelRegionBackward",), True, "default_pg"),
        (("_c10d_functional::all_reduce",), False, "default_pg"),
        ((NODE + "RedistributeBackward", "_c10d_functional::all_reduce"), True, "default_pg"),
    ],
)
def test_tensor_parallelism_is_recognised_by_group_or_function(
    operators: tuple[str, ...], group: str, tmp_path: Path, *, backward: bool
) -> None:
    launched = Launched().collective("allreduce", operators=operators, backward=backward, group=group)
    assert launched.purpose(tmp_path) is Purpose.TENSOR_PARALLEL


def test_a_frameworks_own_all_reduce_kernel_is_tensor_parallel(tmp_path: Path) -> None:
    name = "void vllm::cross_device_reduce_2stage<half, 8>(vllm::RankData*)"
    assert Launched().collective("", message=None, kernel=name).purpose(tmp_path) is Purpose.TENSOR_PARALLEL


@pytest.mark.parametrize(
    ("operators", "group", "purpose"),
    [
        (("c10d::send",), "default_pg", Purpose.PIPELINE),
        (("c10d::send",), "PIPELINE_MODEL_PARALLEL_GROUP", Purpose.PIPELINE),
        (("RingAttention", "c10d::send"), "default_pg", Purpose.UNKNOWN),
        (("c10d::send",), "CONTEXT_PARALLEL_GROUP", Purpose.UNKNOWN),
    ],
)
def test_sends_between_operators_are_a_pipelines(
    operators: tuple[str, ...], group: str, purpose: Purpose, tmp_path: Path
) -> None:
    assert Launched().collective("send", operators=operators, group=group).purpose(tmp_path) is purpose


@pytest.mark.parametrize(
    ("name", "operators", "ranges", "message", "purpose"),
    [
        ("broadcast", (), ("DistributedDataParallel.forward",), TINY, Purpose.BUFFERS),
        ("broadcast", (), (), LARGE, Purpose.UNKNOWN),
        ("all_gather", ("SyncBatchNorm",), (), TINY, Purpose.BATCH_NORM),
        ("allreduce", (), (), TINY, Purpose.BOOKKEEPING),
        ("allreduce", (), (), LARGE, Purpose.UNKNOWN),
        ("allreduce", (), (), None, Purpose.UNKNOWN),
        ("_allgather_base", (), ("Optimizer.step#AdamW.step",), LARGE, Purpose.OPTIMIZER),
        ("allreduce", ("c10d::barrier",), (), TINY, Purpose.BARRIER),
        ("barrier", (), (), TINY, Purpose.BARRIER),
        ("gather", (), (), LARGE, Purpose.UNKNOWN),
    ],
)
def test_the_place_of_the_launch_tells_the_purpose(  # noqa: PLR0917  # a table
    name: str,
    operators: tuple[str, ...],
    ranges: tuple[str, ...],
    message: tuple[int, str] | None,
    purpose: Purpose,
    tmp_path: Path,
) -> None:
    launched = Launched().collective(name, operators=operators, ranges=ranges, message=message)
    assert launched.purpose(tmp_path) is purpose


def test_forward_and_backward_in_an_optimizers_closure_are_not_the_optimizer(tmp_path: Path) -> None:
    launched = Launched()
    launched.builder.optimizer(15, 800)  # the backward pass runs at 500
    launched.collective("_allgather_base", ranges=("FSDP::pre_forward (0)",)).collective("allreduce")
    assert launched.purposes(tmp_path) == (Purpose.SHARDS, Purpose.UNKNOWN)


def test_synchronised_batch_norm_is_recognised_in_backward(tmp_path: Path) -> None:
    node = (NODE + "SyncBatchNormBackward",)
    assert Launched().collective("allreduce", operators=node, backward=True).purpose(tmp_path) is Purpose.BATCH_NORM


def test_a_collective_of_an_unknown_backward_function_is_unknown(tmp_path: Path) -> None:
    node = (NODE + "RoutedBackward",)
    assert Launched().collective("allreduce", operators=node, backward=True).purpose(tmp_path) is Purpose.UNKNOWN


def test_all_reduces_of_a_compiled_backward_pass_are_of_gradients(tmp_path: Path) -> None:
    node = (NODE + "CompiledFunctionBackward",)
    for operators in (node, (*node, "_c10d_functional::all_reduce")):
        launched = Launched().collective("allreduce", operators=operators, backward=True)
        assert launched.purpose(tmp_path) is Purpose.GRADIENTS


def test_a_compiled_tensor_parallel_model_has_all_reduces_in_both_passes(tmp_path: Path) -> None:
    functional = "_c10d_functional::all_reduce"
    launched = Launched().collective("allreduce", operators=(functional,))
    launched.collective("allreduce", operators=(NODE + "CompiledFunctionBackward", functional), backward=True)
    assert launched.purposes(tmp_path) == (Purpose.TENSOR_PARALLEL, Purpose.UNKNOWN)


def test_a_collective_without_a_launch_has_an_unknown_purpose(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(1, 50))
    builder.kernel(50, 60, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", stream=9)
    facts = facts_of(builder, tmp_path)
    found = facts.all_collectives
    assert found.kinds == (CollectiveKind.ALL_REDUCE,)
    assert found.purposes == (Purpose.UNKNOWN,)


@pytest.mark.parametrize(
    ("group", "role"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", Role.TENSOR),
        ("mesh_tp", Role.TENSOR),
        ("tp:0", Role.TENSOR),
        ("EXPERT_MODEL_PARALLEL_GROUP", Role.EXPERT),
        ("EXPERT_DATA_PARALLEL_GROUP", Role.DATA),
        ("mesh_dp_shard_cp", Role.DATA),
        ("PIPELINE_MODEL_PARALLEL_GROUP", Role.PIPELINE),
        ("pp:0", Role.PIPELINE),
        ("CONTEXT_PARALLEL_GROUP", Role.CONTEXT),
        ("default_pg", Role.NONE),
        ("http_pool", Role.NONE),
        ("", Role.NONE),
    ],
)
def test_a_groups_description_tells_its_role(group: str, role: Role) -> None:
    assert role_of(group) is role
