from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.memory.call_stacks import Phase
from traceadvisor.analysis.memory.changes import MemoryChange
from traceadvisor.analysis.memory.snapshot_facts import NO_PYTHON, SnapshotFacts
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, RuleMeta, Skipped, Unit
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.rules.base import MemoryFinding, SnapshotRule, frozen

_LOSS = re.compile(r"cross_entropy|log_softmax|nll_loss|\w*loss(_fn|_function)?", re.IGNORECASE)

CHUNKS = 8

IN_PIECES = f"""\
kept = hidden.detach().requires_grad_()
count = (labels != -100).sum()  # labels of -100 are ignored
pieces = zip(kept.flatten(0, -2).chunk({CHUNKS}), labels.flatten().chunk({CHUNKS}))
for some, targets in pieces:
    (F.cross_entropy(last_layer(some), targets, reduction="sum") / count).backward()
hidden.backward(kept.grad)"""
"""``hidden``: the input of the last layer. This takes the place of the loss and its backward pass."""


@frozen
class LossInFloat32(SnapshotRule):
    """The loss makes tensors with a value for each token and each word of the vocabulary, usually in 32 bits.

    What it finds: Tensors made inside a loss function, as large as its largest one, and temporary tensors of that size
        in the backward pass.
    Why it costs time: A large vocabulary makes them larger than all activations of a block, while all activations are
        in memory.
    How to fix it: Compute the loss in pieces of the tokens, each with its backward pass, or with a function that does
        so, such as ``LigerFusedLinearCrossEntropyLoss`` or ``torchtune.modules.loss.LinearCrossEntropyLoss``.
    How the saving is estimated: The recorded allocations are replayed with an eighth of the size of these tensors. The
        logits themselves stay.
    When it may be wrong: Another temporary tensor of exactly the same size in the backward pass is counted, too.
    """

    meta = RuleMeta("MEM016", "loss-in-float32", "The loss keeps tensors of the size of all logits")

    min_share: float = 0.02
    """Share of the peak; less is not worth an edit."""

    def advise(self, memory: SnapshotFacts) -> MemoryFinding | Clear | Skipped:
        """Replay with the loss in eight pieces."""
        if not any(memory.python):
            return Skipped(NO_PYTHON)
        of_loss = memory.with_frame(lambda frame: _LOSS.fullmatch(frame.function)) & memory.in_phase(Phase.OTHER)
        sizes = memory.rows.size_bytes
        largest = int(sizes[of_loss].max(initial=0))
        passing = memory.in_phase(Phase.BACKWARD) & memory.is_of(MemoryClass.TEMPORARIES)
        is_large = (of_loss | passing) & (sizes == largest) & (largest > 0)
        change = MemoryChange(np.flatnonzero(is_large), 1 / CHUNKS)
        share = memory.saved_share(change)
        if share < self.min_share:
            return Clear("saving by a loss in pieces", share, self.min_share, Unit.SHARE)
        return MemoryFinding(
            change=change,
            fix=Fix("Compute the loss in pieces of the tokens", change=IN_PIECES),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("a tensor of the loss", largest, Unit.BYTES),
                Evidence("such tensors at the peak", memory.at_peak(is_large).size, Unit.COUNT),
            ),
            locations=memory.locations(np.flatnonzero(is_large & of_loss)),
            caveats=(
                "If your loss has another ignore_index, put it in place of -100, and pass it to each call.",
                "With a gradient scaler, scale the loss of each piece.",
            ),
        )
