from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.memory.call_stacks import Phase
from traceadvisor.analysis.memory.changes import MemoryChange
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, RuleMeta, Skipped, Unit
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.rules.base import MemoryFinding, SnapshotRule, frozen

_PRODUCT = re.compile(
    r"bmm|mm|addmm|einsum|linear|matmul|baddbmm|\w{0,40}conv\w{0,40}|\w{0,40}scaled_dot_product\w{0,40}"
)
_FULL = re.compile(
    r"pow\w*|exp\w*|log\w*|\w{0,40}softmax\w{0,40}|\w{0,40}norm\w{0,40}|rsqrt|mean\w*|sum\w*|add\w*|\w{0,40}loss\w{0,40}|cumsum|var\w*"
)
"""Operators that autocast runs in 32 bits, and additions, whose other operand is the stream of residuals."""


@frozen
class HalfPrecisionActivations(SnapshotRule):
    """Matrix products and what follows them run in 32 bits, with twice the memory of 16 bits.

    What it finds: Activations of matrix products and convolutions, and of the elementwise operators that follow, in a
        training without autocast.
    Why it costs time: Products in 32 bits are also slower: see GPU001.
    How to fix it: Run the forward pass and the loss in ``torch.autocast("cuda", torch.bfloat16)``.
    How the saving is estimated: The recorded allocations are replayed: half the bytes for products and what follows
        them up to the next operator that stays in 32 bits, and for the inputs of products. Autocast's 16-bit copies of
        the weights are added: for a large model they take more than the activations of a small batch save.
    When it may be wrong: Sizes do not tell types: a model in 16 bits has nothing to gain. The order of allocations
        decides which operators follow a product.
    """

    meta = RuleMeta("MEM011", "half-precision-activations", "Activations in 32 bits fill the memory")

    min_share: float = 0.05
    """Share of the peak; less is not worth a change of the numbers."""

    def advise(self, memory: SnapshotFacts) -> MemoryFinding | Clear | Skipped:
        """Replay with the types and copies of autocast."""
        if not memory.has_cpp:
            return Skipped(
                "No frames of C++ were recorded, which name the operators: record a snapshot with stacks='all'."
            )
        share_cast = memory.is_autocast.mean() if len(memory.rows) else 0.0
        if share_cast > 0.0:
            return Clear("allocations by autocast", share_cast, 0.0, Unit.SHARE, at_least=True)
        forward = np.flatnonzero(memory.in_phase(Phase.OTHER))
        halved, products = _in_16_bits(memory, forward)
        weights = memory.bytes_of(memory.is_of(MemoryClass.PARAMETERS)) // 2
        change = MemoryChange(halved, 0.5, added=_copies(memory, products, weights))
        share = memory.saved_share(change)
        is_halved = np.zeros(len(memory.rows), dtype=np.bool_)
        is_halved[halved] = True
        at_peak = memory.at_peak(is_halved)
        freed, call = memory.bytes_of(at_peak) // 2, memory.common_call(at_peak)
        if share < self.min_share:
            remark = (
                f"activations would take {freed >> 20:,} MiB less, and copies of the weights {weights >> 20:,} MiB more"
            )
            return Clear("saving by 16 bits", share, self.min_share, Unit.SHARE, remark=remark if freed else None)
        return MemoryFinding(
            change=change,
            fix=Fix(
                "Run the forward pass in 16 bits",
                change='with torch.autocast("cuda", torch.bfloat16):\n    ...  # forward pass and loss, not backward()',
            ),
            effort=Effort.LINE,
            evidence=(
                Evidence("saved by activations in 16 bits at the peak", freed, Unit.BYTES),
                Evidence("copies of the weights in 16 bits", weights, Unit.BYTES),
            ),
            locations=(call,) if call and call.function != "<module>" else memory.locations(at_peak),
            price="Results are less exact: check that the loss falls as before.",
            caveats=("If the model is in 16 bits already, nothing is saved.",),
        )


def _in_16_bits(memory: SnapshotFacts, forward: Int64) -> tuple[Int64, Int64]:
    """The rows that autocast would make in 16 bits, or copy to 16 bits for a product; and the products."""
    halved, products = [], []
    is_half, before = False, NONE
    for row in forward.tolist():
        place = memory.stacks.places[memory.rows.stack[row]]
        operator = (place and place.operator) or ""
        name = operator.removesuffix("_Tensor")
        if _PRODUCT.fullmatch(name):
            if not is_half and before != NONE and memory.is_saved[before]:
                halved.append(before)
            is_half = True
            products.append(row)
        elif _FULL.fullmatch(name):
            is_half = False
        if is_half:
            halved.append(row)
        before = row
    return np.array(halved, np.int64), np.array(products, np.int64)


def _copies(memory: SnapshotFacts, products: Int64, weights: int) -> Int64:
    """Copies of the weights, from the product that uses them to the end of its pass or of what it saves."""
    rows, passes = memory.rows, memory.pass_of[products]
    bytes_each = np.array([weights // max(int((passes == one).sum()), 1) for one in passes], np.int64)
    return np.column_stack((rows.start[products], np.maximum(rows.end[products], passes), bytes_each)).reshape(-1, 3)
