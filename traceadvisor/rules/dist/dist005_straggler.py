"""DIST005: all ranks wait for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import (
    Clear,
    Confidence,
    Effort,
    Estimate,
    Evidence,
    Finding,
    Fix,
    Input,
    Outcome,
    RankFigures,
    RankRule,
    RuleMeta,
    Skipped,
    Unit,
)
from traceadvisor.rules.dist.late_ranks import late_rank

NOT_REPLAYED = "ranks are replayed one by one, and which would be the last without this one is not known"


MOST_CAUSES = 3
NOT_REPLAYED = "ranks are replayed one by one, and which would be the last without this one is not known"


@dataclass(frozen=True, slots=True)
class Straggler(RankRule):
    """One rank comes late to the collectives, and all others wait for it.

    What it finds: The rank that the others wait for most, and what takes it longer than them. A collective ends on all
        ranks at once, so the rank that spends least time in it came last.
    Why it costs time: Ranks exchange gradients in every step, and none goes on before the last has come: the job is as
        fast as its slowest rank.
    How to fix it: Mend what is longer there than elsewhere: an uneven share of the data, logging or checkpointing on
        rank 0 alone, a slower disk or device, other processes on that host.
    How the saving is estimated: A bound: between nothing and the others' mean wait for that rank, the middle being the
        expected value. Without it another rank may be the last.
    When it may be wrong: With few recorded steps, one odd step on one rank looks like a habit. Where ranks take turns
        at being late (samples of uneven length), no single one is to blame, and this rule stays silent.
    """

    meta = RuleMeta("DIST005", "straggler", "All ranks wait for one that is late")
    needs = frozenset({Input.STEPS})

    min_share: float = 0.05
    """Share of the step that the others wait for the one; ranks are never quite in step."""

    min_share_of_waiting: float = 0.6
    """Share of all waiting for the latest that must be for the one rank; where ranks take turns it is less."""

    def compare(self, ranks: Sequence[RankFigures]) -> Outcome:
        """Compare the waiting for the latest with the step."""
        late = late_rank(ranks)
        if late is None:
            return Skipped("No step was recorded of all ranks with the same collectives in it.")
        share = late.caused_ns / late.step_ns
        if share < self.min_share:
            return Clear("waiting for the rank that is late most", share, self.min_share, Unit.SHARE)
        if late.share_of_waiting < self.min_share_of_waiting:
            label = "of all waiting for the latest, for the one rank that is late most"
            return Clear(label, late.share_of_waiting, self.min_share_of_waiting, Unit.SHARE, "ranks take turns")
        return Finding(
            claims=SpanSet.empty(),
            saving=Estimate.bound(late.caused_ns, NOT_REPLAYED),
            confidence=Confidence.MEDIUM if late.longer else Confidence.LOW,
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("the rank that is late", late.rank, Unit.COUNT),
                Evidence("the others wait for it", late.caused_ns, Unit.NS_PER_STEP),
                Evidence("of all waiting for the latest", late.share_of_waiting, Unit.SHARE),
                *(
                    Evidence(f"{category.value.replace('_', ' ')}: longer there by", excess_ns, Unit.NS_PER_STEP)
                    for category, excess_ns in late.longer[:MOST_CAUSES]
                ),
            ),
            fix=Fix(
                f"Find out what holds rank {late.rank} up: its own breakdown beside the others' shows where",
                not_replayed=NOT_REPLAYED,
            ),
            caveats=("Where this rank is mended, the next slowest sets the pace.",),
        )
