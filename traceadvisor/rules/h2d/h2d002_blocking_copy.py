"""H2D002: the host waits for copies that start from pinned memory."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.replay.fixes.waits import WithoutWaits
from traceadvisor.rules.base import Effort, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit
from traceadvisor.rules.h2d.blocking_uploads import blocking_uploads
from traceadvisor.rules.h2d.pinned_copies import NOT_TOLD, are_told_apart


@dataclass(frozen=True, slots=True)
class BlockingCopy(Rule):
    """Batches lie in pinned memory, and the host still waits for each copy.

    What it finds: Copies from pinned memory whose operator synchronises the stream before it returns.
    Why it costs time: The wait is for all that was launched before the copy too. Only then does the host launch the
        next kernels, and until they arrive the device has nothing to do. Pinned memory has made this wait unnecessary.
    How to fix it: ``batch.to(device, non_blocking=True)``. Kernels on the same stream wait for the copy by themselves.
    How the saving is estimated: The step is replayed without these waits.
    When it may be wrong: A pinned buffer that is written again before its copy is done, as hand-written loaders do,
        needs an event.
    """

    meta = RuleMeta("H2D002", "blocking-copy", "The host waits for copies from pinned memory")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES})
    popular_fix = "Copying with non_blocking=True"

    min_share: float = 0.01
    """Share of the step; below it the drains are a handful of launches, which any fix would hardly move."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the idle time that follows these waits, and these copies, with the step."""
        if not are_told_apart(facts.trace):
            return Skipped(NOT_TOLD)
        events, windows = facts.trace.events, facts.steps.kept_windows
        found = blocking_uploads(facts.observation, facts.tree, windows, facts.claim(Category.IDLE_SYNC))
        exposed = facts.exposed(found.copies, Category.H2D_COPY)
        claims = found.drained | exposed
        share = facts.share(claims)
        fix = Fix(
            "Copy without waiting",
            "batch = batch.to(device, non_blocking=True)",
            what_if=WithoutWaits(frozenset(found.waits.tolist())),
        )
        if share < self.min_share:
            label = "copies from pinned memory that are waited for"
            return facts.clear(label, share, self.min_share, Unit.SHARE, fix=fix)
        return facts.finding(
            claims=claims,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("copies waited for", found.copies.size),
                facts.time_per_step("the host's time in the waits", events.spans(found.waits) & windows),
                facts.time_per_step("device idle after them", found.drained),
                facts.time_per_step("exposed time of the copies", exposed),
            ),
            locations=facts.locations(found.waits[:1]),
            caveats=("A pinned buffer must not be written again before its copy is done.",),
        )
