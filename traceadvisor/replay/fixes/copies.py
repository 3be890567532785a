"""Simulates copies from pinned memory, and copies that overlap kernels."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from traceadvisor.frozen import frozen, replace
from traceadvisor.model.arrays import Int64, Mask, among, numbers_in
from traceadvisor.model.events import NONE, Kind
from traceadvisor.replay.fixes.waits import without_waits
from traceadvisor.replay.step_graph import Action, DeviceTasks, HostTasks, StepGraph
from traceadvisor.replay.what_if import Edit, Scenario

REACHED_SHARE = {Scenario.LOW: 0.0, Scenario.EXPECTED: 0.8, Scenario.HIGH: 1.0}
"""Reached share of a known link rate: as recorded; the part that headers and flow control leave; all of it."""

FASTEST_LINK_BYTES_PER_S = 126e9
"""Rate for the highest saving if the link is unknown: PCIe 6.0 with 16 lanes, one way."""


@frozen
class PinnedCopies(Edit):
    """Copies from pageable memory become copies from pinned memory, and the host does not wait for them."""

    rows: frozenset[int]
    """Rows of the event table: the copies from pageable memory."""

    link_bytes_per_s: float | None = None
    """Rate of the link between host and device, one way; None if unknown: then only the highest saving is faster."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Run these copies at the link rate if it is faster. No call waits for them."""
        copies = among(graph.device.row, np.fromiter(self.rows, np.int64, len(self.rows)))
        unknown = FASTEST_LINK_BYTES_PER_S if scenario is Scenario.HIGH else 0.0
        duration_ns, rate = (
            graph.device.duration_ns.copy(),
            (self.link_bytes_per_s or unknown) * REACHED_SHARE[scenario],
        )
        known = copies & (graph.device.byte_count != NONE)
        if rate:
            link_ns = np.rint(graph.device.byte_count[known] / rate * 1e9).astype(np.int64)
            duration_ns[known] = np.minimum(duration_ns[known], link_ns)
        device = replace(graph.device, duration_ns=duration_ns)
        return replace(graph, host=_not_waiting_for(graph, copies), device=device)


PINNING = {Scenario.LOW: (10_000, 4e9), Scenario.EXPECTED: (5_000, 8e9), Scenario.HIGH: (0, 1e15)}
"""Nanoseconds to begin ``Tensor.pin_memory`` of a tensor, and bytes per second that one thread copies; assumptions.
High: the loader's own thread pins, which costs the training nothing."""


@frozen
class OverlappedCopies(Edit):
    """Batches are copied one step ahead, on a separate stream."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """The kernels of a step wait for the copies launched in the previous step. No call waits for copies.

        What was copied from pageable memory is copied to pinned memory first, by the thread that launches the copies.
        """
        copies = _is_upload(graph.device)
        if not copies.any():
            return graph
        device = replace(
            graph.device,
            stream=np.where(copies, graph.stream_count, graph.device.stream),
            after=_after_copies_of_last_step(graph.device, copies),
        )
        pinning_ns = _pinning_ns(graph, copies, scenario)
        host = _not_waiting_for(graph, copies)
        host = replace(host, work_ns=host.work_ns + pinning_ns)
        return replace(graph, host=host, device=device, stream_count=graph.stream_count + 1)


def _pinning_ns(graph: StepGraph, copies: Mask, scenario: Scenario) -> Int64:
    """The time that each call that waits for its copy takes to copy the same bytes to pinned memory before."""
    each_ns, bytes_per_s = PINNING[scenario]
    host = graph.host
    pageable = (host.action == Action.LAUNCH_AND_WAIT) & np.concatenate((copies, [False]))[host.first]
    count = np.concatenate((np.maximum(graph.device.byte_count, 0), [0]))[host.first]
    pinning_ns: Int64 = np.where(pageable, np.rint(each_ns + count / bytes_per_s * 1e9), 0).astype(np.int64)
    return pinning_ns


def _is_upload(device: DeviceTasks) -> Mask:
    uploads: Mask = device.kind == Kind.COPY_H2D
    return uploads


def _not_waiting_for(graph: StepGraph, copies: Mask) -> HostTasks:
    """The host tasks, without waits for the given copies."""
    return without_waits(graph, np.concatenate((copies, [False]))[graph.host.first])


def _after_copies_of_last_step(device: DeviceTasks, copies: Mask) -> Int64:
    """Dependencies in which the first task after a step's first copy waits for the last earlier copy."""
    after = device.after.copy()
    uploads, others = copies.nonzero()[0], (~copies).nonzero()[0]
    for step in numbers_in(device.step[uploads]):
        mine = uploads[device.step[uploads] == step]
        earlier = uploads[device.step[uploads] < step]
        following = others[others > mine[0]]
        if earlier.size and following.size and after[following[0]] == NONE:
            after[following[0]] = earlier[-1]
    return after
