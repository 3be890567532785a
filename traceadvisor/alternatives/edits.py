"""Changes of the recorded tasks: another GPU, another batch, more ranks, a faster or slower CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import sqrt
from typing import ClassVar

import numpy as np

from traceadvisor.alternatives.cpus import at, faster_workers
from traceadvisor.alternatives.kernels import Factors
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64, Int64, Mask
from traceadvisor.model.events import Kind
from traceadvisor.model.whatif import Range
from traceadvisor.replay.fixes.communication import unavoidable_ns
from traceadvisor.replay.fixes.host_work import fetches, is_loading, scaled, slowed
from traceadvisor.replay.simulate import simulate
from traceadvisor.replay.step_graph import Action, Phase, StepGraph, Workers
from traceadvisor.replay.what_if import Edit, Scenario

FIXED_NS = (0, 2_000, 5_000)
"""Part of a kernel that no rate changes, least, likely and most: to begin, and to fill and drain the GPU. A kernel that
sets a few values takes 1 to 3 us in recordings of V100 to H100."""


def _stretched(duration_ns: Int64, factor: Float64, fixed_ns: tuple[int, int, int], scenario: Scenario) -> Int64:
    """Return durations times a factor, but for a fixed part; shortest in the scenario with the highest saving."""
    least, likely, most = fixed_ns
    longer, shorter = {
        Scenario.HIGH: (most, least),
        Scenario.EXPECTED: (likely, likely),
        Scenario.LOW: (least, most),
    }[scenario]
    fixed = np.minimum(duration_ns, np.where(factor > 1, longer, shorter))
    return fixed + scaled(duration_ns - fixed, factor)


@frozen(eq=False)
class OtherGpu(Edit):
    """Another GPU: kernels by their factors, copies and collectives by links."""

    kernels: Factors
    memory: float
    """Time to move bytes within the GPU's memory, relative to the recorded one."""

    host_link: Range
    """Time of copies from and to the CPU, relative to the recorded one."""

    peer_link: Range

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Stretch the duration of each GPU operation."""
        device, table = graph.device, self.kernels
        factor = np.ones(len(device))
        factor[np.isin(device.kind, (Kind.COPY_OTHER, Kind.MEMSET))] = self.memory
        factor[np.isin(device.kind, (Kind.COPY_H2D, Kind.COPY_D2H))] = at(scenario, self.host_link)
        factor[device.kind == Kind.COLLECTIVE] = at(scenario, self.peer_link)
        kernel = device.kind == Kind.KERNEL
        places = np.minimum(np.searchsorted(table.rows, device.row), max(table.rows.size - 1, 0))
        if table.rows.size:
            known = kernel & (table.rows[places] == device.row)
            ends = {Scenario.HIGH: table.low, Scenario.EXPECTED: table.expected, Scenario.LOW: table.high}[scenario]
            factor[known] = ends[places[known]]
        duration_ns = _stretched(device.duration_ns, factor, FIXED_NS, scenario)
        return replace(graph, device=replace(device, duration_ns=duration_ns))


GROWTH = {Scenario.HIGH: 0.75, Scenario.EXPECTED: 0.95, Scenario.LOW: 1.0}
"""Exponent of the batch in the time of a larger one: the shortest, likely and longest time. Kernels that do not fill
the GPU, and the part of loading that is made once for a batch, grow less than in proportion. An assumption; a second
recorded batch replaces it."""

SMALL_NS = (0, 5_000, 20_000)
"""As :data:`FIXED_NS`, for another batch: a kernel so short may not fill the GPU, and then takes as long with more."""

CPU_GROWTH = {Scenario.HIGH: 0.0, Scenario.EXPECTED: 0.8, Scenario.LOW: 1.0}
"""The same where the CPU computes. An assumption: a small network took as long with 8 samples as with 32."""

NEW_PAGES = 1.25
"""Beyond the proportion, with a larger batch on a CPU: glibc maps each tensor of 32 MiB and more anew, and the first
use of each page costs a fault. A transformer with 67 MB of scores took 1.19 times as long as with kept memory."""

SMALL_COPY_BYTES = 1 << 16
"""Smaller copies hold no batch, such as a loss."""


@frozen(eq=False)
class OtherBatch(Edit):
    """Another number of samples in each batch."""

    times: float
    """Relative to the recorded batch."""

    on_cpu: bool = False
    """Whether the CPU computes: there is no GPU."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Stretch what grows with the batch: kernels but the optimizer's, copies, and the time to load a batch."""
        device, host = graph.device, graph.host
        growth = _growth(self.times, GROWTH, scenario)
        of_batch = ~_of_optimizer(graph) & np.isin(device.kind, (Kind.KERNEL, Kind.COPY_OTHER, Kind.MEMSET))
        factor = np.where(of_batch, growth, 1.0)
        duration_ns = _stretched(device.duration_ns, factor, SMALL_NS, scenario)
        copies = np.isin(device.kind, (Kind.COPY_H2D, Kind.COPY_D2H)) & (device.byte_count >= SMALL_COPY_BYTES)
        duration_ns[copies] = scaled(device.duration_ns[copies], self.times)
        load = _growth(self.times, GROWTH, scenario)
        elsewhere = self._of_cpu(scenario) if self.on_cpu else 1.0
        per_task = np.where(is_loading(host), load, np.where(host.phase == Phase.OPTIMIZER, 1.0, elsewhere))
        return replace(
            graph,
            device=replace(device, duration_ns=duration_ns),
            host=slowed(host, per_task),
            workers=faster_workers(graph.workers, load),
        )

    def _of_cpu(self, scenario: Scenario) -> float:
        """Return how many times as long the CPU computes; the larger of two batches may need new pages."""
        growth = _growth(self.times, CPU_GROWTH, scenario)
        if scenario is Scenario.LOW and self.times > 1:
            return growth * NEW_PAGES
        return growth / NEW_PAGES if scenario is Scenario.HIGH and self.times < 1 else growth


def _growth(times: float, exponents: Mapping[Scenario, float], scenario: Scenario) -> float:
    """Return how many times as long something takes: a smaller batch saves least where a larger one costs least."""
    opposite = {Scenario.HIGH: Scenario.LOW, Scenario.LOW: Scenario.HIGH}
    used = scenario if times >= 1 else opposite.get(scenario, scenario)
    return float(times ** exponents[used])


@frozen
class MeasuredBatch(Edit):
    """Another batch, by a line through recordings of several."""

    times: float
    gpu: Range
    """Time of GPU operations over that in this recording."""

    cpu: Range
    """The same for the CPU outside of the loader."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Stretch all GPU operations alike, and the CPU's work."""
        device_ns = scaled(graph.device.duration_ns, at(scenario, self.gpu))
        load = _growth(self.times, GROWTH, scenario)
        host = slowed(graph.host, np.where(is_loading(graph.host), load, at(scenario, self.cpu)))
        device = replace(graph.device, duration_ns=device_ns)
        return replace(graph, device=device, host=host, workers=faster_workers(graph.workers, load))


def _of_optimizer(graph: StepGraph) -> Mask:
    """Return whether each device task was launched by the optimizer, whose work does not grow with the batch."""
    host = graph.host
    launching = (host.phase == Phase.OPTIMIZER) & np.isin(host.action, (Action.LAUNCH, Action.LAUNCH_AND_WAIT))
    found = np.zeros(len(graph.device), np.bool_)
    for first, count in zip(host.first[launching].tolist(), host.count[launching].tolist(), strict=True):
        found[first : first + count] = True
    return found


REACHED_LINK = Range(0.4, 0.7, 0.9)
"""Share of the published rate of a link that a collective reaches. An assumption."""

BUCKET_BYTES = 25 << 20
"""Gradients that DDP reduces together; the default of ``bucket_cap_mb``."""

BACKWARD_SHARE = 0.6
"""Share of a step that the backward pass takes: two thirds of the products, less what follows it."""


@frozen
class MoreRanks(Edit):
    """Each step reduces the gradients over all ranks."""

    gradient_bytes: int
    ranks: int
    link_bytes_per_s: float
    """One way, as published."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Let the optimizer of each step wait for what does not fit beside the backward pass; in one case, for all."""
        moved = self.gradient_bytes * 2 * (self.ranks - 1) / self.ranks
        total_ns = at(scenario, REACHED_LINK.dividing(moved / self.link_bytes_per_s * 1e9))
        room_ns = BACKWARD_SHARE * simulate(graph).interior_mean_ns()
        last = min(BUCKET_BYTES / max(self.gradient_bytes, 1), 1.0)
        left_ns = total_ns if scenario is Scenario.LOW else unavoidable_ns(total_ns, room_ns, last)
        device, duration_ns = graph.device, graph.device.duration_ns.copy()
        own = ~_of_optimizer(graph)
        for step in np.unique(device.step).tolist():
            before = np.flatnonzero((device.step == step) & own)
            here = before if before.size else np.flatnonzero(device.step == step)
            duration_ns[here[-1]] += round(left_ns)
        return replace(graph, device=replace(device, duration_ns=duration_ns))


@frozen
class OtherRanks(Edit):
    """Recorded collectives over another number of ranks."""

    recorded: int
    ranks: int

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Scale what each rank sends; without other ranks, nothing is sent."""
        sent = [(one - 1) / one for one in (self.recorded, self.ranks)]
        factor = sent[1] / sent[0]
        ends = Range(0.0, 0.0, 0.0) if self.ranks == 1 else Range(min(factor, 1.0), factor, max(factor, 1.0))
        mine = graph.device.kind == Kind.COLLECTIVE
        duration_ns = scaled(graph.device.duration_ns, np.where(mine, at(scenario, ends), 1.0))
        return replace(graph, device=replace(graph.device, duration_ns=duration_ns))


@frozen
class WorkersAtPace(Edit):
    """Loader workers that deliver at a pace, where the recorded loop did not wait for them."""

    pace_ns: float | None = None
    """Time for a batch of all workers together; None if unknown: as recorded in the longest case, and no limit else."""

    changes_device: ClassVar = False

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Take batches from a queue that is filled at that pace; in the shortest case, it is always filled."""
        is_limit = scenario is Scenario.LOW or (scenario is Scenario.EXPECTED and self.pace_ns is not None)
        takes, _ = fetches(graph.host)
        if not is_limit or not takes.size or graph.workers is not None or not graph.loader_has_workers:
            return graph
        recorded_ns = simulate(graph).interior_mean_ns() * graph.step_count / takes.size
        pace_ns = round(min(self.pace_ns or recorded_ns, recorded_ns))
        action = graph.host.action.copy()
        action[takes] = Action.FETCH
        workers = Workers(1, 2, (pace_ns,) * int(takes.size))
        return replace(graph, host=replace(graph.host, action=action), workers=workers)


def ratio_of_links(before: float | None, after: float | None, *, waits: bool = False) -> Range:
    """Return the time over another link; as recorded at one end, because something else may limit it.

    ``waits``: the recorded time is also that of waiting for others, so the likely one lies between both ends.
    """
    if before is None or after is None or before == after:
        return Range(1.0, 1.0, 1.0)
    ratio = before / after
    return Range(min(ratio, 1.0), sqrt(ratio) if ratio < 1 or waits else ratio, max(ratio, 1.0))
