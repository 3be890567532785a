from __future__ import annotations

from collections import Counter

import numpy as np

from traceadvisor.analysis.memory.changes import MemoryChange
from traceadvisor.analysis.memory.snapshot_facts import NO_PYTHON, SnapshotFacts
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, RuleMeta, Skipped, Unit
from traceadvisor.rules.base import MemoryFinding, SnapshotRule, frozen

MOST_UNLIKE_SHARE = 0.05
"""Share of the repeated bytes that may belong to fewer repetitions."""

MOST_MISSING_SHARE = 0.1
"""Share of a line's repetitions that may be missing."""


@frozen
class CheckpointBlocks(SnapshotRule):
    """A block runs many times in the forward pass, and each run keeps its activations for the backward pass.

    What it finds: Activations that the forward pass keeps, allocated by stacks that repeat in the same order: the
        blocks of a model.
    Why it costs time: It costs no time, but activations grow with the batch and limit it.
    How to fix it: Wrap each block in ``torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)``. It keeps its
        input only; the backward pass recomputes the rest, one block at a time.
    How the saving is estimated: The recorded allocations are replayed: each block's activations but the last end with
        the block, and are there again while its part of the backward pass runs.
    When it may be wrong: The step becomes longer by up to one more forward pass. Buffers that recomputing needs for a
        moment are not counted.
    """

    meta = RuleMeta("MEM010", "checkpoint-blocks", "Activations of repeated blocks fill the memory")

    min_share: float = 0.05
    """Share of the peak; less is not worth the longer step."""

    min_blocks: int = 4
    """Fewer lines may repeat by chance."""

    def advise(self, memory: SnapshotFacts) -> MemoryFinding | Clear | Skipped:
        """Find the blocks of the fullest forward pass, and replay with each recomputed."""
        if not any(memory.python):
            return Skipped(NO_PYTHON)
        kept = np.flatnonzero(memory.is_saved)
        passes = np.split(kept, np.flatnonzero(np.diff(memory.pass_of[kept])) + 1)
        blocks = [repeated_blocks(memory, rows) for rows in passes]
        change = MemoryChange(
            kept[:0], pieces=np.concatenate([np.zeros((0, 3), np.int64), *(recomputed(memory, one) for one in blocks)])
        )
        share = memory.saved_share(change)
        most = max(blocks, key=len, default=[])
        if len(most) < self.min_blocks:
            return Clear("blocks that repeat", len(most), self.min_blocks, Unit.COUNT)
        if share < self.min_share:
            return Clear("activations of repeated blocks", share, self.min_share, Unit.SHARE)
        place = memory.common_call(np.concatenate(most))
        return MemoryFinding(
            change=change,
            fix=Fix(
                "Recompute the activations of each block in the backward pass",
                change="x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)  # instead of block(x)",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("blocks", len(most), Unit.COUNT),
                Evidence("activations of a block", memory.bytes_of(most[0]), Unit.BYTES),
                Evidence("activations of all blocks", sum(map(memory.bytes_of, most)), Unit.BYTES),
            ),
            locations=(place,) if place else (),
            price="The step becomes longer by up to one more forward pass.",
        )


def repeated_blocks(memory: SnapshotFacts, rows: Int64) -> list[Int64]:
    """The rows of each repetition, for rows of one forward pass in the order of their start."""
    stacks = memory.code[rows]
    times = Counter(stacks.tolist())
    counts = np.array([times[stack] for stack in stacks.tolist()], dtype=np.int64)
    sizes = memory.rows.size_bytes[rows]
    candidates = {one: int(sizes[_repeats(counts, one)].sum()) for one in set(times.values()) if one > 1}
    least = (1 - MOST_UNLIKE_SHARE) * max(candidates.values(), default=0)
    often = max((count for count, covered in candidates.items() if covered >= least), default=0)
    if not often:
        return []
    inside = _repeats(counts, often)
    first = stacks[np.flatnonzero(counts == often)[0]]
    repetition = np.cumsum(stacks == first)
    return [rows[inside & (repetition == number)] for number in range(1, often + 1)]


def _repeats(counts: Int64, often: int) -> Mask:
    """Whether each count is about a multiple: the class of a few allocations may be unknown."""
    nearest = np.maximum(np.round(counts / often), 1) * often
    return np.asarray(np.abs(counts - nearest) <= MOST_MISSING_SHARE * often)


def recomputed(memory: SnapshotFacts, blocks: list[Int64]) -> Int64:
    """The lifetimes of the activations of blocks that are recomputed; each block keeps what it made last."""
    rows = memory.rows
    pieces = []
    for number, block in enumerate(blocks):
        inner = block[:-1]
        if not inner.size:
            continue
        ends = rows.start[blocks[number + 1][0]] if number + 1 < len(blocks) else memory.pass_of[block[0]]
        again = max(int(rows.end[inner].min()), int(ends))
        pieces += [(row, rows.start[row], max(min(ends, rows.end[row]), rows.start[row])) for row in inner.tolist()]
        pieces += [(row, again, rows.end[row]) for row in inner.tolist() if rows.end[row] > again]
    return np.array(pieces, dtype=np.int64).reshape(-1, 3)
