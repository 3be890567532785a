"""Simulates a step without some waits of the host for the device."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from traceadvisor.frozen import frozen, replace
from traceadvisor.model.arrays import Int64, Mask, among, one_of
from traceadvisor.model.events import NONE, Kind
from traceadvisor.replay.step_graph import Action, HostTasks, StepGraph
from traceadvisor.replay.what_if import Edit, Scenario


@frozen
class WithoutWaits(Edit):
    """Some waits are removed. If a wait is the first to wait for a copy to the host, the wait for that copy stays.

    Later code may depend on the copied values.
    """

    rows: frozenset[int]
    """Rows of the event table: the calls that wait."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:  # noqa: ARG002  # it needs no assumption
        """The host continues at once, or as soon as the copy that it reads is done."""
        return replace(graph, host=without_waits(graph, _is_among(graph.host, self.rows)))


@frozen
class DeferredReads(Edit):
    """Some waits are removed, and the program reads the copied values much later.

    A recording does not show whether the program needs a value at once. So the low scenario keeps the waits that fetch
    a value.
    """

    rows: frozenset[int]
    """Rows of the event table: the calls that wait."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """The host continues at once; in the low scenario, as with :class:`WithoutWaits`."""
        if scenario is Scenario.LOW:
            return WithoutWaits(self.rows).applied(graph, scenario)
        return replace(graph, host=_going_on(graph.host, _is_among(graph.host, self.rows)))


def without_waits(graph: StepGraph, chosen: Mask) -> HostTasks:
    """The host tasks. Chosen tasks do not wait, or wait only for the copy to the host that they read."""
    read = _results_read(graph)
    reads = chosen & (read != NONE)
    host = _going_on(graph.host, chosen & ~reads)
    if not reads.any():
        return host
    waits = reads & (host.action != Action.LAUNCH_AND_WAIT)
    return replace(
        host,
        action=np.where(waits, np.int8(Action.WAIT), host.action),
        first=np.where(waits, read, host.first),
    )


def _results_read(graph: StepGraph) -> Int64:
    """For each host task, the last copy to the host that it is the first to wait for; else NONE.

    A blocking copy to the device reads nothing, even if its stream copied to the host before.
    """
    host, device = graph.host, graph.device
    result = np.full(len(host), NONE, dtype=np.int64)
    to_host = device.kind == Kind.COPY_D2H
    copies = to_host.nonzero()[0]
    if not copies.size:
        return result
    own = np.concatenate((to_host, [False]))[host.first] & (host.action == Action.LAUNCH_AND_WAIT)
    for_all = host.action == Action.WAIT_ALL
    given = np.maximum.accumulate(np.where(host.count > 0, host.first + host.count, 0))
    until = np.where(for_all, given, host.first + np.maximum(host.count, 1))
    every = for_all.nonzero()[0]
    one = ((host.first != NONE) & (own | (host.action == Action.WAIT))).nonzero()[0]
    first = np.minimum(
        _first_behind(every, until[every], np.zeros_like(every), copies, np.zeros_like(copies)),
        _first_behind(one, until[one], device.stream[host.first[one]], copies, device.stream[copies]),
    )
    waited = first < len(host)
    np.maximum.at(result, first[waited], copies[waited])
    return result


_BEYOND = (1 << 63) - 1


def _first_behind(waits: Int64, until: Int64, stream: Int64, copies: Int64, copy_stream: Int64) -> Int64:
    """For each copy, the first wait for its stream that waits for it; a number beyond all without one.

    Args:
        waits: host tasks, ascending, shape ``(n,)``.
        until: each waits for all device tasks of its stream before this one.
        stream: of each wait.
        copies: device tasks, shape ``(m,)``.
        copy_stream: of each copy.
    """
    order = stream.argsort(kind="stable")
    length = max(int(until.max(initial=0)), int(copies.max(initial=0))) + 1
    reached = np.maximum.accumulate(stream[order] * length + np.maximum(until[order], 0))
    place = reached.searchsorted(copy_stream * length + copies, side="right")
    found = (place < order.size) & (np.concatenate((stream[order], [NONE]))[place] == copy_stream)
    return np.where(found, np.concatenate((waits[order], [_BEYOND]))[place], _BEYOND)


def _is_among(host: HostTasks, rows: frozenset[int]) -> Mask:
    return among(host.row, np.fromiter(rows, dtype=np.int64, count=len(rows)))


def _going_on(host: HostTasks, chosen: Mask) -> HostTasks:
    if not chosen.any():
        return host
    action = host.action.copy()
    action[chosen & (action == Action.LAUNCH_AND_WAIT)] = Action.LAUNCH
    action[chosen & one_of(action, Action.WAIT, Action.WAIT_ALL)] = Action.NOTHING
    return replace(host, action=action)
