"""IDLE001: the host waits for the device inside the step."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.waits import DeferredReads
from traceadvisor.rules.base import Effort, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit
from traceadvisor.rules.idle.host_syncs import sync_sites

MOST_SITES = 5


@dataclass(frozen=True, slots=True)
class HostSync(Rule):
    """The host stops to wait for the device, which then runs dry until the queue is filled again.

    What it finds: Calls that wait for the device inside the step (``.item()``, ``.cpu()``, ``nonzero``, printing a
        tensor, an explicit synchronise), with the line that makes them where stacks were recorded, and the idle time of
        the device after each. Waits that belong to a copy to the device are another rule's.
    Why it costs time: While the host waits it launches nothing. When the device is done it has nothing to do until the
        host has issued the next operators.
    How to fix it: Keep values on the device: collect losses in a tensor and read them every hundred steps, compare on
        the device, use ``torch.where`` instead of branching on a value.
    How the saving is estimated: The step is replayed without these waits; at the least, those that fetch a value from
        the device stay.
    When it may be wrong: A wait whose value decides what runs next cannot simply go. Removing one wait can move the
        drain to the next.
    """

    meta = RuleMeta("IDLE001", "host-sync", "The host waits for the device inside the step")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.SEVERAL_STEPS})
    popular_fix = "Removing .item() and other waits for the device"

    min_share: float = 0.02
    """Share of the step; below it the drains are a handful of launches, which any fix would hardly move."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the idle time that follows waits with the step."""
        sites = sync_sites(facts.observation, facts.tree, facts.steps.kept_windows, facts.claim(Category.IDLE_SYNC))
        drained = SpanSet.union_all(site.drained for site in sites)
        share, costly = facts.share(drained), [site for site in sites if site.drained]
        fix = Fix(
            "Keep the value on the device, or read it every hundred steps instead of every step",
            what_if=DeferredReads(frozenset(row for site in costly for row in site.rows.tolist())),
        )
        if share < self.min_share:
            label = "idle time after waits other than those of copies to the device"
            return facts.clear(label, share, self.min_share, Unit.SHARE, fix=fix)
        shown = costly[:MOST_SITES]
        locations = tuple(dict.fromkeys(site.location for site in shown if site.location))
        return facts.finding(
            claims=drained,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("device idle after these waits", drained),
                facts.count_per_step("waits", sum(site.rows.size for site in sites)),
                *(facts.time_per_step(site.label, site.drained) for site in shown),
            ),
            locations=locations,
            caveats=(
                "A value that decides what runs next has to be waited for.",
                *(() if locations else ("Recorded without stacks: with_stack=True names the line.",)),
            ),
        )
