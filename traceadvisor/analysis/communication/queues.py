"""All-gathers that wait in the queue of a stream for a reduce-scatter."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from traceadvisor.analysis.communication.collectives import Collectives
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.communication import CollectiveKind
from traceadvisor.model.events import NONE, EventTable
from traceadvisor.model.spans import SpanSet

MOST_GAP_NS = 20_000
"""Time between the end of a collective and the start of the next one in its queue: NCCL's own start takes a few us."""

LEAST_QUEUED_SHARE = 0.03
"""Share of the step in which all-gathers wait for reduce-scatters, from which this is the cause to fix."""

_BEHIND = (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER)


@frozen(eq=False)
class QueuedGathers:
    """All-gathers that were launched while a reduce-scatter of their stream ran, and began when it ended."""

    begin_ns: Int64
    """When each reduce-scatter began, shape ``(n,)``."""

    end_ns: Int64
    """When each all-gather behind it ended, shape ``(n,)``."""

    waited_ns: Int64
    """How much earlier each all-gather would have started at most, shape ``(n,)``."""

    @property
    def spans(self) -> SpanSet:
        """Time from these reduce-scatters to the ends of the all-gathers."""
        return SpanSet.union_of(self.begin_ns, self.end_ns)

    def reach_ns(self, exposed: SpanSet) -> float:
        """Return the exposed time that is gone at most if no all-gather waits."""
        inside_ns = exposed.measure_in(self.begin_ns, self.end_ns)
        return float(np.minimum(inside_ns, self.waited_ns).sum())


def queued_gathers(events: EventTable, shards: Collectives) -> QueuedGathers:
    """Return the all-gathers that follow a reduce-scatter on their stream and were launched before it ended."""
    order = np.lexsort((events.start_ns[shards.rows], events.stream[shards.rows]))
    rows, calls, kinds = shards.rows[order], shards.call_rows[order], [shards.kinds[at] for at in order.tolist()]
    first, second, called = rows[:-1], rows[1:], calls[1:]
    follows = np.array([pair == _BEHIND for pair in pairwise(kinds)], dtype=np.bool_)
    launched_ns = np.append(events.end_ns, 0)[called]
    follows &= (events.stream[first] == events.stream[second]) & (called != NONE)
    follows &= launched_ns < events.end_ns[first]
    follows &= events.start_ns[second] - events.end_ns[first] <= MOST_GAP_NS
    waited_ns = events.end_ns[first] - np.maximum(launched_ns, events.start_ns[first])
    return QueuedGathers(events.start_ns[first[follows]], events.end_ns[second[follows]], waited_ns[follows])
