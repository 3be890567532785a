"""Late ranks and their causes, worked out by eye."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from traceadvisor.analysis.communication.job import job_of
from traceadvisor.analysis.communication.late_causes import BLOCK_VALUES, Delays, middle_of_others
from traceadvisor.analysis.communication.matching import aligned, matching, other_steps
from traceadvisor.model.breakdown import Category, MeanBreakdown
from traceadvisor.model.job import Job, LateCause
from traceadvisor.model.ranks import CollectiveCalls, RankFigures
from traceadvisor.model.spans import SpanSet

STEPS = 8


def _rank(number: int, arrivals: list[int], *, before: Category = Category.KERNEL, clock: int = 0) -> RankFigures:
    """A rank on its own clock with one collective a step, which ends at 90 of 100 ns; ``before`` fills its step."""
    starts, count = np.array(arrivals) + 100 * np.arange(len(arrivals)) + clock, len(arrivals)
    described = np.zeros((count, len(Category)), np.int64)
    described[:, list(Category).index(before)] = arrivals
    ends = 90 + 100 * np.arange(count) + clock
    calls = CollectiveCalls(np.arange(count), starts, ends - starts, np.zeros(count, np.int64), described)
    mean = MeanBreakdown(100.0, {before: float(np.mean(arrivals)), Category.COMMUNICATION: 50.0})
    return RankFigures(number, calls, mean, SpanSet.of((clock, clock + 10_000)), begin_ns=clock)


def _job(*ranks: RankFigures) -> Job:
    return job_of(ranks, {one.rank: f"rank {one.rank}" for one in ranks}, "run", 0, len(ranks))


def test_clocks_are_aligned_by_the_ends_of_collectives() -> None:
    ranks = [_rank(0, [40] * STEPS), _rank(1, [80] * STEPS, clock=7_000)]
    matched = matching([one.calls for one in ranks])
    assert matched is not None
    clocks = aligned(matched)
    assert (clocks.offset_ns[1] - clocks.offset_ns[0]).tolist() == [7_000]
    assert not clocks.apart_ns.any()
    lanes = _job(*ranks).lanes
    assert lanes is not None
    assert lanes.end_ns[0].tolist() == lanes.end_ns[1].tolist()


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        (Category.DATA_WAIT, LateCause.DATA),
        (Category.BACKWARD, LateCause.COMPUTE),
        (Category.IDLE_HOST, LateCause.HOST),
        (Category.H2D_COPY, LateCause.COPIES),
        (Category.COMMUNICATION, LateCause.LINK),
        (Category.IDLE_UNKNOWN, LateCause.UNKNOWN),
    ],
)
def test_the_cause_is_what_the_last_rank_did_longer(before: Category, cause: LateCause) -> None:
    (late,) = _job(_rank(0, [40] * STEPS), _rank(1, [80] * STEPS, before=before), _rank(2, [40] * STEPS)).stragglers
    assert (late.rank, late.causes, late.caused_ns) == (1, {cause: 1.0}, 40.0)


def test_compute_on_a_gpu_with_a_low_clock_is_throttled() -> None:
    ranks = [replace(_rank(rank, [80 if rank == 1 else 40] * STEPS), sm_clock_mhz=1400.0) for rank in range(3)]
    assert next(iter(_job(*ranks).stragglers[0].causes)) is LateCause.COMPUTE
    ranks[1] = replace(ranks[1], sm_clock_mhz=1000.0)
    assert next(iter(_job(*ranks).stragglers[0].causes)) is LateCause.CLOCK


def test_a_later_start_of_the_first_step_was_not_recorded() -> None:
    first = [replace(_rank(rank, [40]), begin_ns=0) for rank in range(2)]
    late = replace(_rank(2, [80]), begin_ns=40)
    described = np.zeros_like(late.calls.before_ns)
    described[0, 0] = 40
    job = _job(*first, replace(late, calls=replace(late.calls, before_ns=described)))
    assert job.stragglers[0].causes == {LateCause.START: 1.0}


def test_a_rank_is_late_always_or_in_turns_or_perhaps_by_chance() -> None:
    def arrivals(rank: int, late: list[int]) -> list[int]:
        return [80 if rank == one else 40 for one in late]

    def found(late: list[int]) -> bool | None:
        return _job(*(_rank(rank, arrivals(rank, late)) for rank in range(4))).stragglers[0].is_persistent

    assert found([3, 3, 3, 2, 3, 3]) is True
    assert found([3, 2, 1, 0, 3, 2]) is False
    assert found([3]) is None


def test_a_rank_may_lack_half_of_the_steps() -> None:
    usual, few, other = ([40] * 4, [40] * 2, [40])
    ranks = [*(_rank(rank, usual) for rank in range(3)), _rank(3, few), _rank(4, other)]
    assert other_steps([one.calls for one in ranks]) == [4]
    job = _job(*ranks)
    assert (job.step_count, job.other_steps) == (2, (4,))


def test_of_ranks_without_a_common_step_those_with_the_most_common_one_are_compared() -> None:
    def only(rank: int, *steps: int) -> RankFigures:
        one = _rank(rank, [40] * len(steps))
        return replace(one, calls=replace(one.calls, step=np.array(steps)))

    ranks = [only(0, 1, 2), only(1, 1, 2), only(2, 1, 3), only(3, 2, 4), only(4, 1, 2)]
    assert other_steps([one.calls for one in ranks]) == [3]


def test_the_spread_of_a_category_names_its_ends() -> None:
    job = _job(_rank(0, [40] * STEPS), _rank(1, [80] * STEPS), _rank(2, [50] * STEPS))
    spread = job.spread[Category.KERNEL]
    assert (spread.low_ns, spread.low_rank, spread.median_ns, spread.high_ns, spread.high_rank) == (40, 0, 50, 80, 1)
    assert job.in_full == (1, 2, 0)


@pytest.mark.parametrize(
    ("arrivals", "late_ns"),
    [((40, 80), 40), ((80, 40), 40), ((30, 50, 80), 40), ((30, 30, 40, 40, 40, 50, 50, 85), 45)],
)
def test_the_last_rank_is_late_by_its_distance_from_the_others(arrivals: tuple[int, ...], late_ns: int) -> None:
    """The last rank is no part of the median that it is compared with: of two ranks, that would halve the delay."""
    job = _job(*(_rank(rank, [arrival] * STEPS) for rank, arrival in enumerate(arrivals)))
    assert {(one.rank, one.late_ns) for one in job.collectives} == {(arrivals.index(max(arrivals)), late_ns)}
    assert {tuple(one.extra_ns.items()) for one in job.collectives} == {((Category.KERNEL, late_ns),)}


def test_the_clock_of_the_late_one_of_two_gpus_is_compared_with_that_of_the_other() -> None:
    """6% lower than the other clock, and 3% lower than the median of both."""
    ranks = [
        replace(_rank(rank, [80 if rank else 40] * STEPS), sm_clock_mhz=clock)
        for rank, clock in ((0, 1400.0), (1, 1316.0))
    ]
    assert next(iter(_job(*ranks).stragglers[0].causes)) is LateCause.CLOCK


def test_the_delays_in_one_step_are_measured_from_the_median_of_the_others() -> None:
    job = _job(*(_rank(rank, [arrival] * STEPS) for rank, arrival in enumerate((30, 40, 50, 85, 40))))
    assert {(one.rank, one.late_ns, one.transfer_ns) for one in job.collectives} == {(3, 45, 5)}
    assert {tuple(one.extra_ns.items()) for one in job.collectives} == {((Category.KERNEL, 45),)}


def test_the_median_of_the_others_is_the_same_in_blocks() -> None:
    values = np.random.default_rng(1).integers(0, 1000, (5, 2 * BLOCK_VALUES // 10 + 3, 2))
    last = np.arange(values.shape[1]) % 5
    expected = [np.median(np.delete(values[:, place], rank, axis=0), axis=0) for place, rank in enumerate(last[:9])]
    found = middle_of_others(values, last)
    assert (found[:9] == expected).all()
    assert (found[-9:] == middle_of_others(values[:, -9:], last[-9:])).all()


@pytest.mark.nightly("traceadvisor/analysis/communication")
def test_the_delays_of_many_ranks_need_little_memory() -> None:
    """All values together are 26 MB; the delays themselves are small."""
    ranks = [_rank(rank, [40 + rank % 7] * 1000) for rank in range(200)]
    matched = matching([one.calls for one in ranks])
    assert matched is not None
    clocks = aligned(matched)
    tracemalloc.start()
    delays = Delays(ranks, matched, clocks)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert delays.extra_ns.any()
    assert most < 20e6
