import pytest

from tests.analysis.data.loader_stacks import (
    ASLEEP,
    FIRST_INDICES,
    IN_LOCK,
    MAKING,
    PINNING,
    QUEUE,
    RECEIVING,
    SAMPLER,
    STARTING,
    STOPPING,
    WAITING,
)
from tests.analysis.sampled.sampling import Samples
from traceadvisor.analysis.data.loader_time import loader_time, shared_out
from traceadvisor.analysis.sampled.loader_frames import part_of
from traceadvisor.model.loader_time import LoaderPart, LoaderTime, MakerPart, MakerTime
from traceadvisor.model.run import LoaderLoops, LoaderSettings, Run, RunSettings, StepState, TimedBatch, TimedStep
from traceadvisor.model.samples import SampledFrame, StackSamples

MS = 1_000_000


def _run(
    *batches: TimedBatch,
    stacks: StackSamples | None = None,
    workers: int = 2,
    loader_stacks: StackSamples | None = None,
    start_ms: int = 0,
    **settings: object,
) -> Run:
    """Ten steps of 30 ms, of which 10 are in the loader; the last begins a loop."""
    steps = tuple(
        TimedStep(number, number * 30 * MS, 30 * MS, 10 * MS, 1, StepState.PLAIN, start_ms * MS if number == 10 else 0)
        for number in range(1, 11)
    )
    found = RunSettings(loader=LoaderSettings(worker_count=workers), **settings)  # type: ignore[arg-type]
    return Run((), "ended", steps, found, None, batches=batches, stacks=stacks, loader_stacks=loader_stacks)


def _batch(at_ms: int, *, spent: int, cpu: int, worker: int | None = 0, core: int = 0, process: int = 0) -> TimedBatch:
    return TimedBatch(worker, at_ms * MS, spent * MS, cpu * MS, None, None, core * MS, (process or cpu) * MS)


def _of(run: Run, operator_share: float = 0.0) -> LoaderTime:
    found = loader_time(run, operator_share=operator_share)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("frames", "part"),
    [
        (SAMPLER, LoaderPart.SAMPLER),
        (MAKING, LoaderPart.MAKING),
        (WAITING, LoaderPart.WAITING),
        (RECEIVING, LoaderPart.RECEIVING),
        (PINNING, LoaderPart.PINNING),
        (QUEUE, LoaderPart.QUEUE),
        (STOPPING, LoaderPart.START),
        (STARTING, LoaderPart.START),
        (FIRST_INDICES, LoaderPart.SAMPLER),
    ],
)
def test_frames_below_the_loader_tell_the_part(frames: tuple[SampledFrame, ...], part: LoaderPart) -> None:
    assert part_of(frames) is part


def test_samples_split_the_timed_total_exactly() -> None:
    samples = Samples().add(20, *SAMPLER, is_fetching=True).add(10, *WAITING, is_fetching=True).build()
    found = _of(_run(stacks=samples))
    assert found.total_ns == 100 * MS
    assert sum(found.parts_ns.values()) == found.total_ns
    assert found.parts_ns[LoaderPart.SAMPLER] == pytest.approx(100 * MS * 2 / 3, abs=1)
    assert found.sample_count == 30


@pytest.mark.parametrize(("workers", "part"), [(0, LoaderPart.MAKING), (2, LoaderPart.WAITING)])
def test_with_too_few_samples_the_kind_of_loader_tells(workers: int, part: LoaderPart) -> None:
    samples = Samples().add(11, *SAMPLER, is_fetching=True).build()
    found = _of(_run(stacks=samples, workers=workers))
    assert (found.parts_ns, found.sample_count) == ({part: 100 * MS}, 0)


def test_the_start_of_a_loop_is_split_by_clock_reads() -> None:
    loops = LoaderLoops(2, False, True, 4, 40 * MS, 30 * MS, 10 * MS, 0, 0)  # noqa: FBT003  # as its fields
    found = _of(_run(start_ms=8, loops=(loops,)))
    assert found.start_parts_ns == {LoaderPart.SAMPLER: 6 * MS, LoaderPart.START: 2 * MS}


def test_the_start_of_a_loop_of_an_older_capture_is_split_by_samples() -> None:
    samples = Samples().add(9, *FIRST_INDICES, state=None).add(3, *STARTING, state=None).build()
    found = _of(_run(start_ms=8, stacks=samples))
    assert found.start_parts_ns == {LoaderPart.SAMPLER: 6 * MS, LoaderPart.START: 2 * MS}


def test_the_time_of_a_worker_is_split_exactly() -> None:
    found = _of(_run(_batch(0, spent=10, cpu=4, core=1), _batch(20, spent=10, cpu=4, core=1)))
    (maker,) = found.makers
    assert maker.total_ns == 30 * MS
    assert maker.parts_ns == {
        MakerPart.COMPUTING: 8 * MS,
        MakerPart.CORE: 2 * MS,
        MakerPart.WAITING: 10 * MS,
        MakerPart.IDLE: 10 * MS,
    }


def test_samples_tell_locks_from_other_waits() -> None:
    samples = Samples().add(30, *IN_LOCK, is_fetching=True, is_waiting=True)
    samples.add(10, *ASLEEP, is_fetching=True, is_waiting=True)
    found = _of(_run(_batch(0, spent=10, cpu=2), loader_stacks=samples.build()))
    assert found.makers[0].parts_ns[MakerPart.LOCK] == 6 * MS
    assert found.makers[0].parts_ns[MakerPart.WAITING] == 2 * MS
    assert found.maker_share(MakerPart.LOCK) == 0.6


def test_a_wait_beside_native_threads_that_compute_is_theirs() -> None:
    samples = Samples().add(20, *MAKING, SampledFrame("encode_batch"), is_fetching=True, is_beside=True).build()
    batch = _batch(0, spent=50, cpu=10, worker=None, process=80)
    found = _of(_run(batch, stacks=samples, workers=0, torch_threads=2, thread_pools=("tokenizers",)))
    assert found.makers[0].parts_ns == {MakerPart.COMPUTING: 10 * MS, MakerPart.THREADS: 40 * MS}


def test_threads_of_operators_spin_for_a_while() -> None:
    # Of 40 ms of waiting, 20 of the 50 ms of a batch may be beside threads of torch that spin: 16 ms.
    samples = Samples().add(20, *MAKING, SampledFrame("sleep"), is_fetching=True, is_beside=True).build()
    batch = _batch(0, spent=50, cpu=10, worker=None, process=80)
    found = _of(_run(batch, stacks=samples, workers=0, torch_threads=2))
    assert found.makers[0].parts_ns[MakerPart.WAITING] == 16 * MS
    assert found.makers[0].threads_cpu_ns == 50 * MS  # 70 ms without these 20


def test_the_first_batch_of_a_loop_counts_apart_as_far_as_it_takes_longer() -> None:
    batches = [_batch(10 * number, spent=9 if number == 0 else 3, cpu=3) for number in range(5)]
    assert _of(_run(*batches)).makers[0].parts_ns[MakerPart.START] == 6 * MS


def test_parts_that_do_not_sum_to_the_whole_are_refused() -> None:
    with pytest.raises(ValueError, match="do not sum"):
        LoaderTime(1, 10, {LoaderPart.SAMPLER: 9}, 0)
    with pytest.raises(ValueError, match="do not sum"):
        MakerTime(0, 1, 10, {MakerPart.IDLE: 9})


def test_without_undisturbed_steps_nothing_is_split() -> None:
    assert loader_time(Run((), "ended", (), RunSettings(), None)) is None


def test_shares_of_a_time_sum_to_it() -> None:
    assert shared_out(100, {"a": 1, "b": 1, "c": 1}) == {"a": 34, "b": 33, "c": 33}
    assert shared_out(100, {}) == {}
