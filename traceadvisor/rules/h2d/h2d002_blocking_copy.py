from __future__ import annotations

from traceadvisor.model.findings import Effort, Fix, Skipped
from traceadvisor.replay.fixes.waits import WithoutWaits
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, clear_of, finding_of, frozen
from traceadvisor.rules.h2d.pinned_copies import MEMORY_UNKNOWN, are_told_apart, blocking_uploads


@frozen
class BlockingCopy(Rule):
    """Batches are in pinned memory, but the CPU still waits for each copy.

    What it finds: Copies from pinned memory whose operator synchronises the stream before it returns.
    Why it costs time: The CPU also waits for everything that was launched before the copy. Only then does it launch the
        next kernels. With pinned memory, this wait is unnecessary.
    How to fix it: Use ``batch.to(device, non_blocking=True)``. Kernels on the same stream wait for the copy
        automatically.
    How the saving is estimated: The step is simulated without these waits.
    When it may be wrong: If the program writes to a pinned buffer again before its copy is done, as hand-written
        loaders do, it needs an event.
    """

    meta = RuleMeta("H2D002", "blocking-copy", "The CPU waits for copies from pinned memory")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES})
    popular_fix = "Copying with non_blocking=True"
    claims = frozenset({Category.H2D_COPY, Category.IDLE_SYNC})

    min_share: float = 0.01
    """Share of the step. Below it, only a few launches are late, and a fix saves little."""

    def check(self, facts: Facts) -> Outcome:
        if not are_told_apart(facts.trace):
            return Skipped(MEMORY_UNKNOWN)
        events, windows = facts.trace.events, facts.steps.typical_windows
        found = blocking_uploads(facts.observation, facts.tree, windows, facts.claim(Category.IDLE_SYNC))
        exposed = facts.exposed(found.copies, Category.H2D_COPY)
        claims = found.drained | exposed
        share = facts.share(claims)
        fix = Fix(
            "Copy the batch without waiting",
            "batch = batch.to(device, non_blocking=True)",
            what_if=WithoutWaits(frozenset(found.waits.tolist())),
            settings={"non_blocking": True},
        )
        if share < self.min_share:
            label = "blocking copies from pinned memory, and idle time after them"
            return clear_of(facts, label, share, self.min_share, fix=fix)
        return finding_of(
            facts,
            claims=claims,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("blocking copies", found.copies.size),
                facts.time_per_step("CPU time in the waits", events.spans(found.waits) & windows),
                facts.time_per_step("GPU idle time after the waits", found.drained),
                facts.time_per_step("exposed time of the copies", exposed),
            ),
            locations=facts.locations(found.waits[:1]),
            caveats=("Do not write to a pinned buffer again before its copy is done.",),
        )
