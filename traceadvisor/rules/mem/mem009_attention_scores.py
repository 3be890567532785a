from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from traceadvisor.analysis.memory.call_stacks import Phase
from traceadvisor.analysis.memory.changes import MemoryChange
from traceadvisor.analysis.memory.snapshot_facts import NO_PYTHON, SnapshotFacts
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, RuleMeta, Skipped, Unit
from traceadvisor.model.location import Frame
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.rules.base import MemoryFinding, SnapshotRule, frozen

_SOFTMAX = re.compile(r"(?<!log_)(?<!Log)softmax", re.IGNORECASE)
_OTHER_SOFTMAX = re.compile(r"entropy|loss|sampl|generat|gat(e|ing)|rout", re.IGNORECASE)
_PRODUCT = re.compile(r"einsum|bmm|matmul|attention|attn", re.IGNORECASE)

Scope = tuple[str | None, str]
"""File and function."""


@frozen
class AttentionScores(SnapshotRule):
    """Attention writes its scores to memory: one value for each pair of tokens, several times per layer.

    What it finds: Tensors that a softmax makes inside attention, and all of the same size that the same function makes:
        the product, the mask, copies in another type. In the backward pass, temporary tensors of that size.
    Why it costs time: The scores grow with the square of the length, so they limit it. Writing and reading them takes
        most of the time of attention.
    How to fix it: Call ``torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)`` or, without a mask
        of your own, with ``is_causal=True``. Its fused kernels keep no scores.
    How the saving is estimated: The recorded allocations are replayed without these tensors.
    When it may be wrong: Fused kernels keep a row of sums for each token, which is not counted. A type or head size
        without a fused kernel falls back to the scores. Another tensor of exactly the same size may be counted.
    """

    meta = RuleMeta("MEM009", "attention-scores", "Attention keeps its scores in memory")

    min_share: float = 0.02
    """Share of the peak; less is not worth an edit."""

    def advise(self, memory: SnapshotFacts) -> MemoryFinding | Clear | Skipped:
        """Look for the softmax inside attention, and replay without what has its size."""
        if not any(memory.python):
            return Skipped(NO_PYTHON)
        names = [frame.function for frame in memory.snapshot.frames]
        softmax = {row for row, name in enumerate(names) if "softmax" in name or _SOFTMAX.search(name)}
        scopes = [
            None if softmax.isdisjoint(stack) else _scope(memory, row)
            for row, stack in enumerate(memory.snapshot.stacks)
        ]
        is_score = _scores(memory, scopes)
        change = MemoryChange(np.flatnonzero(is_score))
        share = memory.saved_share(change)
        if share < self.min_share:
            return Clear("attention scores at the peak", share, self.min_share, Unit.SHARE)
        at_peak = memory.at_peak(is_score)
        return MemoryFinding(
            change=change,
            fix=Fix(
                "Use torch's fused attention, which does not store the score matrix",
                change="torch.nn.functional.scaled_dot_product_attention(q, k, v)  # and the mask of this code, if any",
            ),
            effort=Effort.LINE,
            evidence=(
                Evidence("attention scores at the peak", memory.bytes_of(at_peak), Unit.BYTES),
                Evidence("tensors with scores at the peak", at_peak.size, Unit.COUNT),
            ),
            locations=memory.locations(at_peak),
            caveats=("Fused kernels need a supported head size and type.",),
        )


def _scope(memory: SnapshotFacts, stack: int) -> Scope | None:
    """The function in which a stack's softmax belongs to attention; None without one."""
    frames = memory.python[stack]
    inside = max((at for at, frame in enumerate(frames) if _SOFTMAX.search(frame.function)), default=-1)
    cpp = (memory.snapshot.frames[row].function for row in memory.snapshot.stacks[stack])
    if inside < 0 and not any("softmax" in name and "log_softmax" not in name for name in cpp):
        return None
    outer: Frame | None = next(
        (one for one in frames[inside + 1 :] if "torch/nn/functional" not in str(one.file)), None
    )
    if outer is None or any(_OTHER_SOFTMAX.search(one.function) for one in frames[:8]):
        return None
    return outer.file, outer.function


def _scores(memory: SnapshotFacts, scopes: Sequence[Scope | None]) -> Mask:
    """The tensors of the sizes that the softmax of a scope makes; ``scopes``: of the softmax in each stack."""
    sizes, of_stack = memory.rows.size_bytes, _rows_by_stack(memory, len(scopes))
    multiplies = memory.with_frame(lambda frame: bool(_PRODUCT.search(frame.function)))
    casts = memory.is_autocast | memory.with_frame(
        lambda frame: "to_copy" in frame.function or frame.function in {"to", "half", "bfloat16"}
    )
    is_score, known = np.zeros(sizes.shape, dtype=np.bool_), [sizes[:0]]
    for scope, stacks in _stacks_in(memory, {one for one in scopes if one}).items():
        made = np.unique(sizes[np.concatenate([of_stack[one] for one in stacks if scopes[one] == scope])])
        whole = made[made >= made.max(initial=0) // 3]  # without the sums and maxima of rows
        inside = np.concatenate([of_stack[one] for one in stacks])
        is_whole = np.isin(sizes[inside], whole)
        if not (multiplies[inside] & is_whole).any():
            continue  # a softmax over classes or experts
        is_copy = np.isin(sizes[inside], whole // 2) & casts[inside]
        is_score[inside[is_whole | is_copy]] = True
        known += [whole, whole[: whole.size * is_copy.any()] // 2]
    backward = memory.in_phase(Phase.BACKWARD) & memory.is_of(MemoryClass.TEMPORARIES)
    return np.asarray(is_score | (backward & np.isin(sizes, np.concatenate(known))))


def _stacks_in(memory: SnapshotFacts, scopes: set[Scope]) -> dict[Scope, list[int]]:
    """The stacks with a frame of each scope."""
    keys = [(frame.file, frame.function) for frame in memory.snapshot.frames]
    found: dict[Scope, list[int]] = {}
    for number, stack in enumerate(memory.snapshot.stacks):
        for scope in scopes.intersection(keys[row] for row in stack):
            found.setdefault(scope, []).append(number)
    return found


def _rows_by_stack(memory: SnapshotFacts, stacks: int) -> list[Int64]:
    order = np.argsort(memory.rows.stack, kind="stable")
    return np.split(order, np.searchsorted(memory.rows.stack[order], np.arange(stacks)))[1:]
