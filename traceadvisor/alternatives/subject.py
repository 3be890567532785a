"""A recording as what-if questions see it: its steps, its GPU, its batch, and how time grows with it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from traceadvisor.alternatives.edits import GROWTH, MeasuredBatch
from traceadvisor.alternatives.gpus import Gpu
from traceadvisor.alternatives.memory import NeededMemory, needed_memory
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.facts import Facts
from traceadvisor.hardware.devices import DeviceRow, device_row
from traceadvisor.model.arrays import Float64
from traceadvisor.model.events import Kind
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.model.whatif import Range
from traceadvisor.replay.fixes.host_work import is_loading
from traceadvisor.replay.replay import Replay
from traceadvisor.replay.step_graph import StepGraph

ALIKE_SHARE = 0.7
"""Share of the names of operators that two recordings of one program have in common at least."""

INSIDE_SPREAD = 0.05
"""Error of a line between two recorded batches, an assumption."""


class Subject:
    """One recording with steps that can be simulated."""

    def __init__(
        self, facts: Facts, batch: int | None = None, gpu: Gpu | None = None, snapshot: SnapshotFacts | None = None
    ) -> None:
        self.facts = facts
        self.batch = batch or facts.run.batch_size
        self._gpu, self._snapshot = gpu, snapshot

    @property
    def replay(self) -> Replay | None:
        """The simulation of its steps; None if they are too short to have a duration."""
        return self.facts.replay if self.facts.step_ns else None

    @property
    def row(self) -> DeviceRow | None:
        """The published rates of the recorded GPU; None if it is unknown or has none."""
        if self._gpu:
            return self._gpu.row
        return device_row(self.facts.device) if self.facts.device else None

    @property
    def gpu_name(self) -> str | None:
        """The recorded GPU; None without one."""
        if self.row is not None:
            return self.row.name
        return self.facts.device.name if self.facts.device else None

    @property
    def memory_gb(self) -> int | None:
        """Memory of the recorded GPU as it is sold; None if unknown."""
        if self._gpu:
            return self._gpu.memory_gb
        recorded = self.facts.device.memory_bytes if self.facts.device else None
        if recorded is None or self.row is None:
            return None if recorded is None else round(recorded / (1 << 30))
        return min(self.row.memory_gb, key=lambda size: abs(size * (1 << 30) - recorded))

    @property
    def samples_per_step(self) -> float | None:
        """Samples of one rank in a step; None if the batch is unknown."""
        return None if self.batch is None else self.batch * (self.facts.timing.fetches_per_step or 1.0)

    @cached_property
    def memory(self) -> NeededMemory | None:
        """The memory that the training needs; None if it was not recorded."""
        return needed_memory(self.facts.memory, self.facts.allocations or self._snapshot)

    @cached_property
    def gradient_bytes(self) -> int | None:
        """Bytes of the gradients, which are as large as the parameters; None if memory was not recorded."""
        known = self.facts.allocations or self._snapshot
        if known is None:
            return None
        mine = known.is_of(MemoryClass.PARAMETERS)
        return int(known.rows.size_bytes[mine].sum()) or None

    @cached_property
    def names(self) -> frozenset[int | str]:
        """Names of its operators and ranges of modules."""
        events = self.facts.trace.events
        used = np.unique(events.name_id[events.rows(Kind.OPERATOR)])
        return frozenset(self.facts.trace.names[name] for name in used.tolist())

    @cached_property
    def spent_ns(self) -> tuple[float, float]:
        """Time of GPU operations and of the CPU outside of the loader, per step."""
        graph = self.replay.graph if self.replay else None
        return (0.0, 0.0) if graph is None else _spent_ns(graph)

    def is_like(self, other: Subject) -> bool:
        """Whether both are recordings of one program on the same GPU, with known batches that differ."""
        shared, both = self.names & other.names, self.names | other.names
        same_gpu = self.gpu_name == other.gpu_name and self.facts.run.rank_count == other.facts.run.rank_count
        differs = self.batch is not None and other.batch is not None and self.batch != other.batch
        return differs and same_gpu and len(shared) >= ALIKE_SHARE * len(both) and other.replay is not None


def _spent_ns(graph: StepGraph) -> tuple[float, float]:
    inner, host, device = graph.inner_steps, graph.host, graph.device
    own = np.isin(host.step, inner) & ~is_loading(host)
    count = max(len(inner), 1)
    on_host = float((host.work_ns + host.call_ns)[own].sum()) / count
    return float(device.duration_ns[np.isin(device.step, inner)].sum()) / count, on_host


def measured_batch(subject: Subject, others: Sequence[Subject], batch: int) -> MeasuredBatch | None:
    """Return the change of a recording to another batch, by a line through it and others; None without any.

    Of several others, those next to the batch count.
    """
    alike = [one for one in others if one is not subject and subject.is_like(one)]
    if not alike or not subject.batch:
        return None
    points = sorted(((one.batch or 0, one.spent_ns) for one in (subject, *alike)), key=lambda point: point[0])
    batches = np.array([one for one, _ in points], np.float64)
    parts = [_along(batches, np.array([spent[part] for _, spent in points]), batch) for part in (0, 1)]
    gpu, cpu = (part.times(1 / max(own, 1.0)) for part, own in zip(parts, subject.spent_ns, strict=True))
    return MeasuredBatch(batch / subject.batch, gpu, cpu)


def _along(batches: Float64, spent_ns: Float64, batch: int) -> Range:
    """Return the time at a batch: on the line through its neighbours; outside, up to the proportion to the nearest."""
    after = int(np.clip(np.searchsorted(batches, batch), 1, batches.size - 1))
    (first, second), (low, high) = batches[after - 1 : after + 1], spent_ns[after - 1 : after + 1]
    line = float(max(low + (high - low) * (batch - first) / (second - first), 0.0))
    if first <= batch <= second:
        return Range(line * (1 - INSIDE_SPREAD), line, line * (1 + INSIDE_SPREAD))
    nearest, at_nearest = (first, low) if batch < first else (second, high)
    ends = sorted((line, *(at_nearest * (batch / nearest) ** power for power in GROWTH.values())))
    return Range(ends[0] * (1 - INSIDE_SPREAD), line, ends[-1] * (1 + INSIDE_SPREAD))
