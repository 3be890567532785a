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
    """The CPU waits for the GPU. Then the GPU is idle until the CPU launches the next kernel.

    What it finds: Calls inside the step that wait for the GPU: ``.item()``, ``.cpu()``, ``nonzero``, printing a tensor,
        explicit synchronisation. The finding shows the GPU idle time after each call. If stacks were recorded, it also
        names the line. Waits for CPU-to-GPU copies belong to other rules.
    Why it costs time: The CPU launches no kernels while it waits. When the GPU is done, it is idle until the CPU
        launches the next kernel.
    How to fix it: Keep values on the GPU. Collect losses in a tensor and read them every hundred steps. Compare on the
        GPU. Use ``torch.where`` instead of branching on a value.
    How the saving is estimated: We simulate the step without these waits. The low estimate keeps the waits that fetch a
        value from the GPU.
    When it may be wrong: A wait must stay if its value decides what runs next. If you remove one wait, the idle time
        may move to the next wait.
    """

    meta = RuleMeta("IDLE001", "host-sync", "The CPU waits for the GPU inside the step")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.REAL_STEP})
    popular_fix = "Removing .item() and other waits for the GPU"

    min_share: float = 0.02
    """Share of the step. A smaller idle time is only a few launches, and a fix would save little."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the GPU idle time after waits with the step."""
        drained = facts.claim(Category.IDLE_SYNC)
        sites = sync_sites(facts.observation, facts.tree, facts.stacks, facts.steps.typical_windows, drained)
        drained = SpanSet.union_all(site.drained for site in sites)
        share, costly = facts.share(drained), [site for site in sites if site.drained]
        fix = Fix(
            "Keep the value on the GPU, or read it every hundred steps instead of every step",
            what_if=DeferredReads(frozenset(row for site in costly for row in site.rows.tolist())),
        )
        if share < self.min_share:
            label = "GPU idle time after waits, without waits for CPU-to-GPU copies"
            return facts.clear(label, share, self.min_share, Unit.SHARE, fix=fix)
        shown = costly[:MOST_SITES]
        locations = tuple(dict.fromkeys(site.location for site in shown if site.location))
        return facts.finding(
            claims=drained,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("GPU idle time after these waits", drained),
                facts.count_per_step("waits", sum(site.rows.size for site in sites)),
                *(facts.time_per_step(site.label, site.drained) for site in shown),
            ),
            locations=locations,
            caveats=(
                "A wait must stay if its value decides what runs next.",
                *(() if locations else ("Record with with_stack=True to see the line.",)),
            ),
        )
