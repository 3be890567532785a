from __future__ import annotations

import numpy as np

from traceadvisor.analysis.memory.call_stacks import Phase
from traceadvisor.analysis.memory.changes import MemoryChange
from traceadvisor.analysis.memory.scaling import grows_with_batch
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.model.arrays import Int64
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, RuleMeta, Skipped, Unit
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.rules.base import MemoryFinding, SnapshotRule, frozen


@frozen
class SmallerBatch(SnapshotRule):
    """Memory that grows with the batch makes a large part of the peak.

    What it finds: Activations, inputs, and temporary tensors of the forward and backward pass that are not of the size
        of a weight.
    Why it costs time: It costs no time. It decides which batch fits.
    How to fix it: Halve the batch and step the optimizer every second batch: the gradients add up to the same.
    How the saving is estimated: The recorded allocations are replayed with half of these bytes, and with gradients that
        are held from the beginning of the step, as for the second half of the batch.
    When it may be wrong: A smaller batch uses the GPU less well, and batch normalisation sees it. Masks and tables do
        not shrink with the batch; copies of weights are recognised by their size.
    """

    meta = RuleMeta("MEM012", "smaller-batch", "Memory that grows with the batch fills the device")

    min_share: float = 0.1
    """Share of the peak; less is not worth twice as many passes."""

    def advise(self, memory: SnapshotFacts) -> MemoryFinding | Clear | Skipped:
        """Replay with half of what grows with the batch."""
        if not memory.in_phase(Phase.BACKWARD).any() and not memory.is_saved.any():
            return Skipped("No training was recorded: no backward pass, and nothing saved for one.")
        rows = grows_with_batch(memory)
        change = MemoryChange(rows, 0.5, pieces=_kept_gradients(memory))
        share = memory.saved_share(change)
        if share < self.min_share:
            return Clear("saving by half the batch", share, self.min_share, Unit.SHARE)
        grows = np.zeros(len(memory.rows), dtype=np.bool_)
        grows[rows] = True
        at_peak = memory.at_peak(grows)
        return MemoryFinding(
            change=change,
            fix=Fix(
                "Halve the batch, and step the optimizer every second batch",
                change="(loss / 2).backward()  # and optimizer.step() after every second batch",
            ),
            effort=Effort.LINE,
            evidence=(Evidence("grows with the batch, at the peak", memory.bytes_of(at_peak), Unit.BYTES),),
            price="A smaller batch uses the GPU less well. Batch norm sees fewer samples, so results may change.",
        )


def _kept_gradients(memory: SnapshotFacts) -> Int64:
    """Lifetimes of gradients that begin with the step: the second pass adds its own to those of the first."""
    rows = memory.rows
    is_gradient = memory.is_of(MemoryClass.GRADIENTS)
    made = np.flatnonzero(is_gradient & (rows.start > 0))
    ends_of_steps = np.unique(
        np.concatenate((rows.start[memory.in_phase(Phase.OPTIMIZER)], rows.end[is_gradient], [0]))
    )
    before = ends_of_steps[np.searchsorted(ends_of_steps, rows.start[made], side="right") - 1]
    held = np.stack((made, before, rows.end[made]), axis=1)
    added = np.stack((made, rows.start[made], rows.start[made] + 1), axis=1)
    return np.concatenate((held, added))
