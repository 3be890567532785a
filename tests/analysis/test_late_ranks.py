"""Who is waited for, worked out by eye."""

from dataclasses import replace

import numpy as np
import pytest

from traceadvisor.analysis.communication.late_ranks import lacks_cores, late_rank
from traceadvisor.model.breakdown import Category, MeanBreakdown
from traceadvisor.model.findings import Skipped
from traceadvisor.model.location import Frame, Location
from traceadvisor.model.ranks import CollectiveCalls, RankFigures
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.dist.dist005_straggler import Straggler
from traceadvisor.rules.dist.dist015_ranks_in_turns import RanksInTurns

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


def _on_cpu(number: int, duration: int, category: Category, *, lacked_cores: bool) -> RankFigures:
    """A rank without a GPU whose category takes what its collective does not."""
    one = _rank(number, [duration] * 2)
    return replace(one, mean=MeanBreakdown(100.0, {category: 100.0 - duration}), lacked_cores=lacked_cores)


@pytest.mark.parametrize(
    ("category", "lacked_cores", "by_chance"),
    [(Category.BACKWARD, True, True), (Category.BACKWARD, False, False), (Category.DATA_WAIT, True, False)],
)
def test_a_rank_that_computes_longer_beside_other_programs_may_have_lacked_a_core(
    category: Category, *, lacked_cores: bool, by_chance: bool
) -> None:
    ranks = [_on_cpu(number, duration, category, lacked_cores=lacked_cores) for number, duration in ((0, 30), (1, 10))]
    found = late_rank(ranks)
    assert found is not None
    assert lacks_cores(ranks, found) is by_chance
    outcomes = [rule.compare(ranks) for rule in (Straggler(), RanksInTurns())]
    assert [isinstance(one, Skipped) for one in outcomes] == [by_chance] * 2


@pytest.mark.parametrize(
    ("forward", "first_ns", "lacked_cores", "skipped"),
    [(10.0, 30, True, True), (4.0, 30, True, False), (10.0, 30, False, False), (10.0, 36, True, False)],
)
def test_a_rank_that_takes_longer_in_everything_beside_other_programs_may_lack_a_core(
    forward: float, first_ns: int, *, lacked_cores: bool, skipped: bool
) -> None:
    parts: tuple[dict[Category, float | None], ...] = (
        {Category.BACKWARD: 40.0, Category.FORWARD: 10.0},
        {Category.BACKWARD: 60.0, Category.FORWARD: 10.0 + forward},
    )
    ranks = [
        replace(_rank(number, [duration] * 40), mean=MeanBreakdown(100.0, parts[number]), lacked_cores=lacked_cores)
        for number, duration in ((0, first_ns), (1, 10))
    ]
    assert isinstance(Straggler().compare(ranks), Skipped) is skipped


@pytest.mark.parametrize(("category", "skipped"), [(Category.OPTIMIZER, True), (Category.FORWARD, False)])
def test_a_rank_with_the_same_work_in_the_optimizer_lacks_a_core_if_that_takes_longer_too(
    category: Category, *, skipped: bool
) -> None:
    parts: tuple[dict[Category, float | None], ...] = (
        {Category.BACKWARD: 30.0, category: 10.0},
        {Category.BACKWARD: 60.0, category: 20.0},
    )
    ranks = [
        replace(_rank(number, [duration] * 40), mean=MeanBreakdown(100.0, parts[number]), lacked_cores=True)
        for number, duration in ((0, 50), (1, 10))
    ]
    assert isinstance(Straggler().compare(ranks), Skipped) is skipped


def _in_lines(number: int, duration: int, lines: dict[int, float]) -> RankFigures:
    """A rank that spends this time in these lines of one function."""
    places = tuple((Location("train.py", line, "read", samples=5), time_ns) for line, time_ns in lines.items())
    return replace(_rank(number, [duration] * 2), places=places)


def test_a_function_that_takes_the_others_nearly_as_long_does_not_run_on_one_rank_only() -> None:
    """Ten lines of 5 ns against 38 ns elsewhere: each line takes less than the 12 ns that they differ by."""
    ranks = [_in_lines(0, 30, {1: 38.0}), _in_lines(1, 10, dict.fromkeys(range(10), 5.0))]
    found = late_rank(ranks)
    assert found is not None
    assert found.place is not None
    assert (found.place[1], found.is_only_here) == (12.0, False)


def test_several_lines_that_share_the_time_are_named_by_their_function() -> None:
    shared = late_rank([_in_lines(0, 30, {}), _in_lines(1, 10, {24: 12.0, 25: 8.0})])
    one = late_rank([_in_lines(0, 30, {}), _in_lines(1, 10, {25: 1.0, 24: 19.0})])
    assert shared is not None
    assert one is not None
    assert shared.place is not None
    assert one.place is not None
    assert (shared.place[0].is_line, shared.place[0].samples, shared.place[1]) == (False, 10, 20.0)
    assert (one.place[0].is_line, one.place[0].line, one.is_only_here) == (True, 24, True)


def test_a_line_that_waits_in_several_lines_of_a_library_is_one_line() -> None:
    place = Location("train.py", 24, "read", owner=Frame("load", "io.py", 7))
    other = replace(place, owner=Frame("load", "io.py", 9))
    late = replace(_rank(1, [10, 10]), places=((place, 10.0), (other, 9.0)))
    found = late_rank([_rank(0, [30, 30]), late])
    assert found is not None
    assert found.place == (place, 19.0)
    assert found.is_only_here


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
