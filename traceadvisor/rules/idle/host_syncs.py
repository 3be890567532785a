"""Calls in which the CPU waits for the GPU, their lines in the code, and the GPU idle time after each."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.innermost import positions_by
from traceadvisor.analysis.operators.runtime_calls import blocking_rows, copy_call_rows
from traceadvisor.analysis.operators.stacks import Stacks
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Location
from traceadvisor.model.spans import SpanSet


@frozen(eq=False)
class SyncSite:
    """All waits from one line of the code; all waits of one operator if the line is unknown."""

    location: Location | None
    operator: str
    """The outermost operator around the wait, such as ``aten::item``; otherwise the runtime call."""

    rows: Int64
    """Rows of the event table: the calls that wait."""

    drained: SpanSet
    """GPU idle time after these waits, until the CPU has launched the next kernel."""

    @property
    def label(self) -> str:
        """The operator that waits, and its line."""
        if self.location is None:
            return f"idle time after {self.operator}"
        line = f"{self.location.file}:{self.location.line}"
        where = f"at {line}" if self.location.is_line else f"in {self.location.function} ({line})"
        return f"idle time after {self.operator} {where}"


def sync_sites(
    observation: Observation, tree: OperatorTree, stacks: Stacks, windows: SpanSet, drained: SpanSet
) -> list[SyncSite]:
    """The waits inside some windows by line, the costliest first.

    Waits for CPU-to-GPU copies are left out: they need another fix.

    ``drained``: the idle time after waits (category ``idle_sync``).
    """
    events = observation.trace.events
    rows = blocking_rows(observation.trace, observation.launches)
    rows = rows[windows.contains(events.start_ns[rows])]
    waited_before = np.searchsorted(events.start_ns[rows], drained.starts_ns, side="right") - 1
    positions = np.flatnonzero(~_belongs_to_upload(observation, tree, rows))
    keys = zip(stacks.locations(rows[positions]), _outermost_operators(observation, tree, rows[positions]), strict=True)
    number: dict[tuple[Location | None, str], int] = {}
    site_of = np.full(rows.size + 1, NONE, dtype=np.int64)
    site_of[positions] = [number.setdefault(key, len(number)) for key in keys]
    calls, idle = positions_by(site_of[:-1]), positions_by(site_of[waited_before])
    none = np.empty(0, np.int64)
    sites = [
        SyncSite(location, operator, rows[calls[at]], _some(drained, idle.get(at, none)))
        for (location, operator), at in number.items()
    ]
    return sorted(sites, key=lambda site: -site.drained.total_ns)


def _some(spans: SpanSet, places: Int64) -> SpanSet:
    """Some spans of a set."""
    return SpanSet(spans.starts_ns[places], spans.ends_ns[places])


def _belongs_to_upload(observation: Observation, tree: OperatorTree, rows: Int64) -> Mask:
    """Whether each wait launches a host-to-device copy, or is in the operator that does, itself or in one inside it."""
    events = observation.trace.events
    uploads = copy_call_rows(observation.launches, events.kind, Kind.COPY_H2D)
    inside = tree.enclosing(events.thread[rows].astype(np.int64), events.start_ns[rows])
    uploading = tree.enclosing(events.thread[uploads].astype(np.int64), events.start_ns[uploads])
    uploading = np.append(uploading, np.append(tree.parent, NONE)[uploading])
    belongs: Mask = np.isin(rows, uploads) | ((inside != NONE) & np.isin(inside, uploading))
    return belongs


def _outermost_operators(observation: Observation, tree: OperatorTree, rows: Int64) -> list[str]:
    """The name of the outermost operator around each call; that of the call without one."""
    events, names = observation.trace.events, observation.trace.names
    inside = tree.enclosing(events.thread[rows].astype(np.int64), events.start_ns[rows])
    outermost = np.append(tree.rows[tree.outermost()], NONE)[inside]
    named = events.name_id[np.where(inside == NONE, rows, outermost)]
    return [names[name] for name in named.tolist()]
