"""Waits for other ranks that one rank's recording shows, because its collectives are recorded in steps."""

from __future__ import annotations

from traceadvisor.model.events import Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

LEAST_WAIT_NS = 50_000
"""A shorter pause between two transfers of a collective is its algorithm's."""

_OVER_NETWORK = "RDMA"
"""Prefix of steps over a network. There, a rank also waits while its data is on the way."""


def recorded_waits(trace: Trace, device: int | None) -> SpanSet:
    """Return the time of a device's collectives in which none of their transfers runs; empty if none were recorded."""
    events = trace.events
    if not (transfers := events.rows(Kind.TRANSFER)).size or any(map(_is_over_network, trace.names)):
        return SpanSet.empty()
    sending, collectives = (rows[events.device[rows] == device] for rows in (transfers, events.rows(Kind.COLLECTIVE)))
    return (events.spans(collectives) - events.spans(sending)).lasting(LEAST_WAIT_NS)


def _is_over_network(name: str) -> bool:
    return name.startswith(_OVER_NETWORK)
