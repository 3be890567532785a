"""Calls in which the CPU waits for the GPU, their lines in the code, and the GPU idle time after each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.runtime_calls import blocking_rows, copy_call_rows
from traceadvisor.analysis.operators.stacks import Stacks
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Location
from traceadvisor.model.spans import SpanSet


@dataclass(frozen=True, slots=True, eq=False)
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
        where = f"at {line}" if self.location.is_call else f"in {self.location.function} ({line})"
        return f"idle time after {self.operator} {where}"


def sync_sites(
    observation: Observation, tree: OperatorTree, stacks: Stacks, windows: SpanSet, drained: SpanSet
) -> list[SyncSite]:
    """The waits inside some windows by line, the costliest first.

    Waits for CPU-to-GPU copies are left out: they need another fix.

    Args:
        observation: the recording.
        tree: its operators.
        stacks: its Python stacks.
        windows: the spans to search.
        drained: the idle time after waits (category ``idle_sync``).
    """
    events = observation.trace.events
    rows = blocking_rows(observation.trace, observation.launches)
    rows = rows[windows.contains(events.start_ns[rows])]
    after = _drain_after(events.start_ns[rows], drained)
    kept = ~_belongs_to_upload(observation, tree, rows)
    groups: dict[tuple[Location | None, str], list[int]] = {}
    positions = np.flatnonzero(kept)
    locations = stacks.locations(rows[positions])
    for position, location in zip(positions.tolist(), locations, strict=True):
        key = (location, _outermost_operator(observation, tree, int(rows[position])))
        groups.setdefault(key, []).append(position)
    sites = [
        SyncSite(location, operator, rows[members], SpanSet.union_all(after[member] for member in members))
        for (location, operator), members in groups.items()
    ]
    return sorted(sites, key=lambda site: -site.drained.total_ns)


def _drain_after(starts_ns: Int64, drained: SpanSet) -> list[SpanSet]:
    """For each wait, the idle spans that begin after it and before the next wait."""
    owner = np.searchsorted(starts_ns, drained.starts_ns, side="right") - 1
    return [
        SpanSet(drained.starts_ns[owner == position], drained.ends_ns[owner == position])
        for position in range(starts_ns.size)
    ]


def _belongs_to_upload(observation: Observation, tree: OperatorTree, rows: Int64) -> Mask:
    """Whether each wait launches a host-to-device copy, or is in the operator that does."""
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
