"""H2D002: the host waits for copies that start from pinned memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceadvisor.analysis.operators.names import rows_named
from traceadvisor.analysis.operators.source_lines import first_location
from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.replay.fixes.waits import WithoutWaits
from traceadvisor.rules.base import Rule
from traceadvisor.rules.h2d.blocking_uploads import blocking_uploads


@dataclass(frozen=True, slots=True)
class BlockingCopy(Rule):
    """Batches lie in pinned memory, and the host still waits for each copy.

    What it finds
        Copies from pinned memory whose operator synchronises the stream before it returns.

    Why it costs time
        The wait is for all that was launched before the copy too. Only then does the host launch the next kernels, and
        until they arrive the device has nothing to do. Pinned memory has made this wait unnecessary.

    How to fix it
        ``batch.to(device, non_blocking=True)``. Kernels on the same stream wait for the copy by themselves.

    How the saving is estimated
        The step is replayed without these waits. Where the replay is not to be believed, a bound: between nothing and
        the idle time that follows them plus the exposed time of these copies.

    When it may be wrong
        A pinned buffer that is written again before its copy is done, as hand-written loaders do, needs an event.
    """

    meta: ClassVar = RuleMeta(
        id="H2D002",
        name="blocking-copy",
        title="The host waits for copies from pinned memory",
        needs=frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES}),
    )
    popular_fix: ClassVar = "Copying with non_blocking=True"

    min_share: float = 0.01
    """Share of the step; below it the drains are a handful of launches, which any fix would hardly move."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare the idle time that follows these waits, and these copies, with the step."""
        events, windows = facts.trace.events, facts.steps.kept_windows
        if facts.trace.events.rows(Kind.COPY_H2D).size and not _tells_memory(facts):
            return Skipped("The recording does not say whether its copies start from pageable or pinned memory.")
        found = blocking_uploads(facts.observation, facts.tree, windows, facts.claim(Category.IDLE_SYNC))
        exposed = events.spans(found.copies) & facts.claim(Category.H2D_COPY)
        claims = found.drained | exposed
        share = facts.share(claims)
        fix = WithoutWaits(frozenset(found.waits.tolist()))
        if share < self.min_share:
            label = "copies from pinned memory that are waited for"
            return Clear(label, share, self.min_share, Unit.SHARE, what_if=fix)
        saving = facts.what_if(fix, facts.per_step_ns(claims))
        location = first_location(facts.trace, facts.tree, found.waits[:1])
        blocked = events.spans(found.waits) & windows
        return Finding(
            rule=self.meta,
            claims=claims,
            saving=saving,
            confidence=facts.confidence(saving),
            effort=Effort.LINE,
            evidence=(
                Evidence("copies waited for", found.copies.size / len(facts.steps.kept), Unit.PER_STEP),
                Evidence("the host's time in the waits", facts.per_step_ns(blocked), Unit.NS_PER_STEP),
                Evidence("device idle after them", facts.per_step_ns(found.drained), Unit.NS_PER_STEP),
                Evidence("exposed time of the copies", facts.per_step_ns(exposed), Unit.NS_PER_STEP),
            ),
            fix=Fix("Copy without waiting", "batch = batch.to(device, non_blocking=True)"),
            locations=(location,) if location else (),
            caveats=("A pinned buffer must not be written again before its copy is done.",),
            what_ifs=(fix,),
        )


def _tells_memory(facts: Facts) -> bool:
    told = rows_named(facts.trace, Kind.COPY_H2D, lambda name: "Pageable" in name or "Pinned" in name)
    return bool(told.size)
