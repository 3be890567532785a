from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import Work
from traceadvisor.replay.fixes.kernels import HiddenCommunication
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit


@dataclass(frozen=True, slots=True)
class PoorOverlap(Rule):
    """Compute overlaps only a small part of the communication.

    What it finds: Collectives that compute overlaps for less than the expected share of their time.
    Why it costs time: DistributedDataParallel reduces the gradients of one bucket while the backward pass computes the
        next. One huge bucket, parameters used out of order, or a search for unused parameters in every step can prevent
        this. Then the whole all-reduce follows the backward pass.
    How to fix it: Use smaller buckets (``bucket_cap_mb``) and ``gradient_as_bucket_view=True``. Use
        ``static_graph=True`` if every step uses the same parameters. Avoid ``find_unused_parameters``.
    How the saving is estimated: We simulate the step with all collectives overlapped except the last of each step. The
        low estimate keeps half of the other collectives. The high estimate overlaps the last one too.
    When it may be wrong: If communication takes longer than the backward pass, only part of it can overlap. A late rank
        looks the same.
    """

    meta = RuleMeta("DIST004", "poor-overlap", "Communication overlaps poorly with compute")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.COLLECTIVES})
    refines = frozenset({"DIST003"})

    min_overlap: float = 0.7
    """Share of the communication that compute overlaps. A tuned data-parallel run easily reaches it."""

    min_share: float = 0.05
    """Exposed communication as a share of the step. Below it, poor overlap costs little time."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the overlapped communication with all communication."""
        communication = facts.needed(facts.overlaps[Work.COMMUNICATION], Input.COLLECTIVES)
        exposed = facts.claim(Category.COMMUNICATION)
        share = facts.share(exposed)
        overlap = 1 - communication.exposed_ns / communication.total_ns if communication.total_ns else 1.0
        if share < self.min_share:
            return Clear("exposed communication", share, self.min_share, Unit.SHARE)
        if overlap >= self.min_overlap:
            return Clear("communication overlapped by compute", overlap, self.min_overlap, Unit.SHARE, at_least=True)
        return facts.finding(
            claims=exposed,
            fix=Fix(
                "Start the gradient all-reduce during the backward pass",
                change="DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True, "
                "bucket_cap_mb=...)",
                what_if=HiddenCommunication(),
            ),
            effort=Effort.SETTING,
            evidence=(
                Evidence("share of communication overlapped by compute", overlap, Unit.SHARE),
                Evidence("exposed communication", communication.exposed_ns, Unit.NS_PER_STEP),
                Evidence("total communication", communication.total_ns, Unit.NS_PER_STEP),
                Evidence("ranks", facts.run.rank_count, Unit.COUNT),
            ),
            caveats=(
                "Compare the ranks first: one late rank makes all others wait inside the collective.",
                "If communication takes longer than the backward pass, send fewer bytes or communicate less often.",
            ),
        )
