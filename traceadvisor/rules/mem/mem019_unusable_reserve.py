from __future__ import annotations

import numpy as np

from traceadvisor.analysis.memory.changes import MemoryChange
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, RuleMeta, Skipped, Unit
from traceadvisor.model.memory_snapshot import BlockState
from traceadvisor.rules.base import MemoryFinding, SnapshotRule, frozen


@frozen
class UnusableReserve(SnapshotRule):
    """Free pieces between blocks in use take a large part of the allocator's memory.

    What it finds: Free blocks at the end of the recording that share their segment with a block in use. The allocator
        cannot give them back, and only requests that fit can use them.
    Why it costs time: A request that would fit into their sum runs out of memory, or frees and allocates segments.
    How to fix it: Set ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True``. Where it is not supported,
        ``max_split_size_mb`` keeps large segments whole. With lengths that vary, run the longest batch first.
    How the saving is estimated: These free blocks: at most. The peak of requested bytes stays as it is.
    When it may be wrong: The pieces are those at the end of the recording; during a step, tensors may use them.
    """

    meta = RuleMeta("MEM019", "unusable-reserve", "Free memory lies in pieces between blocks in use")

    min_share: float = 0.1
    """Share of the reserved memory; some rest always remains of a segment."""

    def advise(self, memory: SnapshotFacts) -> MemoryFinding | Clear | Skipped:
        """Add up the free blocks of segments in use."""
        blocks = memory.snapshot.blocks
        mine = blocks.device == memory.history.device
        reserved = int(blocks.size_bytes[mine].sum())
        if not reserved:
            return Skipped("No segments of the device were recorded. For a trace, see MEM005.")
        is_free = blocks.state == BlockState.INACTIVE
        used = np.isin(blocks.segment, np.unique(blocks.segment[mine & ~is_free]))
        pieces = int(blocks.size_bytes[mine & is_free & used].sum())
        share = pieces / reserved
        settings = memory.snapshot.settings or {}
        remark = "expandable segments are on" if settings.get("expandable_segments") else None
        if share < self.min_share or remark:
            return Clear("free pieces of segments in use", share, self.min_share, Unit.SHARE, remark=remark)
        return MemoryFinding(
            change=MemoryChange(np.zeros(0, np.int64)),
            reserved_bytes=pieces,
            fix=Fix(
                "Turn on expandable segments, so that free memory stays in one piece",
                change="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            ),
            effort=Effort.SETTING,
            evidence=(
                Evidence("reserved by the allocator at the end", reserved, Unit.BYTES),
                Evidence("free pieces of segments in use", pieces, Unit.BYTES),
            ),
            caveats=("At most: tensors may use these pieces during a step.",),
        )
