"""Purpose of each collective, from the place that launches it and its process group."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

from traceadvisor.analysis.communication.surroundings import Surroundings
from traceadvisor.frozen import frozen
from traceadvisor.model.communication import CollectiveKind, Message, Purpose
from traceadvisor.model.events import EXCHANGE

TINY_BYTES = 64 << 10
"""Losses, metrics and norms are smaller; a layer's activations or gradients are larger."""

_SHARDED = re.compile(r"^\w*FSDP::|^fsdp::|^FullyShardedDataParallel\.|fully_shard")
"""Ranges of FSDP (``FullyShardedDataParallel._pre_forward``) and of ``fully_shard`` (``FSDP::all_gather``). Source:
torch/distributed/fsdp/_runtime_utils.py and _fully_shard/_fsdp_param_group.py of PyTorch."""

_SHARDED_HOOK = re.compile(r"^\w*FSDP::|^fsdp::|^FullyShardedDataParallel\.(?!forward)")
"""The same without the range of a whole forward pass, in which other collectives run too."""

_REPLICATED_FORWARD = re.compile(r"^DistributedDataParallel\.forward")
_OPTIMIZER = re.compile(r"^Optimizer\.step#")
_BARRIER = re.compile(r"^c10d::barrier|^(?:nccl|gloo|rccl):.*barrier")
_BATCH_NORM = re.compile(r"SyncBatchNorm|SyncBatchnorm")
_TENSOR_PARALLEL = re.compile(
    r"(?:Model|Tensor|Sequence)ParallelRegion|LinearWithGradAccumulationAndAsync|LinearWithFrozenWeight"
    r"|VocabParallel|Redistribute|(?:To|From)TorchTensor|tensor_model_parallel|fused_all_gather_(?:scaled_)?matmul|fused_(?:scaled_)?matmul_reduce_scatter"
    r"|symm_mem::"
)
"""Autograd functions of Megatron and DTensor, functions of vLLM, and torch's fused and symmetric-memory operators."""

_PIPELINE = re.compile(r"^(?:Forward|Backward) \d+$|pipelin|p2p_communication", re.IGNORECASE)
"""Ranges of ``torch.distributed.pipelining``, and names that say so."""

_FUNCTIONAL = re.compile(r"^_c10d_functional::")
"""Collectives that DTensor issues."""

_GRADIENT_HOOK = "AccumulateGrad"
"""DistributedDataParallel and ZeRO launch from hooks on this backward node."""

_COMPILED = "CompiledFunctionBackward"
"""Backward node of a compiled graph, which may hold the reducer's all-reduces."""

_ZERO_HOOK = re.compile(r"^PreBackwardFunction")
"""Node in which DeepSpeed gathers parameters for the backward pass."""

_COMMUNICATING = ("c10d::", EXCHANGE)
"""Prefixes of operators that only start a collective."""

_LIBRARY = re.compile(r"ccl|gloo|mpi|ucc", re.IGNORECASE)
"""Names of the kernels and ranges of communication libraries; a framework's own all-reduce has another."""


_PATTERNS = (
    _BARRIER,
    _SHARDED,
    _SHARDED_HOOK,
    _REPLICATED_FORWARD,
    _OPTIMIZER,
    _BATCH_NORM,
    _TENSOR_PARALLEL,
    _PIPELINE,
    _FUNCTIONAL,
)
"""In the order of the last fields of :class:`_Launch`."""


class Role(Enum):
    """Purpose of a process group, by its description."""

    TENSOR = "tensor"
    PIPELINE = "pipeline"
    EXPERT = "expert"
    CONTEXT = "context"
    DATA = "data"
    NONE = "none"


_ROLES = (
    (Role.DATA, re.compile(r"data_parallel|fsdp|shard|replicate|(?:^|[_:])dp(?:$|[_:])|ddp")),
    (Role.EXPERT, re.compile(r"expert|(?:^|[_:])ep(?:$|[_:])|moe")),
    (Role.PIPELINE, re.compile(r"pipeline|(?:^|[_:])pp(?:$|[_:])")),
    (Role.CONTEXT, re.compile(r"context|(?:^|[_:])cp(?:$|[_:])|sequence")),
    (Role.TENSOR, re.compile(r"tensor|(?:^|[_:])tp(?:$|[_:])|(?:^|_)model_parallel")),
)
"""Words of descriptions: ``TENSOR_MODEL_PARALLEL_GROUP`` of Megatron, ``mesh_tp`` and ``mesh_dp_shard`` of a device
mesh, ``tp:0`` of vLLM."""


def role_of(group: str) -> Role:
    """Return what a process group is for, from its description; NONE if it does not tell."""
    lower = group.lower()
    return next((role for role, pattern in _ROLES if pattern.search(lower)), Role.NONE)


@frozen
class _Launch:
    """One collective and the place of its launch."""

    kind: CollectiveKind
    message: Message | None
    is_custom: bool
    role: Role
    node: str
    """Backward node around the launch; empty if none."""

    in_backward: bool
    is_launched: bool
    in_operator: bool
    """Whether an operator that is no collective encloses the launch."""

    in_barrier: bool
    in_sharded: bool
    in_sharded_hook: bool
    in_replicated_forward: bool
    in_optimizer: bool
    in_batch_norm: bool
    in_tensor_parallel: bool
    in_pipeline: bool
    in_functional: bool

    @property
    def is_tiny(self) -> bool:
        size = self.message.size_bytes if self.message else None
        return size is not None and size < TINY_BYTES


def purposes_of(
    kinds: Sequence[CollectiveKind],
    messages: Sequence[Message | None],
    names: Sequence[str],
    places: Surroundings,
    training_thread: int,
) -> tuple[Purpose, ...]:
    """Return the purpose of each collective.

    Args:
        kinds: their kinds.
        messages: their recorded arguments.
        names: names of their kernels or ranges.
        places: where they are launched.
        training_thread: a row of ``trace.threads``.
    """
    within = [places.within(pattern).tolist() for pattern in _PATTERNS]
    operators = places.nearest(lambda name: not name.startswith(_COMMUNICATING)).tolist()
    on_thread = places.on_backward_thread(training_thread).tolist()
    if places.runs_backward_in(_OPTIMIZER):
        within[_PATTERNS.index(_OPTIMIZER)] = [False] * len(kinds)
    roles = {group: role_of(group) for group in {message.group for message in messages if message}}
    launches = [
        _Launch(
            kind,
            message,
            not _LIBRARY.search(name),
            roles[message.group] if message else Role.NONE,
            node,
            bool(node) or off_thread,
            call >= 0,
            operator >= 0,
            *flags,
        )
        for kind, message, name, node, off_thread, call, operator, *flags in zip(
            kinds,
            messages,
            names,
            places.backward_nodes(),
            on_thread,
            places.call_rows.tolist(),
            operators,
            *within,
            strict=True,
        )
    ]
    found = [_purpose(launch) for launch in launches]
    pairs = list(zip(found, launches, strict=True))
    if any(one is Purpose.SHARDS and launch.kind is not CollectiveKind.ALL_GATHER for one, launch in pairs):
        found = [
            Purpose.SHARDS if one is Purpose.UNKNOWN and _gathers_parameters(launch) else one for one, launch in pairs
        ]
    if Purpose.TENSOR_PARALLEL in found:  # a compiled backward pass has such all-reduces, too
        found = [Purpose.UNKNOWN if launch.in_functional and _COMPILED in launch.node else one for one, launch in pairs]
    return tuple(found)


def _gathers_parameters(launch: _Launch) -> bool:
    """Whether an all-gather belongs to sharded modules, in a recording that scatters gradients of such modules."""
    return launch.kind is CollectiveKind.ALL_GATHER and launch.is_launched and not launch.is_tiny


def _purpose(launch: _Launch) -> Purpose:  # noqa: PLR0911  # one branch per case, in order of certainty
    if launch.kind is CollectiveKind.BARRIER or launch.in_barrier:
        return Purpose.BARRIER
    if launch.kind is CollectiveKind.ALL_TO_ALL:
        return Purpose.EXCHANGE
    if launch.kind is CollectiveKind.SEND_RECEIVE:
        return _of_messages(launch)
    if launch.in_batch_norm or _BATCH_NORM.search(launch.node):
        return Purpose.BATCH_NORM
    if launch.role is Role.TENSOR or launch.in_tensor_parallel or _TENSOR_PARALLEL.search(launch.node):
        return Purpose.TENSOR_PARALLEL
    match launch.kind:
        case CollectiveKind.ALL_GATHER | CollectiveKind.REDUCE_SCATTER | CollectiveKind.REDUCE:
            return _of_shards(launch)
        case CollectiveKind.BROADCAST:
            return _of_broadcast(launch)
        case CollectiveKind.ALL_REDUCE:
            return _of_all_reduce(launch)
        case _:
            return Purpose.UNKNOWN


def _of_messages(launch: _Launch) -> Purpose:
    """Return the purpose of sending or receiving. Schedules of pipelines do it between the operators of a model.

    Ring attention does it inside an operator or a backward node.
    """
    if launch.role is Role.PIPELINE or launch.in_pipeline:
        return Purpose.PIPELINE
    is_between = launch.is_launched and not launch.in_operator and not launch.in_backward
    return Purpose.PIPELINE if is_between and launch.role is Role.NONE else Purpose.UNKNOWN


def _of_shards(launch: _Launch) -> Purpose:
    if launch.in_sharded or _ZERO_HOOK.search(launch.node):
        return Purpose.SHARDS
    if launch.in_optimizer:
        return Purpose.OPTIMIZER
    if launch.role is Role.DATA:
        return Purpose.SHARDS
    if launch.kind is not CollectiveKind.ALL_GATHER and _GRADIENT_HOOK in launch.node:
        return Purpose.SHARDS
    if launch.is_tiny and launch.is_launched and not launch.in_backward:
        return Purpose.BOOKKEEPING
    return Purpose.UNKNOWN


def _of_broadcast(launch: _Launch) -> Purpose:
    if launch.in_replicated_forward:
        return Purpose.BUFFERS
    if launch.in_sharded_hook:
        return Purpose.SHARDS
    return Purpose.OPTIMIZER if launch.in_optimizer else Purpose.UNKNOWN


def _of_all_reduce(launch: _Launch) -> Purpose:  # as above
    if launch.in_sharded_hook:
        return Purpose.SHARDS
    if _GRADIENT_HOOK in launch.node or _COMPILED in launch.node or (launch.in_backward and not launch.node):
        return Purpose.GRADIENTS
    if launch.is_tiny and launch.is_launched and not launch.in_backward:
        return Purpose.BOOKKEEPING
    if launch.role is Role.DATA and not launch.is_tiny:
        return Purpose.GRADIENTS
    if launch.is_custom or (launch.in_functional and not launch.in_backward):
        return Purpose.TENSOR_PARALLEL
    return Purpose.OPTIMIZER if launch.in_optimizer else Purpose.UNKNOWN
