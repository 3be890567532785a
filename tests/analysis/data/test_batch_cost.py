import pytest

from traceadvisor.analysis.data.batch_cost import (
    FEWEST_BATCHES,
    BatchCost,
    OwnThreads,
    cost_by_clocks,
    cost_by_loader_time,
    cost_by_samples,
)
from traceadvisor.model.run import TimedBatch
from traceadvisor.model.spans import SpanSet

ALWAYS = SpanSet.of((0, 10**9))


def _batch(  # a batch has these figures
    fetch: int = 100,
    cpu: int = 30,
    *,
    collate: int | None = 0,
    no_core: int | None = 0,
    process: int | None = None,
    worker: int | None = 0,  # None: the training process
    start: int = 0,
) -> TimedBatch:
    used = cpu + (collate or 0) if process is None else process
    return TimedBatch(worker, start, fetch, cpu, collate, collate, no_core, used)


def _cost(
    *batches: TimedBatch, undisturbed: SpanSet = ALWAYS, core_is_free: bool = True, threads: int = 1
) -> BatchCost:
    found = cost_by_clocks(batches, undisturbed, core_is_free=core_is_free, threads=threads)
    assert found is not None
    return found


def test_waiting_is_the_time_without_cpu_time_and_without_the_wait_for_a_core() -> None:
    cost = _cost(_batch(100, 30, no_core=20))
    assert (cost.mean_cpu_ns, cost.mean_wait_ns, cost.core_wait_ns) == (30, 50, 20)
    assert cost.is_waiting


def test_computing_in_other_threads_is_no_waiting() -> None:
    cost = _cost(_batch(100, 5, process=90))
    assert (cost.mean_cpu_ns, cost.mean_wait_ns) == (90, 10)
    assert not cost.is_waiting


def test_threads_that_compute_at_once_take_more_time_in_a_worker() -> None:
    assert _cost(_batch(100, 90, process=180)).mean_ns == 180


def test_threads_beside_a_loading_training_thread_are_no_cost_of_a_worker() -> None:
    cost = _cost(_batch(100, 90, process=1300, worker=None), threads=16)
    assert (cost.mean_cpu_ns, cost.mean_wait_ns, cost.beside_ns) == (90, 10, 1210)
    assert _cost(_batch(100, 5, process=80, worker=None), threads=16).is_waiting


def test_other_threads_of_a_loading_training_process_load_too() -> None:
    """Operators use two threads, so at most 10 of 800 are theirs: a pool of threads makes the batch."""
    cost = _cost(_batch(100, 5, process=800, worker=None), threads=2)
    assert (cost.mean_cpu_ns, cost.mean_wait_ns) == (100, 0)


def test_threads_beside_few_batches_are_not_native_ones() -> None:
    """The profiler starts beside one batch: its CPU time is no part of what batches cost."""
    usual = [_batch(100, 90, process=91, worker=None) for _ in range(FEWEST_BATCHES)]
    beside = _batch(100, 90, process=5_000, worker=None)
    cost = cost_by_clocks([*usual, beside], ALWAYS, core_is_free=True, own_threads=OwnThreads(spin_ns=0))
    every = cost_by_clocks([beside] * FEWEST_BATCHES, ALWAYS, core_is_free=True, own_threads=OwnThreads(spin_ns=0))
    assert cost
    assert every
    assert (cost.native_ns, cost.has_threads) == (0.0, False)
    assert every.has_threads


@pytest.mark.parametrize("threads", [1, 2, 64])
@pytest.mark.parametrize("process", [50, 500, 50_000])
@pytest.mark.parametrize("cpu", [0, 50, 100])
def test_a_batch_of_the_training_process_takes_its_time_on_the_wall(cpu: int, process: int, threads: int) -> None:
    assert _cost(_batch(100, cpu, process=process, worker=None), threads=threads).mean_ns == 100


@pytest.mark.parametrize(("cpu", "is_waiting"), [(49, True), (50, True), (51, False)])
def test_loading_waits_from_half_of_its_time(cpu: int, *, is_waiting: bool) -> None:
    assert _cost(_batch(100, cpu)).is_waiting is is_waiting


def test_on_busy_cores_without_the_schedulers_figures_waiting_is_unknown() -> None:
    cost = _cost(_batch(100, 30, no_core=None), core_is_free=False)
    assert (cost.is_split, cost.mean_cpu_ns, cost.mean_wait_ns, cost.cpu_share) == (False, 100, 0, 1)
    assert _cost(_batch(100, 30, no_core=None), core_is_free=True).is_split
    assert _cost(_batch(100, 30, no_core=0), core_is_free=False).is_split
    assert _cost(_batch(100, 80, no_core=None), core_is_free=False).is_split, "mostly CPU time in any case"


def test_batches_of_undisturbed_steps_count_if_there_are_enough() -> None:
    early = [_batch(900, start=number) for number in range(5)]
    late = [_batch(100, start=1000 + number) for number in range(FEWEST_BATCHES)]
    assert _cost(*early, *late, undisturbed=SpanSet.of((1000, 2000))).mean_ns == 100
    assert _cost(*early, *late[1:], undisturbed=SpanSet.of((1000, 2000))).mean_ns > 100
    assert _cost(*early, undisturbed=SpanSet.empty()).mean_ns == 900


def test_the_share_of_collating_is_one_of_cpu_time() -> None:
    assert _cost(_batch(100, 30, collate=10)).collate_share == 0.25
    assert _cost(_batch(100, 30, collate=None)).collate_share is None
    assert _cost(_batch(100, 0)).collate_share is None


def test_workers_are_listed_longest_first() -> None:
    cost = _cost(_batch(100, worker=0), _batch(300, worker=1), _batch(100, worker=0), _batch(9000, worker=0))
    assert cost.by_worker_ns == (300, 100)
    assert _cost(_batch(worker=None)).by_worker_ns == ()


def test_without_batches_there_is_no_cost() -> None:
    assert cost_by_clocks((), ALWAYS, core_is_free=True) is None


def test_samples_of_workers_that_are_always_at_work_show_their_waiting() -> None:
    cost = cost_by_samples(pace_ns=50, workers=4, busy_cores=0.4)
    assert (cost.mean_cpu_ns, cost.mean_wait_ns, cost.is_waiting) == (20, 180, True)
    assert not cost_by_samples(50, 4, 4).is_waiting


@pytest.mark.parametrize(("most_cpu", "is_split"), [(None, False), (51, False), (50, True), (10, True)])
def test_time_in_the_loader_is_split_only_if_the_process_was_idle(most_cpu: float | None, *, is_split: bool) -> None:
    cost = cost_by_loader_time(100, most_cpu)
    assert (cost.mean_ns, cost.is_split, cost.is_waiting) == (100, is_split, is_split)


def test_equal_batches_have_the_same_means() -> None:
    cost = _cost(_batch(100, 30), _batch(300, 50))
    assert (cost.even().mean_cpu_ns, cost.even().mean_wait_ns) == (cost.mean_cpu_ns, cost.mean_wait_ns)
    assert cost.even().cpu_ns.size == 1


def test_the_usual_batch_is_the_median_one() -> None:
    usual = _cost(_batch(100, 30), _batch(9000, 50), _batch(120, 40)).usual()
    assert (usual.mean_cpu_ns, usual.mean_wait_ns) == (40, 80)
