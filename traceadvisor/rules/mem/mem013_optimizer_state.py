from __future__ import annotations

from traceadvisor.analysis.memory.device_memory import state_in_8_bits
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, RuleMeta, Skipped, Unit
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.rules.base import MemoryFinding, SnapshotRule, frozen


@frozen
class OptimizerState(SnapshotRule):
    """The optimizer keeps its state in 32 bits: Adam two values for each weight.

    What it finds: Tensors that the optimizer's step makes and keeps, or as many from before the recording, as large as
        the gradients.
    Why it costs time: It costs no time. The state stays in memory during the whole step, and the batch gets what is
        left.
    How to fix it: Use an optimizer with a state of 8 bits, such as ``bitsandbytes.optim.AdamW8bit``. With several GPUs,
        shard the state: ``torch.distributed.optim.ZeroRedundancyOptimizer`` or ``fully_shard``.
    How the saving is estimated: The recorded allocations are replayed with a byte for each value, and a scale for each
        256 values.
    When it may be wrong: State in 16 or 8 bits is not told from state in 32 bits. New values are written in place
        there; an optimizer that makes new tensors has both for a moment.
    """

    meta = RuleMeta("MEM013", "optimizer-state", "The optimizer's state takes a large part of the memory")

    min_share: float = 0.1
    """Share of the peak; less is not worth another optimizer."""

    def advise(self, memory: SnapshotFacts) -> MemoryFinding | Clear | Skipped:
        """Replay with a state of 8 bits."""
        is_state = memory.is_of(MemoryClass.OPTIMIZER_STATE)
        if not is_state.any():
            return Skipped("No optimizer's state was found: record a step of an optimizer that keeps one.")
        change = state_in_8_bits(memory)
        share = memory.saved_share(change)
        if share < self.min_share:
            return Clear("saving by a state of 8 bits", share, self.min_share, Unit.SHARE)
        held = memory.bytes_of(memory.at_peak(is_state))
        return MemoryFinding(
            change=change,
            fix=Fix(
                "Keep the optimizer's state in 8 bits",
                change="optimizer = bitsandbytes.optim.AdamW8bit(model.parameters(), lr=...)",
            ),
            effort=Effort.LINE,
            evidence=(Evidence("optimizer state at the peak", held, Unit.BYTES),),
            locations=memory.locations(memory.at_peak(is_state)),
            price="The state is less exact: check that the loss stays as it was.",
            caveats=("With several GPUs, sharding the state instead leaves each its part, at full precision.",),
        )
