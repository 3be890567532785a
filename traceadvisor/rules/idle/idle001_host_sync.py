"""IDLE001: the host waits for the device inside the step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceadvisor.facts import FEWEST_STEPS, TOO_FEW_STEPS, Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.waits import DeferredReads
from traceadvisor.rules.base import Rule
from traceadvisor.rules.idle.host_syncs import SyncSite, sync_sites

MOST_SITES = 5


@dataclass(frozen=True, slots=True)
class HostSync(Rule):
    """The host stops to wait for the device, which then runs dry until the queue is filled again.

    What it finds
        Calls that wait for the device inside the step (``.item()``, ``.cpu()``, ``nonzero``, printing a tensor, an
        explicit synchronise), with the line that makes them where stacks were recorded, and the idle time of the
        device after each. Waits that belong to a copy to the device are another rule's.

    Why it costs time
        While the host waits it launches nothing. When the device is done it has nothing to do until the host has
        issued the next operators.

    How to fix it
        Keep values on the device: collect losses in a tensor and read them every hundred steps, compare on the device,
        use ``torch.where`` instead of branching on a value.

    How the saving is estimated
        The step is replayed without these waits; at the least, those that fetch a value from the device stay. Where the
        replay is not to be believed, a bound: between nothing and all the idle time that follows these waits.

    When it may be wrong
        A wait whose value decides what runs next cannot simply go. Removing one wait can move the drain to the next.
    """

    meta: ClassVar = RuleMeta(
        id="IDLE001",
        name="host-sync",
        title="The host waits for the device inside the step",
        needs=frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES}),
    )
    popular_fix: ClassVar = "Removing .item() and other waits for the device"

    min_share: float = 0.02
    """Share of the step; below it the drains are a handful of launches, which any fix would hardly move."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare the idle time that follows waits with the step."""
        if len(facts.steps.kept) < FEWEST_STEPS:
            return Skipped(TOO_FEW_STEPS)
        sites = sync_sites(facts.observation, facts.tree, facts.steps.kept_windows, facts.claim(Category.IDLE_SYNC))
        drained = SpanSet.union_all(site.drained for site in sites)
        share = facts.share(drained)
        fix = DeferredReads(frozenset(row for site in sites if site.drained for row in site.rows.tolist()))
        if share < self.min_share:
            label = "idle time after waits other than those of copies to the device"
            return Clear(label, share, self.min_share, Unit.SHARE, what_if=fix)
        costly = [site for site in sites if site.drained][:MOST_SITES]
        locations = tuple(dict.fromkeys(site.location for site in costly if site.location))
        saving = facts.what_if(fix, facts.per_step_ns(drained))
        return Finding(
            rule=self.meta,
            claims=drained,
            saving=saving,
            confidence=facts.confidence(saving),
            effort=Effort.LINE,
            evidence=(
                Evidence("device idle after these waits", facts.per_step_ns(drained), Unit.NS_PER_STEP),
                Evidence("waits", sum(site.rows.size for site in sites) / len(facts.steps.kept), Unit.PER_STEP),
                *(Evidence(_label(site), facts.per_step_ns(site.drained), Unit.NS_PER_STEP) for site in costly),
            ),
            fix=Fix("Keep the value on the device, or read it every hundred steps instead of every step"),
            locations=locations,
            caveats=(
                "A value that decides what runs next has to be waited for.",
                *(() if locations else ("Recorded without stacks: with_stack=True names the line.",)),
            ),
            what_ifs=(fix,),
        )


def _label(site: SyncSite) -> str:
    if site.location is None:
        return f"idle after {site.operator}"
    line = f"{site.location.file}:{site.location.line}"
    where = f"at {line}" if site.location.is_call else f"in {site.location.function} ({line})"
    return f"idle after {site.operator} {where}"
