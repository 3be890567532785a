"""Calls in which the host waits for the device, where they are written, and what the device loses after each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.runtime_calls import blocking_rows, copy_call_rows
from traceadvisor.analysis.operators.source_lines import location_of_call
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Location
from traceadvisor.model.spans import SpanSet


@dataclass(frozen=True, slots=True, eq=False)
class SyncSite:
    """All waits from one place in the code, or of one kind where the place is not known."""

    location: Location | None
    operator: str
    """The outermost operator that waits (``aten::item``), or the runtime call itself."""

    rows: Int64
    """The calls that wait."""

    drained: SpanSet
    """The device is idle while the host refills its queue after these waits."""

    @property
    def label(self) -> str:
        """What waits, and where."""
        if self.location is None:
            return f"idle after {self.operator}"
        line = f"{self.location.file}:{self.location.line}"
        where = f"at {line}" if self.location.is_call else f"in {self.location.function} ({line})"
        return f"idle after {self.operator} {where}"


def sync_sites(observation: Observation, tree: OperatorTree, windows: SpanSet, drained: SpanSet) -> list[SyncSite]:
    """The waits inside some windows by place, the costliest first.

    Waits that belong to a copy to the device are left out: what to do about those is another matter.

    Args:
        observation: the recording.
        tree: its operators.
        windows: where to look.
        drained: the idle time that follows waits (the category ``idle_sync``).
    """
    events = observation.trace.events
    rows = blocking_rows(observation.trace, observation.launches)
    rows = rows[windows.contains(events.start_ns[rows])]
    after = _drain_after(events.start_ns[rows], drained)
    kept = ~_belongs_to_upload(observation, tree, rows)
    groups: dict[tuple[Location | None, str], list[int]] = {}
    for position in np.flatnonzero(kept).tolist():
        row = int(rows[position])
        key = (location_of_call(observation.trace, tree, row), _outermost_operator(observation, tree, row))
        groups.setdefault(key, []).append(position)
    sites = [
        SyncSite(location, operator, rows[members], SpanSet.union_all(after[member] for member in members))
        for (location, operator), members in groups.items()
    ]
    return sorted(sites, key=lambda site: -site.drained.total_ns)


def _drain_after(starts_ns: Int64, drained: SpanSet) -> list[SpanSet]:
    """For each wait, the drained spans that begin after it and before the next."""
    owner = np.searchsorted(starts_ns, drained.starts_ns, side="right") - 1
    return [
        SpanSet(drained.starts_ns[owner == position], drained.ends_ns[owner == position])
        for position in range(starts_ns.size)
    ]


def _belongs_to_upload(observation: Observation, tree: OperatorTree, rows: Int64) -> Mask:
    """Whether each wait launches a host-to-device copy, or stands in the operator that does."""
    events = observation.trace.events
    uploads = copy_call_rows(observation.launches, events.kind, Kind.COPY_H2D)
    inside = tree.enclosing(events.thread[rows].astype(np.int64), events.start_ns[rows])
    uploading = tree.enclosing(events.thread[uploads].astype(np.int64), events.start_ns[uploads])
    belongs: Mask = np.isin(rows, uploads) | ((inside != NONE) & np.isin(inside, uploading))
    return belongs


def _outermost_operator(observation: Observation, tree: OperatorTree, row: int) -> str:
    events, names = observation.trace.events, observation.trace.names
    at = int(tree.enclosing(events.thread[[row]].astype(np.int64), events.start_ns[[row]])[0])
    while at != NONE and tree.parent[at] != NONE:
        at = int(tree.parent[at])
    return names[int(events.name_id[row if at == NONE else tree.rows[at]])]
