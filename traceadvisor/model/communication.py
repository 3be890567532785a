"""Collectives: their kinds, what they are for, and their figures in the report."""

from __future__ import annotations

from enum import Enum

from traceadvisor.frozen import frozen


class CollectiveKind(Enum):
    """The operation of a collective on the data of the ranks."""

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    SEND_RECEIVE = "send_receive"
    BARRIER = "barrier"
    OTHER = "other"
    """A gather or scatter, or a kernel whose name does not tell."""


class Purpose(Enum):
    """The purpose of a collective."""

    GRADIENTS = "gradients"
    """Gradients of replicated parameters: DistributedDataParallel and similar."""

    SHARDS = "shards"
    """Parameters and gradients of sharded modules: FSDP, ZeRO."""

    EXCHANGE = "exchange"
    """All-to-all of activations or their gradients: embeddings, experts."""

    TENSOR_PARALLEL = "tensor_parallel"
    """Partial results of layers that are split over ranks."""

    PIPELINE = "pipeline"
    """Activations and their gradients between pipeline stages."""

    BATCH_NORM = "batch_norm"
    """Statistics of synchronised batch normalisation."""

    BUFFERS = "buffers"
    """Buffers of a replicated module, such as running statistics."""

    OPTIMIZER = "optimizer"
    """Optimizer state, and parameters after a sharded update."""

    BOOKKEEPING = "bookkeeping"
    """Tiny messages outside the model: losses, metrics, gradient norms."""

    BARRIER = "barrier"
    UNKNOWN = "unknown"
    """The recording does not tell."""


@frozen
class Message:
    """A collective's recorded arguments; None or empty where missing or not plausible."""

    collective: str = ""
    """Name of the collective, as torch writes it."""

    in_elements: int | None = None
    """Elements that this rank sends."""

    out_elements: int | None = None
    """Elements that this rank receives."""

    element_type: str = ""
    """Torch's name of the type, in lower case."""

    element_bytes: int | None = None
    group_size: int | None = None
    """Ranks that take part."""

    group: str = ""
    """Description of the process group."""

    @property
    def sent_bytes(self) -> int | None:
        """Bytes that this rank sends; None if the count or the type is unknown."""
        if self.in_elements is None or self.element_bytes is None:
            return None
        return self.in_elements * self.element_bytes

    @property
    def size_bytes(self) -> int | None:
        """The size S of nccl-tests: the larger of input and output, in bytes; None if unknown.

        For an all-gather it is the whole output, for a reduce-scatter the whole input.
        """
        elements = [count for count in (self.in_elements, self.out_elements) if count is not None]
        return max(elements) * self.element_bytes if elements and self.element_bytes is not None else None


@frozen
class CommunicationRow:
    """All collectives of one kind and purpose in the kept steps; means per step."""

    kind: CollectiveKind
    purpose: Purpose
    calls_per_step: float
    total_ns_per_step: float
    """From this rank's arrival to the end: waiting for late ranks is included."""

    exposed_ns_per_step: float
    """The part in which neither compute nor another kind of collective runs."""

    size_bytes_per_step: float | None
    """Sum of the message sizes, as nccl-tests counts them; None unless all were recorded."""

    algorithm_bytes_per_s: float | None
    """Size divided by time; None if sizes are unknown."""

    bus_bytes_per_s: float | None
    """The same times the kind's factor: comparable with the bandwidth of a link. None if the factor is unknown."""

    fastest_bus_bytes_per_s: float | None
    """Rate of the fastest large message, which waited least for late ranks. None without a large message."""

    group_size: int | None
    """Ranks that take part; None if unknown, or if groups of several sizes take part."""
