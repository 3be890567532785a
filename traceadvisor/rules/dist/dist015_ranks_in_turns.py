from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceadvisor.analysis.communication.late_ranks import (
    BESIDE_OTHERS,
    MOST_WAITING,
    NO_MATCH,
    NOT_REPLAYED,
    lacks_cores,
    late_rank,
)
from traceadvisor.analysis.communication.uneven_work import UnevenWork, uneven_work
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Confidence, Effort, Estimate, Evidence, Finding, Fix, Skipped, Unit
from traceadvisor.model.saving import Method, of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Input, Outcome, RankFigures, RankRule, RuleMeta, frozen

EQUAL = Fix("Give all ranks equal work in each step", not_replayed=NOT_REPLAYED)
BY_SIZE = Fix(
    "Give all ranks equal work in each step: share out the samples of all ranks by their size",
    """\
together = sorted(samples, key=len)  # the samples of all ranks for one step
turn = 2 * world_size  # the largest and the smallest of each turn go to one rank
mine = [one for at, one in enumerate(together) if at % turn in (rank, turn - 1 - rank)]""",
    not_replayed=NOT_REPLAYED,
)
OR_APART = Fix(
    "Give all ranks equal work in each step, or let them wait for each other less often: they only send single values",
    """\
if step % 100 == 0:  # not in every step
    torch.distributed.all_reduce(value)""",
    not_replayed=NOT_REPLAYED,
    caveats=("If the value ends the training, all ranks must end it in the same step.",),
)
LEAST_EVENED, EVENED = 0.25, 0.75
"""Shares of the excess that go if samples are shared out by size. Sorted samples in turns there and back leave 0.45 to
0.5 of it (2 to 8 ranks with 4 or 8 samples, lengths of a log-normal distribution); more samples leave less."""

_MOMENT = "On a busy machine, any rank may be late for a moment."
_SHAPES = "Other programs used the CPU: the saving is what the shapes of the recorded steps show, not the waits."


@frozen
class RanksInTurns(RankRule):
    """Ranks wait in their collectives, now for one rank and now for another.

    What it finds: Time in which ranks only wait for the last one, where no rank causes most of it, or in too few steps
        to tell which one does.
    Why it costs time: Each step takes as long as that of its slowest rank.
    How to fix it: Give all ranks equal work in each step: batches of similar length, equal numbers of boxes, tokens or
        rows, tables or experts spread evenly. Keep other programs off the machines.
    How the saving is estimated: Upper limit: the mean wait of a rank. Half of it is expected. Without GPUs, if other
        programs used the CPU, recorded shapes are the evidence, of ranks that share gradients or only send single
        values: forward and backward of each step take as much longer as the rank with most operations has more than the
        mean of all ranks. Expected are three quarters of this time, at most the wait, since samples cannot be shared
        out exactly; low a quarter, high all of it with the 95% interval over the steps.
    When it may be wrong: On a busy machine, any rank may be late for a moment. If one rank causes most of the waiting,
        DIST005 names it. Without GPUs, if other programs used the CPU and no shapes show unequal work, the check is
        skipped.
    """

    meta = RuleMeta("DIST015", "ranks-in-turns", "Ranks wait for each other")
    needs = frozenset({Input.STEPS})
    also_saves = "waits for other ranks, which their recordings show"

    min_share: float = 0.10
    """Share of the step. Ranks always differ a little, and each of them may be the last."""

    min_excess: float = 0.10
    """Share by which the rank with most operations in a step exceeds the mean of the ranks. Of fixed shapes it is 0."""

    max_share_of_one: float = MOST_WAITING
    """Share of the waiting that one rank causes. Above it, that rank is the cause."""

    def compare(self, ranks: Sequence[RankFigures]) -> Outcome:
        late = late_rank(ranks)
        if late is None:
            return Skipped(NO_MATCH)
        share = late.waiting_ns / late.step_ns
        if share < self.min_share:
            return Clear("wait for other ranks", share, self.min_share, Unit.SHARE)
        work = uneven_work(ranks)
        is_movable = all(one.shares_gradients or one.sends_values_only for one in ranks)
        is_uneven = is_movable and work is not None and work.excess_share >= self.min_excess
        saving = Estimate.bound(late.waiting_ns, of_the_fix(NOT_REPLAYED))
        if is_busy := lacks_cores(ranks, late):
            if work is None or not is_uneven:
                return Skipped(BESIDE_OTHERS)
            saving = _by_work(ranks, work, late.waiting_ns / late.step_ns)
        elif late.share_of_waiting >= self.max_share_of_one and late.is_named:
            label = "share of waiting caused by the rank that is late most often"
            return Clear(label, late.share_of_waiting, self.max_share_of_one, Unit.SHARE, "one rank is the cause")
        fix = _fix(ranks, is_uneven=is_uneven)
        return Finding(
            claims=SpanSet.empty(),
            saving=saving,
            confidence=Confidence.MEDIUM,
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("mean wait of a rank", late.waiting_ns, Unit.NS_PER_STEP),
                *(_of_work(work) if work and is_uneven else ()),
                Evidence("transfer in all collectives, at most", late.transfer_ns, Unit.NS_PER_STEP),
                Evidence("rank that causes the most waiting", late.rank, Unit.COUNT),
                Evidence("share of the waiting that it causes", late.share_of_waiting, Unit.SHARE),
                Evidence("ranks", len(ranks), Unit.COUNT),
            ),
            fix=fix,
            caveats=(*fix.caveats, _SHAPES if is_busy else _MOMENT),
        )


def _by_work(ranks: Sequence[RankFigures], work: UnevenWork, wait_share: float) -> Estimate:
    """The saving on CPUs, from the time of the passes in undisturbed steps and the operations in them.

    ``wait_share``: the mean wait of a rank as a share of the step, which other programs change.
    """
    passes_ns, step_ns = (float(np.mean([of(one) for one in ranks])) for of in (_passes_ns, _step_ns))
    evened_ns = passes_ns * work.excess_share
    high_ns = min(evened_ns + passes_ns * work.error_share, step_ns)
    expected_ns = min(EVENED * evened_ns, wait_share * step_ns, high_ns)
    return Estimate(min(LEAST_EVENED * evened_ns, expected_ns), expected_ns, high_ns, Method.MODEL)


def _passes_ns(rank: RankFigures) -> float:
    """The forward and backward pass, as the same share of an undisturbed step as of a recorded one."""
    parts_ns = (rank.mean.parts_ns.get(each) or 0.0 for each in (Category.FORWARD, Category.BACKWARD))
    return sum(parts_ns) / rank.mean.duration_ns * _step_ns(rank)


def _step_ns(rank: RankFigures) -> float:
    return rank.step_ns or rank.mean.duration_ns


def _of_work(work: UnevenWork) -> tuple[Evidence, ...]:
    return (
        Evidence(
            "operations of the rank with most of them, beyond the mean of the ranks", work.excess_share, Unit.SHARE
        ),
        Evidence("recorded steps whose shapes were compared", work.step_count, Unit.COUNT),
    )


def _fix(ranks: Sequence[RankFigures], *, is_uneven: bool) -> Fix:
    if all(one.sends_values_only for one in ranks):
        return OR_APART
    return BY_SIZE if is_uneven else EQUAL
