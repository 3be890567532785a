from __future__ import annotations

import numpy as np

from traceadvisor.analysis.memory.call_stacks import Phase
from traceadvisor.analysis.memory.changes import MemoryChange
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, RuleMeta, Skipped, Unit
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.rules.base import MemoryFinding, SnapshotRule, frozen


@frozen
class ForeachTemporaries(SnapshotRule):
    """An optimizer with ``foreach`` makes temporary tensors for all weights at the same time.

    What it finds: Temporary tensors of functions named ``_multi_tensor_...`` or ``_foreach_...`` in the optimizer's
        step.
    Why it costs time: It costs no time, but memory as large as the model, and the step is then the peak.
    How to fix it: Pass ``fused=True`` to the optimizer, which makes none, or ``foreach=False``, which makes them for
        one weight after the other and is slower.
    How the saving is estimated: The recorded allocations are replayed without these tensors.
    When it may be wrong: An optimizer without a fused form has only ``foreach=False``, which keeps those of one weight.
    """

    meta = RuleMeta("MEM014", "foreach-temporaries", "The optimizer makes temporary tensors of all weights at once")

    min_share: float = 0.02
    """Share of the peak; less is not worth an edit."""

    def advise(self, memory: SnapshotFacts) -> MemoryFinding | Clear | Skipped:
        """Replay without the temporary tensors of all weights."""
        if not memory.in_phase(Phase.OPTIMIZER).any():
            return Skipped("No step of an optimizer was recorded.")
        multi = memory.with_frame(lambda frame: frame.function.startswith(("_multi_tensor_", "aten::_foreach_")))
        temporary = multi & memory.is_of(MemoryClass.TEMPORARIES)
        change = MemoryChange(np.flatnonzero(temporary))
        share = memory.saved_share(change)
        if share < self.min_share:
            return Clear("temporary tensors of foreach", share, self.min_share, Unit.SHARE)
        at_peak = memory.at_peak(temporary)
        return MemoryFinding(
            change=change,
            fix=Fix("Use the fused form of the optimizer", change="AdamW(..., fused=True)", settings={"fused": True}),
            effort=Effort.SETTING,
            evidence=(
                Evidence("temporary tensors of the optimizer at the peak", memory.bytes_of(at_peak), Unit.BYTES),
            ),
            locations=memory.locations(at_peak),
        )
