"""Who is waited for, worked out by eye."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceadvisor.analysis.communication.late_ranks import late_rank
from traceadvisor.model.breakdown import Category, MeanBreakdown
from traceadvisor.model.location import Location
from traceadvisor.model.ranks import CollectiveCalls, RankFigures
from traceadvisor.model.spans import SpanSet

ALWAYS = SpanSet.of((0, 10_000))


def _rank(
    number: int,
    durations: list[int],
    *,
    steps: list[int] | None = None,
    kernel: float = 60.0,
    starts: list[int] | None = None,
    exposed: SpanSet = ALWAYS,
) -> RankFigures:
    """A rank with one collective a step, steps of 100 ns."""
    steps = steps or list(range(len(durations)))
    starts = starts or [100 * place for place in range(len(durations))]
    calls = CollectiveCalls(np.array(steps), np.array(starts), np.array(durations), np.zeros(len(steps), np.int64))
    parts: dict[Category, float | None] = {Category.KERNEL: kernel, Category.IDLE_HOST: 40.0 - (kernel - 60.0)}
    return RankFigures(number, calls, MeanBreakdown(100.0, parts), exposed)


def test_the_rank_with_the_shortest_collectives_is_late() -> None:
    found = late_rank([_rank(0, [30, 50]), _rank(1, [10, 10], kernel=85.0), _rank(2, [20, 30])])
    assert found is not None
    assert found.rank == 1
    assert found.caused_ns == ((20 + 10) / 2 + (40 + 20) / 2) / 2
    assert found.share_of_waiting == 1.0
    assert found.longer == ((Category.KERNEL, 25.0),)


def test_the_limit_is_not_below_the_extra_time_in_the_line() -> None:
    """The profiler may slow the others down while the late rank sleeps: without it, they wait longer."""
    place = Location("train.py", 24, "read")
    ranks = [replace(_rank(0, [40, 40]), places=((place, 10.0),)), replace(_rank(1, [10, 10]), places=((place, 45.0),))]
    found = late_rank(ranks)
    assert found is not None
    assert (found.caused_ns, found.most_saved_ns) == (30.0, 35.0)


def test_unknown_time_is_no_reason_to_be_late() -> None:
    late = _rank(1, [10, 10], kernel=85.0)
    parts = {**late.mean.parts_ns, Category.IDLE_UNKNOWN: 70.0}
    found = late_rank([_rank(0, [30, 50]), replace(late, mean=MeanBreakdown(100.0, parts))])
    assert found is not None
    assert found.longer == ((Category.KERNEL, 25.0),)


def test_ranks_that_take_turns_share_the_waiting() -> None:
    found = late_rank([_rank(0, [10, 30]), _rank(1, [30, 10])])
    assert found is not None
    assert found.share_of_waiting == 0.5


def test_only_steps_with_matching_collectives_are_compared() -> None:
    found = late_rank([_rank(0, [99, 30, 30], steps=[4, 5, 5]), _rank(1, [10, 10, 5], steps=[5, 5, 6])])
    assert found is not None
    assert (found.rank, found.caused_ns) == (1, 40.0)


def test_concurrent_collectives_are_one_wait() -> None:
    """Both wait from 0 to 50 for a rank that comes at 50."""
    found = late_rank(
        [_rank(0, [60, 70], steps=[1, 1], starts=[0, 0]), _rank(1, [10, 20], steps=[1, 1], starts=[50, 50])]
    )
    assert found is not None
    assert (found.rank, found.caused_ns) == (1, 50.0)


def test_a_wait_that_overlaps_other_work_costs_nothing() -> None:
    found = late_rank([_rank(0, [60], exposed=SpanSet.of((30, 60))), _rank(1, [10], starts=[50])])
    assert found is not None
    assert found.caused_ns == 20.0


def test_without_common_steps_no_rank_is_late() -> None:
    assert late_rank([_rank(0, [10], steps=[1]), _rank(1, [20], steps=[2])]) is None


def test_one_rank_is_never_late() -> None:
    assert late_rank([_rank(0, [10])]) is None
