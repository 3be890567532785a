from __future__ import annotations

import numpy as np

from traceadvisor.analysis.memory.call_stacks import Phase
from traceadvisor.analysis.memory.changes import MemoryChange
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, RuleMeta, Skipped, Unit
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.rules.base import MemoryFinding, SnapshotRule, frozen

_STAYS = (MemoryClass.PARAMETERS, MemoryClass.OPTIMIZER_STATE, MemoryClass.WORKSPACES)


@frozen
class GrowingReferences(SnapshotRule):
    """Memory grows from step to step: one line leaves a tensor behind each time.

    What it finds: Lines whose allocations are in use at the end, some from each of at least three steps: a list of
        losses with their graphs, or outputs that something refers to.
    Why it costs time: The run ends with an out-of-memory error at some time.
    How to fix it: Keep numbers instead of tensors, ``loss.item()`` or ``loss.detach()``, and drop what the last step
        made.
    How the saving is estimated: The recorded allocations are replayed with each kept only until the next step makes its
        like. In a longer run the saving grows.
    When it may be wrong: A cache that is filled once grows in the first steps only.
    """

    meta = RuleMeta("MEM018", "growing-references", "Each step leaves tensors behind")

    min_steps: int = 3
    """In two steps, a cache may be filled."""

    min_share: float = 0.0005
    """Share of the peak that a step adds. A thousand such steps take half of the memory."""

    def advise(self, memory: SnapshotFacts) -> MemoryFinding | Clear | Skipped:
        """Look for lines that leave tensors in each step."""
        step_of, steps = _steps(memory)
        if steps < self.min_steps:
            return Skipped(f"Growth shows from {self.min_steps} whole steps on, and the snapshot holds {steps}.")
        kept = (memory.rows.end == memory.history.instants) & (memory.rows.start > 0) & (memory.code != NONE)
        kept &= ~memory.is_of(*_STAYS)
        growing, replaced = [], []
        for code in np.unique(memory.code[kept]).tolist():
            rows = np.flatnonzero(kept & (memory.code == code))
            if np.unique(step_of[rows]).size >= max(self.min_steps, steps - 1):
                growing += rows.tolist()
                replaced += [(row, memory.rows.start[row], _next_step(memory, row, step_of)) for row in rows.tolist()]
        change = MemoryChange(np.zeros(0, np.int64), pieces=np.array(replaced, np.int64).reshape(-1, 3))
        per_step = memory.bytes_of(np.array(growing, np.int64)) / steps
        share = per_step / max(memory.history.peak_bytes, 1)
        if share < self.min_share:
            return Clear("growth per step as a share of the peak", share, self.min_share, Unit.SHARE)
        rows = np.array(growing, np.int64)
        return MemoryFinding(
            change=change,
            fix=Fix("Keep numbers of a step, not its tensors", change="losses.append(loss.item())"),
            effort=Effort.LINE,
            evidence=(
                Evidence("growth per step", per_step, Unit.BYTES_PER_STEP),
                Evidence("steps", steps, Unit.COUNT),
                Evidence("tensors left behind", rows.size / steps, Unit.PER_STEP),
            ),
            locations=memory.locations(rows),
        )


def _steps(memory: SnapshotFacts) -> tuple[Int64, int]:
    """The step of each allocation, numbered by the ends of backward passes or optimizer steps; and their number."""
    steps = memory.in_phase(Phase.OPTIMIZER)
    marks = steps if steps.any() else memory.in_phase(Phase.BACKWARD)
    starts, is_marked = memory.rows.start, marks
    ends = starts[is_marked & np.append(~is_marked[1:] & (starts[1:] > 0), True)]
    return np.searchsorted(ends, starts).astype(np.int64), ends.size


def _next_step(memory: SnapshotFacts, row: int, step_of: Int64) -> int:
    """The instant at which the next step has begun; the end in the last step."""
    later = memory.rows.start[step_of > step_of[row]]
    return int(later.min(initial=memory.history.instants))
