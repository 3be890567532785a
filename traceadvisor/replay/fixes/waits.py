"""Simulates a step without some waits of the host for the device."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

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
        return replace(graph, host=without_waits(graph, graph.once(is_one_of, graph.host.row, self.rows)))


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
        chosen = graph.once(is_one_of, graph.host.row, self.rows)
        action = graph.once(_going_on, graph.host.action, chosen)
        return replace(graph, host=replace(graph.host, action=action))


def without_waits(graph: StepGraph, chosen: Mask) -> HostTasks:
    """The host tasks. Chosen tasks do not wait, or wait only for the copy to the host that they read."""
    host, device = graph.host, graph.device
    read = graph.once(_results_read, host.action, host.first, host.count, device.kind, device.stream)
    action, first = graph.once(_reading_only, chosen, host.action, host.first, read)
    return host if action is host.action else replace(host, action=action, first=first)


def _reading_only(chosen: Mask, action: NDArray[np.int8], first: Int64, read: Int64) -> tuple[NDArray[np.int8], Int64]:
    """The actions without the waits of chosen tasks that read nothing, and what the others wait for."""
    reads = chosen & (read != NONE)
    action = _going_on(action, chosen & ~reads)
    waits = reads & (action != Action.LAUNCH_AND_WAIT)
    if not waits.any():
        return action, first
    return np.where(waits, np.int8(Action.WAIT), action), np.where(waits, read, first)


def _results_read(action: NDArray[np.int8], first: Int64, count: Int64, kind: NDArray[np.int8], stream: Int64) -> Int64:
    """For each host task, the last copy to the host that it is the first to wait for; else NONE.

    A blocking copy to the device reads nothing, even if its stream copied to the host before. The first three columns
    are those of the host tasks, the others those of the device tasks.
    """
    result = np.full(action.size, NONE, dtype=np.int64)
    to_host = kind == Kind.COPY_D2H
    copies = to_host.nonzero()[0]
    if not copies.size:
        return result
    own = np.concatenate((to_host, [False]))[first] & (action == Action.LAUNCH_AND_WAIT)
    for_all = action == Action.WAIT_ALL
    given = np.maximum.accumulate(np.where(count > 0, first + count, 0))
    until = np.where(for_all, given, first + np.maximum(count, 1))
    every = for_all.nonzero()[0]
    one = ((first != NONE) & (own | (action == Action.WAIT))).nonzero()[0]
    first = np.minimum(
        _first_behind(every, until[every], np.zeros_like(every), copies, np.zeros_like(copies)),
        _first_behind(one, until[one], stream[first[one]], copies, stream[copies]),
    )
    waited = first < action.size
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


def is_one_of(row: Int64, rows: frozenset[int]) -> Mask:
    """Whether each task is one of some rows of the event table."""
    return among(row, np.fromiter(rows, dtype=np.int64, count=len(rows)))


def _going_on(action: NDArray[np.int8], chosen: Mask) -> NDArray[np.int8]:
    """The actions; chosen tasks do not wait."""
    if not chosen.any():
        return action
    action = action.copy()
    action[chosen & (action == Action.LAUNCH_AND_WAIT)] = Action.LAUNCH
    action[chosen & one_of(action, Action.WAIT, Action.WAIT_ALL)] = Action.NOTHING
    return action
