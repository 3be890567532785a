"""DIST004: communication that could run beside the backward pass runs after it."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import Work
from traceadvisor.replay.fixes.kernels import HiddenCommunication
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit


@dataclass(frozen=True, slots=True)
class PoorOverlap(Rule):
    """Little of the communication goes on beside computation.

    What it finds: Collectives of which less than the expected share runs while other kernels run.
    Why it costs time: DistributedDataParallel exchanges the gradients of one bucket while the backward pass computes
        the next. Where that does not happen (one huge bucket, parameters used out of order, a graph searched for unused
        parameters in every step), the exchange comes behind the backward pass in full.
    How to fix it: Smaller buckets (``bucket_cap_mb``), ``gradient_as_bucket_view=True``, ``static_graph=True`` where
        the same parameters take part in every step, no ``find_unused_parameters``.
    How the saving is estimated: The step is replayed with the collectives hidden behind computation, all but each
        step's last; at the least the others are hidden by half, at the most the last is hidden too.
    When it may be wrong: Where communication takes longer than the backward pass, little of it can be hidden. A late
        rank looks the same.
    """

    meta = RuleMeta("DIST004", "poor-overlap", "Communication hardly overlaps with computation")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.COLLECTIVES})
    refines = frozenset({"DIST003"})

    min_overlap: float = 0.7
    """Share of the communication beside computation that a tuned data-parallel run reaches with ease."""

    min_share: float = 0.05
    """Exposed share of the step; below it a poor overlap costs next to nothing."""

    def check(self, facts: Facts) -> Outcome:
        """Compare what is hidden of the communication with all of it."""
        communication = facts.needed(facts.overlaps[Work.COMMUNICATION], Input.COLLECTIVES)
        exposed = facts.claim(Category.COMMUNICATION)
        share = facts.share(exposed)
        overlap = 1 - communication.exposed_ns / communication.total_ns if communication.total_ns else 1.0
        if share < self.min_share:
            return Clear("exposed communication", share, self.min_share, Unit.SHARE)
        if overlap >= self.min_overlap:
            return Clear("communication beside computation", overlap, self.min_overlap, Unit.SHARE)
        return facts.finding(
            claims=exposed,
            fix=Fix(
                "Let the exchange of gradients begin while the backward pass goes on",
                change="DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True, "
                "bucket_cap_mb=...)",
                what_if=HiddenCommunication(),
            ),
            effort=Effort.SETTING,
            evidence=(
                Evidence("share of the communication that runs beside computation", overlap, Unit.SHARE),
                Evidence("communicating with nothing else going on", communication.exposed_ns, Unit.NS_PER_STEP),
                Evidence("communicating altogether", communication.total_ns, Unit.NS_PER_STEP),
                Evidence("ranks", facts.run.rank_count, Unit.COUNT),
            ),
            caveats=(
                "One late rank makes all others wait inside the collective: compare the ranks first.",
                "What takes longer than the backward pass cannot be hidden behind it: then exchange less, or less "
                "often.",
            ),
        )
