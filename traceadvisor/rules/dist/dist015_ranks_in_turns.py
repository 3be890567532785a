from __future__ import annotations

from collections.abc import Sequence

from traceadvisor.analysis.communication.late_ranks import (
    BESIDE_OTHERS,
    MOST_WAITING,
    NO_MATCH,
    NOT_REPLAYED,
    lacks_cores,
    late_rank,
)
from traceadvisor.model.findings import Clear, Confidence, Effort, Estimate, Evidence, Finding, Fix, Skipped, Unit
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Input, Outcome, RankFigures, RankRule, RuleMeta, frozen


@frozen
class RanksInTurns(RankRule):
    """Ranks wait in their collectives, now for one rank and now for another.

    What it finds: Time in which ranks only wait for the last one, where no rank causes most of it, or in too few
        steps to tell which one does.
    Why it costs time: No rank continues before the last one arrives. So each step takes as long as that of the rank
        which is slowest in it.
    How to fix it: Give all ranks equal work in each step: batches of similar length, equal numbers of boxes, tokens or
        rows, tables or experts spread evenly. Keep other programs off the machines.
    How the saving is estimated: The saving is an upper limit: the mean wait of a rank. The expected value is half.
    When it may be wrong: On a busy machine, any rank may be late for a moment. If one rank causes most of the waiting,
        DIST005 names it instead. Without GPUs, if other programs used the CPU, the check is skipped.
    """

    meta = RuleMeta("DIST015", "ranks-in-turns", "Ranks wait for each other")
    needs = frozenset({Input.STEPS})
    also_saves = "waits for other ranks, which their recordings show"

    min_share: float = 0.10
    """Share of the step. Ranks always differ a little, and each of them may be the last."""

    max_share_of_one: float = MOST_WAITING
    """Share of the waiting that one rank causes. Above it, that rank is the cause."""

    def compare(self, ranks: Sequence[RankFigures]) -> Outcome:
        late = late_rank(ranks)
        if late is None:
            return Skipped(NO_MATCH)
        share = late.waiting_ns / late.step_ns
        if share < self.min_share:
            return Clear("wait for other ranks", share, self.min_share, Unit.SHARE)
        if lacks_cores(ranks, late):
            return Skipped(BESIDE_OTHERS)
        if late.share_of_waiting >= self.max_share_of_one and late.is_named:
            label = "share of waiting caused by the rank that is late most often"
            return Clear(label, late.share_of_waiting, self.max_share_of_one, Unit.SHARE, "one rank is the cause")
        return Finding(
            claims=SpanSet.empty(),
            saving=Estimate.bound(late.waiting_ns, of_the_fix(NOT_REPLAYED)),
            confidence=Confidence.MEDIUM,
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("mean wait of a rank", late.waiting_ns, Unit.NS_PER_STEP),
                Evidence("transfer in all collectives, at most", late.transfer_ns, Unit.NS_PER_STEP),
                Evidence("rank that causes the most waiting", late.rank, Unit.COUNT),
                Evidence("share of the waiting that it causes", late.share_of_waiting, Unit.SHARE),
                Evidence("ranks", len(ranks), Unit.COUNT),
            ),
            fix=Fix("Give all ranks equal work in each step", not_replayed=NOT_REPLAYED),
            caveats=("On a busy machine, any rank may be late for a moment.",),
        )
