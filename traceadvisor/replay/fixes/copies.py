"""What if copies to the device came from pinned memory, and what if they ran beside the kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE, Kind
from traceadvisor.replay.fixes.waits import without_waits
from traceadvisor.replay.step_graph import DeviceTasks, HostTasks, StepGraph
from traceadvisor.replay.what_if import Edit, Scenario

USUAL_BYTES_PER_S = {Scenario.LOW: 0.0, Scenario.EXPECTED: 12e9, Scenario.HIGH: 25e9}
"""Rate of copies from pinned memory where the link is not known: none better than recorded; what PCIe 3.0 x16 carries;
what PCIe 4.0 x16 carries.

15.75 and 31.5 GB/s are the links' own rates (PCI-SIG), of which headers and flow control leave about 80%.
"""

REACHED_SHARE = {Scenario.LOW: 0.0, Scenario.EXPECTED: 0.8, Scenario.HIGH: 1.0}
"""Share of a known link's rate: the copy no faster than recorded; what headers and flow control leave; all of it."""


@dataclass(frozen=True, slots=True)
class PinnedCopies(Edit):
    """What was copied from pageable memory lies in pinned memory, and the host goes on while it is copied."""

    rows: frozenset[int]
    """Rows of the event table: the copies from pageable memory."""

    link_bytes_per_s: float | None = None
    """What the link between host and device carries one way; None where not known."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """These copies run at the link's rate where that is faster, and no call waits for them."""
        copies = np.isin(graph.device.row, np.fromiter(self.rows, np.int64, len(self.rows)))
        duration_ns, rate = graph.device.duration_ns.copy(), self._bytes_per_s(scenario)
        known = copies & (graph.device.byte_count != NONE)
        if rate:
            link_ns = np.rint(graph.device.byte_count[known] / rate * 1e9).astype(np.int64)
            duration_ns[known] = np.minimum(duration_ns[known], link_ns)
        device = replace(graph.device, duration_ns=duration_ns)
        return replace(graph, host=_not_waiting_for(graph, copies), device=device)

    def _bytes_per_s(self, scenario: Scenario) -> float:
        if self.link_bytes_per_s is None:
            return USUAL_BYTES_PER_S[scenario]
        return self.link_bytes_per_s * REACHED_SHARE[scenario]


@dataclass(frozen=True, slots=True)
class OverlappedCopies(Edit):
    """Batches are copied a step ahead, on a stream of their own."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:  # noqa: ARG002  # there is nothing to assume
        """A step's kernels wait for the copies that the step before launched, and no call waits for any."""
        copies = _is_upload(graph.device)
        if not copies.any():
            return graph
        device = replace(
            graph.device,
            stream=np.where(copies, graph.stream_count, graph.device.stream),
            after=_after_copies_of_last_step(graph.device, copies),
        )
        host = _not_waiting_for(graph, copies)
        return replace(graph, host=host, device=device, stream_count=graph.stream_count + 1)


def _is_upload(device: DeviceTasks) -> Mask:
    uploads: Mask = device.kind == Kind.COPY_H2D
    return uploads


def _not_waiting_for(graph: StepGraph, copies: Mask) -> HostTasks:
    """No call waits for one of some copies."""
    return without_waits(graph, np.append(copies, False)[graph.host.first])


def _after_copies_of_last_step(device: DeviceTasks, copies: Mask) -> Int64:
    """The first task after a step's first copy waits for the last copy of the step before."""
    after = device.after.copy()
    uploads, others = np.flatnonzero(copies), np.flatnonzero(~copies)
    for step in np.unique(device.step[uploads]).tolist():
        mine = uploads[device.step[uploads] == step]
        earlier = uploads[device.step[uploads] < step]
        following = others[others > mine[0]]
        if earlier.size and following.size and after[following[0]] == NONE:
            after[following[0]] = earlier[-1]
    return after
