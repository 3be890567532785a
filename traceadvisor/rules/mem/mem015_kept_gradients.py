from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter

import numpy as np

from traceadvisor.analysis.memory.call_stacks import Phase
from traceadvisor.analysis.memory.changes import MemoryChange
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.model.arrays import Int64
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, RuleMeta, Skipped, Unit
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.rules.base import MemoryFinding, SnapshotRule, frozen


@frozen
class KeptGradients(SnapshotRule):
    """Gradients are set to zero after a step, and stay in memory during the next forward pass.

    What it finds: Gradients that are in use at the end of the optimizer's step and through the forward pass after it.
    Why it costs time: Writing the zeros takes time, too.
    How to fix it: Call ``optimizer.zero_grad(set_to_none=True)``, which is torch's default, after the optimizer's step.
    How the saving is estimated: The recorded allocations are replayed with these gradients freed from the end of the
        optimizer's step to the next backward pass.
    When it may be wrong: Accumulated gradients have to stay. In DDP, gradients may be views of buckets, which stay in
        any case.
    """

    meta = RuleMeta("MEM015", "kept-gradients", "Gradients stay in memory during the forward pass")

    min_share: float = 0.02
    """Share of the peak; less is not worth an edit."""

    def advise(self, memory: SnapshotFacts) -> MemoryFinding | Clear | Skipped:
        """Replay with the gradients freed between the optimizer's step and the backward pass."""
        steps, passes = (memory.rows.start[memory.in_phase(one)] for one in (Phase.OPTIMIZER, Phase.BACKWARD))
        gradients = np.flatnonzero(memory.is_of(MemoryClass.GRADIENTS))
        if not steps.size or not passes.size or not gradients.size:
            return Skipped("No backward pass and optimizer's step were recorded.")
        ends = steps[np.append(np.searchsorted(passes, steps[1:]) > np.searchsorted(passes, steps[:-1]), True)]
        until = np.append(ends[1:], np.iinfo(np.int64).max).tolist()
        pauses = [(end, passes[(passes > end) & (passes < on)]) for end, on in zip(ends.tolist(), until, strict=True)]
        pieces = [
            piece
            for number, row in enumerate(gradients.tolist())
            for piece in _apart(memory, row, pauses, number / gradients.size)
        ]
        change = MemoryChange(gradients[:0], pieces=np.array(pieces, np.int64).reshape(-1, 3))
        share = memory.saved_share(change)
        if share < self.min_share:
            return Clear("gradients kept during the forward pass", share, self.min_share, Unit.SHARE)
        held = memory.bytes_of(memory.at_peak(memory.is_of(MemoryClass.GRADIENTS)))
        return MemoryFinding(
            change=change,
            fix=Fix("Free the gradients after each step", change="optimizer.zero_grad(set_to_none=True)"),
            effort=Effort.LINE,
            evidence=(Evidence("gradients at the peak", held, Unit.BYTES),),
            caveats=("Accumulated gradients have to stay.",),
        )


def _apart(memory: SnapshotFacts, row: int, pauses: list[tuple[int, Int64]], part: float) -> list[tuple[int, int, int]]:
    """The lifetime of a gradient without the pauses from each step until this part of the next backward pass."""
    start, end = int(memory.rows.start[row]), int(memory.rows.end[row])
    pieces = []
    for pause, backward in pauses[bisect_right(pauses, start, key=itemgetter(0)) :]:
        if pause >= end:
            break
        again = int(backward[int(part * backward.size)]) if backward.size else memory.history.instants
        if end >= again:
            pieces.append((row, start, pause + 1))
            start = again
    return [*pieces, (row, start, end)]
