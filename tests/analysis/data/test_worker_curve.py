"""Waits by number of workers, against an independent simulation of the loader and against figures by eye."""

import heapq
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceadvisor.analysis.data.batch_cost import BatchCost, CostSource
from traceadvisor.analysis.data.worker_curve import (
    HIDDEN_SHARE,
    LONGEST_PREFETCH,
    MOST_WORKERS,
    Crowding,
    Loop,
    WorkerCurve,
    mean_wait_ns,
)

MS = 1e6


def _cost(cpu_ms: float, wait_ms: float = 0, *, slow_ms: float = 0, every: int = 40) -> BatchCost:
    """Equal batches; every so many of them wait longer."""
    waits = np.full(5 * every, wait_ms * MS)
    waits[every // 2 :: every] += slow_ms * MS
    return BatchCost(CostSource.CLOCKS, np.full(5 * every, cpu_ms * MS), waits)


def _curve(cost: BatchCost, rest_ms: float, cores: float | None = None, **loop: float) -> WorkerCurve:
    return WorkerCurve(cost, Loop(rest_ms * MS, cores=cores, **loop))  # type: ignore[arg-type]


def _by_events(durations: list[float], rest: float, workers: int, prefetch: int, skipped: int) -> float:
    """The mean wait of a loop, by an event queue: workers with queues of their own, and batches taken in order."""
    queues: list[deque[int]] = [deque() for _ in range(workers)]
    made: set[int] = set()
    events: list[tuple[float, int, int]] = []  # time, worker, batch
    busy = [False] * workers
    sent, waits, now = 0, [], 0.0

    def send(time: float) -> None:
        nonlocal sent
        if sent < len(durations):
            queues[sent % workers].append(sent)
            sent += 1
            begin((sent - 1) % workers, time)

    def begin(worker: int, time: float) -> None:
        if not busy[worker] and queues[worker]:
            busy[worker] = True
            batch = queues[worker].popleft()
            heapq.heappush(events, (time + durations[batch], worker, batch))

    for _ in range(workers * prefetch):
        send(0.0)
    for batch in range(len(durations)):
        asked = now
        while batch not in made or (events and events[0][0] <= now):
            time, worker, done = heapq.heappop(events)
            made.add(done)
            busy[worker] = False
            begin(worker, time)
            if done == batch:
                now = max(now, time)
        waits.append(now - asked)
        send(now)
        now += rest
    return sum(waits[skipped:]) / len(waits[skipped:])


@given(
    st.lists(st.integers(1, 50), min_size=200, max_size=200),
    st.integers(1, 30),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_waits_are_those_of_an_event_queue(durations: list[int], rest: int, workers: int, prefetch: int) -> None:
    whole = -(-200 // workers) * workers
    settling = 2 * workers * prefetch
    tiled = [float(durations[number % 200]) for number in range(settling + whole)]
    expected = _by_events(tiled, rest, workers, prefetch, settling)
    assert mean_wait_ns(np.array(durations, dtype=float), rest, workers, prefetch) == pytest.approx(expected)


@pytest.mark.parametrize(("workers", "wait_ms"), [(0, 60), (1, 50), (2, 20), (4, 5), (6, 0), (8, 0)])
def test_waiting_is_divided_among_the_workers(workers: int, wait_ms: float) -> None:
    # A batch takes 60 ms, the rest of the step 10: one batch every 60, 30, 15 and 10 ms.
    for cores in (1, 2, 64, None):
        assert _curve(_cost(0, 60), 10, cores).at(workers).wait_ns == pytest.approx(wait_ms * MS)


def test_the_fewest_workers_that_hide_the_wait_are_proposed_and_no_prefetching() -> None:
    curve = _curve(_cost(0, 60), 10)
    assert curve.best().workers == 6
    assert curve.at(5).wait_share > HIDDEN_SHARE
    assert _curve(_cost(0, 60), 60).best().workers == 1
    assert curve.at(2, 2).wait_ns == pytest.approx(curve.at(2, 64).wait_ns)
    assert curve.shortest_prefetch(2) is None


@pytest.mark.parametrize(("rest_ms", "workers"), [(98.1, 1), (97.9, 2)])
def test_a_wait_under_two_percent_of_the_step_is_hidden(rest_ms: float, workers: int) -> None:
    assert _curve(_cost(100), rest_ms).best().workers == workers


@pytest.mark.parametrize(
    ("cores", "workers", "step_ms"),
    [(1, 1, 120), (2, 2, 60), (3, 3, 40), (4, 4, 30), (5, 5, 24), (6, 5, 20), (64, 5, 20), (None, 5, 20)],
)
def test_computing_is_limited_by_the_cores(cores: float | None, workers: int, step_ms: float) -> None:
    # 100 ms of CPU time per batch and 20 ms of training: a step takes at least 120 ms over the cores.
    point = _curve(_cost(100), 20, cores).best()
    assert point.workers == workers
    assert point.step_ns == pytest.approx(step_ms * MS, rel=0.02)


def test_training_on_several_cores_leaves_fewer_for_workers() -> None:
    alone, both = (_curve(_cost(30), 30, 2, training_cores=cores) for cores in (1, 2))
    assert alone.at(1).step_ns == pytest.approx(30 * MS)
    assert both.at(1).step_ns == pytest.approx(45 * MS)


def test_in_the_worst_case_all_processes_compute_at_once() -> None:
    curve = _curve(_cost(79), 107, 2)
    assert curve.at(2, crowding=Crowding.NONE).step_ns == pytest.approx(107 * MS)
    assert curve.at(2).step_ns == pytest.approx(107 * MS)
    assert curve.at(2, crowding=Crowding.WORST).step_ns == pytest.approx(107 * 1.5 * MS)


def test_waiting_workers_never_compete() -> None:
    curve = _curve(_cost(0, 60), 10, 1)
    assert curve.at(8, crowding=Crowding.WORST) == curve.at(8, crowding=Crowding.NONE)


def test_a_longer_queue_bridges_rare_pauses_of_a_loader_that_is_fast_enough() -> None:
    # Two workers take 2 ms for a batch, one in 40 takes 300 more; the loop takes 20 ms for each.
    curve = _curve(_cost(0, 2, slow_ms=300), 20)
    prefetch = curve.shortest_prefetch(2)
    assert prefetch is not None
    assert not curve.at(2).is_hidden
    assert curve.at(2, prefetch).is_hidden
    assert not curve.at(2, prefetch - 1).is_hidden
    assert 300 / 20 / 2 <= prefetch <= 300 / 20


def test_for_very_unequal_batches_a_longer_queue_is_preferred_to_many_workers() -> None:
    curve = _curve(_cost(0, 2, slow_ms=300), 20)
    assert curve.fewest().workers > 4
    point = curve.best()
    assert (point.workers, point.is_hidden) == (1, True)
    assert 2 < point.prefetch <= LONGEST_PREFETCH


def test_for_slightly_unequal_batches_workers_suffice() -> None:
    point = _curve(_cost(0, 50, slow_ms=30), 10).best()
    assert (point.is_hidden, point.prefetch) == (True, 2)
    assert 5 <= point.workers <= 10


def test_several_batches_per_step_need_as_many_times_the_workers() -> None:
    assert _curve(_cost(0, 30), 30, fetches=4).best().workers == 4


def test_a_worker_may_take_longer_than_the_training_process_did() -> None:
    assert _curve(_cost(60), 20).best().workers == 3
    assert _curve(_cost(60), 20, worker_factor=1.07).best().workers == 4
    assert _curve(_cost(0, 60), 20, worker_factor=1.07).best().workers == 3


@given(st.floats(0, 200), st.floats(0, 2000), st.floats(0.01, 200), st.sampled_from([None, 1, 1.5, 2, 8, 64]))
def test_the_best_setting_is_possible_and_no_worse_than_one_worker(
    cpu_ms: float, wait_ms: float, rest_ms: float, cores: float | None
) -> None:
    curve = _curve(_cost(cpu_ms, wait_ms), rest_ms, cores)
    point = curve.best()
    assert 1 <= point.workers <= MOST_WORKERS
    assert point.step_ns <= curve.at(1).step_ns * (1 + HIDDEN_SHARE) + 1
    assert point.step_ns >= rest_ms * MS * (1 - 1e-9)
