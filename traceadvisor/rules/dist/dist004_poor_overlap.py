"""DIST004: communication that could run beside the backward pass runs after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.model.report import Work
from traceadvisor.replay.fixes.kernels import HiddenCommunication
from traceadvisor.rules.base import Rule


@dataclass(frozen=True, slots=True)
class PoorOverlap(Rule):
    """Little of the communication goes on beside computation.

    What it finds
        Collectives of which less than the expected share runs while other kernels run.

    Why it costs time
        DistributedDataParallel exchanges the gradients of one bucket while the backward pass computes the next. Where
        that does not happen (one huge bucket, parameters used out of order, a graph searched for unused parameters in
        every step), the exchange comes behind the backward pass in full.

    How to fix it
        Smaller buckets (``bucket_cap_mb``), ``gradient_as_bucket_view=True``, ``static_graph=True`` where the same
        parameters take part in every step, no ``find_unused_parameters``.

    How the saving is estimated
        The step is replayed with the collectives hidden behind computation, all but each step's last; at the least the
        others are hidden by half, at the most the last is hidden too. Where the replay is not to be believed, a bound:
        between nothing and all of the exposed time.

    When it may be wrong
        Where communication takes longer than the backward pass, little of it can be hidden. A late rank looks the same.
    """

    meta: ClassVar = RuleMeta(
        id="DIST004",
        name="poor-overlap",
        title="Communication hardly overlaps with computation",
        needs=frozenset({Input.STEPS, Input.DEVICE, Input.COLLECTIVES}),
        refines=frozenset({"DIST003"}),
    )

    min_overlap: float = 0.7
    """Share of the communication beside computation that a tuned data-parallel run reaches with ease."""

    min_share: float = 0.05
    """Exposed share of the step; below it a poor overlap costs next to nothing."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare what is hidden of the communication with all of it."""
        communication = facts.overlaps[Work.COMMUNICATION]
        assert communication is not None  # noqa: S101  # Input.COLLECTIVES
        exposed = facts.claim(Category.COMMUNICATION)
        share = facts.share(exposed)
        overlap = 1 - communication.exposed_ns / communication.total_ns if communication.total_ns else 1.0
        if share < self.min_share:
            return Clear("exposed communication", share, self.min_share, Unit.SHARE)
        if overlap >= self.min_overlap:
            return Clear("communication beside computation", overlap, self.min_overlap, Unit.SHARE)
        fix = HiddenCommunication()
        saving = facts.what_if(fix, facts.per_step_ns(exposed))
        return Finding(
            rule=self.meta,
            claims=exposed,
            saving=saving,
            confidence=facts.confidence(saving),
            effort=Effort.SETTING,
            evidence=(
                Evidence("share of the communication that runs beside computation", overlap, Unit.SHARE),
                Evidence("communicating with nothing else going on", communication.exposed_ns, Unit.NS_PER_STEP),
                Evidence("communicating altogether", communication.total_ns, Unit.NS_PER_STEP),
                Evidence("ranks", facts.rank_count, Unit.COUNT),
            ),
            fix=Fix(
                "Let the exchange of gradients begin while the backward pass goes on",
                change="DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True, "
                "bucket_cap_mb=...)",
            ),
            caveats=(
                "One late rank makes all others wait inside the collective: compare the ranks first.",
                "What takes longer than the backward pass cannot be hidden behind it: then exchange less, or less "
                "often.",
            ),
            what_ifs=(fix,),
        )
