"""Surroundings of collectives: the ranges, operators and backward nodes around each launch."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from traceadvisor.analysis.operators.by_thread import ThreadSpans
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, name_mask
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.trace import Trace


@frozen(eq=False)
class Surroundings:
    """The host side of some collectives; arrays of shape ``(n,)``, false or NONE where no launch was recorded."""

    trace: Trace
    tree: OperatorTree
    call_rows: Int64
    """Row of the event that launched each; NONE if unknown."""

    around: Int64
    """Position in the tree of the innermost operator around each launch; NONE if there is none."""

    def within(self, pattern: re.Pattern[str]) -> Mask:
        """Return whether each launch lies in a range or operator on its thread whose name matches."""
        known = self.call_rows != NONE
        result = np.zeros(self.call_rows.size, dtype=np.bool_)
        if not known.any():
            return result
        events = self.trace.events
        rows = events.rows(Kind.OPERATOR, Kind.ANNOTATION)
        rows = rows[name_mask(self.trace.names, pattern.search)[events.name_id[rows]]]
        calls = self.call_rows[known]
        result[known] = ThreadSpans.of(events, rows).hold(events.thread[calls], events.start_ns[calls])
        return result

    def nearest(self, matches: Callable[[str], bool]) -> Int64:
        """Return the row of the nearest operator around each launch whose name matches; NONE if there is none."""
        if not self.around.size:
            return self.around
        events = self.trace.events
        chosen = name_mask(self.trace.names, matches)[events.name_id[self.tree.rows]]
        position = np.append(self.tree.nearest(chosen), NONE)[self.around]
        return np.where(position == NONE, NONE, np.append(self.tree.rows, NONE)[position])

    def backward_nodes(self) -> list[str]:
        """Return the name of the backward node around each launch; empty if there is none."""
        rows = self.nearest(lambda name: name.startswith(BACKWARD_PREFIX))
        names, name_id = self.trace.names, self.trace.events.name_id
        return [
            "" if row == NONE else names[name_id[row]].removeprefix(BACKWARD_PREFIX).removeprefix(": ")
            for row in rows.tolist()
        ]

    def runs_backward_in(self, pattern: re.Pattern[str]) -> bool:
        """Return whether most backward nodes run during ranges whose name matches: an optimizer that got a closure."""
        events = self.trace.events
        ranges, nodes = events.rows(Kind.ANNOTATION), events.rows(Kind.OPERATOR)
        matches = name_mask(self.trace.names, pattern.search)
        is_node = name_mask(self.trace.names, lambda name: name.startswith(BACKWARD_PREFIX))
        ranges, nodes = ranges[matches[events.name_id[ranges]]], nodes[is_node[events.name_id[nodes]]]
        return 2 * int(events.spans(ranges).contains(events.start_ns[nodes]).sum()) > nodes.size

    def on_backward_thread(self, training_thread: int) -> Mask:
        """Return whether each launch comes from another thread than the training thread that runs backward nodes."""
        events = self.trace.events
        rows = events.rows(Kind.OPERATOR)
        is_node = name_mask(self.trace.names, lambda name: name.startswith(BACKWARD_PREFIX))[events.name_id[rows]]
        threads = np.setdiff1d(np.unique(events.thread[rows[is_node]]), [training_thread])
        launching = np.append(events.thread, np.int32(NONE))[self.call_rows]
        found: Mask = np.isin(launching, threads) & (self.call_rows != NONE)
        return found


def surroundings(trace: Trace, tree: OperatorTree, call_rows: Int64) -> Surroundings:
    """Return the surroundings of some launches; NONE stands for an unknown one."""
    around = np.full(call_rows.size, NONE, dtype=np.int64)
    known = call_rows != NONE
    calls = call_rows[known]
    around[known] = tree.enclosing(trace.events.thread[calls].astype(np.int64), trace.events.start_ns[calls])
    return Surroundings(trace, tree, call_rows, around)
