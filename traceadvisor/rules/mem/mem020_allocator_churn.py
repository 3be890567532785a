from __future__ import annotations

import numpy as np

from traceadvisor.analysis.memory.changes import MemoryChange
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, RuleMeta, Skipped, Unit
from traceadvisor.model.memory_snapshot import Action
from traceadvisor.rules.base import MemoryFinding, SnapshotRule, frozen


@frozen
class AllocatorChurn(SnapshotRule):
    """The allocator gives segments back to the driver and asks for others again.

    What it finds: Segments that were given back during the recording, and as much that was asked for again.
    Why it costs time: Each call waits for the GPU. They happen where memory nearly runs out and the allocator retries,
        or where a script calls ``torch.cuda.empty_cache()``.
    How to fix it: Remove ``empty_cache()`` from the loop, and lower the peak with another fix.
    How the saving is estimated: No memory is saved.
    When it may be wrong: A script that frees a model and builds another one does this once.
    """

    meta = RuleMeta("MEM020", "allocator-churn", "The allocator gives memory back and asks for it again")

    min_calls: int = 8
    """Segments that were given back; one free of the cache may be planned."""

    def advise(self, memory: SnapshotFacts) -> MemoryFinding | Clear | Skipped:
        """Count segments that went back and came again."""
        events, rows = memory.snapshot.events, memory.history.rows
        if memory.snapshot.of_trace:
            return Skipped("A trace does not tell segments. It has calls of the driver: see MEM004.")
        if not rows.size:
            return Skipped("The snapshot holds no history: call torch.cuda.memory._record_memory_history() first.")
        is_back, is_new = events.action[rows] == Action.SEGMENT_FREE, events.action[rows] == Action.SEGMENT_ALLOC
        again = int(is_new[int(np.argmax(is_back)) :].sum()) if is_back.any() else 0
        calls = min(int(is_back.sum()), again)
        if calls < self.min_calls:
            return Clear("segments given back and asked for again", calls, self.min_calls, Unit.COUNT)
        returned = int(events.size_bytes[rows[is_back]].sum())
        return MemoryFinding(
            change=MemoryChange(rows[:0]),
            fix=Fix("Call no torch.cuda.empty_cache() in the loop, and keep some memory free"),
            effort=Effort.LINE,
            evidence=(
                Evidence("segments given back", int(is_back.sum()), Unit.COUNT),
                Evidence("memory given back", returned, Unit.BYTES),
                Evidence("segments asked for afterwards", again, Unit.COUNT),
            ),
        )
