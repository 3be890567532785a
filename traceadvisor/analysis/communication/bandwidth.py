"""Bandwidths of collectives as nccl-tests defines them.

Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

from traceadvisor.model.communication import CollectiveKind

LARGE_MESSAGE_BYTES = 4 << 20
"""Smallest message whose time is mostly transfer: below, start-up cost is a noticeable part of it."""


def bus_factor(kind: CollectiveKind, group_size: int | None) -> float | None:
    """Return the ratio of bus bandwidth to algorithm bandwidth; None if it depends on an unknown group size.

    Reductions inside the network's switches need fewer transfers; a recording does not show them, so the figure is
    then too high.
    """
    match kind:
        case CollectiveKind.BROADCAST | CollectiveKind.REDUCE | CollectiveKind.SEND_RECEIVE:
            return 1.0
        case CollectiveKind.ALL_REDUCE if group_size:
            return 2 * (group_size - 1) / group_size
        case CollectiveKind.ALL_GATHER | CollectiveKind.REDUCE_SCATTER | CollectiveKind.ALL_TO_ALL if group_size:
            return (group_size - 1) / group_size
        case _:
            return None
