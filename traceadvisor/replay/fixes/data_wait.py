"""What if the next batch were always ready."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from traceadvisor.replay.fixes.edit_host import fetches, is_loading, slowed
from traceadvisor.replay.step_graph import Action, StepGraph
from traceadvisor.replay.what_if import Edit, Scenario

HOST_FACTOR = {Scenario.LOW: 1.2, Scenario.EXPECTED: 1.07, Scenario.HIGH: 1.0}
"""How many times as long host work takes once other processes make the batches: the most that was seen, the middle of
what was seen, and no longer.

Workers and the training thread share caches and memory: over public recordings of one ResNet-50 training with 0 and
with 4 workers (pytorch/kineto, TensorBoard plugin samples) host work per step rose by 7 to 19%. A training thread whose
caches no longer hold pictures that it decodes works faster: over the captured pair of docs/validation.md it fell by 5%,
which is not promised to others.
"""

CROWDED_HOST_FACTOR = {Scenario.LOW: 1.1, Scenario.EXPECTED: 1.0, Scenario.HIGH: 1.0}
"""The same where there are workers already, whose effect the recording shows; an assumption."""

FETCH_NS = {Scenario.LOW: 1_400_000, Scenario.EXPECTED: 700_000, Scenario.HIGH: 80_000}
"""What it costs the training thread to take a finished batch: the range seen in the same recordings with 4 workers, and
its middle. It replaces what a fetch took and never exceeds it."""


@dataclass(frozen=True, slots=True)
class NoDataWait(Edit):
    """The loader always has the next batch ready."""

    changes_device: ClassVar = False

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Loading leaves the training thread; taking a batch stays, and the rest of the host slows down."""
        takes, load_ns = fetches(graph.host)
        factor = (CROWDED_HOST_FACTOR if graph.loader_has_workers else HOST_FACTOR)[scenario]
        host = slowed(graph.host, np.where(is_loading(graph.host), 0.0, factor))
        host.work_ns[takes] = np.minimum(load_ns, FETCH_NS[scenario])
        action = np.where(host.action == Action.FETCH, np.int8(Action.NOTHING), host.action)
        return replace(graph, host=replace(host, action=action))
