"""Simulates copies from pinned memory, and copies that overlap kernels."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from traceadvisor.frozen import frozen, replace
from traceadvisor.model.arrays import Int64, Mask, numbers_in
from traceadvisor.model.events import NONE, Kind
from traceadvisor.replay.fixes.waits import is_one_of, without_waits
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
        copies = graph.once(is_one_of, graph.device.row, self.rows)
        device = graph.once(_at_link_rate, graph.device, copies, self.link_bytes_per_s, scenario)
        return replace(graph, host=_not_waiting_for(graph, copies), device=device)


def _at_link_rate(device: DeviceTasks, copies: Mask, link_bytes_per_s: float | None, scenario: Scenario) -> DeviceTasks:
    """The device tasks with the copies at the rate of the link, if they are slower."""
    unknown = FASTEST_LINK_BYTES_PER_S if scenario is Scenario.HIGH else 0.0
    rate = (link_bytes_per_s or unknown) * REACHED_SHARE[scenario]
    if not rate:
        return device
    duration_ns, known = device.duration_ns.copy(), copies & (device.byte_count != NONE)
    link_ns = np.rint(device.byte_count[known] / rate * 1e9).astype(np.int64)
    duration_ns[known] = np.minimum(duration_ns[known], link_ns)
    return replace(device, duration_ns=duration_ns)


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
        host, device = graph.host, graph.device
        copies: Mask = graph.once(_is_upload, device.kind)
        if not copies.any():
            return graph
        pinning_ns = graph.once(_pinning_ns, host.action, host.first, copies, device.byte_count, scenario)
        host = _not_waiting_for(graph, copies)
        host = replace(host, work_ns=host.work_ns + pinning_ns)
        device = graph.once(_one_step_ahead, device, copies, graph.stream_count)
        return replace(graph, host=host, device=device, stream_count=graph.stream_count + 1)


def _one_step_ahead(device: DeviceTasks, copies: Mask, stream: int) -> DeviceTasks:
    """The device tasks with the copies on a stream of their own."""
    after = _after_copies_of_last_step(device.step, device.after, copies)
    return replace(device, stream=np.where(copies, stream, device.stream), after=after)


def _pinning_ns(action: NDArray[np.int8], first: Int64, copies: Mask, byte_count: Int64, scenario: Scenario) -> Int64:
    """The time that each call that waits for its copy takes to copy the same bytes to pinned memory before."""
    each_ns, bytes_per_s = PINNING[scenario]
    pageable = (action == Action.LAUNCH_AND_WAIT) & _launching(copies, first)
    count = np.concatenate((np.maximum(byte_count, 0), [0]))[first]
    pinning_ns: Int64 = np.where(pageable, np.rint(each_ns + count / bytes_per_s * 1e9), 0).astype(np.int64)
    return pinning_ns


def _is_upload(kind: NDArray[np.int8]) -> Mask:
    uploads: Mask = kind == Kind.COPY_H2D
    return uploads


def _not_waiting_for(graph: StepGraph, copies: Mask) -> HostTasks:
    """The host tasks, without waits for the given copies."""
    return without_waits(graph, graph.once(_launching, copies, graph.host.first))


def _launching(copies: Mask, first: Int64) -> Mask:
    """Whether each host task launches one of the copies first, or waits for it."""
    return np.concatenate((copies, [False]))[first]


def _after_copies_of_last_step(steps: Int64, after: Int64, copies: Mask) -> Int64:
    """Dependencies in which the first task after a step's first copy waits for the last earlier copy."""
    after = after.copy()
    uploads, others = copies.nonzero()[0], (~copies).nonzero()[0]
    for step in numbers_in(steps[uploads]):
        mine = uploads[steps[uploads] == step]
        earlier = uploads[steps[uploads] < step]
        following = others[others > mine[0]]
        if earlier.size and following.size and after[following[0]] == NONE:
            after[following[0]] = earlier[-1]
    return after
