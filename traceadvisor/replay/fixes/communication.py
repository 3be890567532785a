"""Simulates changes of communication, one edit for each kind.

No edit makes communication vanish: what does not fit beside the compute that it may overlap stays exposed.
"""

from __future__ import annotations

from abc import abstractmethod
from statistics import median
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from traceadvisor.frozen import frozen, replace
from traceadvisor.model.arrays import Int64, among
from traceadvisor.replay.simulate import device_ends_ns
from traceadvisor.replay.step_graph import StepGraph
from traceadvisor.replay.what_if import Edit, Scenario


def unavoidable_ns(total_ns: float, room_ns: float, last_share: float) -> float:
    """Return how much of a step's gradient all-reduce at least follows the backward pass.

    Gradients become ready evenly over the backward pass, and the all-reduce of each bucket begins when its gradients
    are ready. So the last bucket always follows, and so does what takes longer than the backward pass after the first
    bucket.

    Args:
        total_ns: time of all buckets of the step.
        room_ns: length of the backward pass.
        last_share: share of the last bucket in all gradients, 0..1; the first bucket is assumed to be as large.
    """
    return min(max(last_share * total_ns, total_ns - (1 - last_share) * room_ns), total_ns)


@frozen(eq=False)
class _GradientEdit(Edit):
    """Changes how long gradient all-reduces outlast the backward pass, step by step."""

    rows: Int64
    """Rows of the gradient all-reduces in the event table, shape ``(k,)``."""

    backward: Int64
    """Rows of the compute kernels of backward passes, shape ``(b,)``."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Hide each step's all-reduces behind the backward pass, and let the last one take what is left of them.

        All steps are left the same, the median: the first of a few replayed steps begins with an empty queue.
        """
        device = graph.device
        mine, behind = among(device.row, self.rows), among(device.row, self.backward)
        hidden_ns = np.where(mine, 0, device.duration_ns)
        before_ns = device_ends_ns(graph)
        after_ns = device_ends_ns(replace(graph, device=replace(device, duration_ns=hidden_ns)))
        left_ns: dict[int, float] = {}
        for step in np.unique(device.step[mine]).tolist():
            here = device.step == step
            tasks, compute = (mine & here).nonzero()[0], (behind & here).nonzero()[0]
            if not compute.size:  # nothing is known to hide it
                hidden_ns[tasks] = device.duration_ns[tasks]
                continue
            room_ns = int(after_ns[compute].max() - (after_ns - device.duration_ns)[compute].min())
            tail_ns = max(int(before_ns[tasks].max() - before_ns[compute].max()), 0)
            left_ns[int(tasks[-1])] = self._left_ns(scenario, device.duration_ns[tasks], room_ns, tail_ns)
        hidden_ns[list(left_ns)] = round(median(left_ns.values())) if left_ns else 0
        return replace(graph, device=replace(device, duration_ns=hidden_ns))

    @abstractmethod
    def _left_ns(self, scenario: Scenario, durations_ns: Int64, room_ns: int, tail_ns: int) -> float:
        """Return the time that follows the backward pass of one step.

        Args:
            scenario: the assumptions.
            durations_ns: of the step's all-reduces.
            room_ns: length of the step's backward pass.
            tail_ns: how long the all-reduces outlast it without the edit.
        """


@frozen(eq=False)
class OverlappedGradients(_GradientEdit):
    """Gradient all-reduces begin as soon as their bucket is ready."""

    last_share: float = 0.1
    """Share of one bucket of the proposed size in all gradients, 0..1."""

    def _left_ns(self, scenario: Scenario, durations_ns: Int64, room_ns: int, tail_ns: int) -> float:
        total_ns = float(durations_ns.sum())
        recorded_share = float(durations_ns[-1]) / max(total_ns, 1.0)
        shares = {
            Scenario.LOW: max(recorded_share, self.last_share),  # the last bucket stays as it is
            Scenario.EXPECTED: self.last_share,
            Scenario.HIGH: self.last_share / 2,  # it is the rest of a division into buckets, half of one on average
        }
        return min(unavoidable_ns(total_ns, room_ns, shares[scenario]), tail_ns)


TAIL_LEFT = {Scenario.LOW: 0.75, Scenario.EXPECTED: 0.5, Scenario.HIGH: 0.5}
"""Share of the exposed all-reduce that is left, per batch, if two batches share one.

The low scenario assumes that half of the time is a wait for late ranks, which returns in the step with the all-reduce.
"""


@frozen(eq=False)
class AccumulatedGradients(_GradientEdit):
    """Two batches share one gradient all-reduce; the step is the mean of one with it and one without."""

    def _left_ns(self, scenario: Scenario, durations_ns: Int64, room_ns: int, tail_ns: int) -> float:  # noqa: ARG002
        return TAIL_LEFT[scenario] * tail_ns


TRANSFER_SPARED = {Scenario.LOW: 0.25, Scenario.EXPECTED: 0.5, Scenario.HIGH: 0.5}
"""Share of the transfer that half the bytes save. The low scenario spends half of the gain on conversions."""


@frozen(eq=False)
class HalvedMessages(Edit):
    """Messages hold half the bytes: 16-bit numbers instead of 32-bit ones."""

    rows: Int64
    """Rows of the collectives in the event table, ascending, shape ``(k,)``."""

    transfer_ns: Int64
    """Time of each that is transfer at most: that of the fastest equal message, shape ``(k,)``."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Take a share of the transfer from each; waiting for late ranks stays."""
        return _shortened(graph, self.rows, self.transfer_ns * TRANSFER_SPARED[scenario])


_REACHED = {Scenario.LOW: 0.0, Scenario.EXPECTED: 0.5, Scenario.HIGH: 1.0}
"""Share of the possible gain that a fix reaches, where the recording does not tell."""


@frozen(eq=False)
class OverlappedExchange(Edit):
    """All-to-all runs beside dense compute that does not need its result."""

    rows: Int64
    """Rows of the all-to-alls in the event table, ascending, shape ``(k,)``."""

    room_ns: Int64
    """Compute of the same phase and step that nothing overlaps yet, divided among its all-to-alls; shape ``(k,)``."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Shorten each by the compute beside it. How much of that depends on the exchange was not recorded."""
        return _shortened(graph, self.rows, self.room_ns * _REACHED[scenario])


@frozen(eq=False)
class FasterTransfers(Edit):
    """Large messages use more of the link's bandwidth."""

    rows: Int64
    """Rows of the collectives in the event table, ascending, shape ``(k,)``."""

    best_ns: Int64
    """Time of each at the bandwidth that a good set-up reaches, shape ``(k,)``."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Shorten each: not at all if all of it is a wait, by half of the difference, or to that time."""
        mine = among(graph.device.row, self.rows)
        recorded_ns = np.zeros(self.rows.size, dtype=np.int64)
        recorded_ns[self.rows.searchsorted(graph.device.row[mine])] = graph.device.duration_ns[mine]
        return _shortened(graph, self.rows, np.maximum(recorded_ns - self.best_ns, 0) * _REACHED[scenario])


def _shortened(graph: StepGraph, rows: Int64, by_ns: NDArray[np.floating[Any]]) -> StepGraph:
    """Return the graph with some operations shorter by so much, never below zero."""
    mine = among(graph.device.row, rows)
    duration_ns = graph.device.duration_ns.copy()
    spared_ns = np.rint(by_ns[rows.searchsorted(graph.device.row[mine])]).astype(np.int64)
    duration_ns[mine] = np.maximum(duration_ns[mine] - spared_ns, 0)
    return replace(graph, device=replace(graph.device, duration_ns=duration_ns))
