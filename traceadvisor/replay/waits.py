"""What if the host did not wait for the device where it does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from traceadvisor.model.arrays import Mask
from traceadvisor.replay.step_graph import Action, HostTasks, StepGraph
from traceadvisor.replay.what_if import Edit, Scenario


@dataclass(frozen=True, slots=True)
class WithoutWaits(Edit):
    """Some waits are not there; those for copies to the host stay, since what follows may depend on the values."""

    rows: frozenset[int]
    """Rows of the event table: the calls that wait."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:  # noqa: ARG002  # there is nothing to assume
        """The host goes on at once."""
        chosen = _is_among(graph.host, self.rows) & ~graph.host.reads_result
        return replace(graph, host=_going_on(graph.host, chosen))


@dataclass(frozen=True, slots=True)
class DeferredReads(Edit):
    """Some waits are not there, and what they fetch from the device is looked at long after.

    That is what the fix is about: whether a program can do without a value at once, a recording cannot tell. Where it
    cannot, only the waits that fetch nothing go, and nothing more is saved at the least.
    """

    rows: frozenset[int]
    """Rows of the event table: the calls that wait."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """The host goes on at once."""
        if scenario is Scenario.LOW:
            return WithoutWaits(self.rows).applied(graph, scenario)
        return replace(graph, host=_going_on(graph.host, _is_among(graph.host, self.rows)))


def _is_among(host: HostTasks, rows: frozenset[int]) -> Mask:
    return np.isin(host.row, np.fromiter(rows, dtype=np.int64, count=len(rows)))


def _going_on(host: HostTasks, chosen: Mask) -> HostTasks:
    action = host.action.copy()
    action[chosen & (action == Action.LAUNCH_AND_WAIT)] = Action.LAUNCH
    action[chosen & np.isin(action, (Action.WAIT, Action.WAIT_ALL))] = Action.NOTHING
    return replace(host, action=action)
