from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceadvisor.analysis.communication.late_ranks import (
    BESIDE_OTHERS,
    LEAST_PART,
    MOST_WAITING,
    NO_MATCH,
    NOT_REPLAYED,
    LateRank,
    awaited_by_all,
    lacks_cores,
    late_rank,
)
from traceadvisor.model.findings import Clear, Confidence, Effort, Estimate, Evidence, Finding, Fix, Skipped, Unit
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import (
    CATEGORY_WORDS,
    Facts,
    Input,
    Outcome,
    RankFigures,
    RankRule,
    RuleMeta,
    frozen,
)

MOST_CAUSES = 3
MAIN_PART = 0.5
"""Share of all extra time of the late rank, above which one category is the cause."""

_CHANCE = "in so few steps, any rank may be late by chance"
_FEW = "Only a few of the recorded steps show it."
_BUSY = "Other programs used the CPU: this rank may have lacked cores. Repeat on an idle machine."
NOT_AMONG_THESE = "Record all ranks, and compare them: the late rank is not among these recordings"
NAMED = "Record rank {0}, and check it: most of this wait is for rank {0}, which is not among these recordings"
_NUMBERED = "The profiler may number ranks within the group of the collectives."
_LATE_START = "The others began the first recorded step earlier: what delayed this rank before it was not recorded."


@frozen
class Straggler(RankRule):
    """One rank arrives late at the collectives, and all others wait for it.

    What it finds: The rank that the others wait for most, the categories that take longer on it, and the line or
        operator with the most extra time. A collective ends on all ranks at the same time, so the rank that spends the
        least time in it arrived last; timers show no difference. One rank's recording of an Ascend device shows how
        long it waits, and by its steps ``Notify_Wait`` for which rank, if each rank waits for all others.
    Why it costs time: No rank continues before the last one arrives, so the job is as fast as its slowest rank.
    How to fix it: Fix the cause on the late rank: an uneven share of the data, logging or checkpointing on rank 0 only,
        a slower disk or GPU, or other processes on the machine.
    How the saving is estimated: Upper limit: the others' mean wait for that rank, or the extra time in its line if that
        is longer. Half of it is expected: without this wait, another rank may be the last.
    When it may be wrong: In a short recording, any rank may be late by chance: one is named only if it is late in more
        steps than chance explains, or if one line explains it that takes the others no time. A rank whose first
        recorded step begins later is late for a reason that was not recorded. If other programs used the CPU, a rank
        without a GPU may have lacked a core: the check is skipped unless several steps show it, in one kind of work or
        by a quarter of the step. If ranks take turns at being late, see DIST015.
    """

    meta = RuleMeta("DIST005", "straggler", "All ranks wait for one late rank")
    needs = frozenset({Input.STEPS})
    also_saves = "waits for another rank, which its own recording shows"

    min_share: float = 0.05
    """Share of the step that the others wait for this rank. Small differences between ranks are normal."""

    min_share_of_waiting: float = MOST_WAITING
    """Share of all waiting for late ranks that one rank causes. It is lower if ranks take turns."""

    def check(self, facts: Facts) -> Outcome:
        waiting_ns, step_ns = facts.per_step_ns(facts.exposed_recorded_waits), facts.step_ns
        if step_ns and waiting_ns >= self.min_share * step_ns:
            return _not_recorded(waiting_ns, facts.awaited_rank)
        return RankRule.check(self, facts)  # a class with slots has no super() without arguments

    def compare(self, ranks: Sequence[RankFigures]) -> Outcome:
        late = late_rank(ranks)
        waiting_ns = min(one.recorded_wait_ns for one in ranks)
        if waiting_ns >= self.min_share * max(one.mean.duration_ns for one in ranks):
            return _not_recorded(waiting_ns, awaited_by_all(ranks))
        if late is None or (lacks_cores(ranks, late) and late.caused_ns >= self.min_share * late.step_ns):
            return Skipped(BESIDE_OTHERS if late else NO_MATCH)
        share = late.caused_ns / late.step_ns
        if share < self.min_share:
            return Clear("wait for the rank that is late most often", share, self.min_share, Unit.SHARE)
        if late.share_of_waiting < self.min_share_of_waiting:
            label = "share of waiting caused by the rank that is late most often"
            return Clear(label, late.share_of_waiting, self.min_share_of_waiting, Unit.SHARE, "ranks take turns")
        if not late.is_named:
            label = "share of waiting that one rank causes at least, with 95% confidence"
            return Clear(label, late.least_share, late.chance_share, Unit.SHARE, _CHANCE)
        typical_ns = max((one.step_ns or one.mean.duration_ns for one in ranks), default=late.step_ns)
        is_at_times = late.caused_ns > typical_ns
        return Finding(
            claims=SpanSet.empty(),
            saving=Estimate.bound(min(late.most_saved_ns, late.step_ns), of_the_fix(NOT_REPLAYED)),
            of_run=is_at_times,
            whole_ns=late.step_ns if is_at_times else None,
            confidence=Confidence.MEDIUM if late.longer and late.is_sure else Confidence.LOW,
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("late rank", late.rank, Unit.COUNT),
                Evidence("collectives that it enters last", f"{late.last_count} of {late.count}", Unit.TEXT),
                Evidence("mean wait of the other ranks", late.caused_ns, Unit.NS_PER_STEP),
                Evidence("share of all waiting for late ranks", late.share_of_waiting, Unit.SHARE),
                Evidence("transfer in all collectives, at most", late.transfer_ns, Unit.NS_PER_STEP),
                *(
                    Evidence(f"extra time on this rank: {CATEGORY_WORDS[category]}", excess_ns, Unit.NS_PER_STEP)
                    for category, excess_ns in late.longer[:MOST_CAUSES]
                ),
                *_extra(late),
            ),
            fix=Fix(summary_of(late), not_replayed=NOT_REPLAYED),
            locations=(late.place[0],) if late.place else (),
            caveats=(
                "After the fix, the next slowest rank sets the pace.",
                *(() if late.is_sure else (_FEW,)),
                *((_BUSY,) if any(one.lacked_cores for one in ranks) else ()),
                *((_LATE_START,) if late.late_start_ns > LEAST_PART * late.caused_ns else ()),
            ),
        )


def _not_recorded(waiting_ns: float, rank: int | None) -> Finding:
    """The finding that all recorded ranks wait, so the late one is another; ``rank``: its number, if it is known."""
    after = "After the fix, the next slowest rank sets the pace."
    return Finding(
        claims=SpanSet.empty(),
        saving=Estimate.bound(waiting_ns, of_the_fix(NOT_REPLAYED)),
        confidence=Confidence.MEDIUM,
        effort=Effort.SETTING,
        evidence=(Evidence("wait inside collectives, in which nothing is transferred", waiting_ns, Unit.NS_PER_STEP),),
        fix=Fix(NOT_AMONG_THESE if rank is None else NAMED.format(rank), not_replayed=NOT_REPLAYED),
        caveats=(after,) if rank is None else (after, _NUMBERED),
    )


def _extra(late: LateRank) -> Iterator[Evidence]:
    """Extra time of the late rank in single places."""
    if late.place:
        yield Evidence("extra time on this rank in the code named above", late.place[1], Unit.NS_PER_STEP)
    elif late.operator:
        yield Evidence(f"most extra time in one operator: {late.operator[0]}", late.operator[1], Unit.NS_PER_STEP)
    if late.late_start_ns > LEAST_PART * late.caused_ns:
        yield Evidence("later start of this rank's first recorded step", late.late_start_ns, Unit.NS_PER_STEP)


def summary_of(late: LateRank) -> str:
    """Return what to do about a late rank."""
    extra_ns = sum(time_ns for _, time_ns in late.longer)
    if extra_ns < LEAST_PART * late.caused_ns:
        if late.operator:
            return f"Find out why rank {late.rank} takes longer in {late.operator[0]}"
        if late.late_start_ns > LEAST_PART * late.caused_ns:
            return f"Find out why rank {late.rank} starts later than the others: its own work hardly takes longer"
        return f"Look for other programs on the machine of rank {late.rank}: its own work hardly takes longer"
    (category, most_ns), *_ = late.longer
    if late.place or most_ns >= MAIN_PART * extra_ns:
        return f"Shorten what delays rank {late.rank}: {CATEGORY_WORDS[category]}"
    parts = ", ".join(CATEGORY_WORDS[category] for category, _ in late.longer[:2])
    return f"Find out why rank {late.rank} takes longer in {parts}: other programs, a slower CPU or GPU, or more data"
