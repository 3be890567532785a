from __future__ import annotations

import numpy as np

from traceadvisor.analysis.memory.changes import MemoryChange
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, RuleMeta, Skipped, Unit
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.rules.base import MemoryFinding, SnapshotRule, frozen


@frozen
class ConvolutionWorkspaces(SnapshotRule):
    """Convolutions use large workspaces.

    What it finds: Scratch memory that functions of cuDNN or MIOpen allocate.
    Why it costs time: It costs no time: with ``benchmark`` cuDNN takes the fastest algorithm, whatever memory it needs.
    How to fix it: Set ``torch.backends.cudnn.benchmark = False``, or allow fewer algorithms with
        ``torch.backends.cudnn.benchmark_limit``. ``channels_last`` tensors often need smaller workspaces.
    How the saving is estimated: The recorded allocations are replayed without these workspaces: at most.
    When it may be wrong: The algorithm that is chosen instead needs a workspace of its own, and may be slower.
    """

    meta = RuleMeta("MEM017", "convolution-workspaces", "Convolutions use large workspaces")

    min_share: float = 0.05
    """Share of the peak; less is not worth a slower algorithm."""

    def advise(self, memory: SnapshotFacts) -> MemoryFinding | Clear | Skipped:
        """Replay without the workspaces."""
        if not memory.has_cpp:
            return Skipped(
                "No frames of C++ were recorded, which name the libraries: record a snapshot with stacks='all'."
            )
        convolves = memory.with_frame(lambda frame: "cudnn" in frame.function.lower() or "miopen" in frame.function)
        scratch = convolves & memory.is_of(MemoryClass.WORKSPACES)
        change = MemoryChange(np.flatnonzero(scratch))
        share = memory.saved_share(change)
        if share < self.min_share:
            return Clear("workspaces of convolutions", share, self.min_share, Unit.SHARE)
        return MemoryFinding(
            change=change,
            fix=Fix(
                "Let cuDNN choose algorithms without measuring them", change="torch.backends.cudnn.benchmark = False"
            ),
            effort=Effort.LINE,
            evidence=(Evidence("largest workspace", int(memory.rows.size_bytes[scratch].max(initial=0)), Unit.BYTES),),
            locations=memory.locations(np.flatnonzero(scratch)),
            price="Another algorithm may be slower.",
            caveats=("At most: another algorithm has a workspace, too.",),
        )
