from dataclasses import replace
from pathlib import Path

import pytest

from tests.analysis.data.loader_stacks import MAKING
from tests.analysis.sampled.sampling import Samples
from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.run import TimedBatch
from traceadvisor.model.samples import SampledFrame
from traceadvisor.rules.data.data002_synchronous_loader import SynchronousLoader
from traceadvisor.rules.data.data017_native_threads import NativeThreads
from traceadvisor.rules.data.loading_limit import WITHOUT_WORKERS, Limit

MS = 1_000_000


def _captured(
    folder: Path,
    *,
    threads_ms: int = 100,
    worker: int | None = None,
    cores: int = 8,
    pool: str = "OpenBLAS",
    called: str = "",
) -> Captured:
    """Batches of 100 ms of CPU time in the loading thread, and so much in other threads; the rest takes 5 ms."""
    iterator = "_SingleProcessDataLoaderIter" if worker is None else "_MultiProcessingDataLoaderIter"
    builder = TraceBuilder().step(0, 0, 105_000).loader(0, 100_000, kind=iterator).op("aten::mm", 100_000, 105_000)
    for at in range(0, 100_000, 10_000) if called else ():
        builder.op(called, at, at + 100)
    batches = tuple(
        TimedBatch(worker, 10**18 + n, 100 * MS, 100 * MS, 0, 0, 0, (100 + threads_ms) * MS, threads_ms * MS)
        for n in range(40)
    )
    captured = Captured(builder, folder).with_loader(worker_count=0 if worker is None else 1, collates=True)
    captured.with_steps([100_000.0] * 40, step_us=5_000)
    return captured.with_run(batches=batches).with_settings(cpu_count=cores, torch_threads=1, thread_pools=(pool,))


def test_cpu_time_of_native_threads_is_found(tmp_path: Path) -> None:
    found = _captured(tmp_path, worker=0).finding(NativeThreads())
    assert evidence(found, "CPU time of native threads per batch") == 100 * MS
    assert evidence(found, "libraries with threads of their own") == "OpenBLAS"
    assert found.fix.change is not None
    assert 'os.environ["OPENBLAS_NUM_THREADS"] = "1"' in found.fix.change
    assert found.saving.low_ns == 0  # how much of this CPU time is busy waiting is unknown


@pytest.mark.parametrize(("threads_ms", "found"), [(24, False), (26, True)])
def test_native_threads_count_from_a_fifth_of_a_batch(threads_ms: int, tmp_path: Path, *, found: bool) -> None:
    # A batch takes the CPU time of all threads: 26 ms are a fifth of 126.
    assert _captured(tmp_path, threads_ms=threads_ms, worker=0).is_found(NativeThreads()) is found


def test_threads_of_torchs_operators_are_not_native_ones(tmp_path: Path) -> None:
    captured = _captured(tmp_path, threads_ms=100).with_settings(torch_threads=8)
    assert captured.clear(NativeThreads()).value == 0  # seven more may spin for 20 ms each


@pytest.mark.parametrize(("name", "found"), [("aten::copy_", False), ("aten::permute", True)])
def test_threads_that_each_operator_of_a_batch_wakes_spin_until_the_next(
    name: str, tmp_path: Path, *, found: bool
) -> None:
    """A view wakes none: then threads of torch spin only after the step before."""
    captured = _captured(tmp_path, threads_ms=90, called=name).with_settings(torch_threads=2)
    assert captured.is_found(NativeThreads()) is found


def _captured_on_two_cores(folder: Path, pool: str, batch: TimedBatch, step_us: int) -> Captured:
    """Batches that end with an operator, as collating does, and steps that take so long beside them."""
    builder, load_us = TraceBuilder(), batch.duration_ns // 1000
    for n in range(5):
        start_us = n * (load_us + step_us)
        end_us = start_us + load_us
        builder.step(n, start_us, end_us + step_us).loader(start_us, end_us, kind="_SingleProcessDataLoaderIter")
        builder.op("aten::cat", end_us - 100, end_us).op("aten::mm", end_us, end_us + step_us)
    captured = Captured(builder, folder).with_loader(worker_count=0, collates=True)
    captured.with_steps([float(load_us)] * 40, step_us=step_us)
    captured.with_run(batches=tuple(replace(batch, start_ns=10**18 + n) for n in range(40)))
    return captured.with_settings(cpu_count=2, torch_threads=2, thread_pools=(pool,))


def test_threads_that_spin_beyond_the_batch_are_those_of_the_step(tmp_path: Path) -> None:
    batch = TimedBatch(None, 10**18, 40 * MS, 40 * MS, 0, 0, 0, 77 * MS, 37 * MS)
    assert _captured_on_two_cores(tmp_path, "OpenBLAS", batch, 1000).is_found(NativeThreads())


def test_workers_are_proposed_with_one_thread_each_and_as_many_as_have_cores(tmp_path: Path) -> None:
    found = _captured(tmp_path, cores=3).finding(SynchronousLoader())
    assert found.fix.change is not None
    assert "OPENBLAS_NUM_THREADS" in found.fix.change
    assert found.fix.settings == {"num_workers": 3, "persistent_workers": True, "native_threads": 1}
    # A worker takes the CPU time of both threads, 214 ms: three make a batch in 71 instead of 100.
    assert found.saving.expected_ns < 35 * MS


def test_where_the_threads_use_all_cores_the_saving_of_workers_is_an_upper_limit(tmp_path: Path) -> None:
    found = _captured(tmp_path, cores=2).finding(SynchronousLoader())
    assert found.saving.low_ns == 0
    assert found.fix.caveats


def test_tokenising_is_done_once(tmp_path: Path) -> None:
    samples = Samples().add(30, *MAKING, SampledFrame("encode_batch"), is_fetching=True, is_beside=True).build()
    captured = _captured(tmp_path, pool="tokenizers").with_run(stacks=samples)
    batch = TimedBatch(None, 10**18, 100 * MS, 2 * MS, 0, 0, 0, 90 * MS, 88 * MS)
    captured.with_run(batches=tuple(replace(batch, start_ns=10**18 + n) for n in range(40)))
    found = captured.finding(NativeThreads())
    assert found.fix.summary == "Tokenise once before the training, and store the token ids"
    assert evidence(found, "share of a batch waiting for these threads") == pytest.approx(0.98)


def test_beside_free_cores_workers_are_proposed_for_a_small_share_too(tmp_path: Path) -> None:
    batch = TimedBatch(None, 10**18, 9 * MS, 5 * MS, 0, 0, 0, 35 * MS, 30 * MS)
    captured = _captured_on_two_cores(tmp_path, "tokenizers", batch, 91_000).with_settings(cpu_count=16)
    assert captured.facts().worker_curve.cost.has_threads  # type: ignore[union-attr]  # it is timed
    assert captured.finding(SynchronousLoader()).fix.settings["num_workers"] == 1


@pytest.mark.parametrize(("cores", "found"), [(1.5, True), (1.98, False)])
def test_a_training_that_uses_all_cores_leaves_none_for_a_worker(cores: float, tmp_path: Path, *, found: bool) -> None:
    """As one whose operators have two threads, on two cores: with one worker, its steps took 25% longer."""
    batch = TimedBatch(None, 10**18, 22 * MS, 20 * MS, 0, 0, 0, 43 * MS, 20 * MS)
    captured = _captured_on_two_cores(tmp_path, "", batch, 24_000).with_processes(mean_cpu_cores=cores)
    assert captured.is_found(SynchronousLoader()) is found


def test_threads_that_sleep_between_two_calls_do_work_that_a_worker_has_no_core_for(tmp_path: Path) -> None:
    """`../shared/reports/tokenise_in_collate` on two cores: one worker with one thread took 30% longer."""
    samples = Samples().add(30, *MAKING, SampledFrame("encode_batch"), is_fetching=True, is_beside=True).build()
    batch = TimedBatch(None, 10**18, 8 * MS, 1 * MS, 0, 0, 0, 16 * MS, 15 * MS)
    captured = _captured_on_two_cores(tmp_path, "tokenizers", batch, 8000).with_run(stacks=samples)
    captured.with_processes(mean_cpu_cores=2.0)  # the step uses both cores, too
    assert captured.clear(SynchronousLoader()).remark == WITHOUT_WORKERS[Limit.THREADS]


def test_cpu_time_that_spinning_could_explain_is_native_where_samples_show_it(tmp_path: Path) -> None:
    # 15 ms of CPU time in other threads may be torch's that spin, but the loading thread waits for tokenizers.
    samples = Samples().add(30, *MAKING, SampledFrame("encode_batch"), is_fetching=True, is_beside=True).build()
    captured = _captured(tmp_path, pool="tokenizers").with_run(stacks=samples).with_settings(torch_threads=2)
    batch = TimedBatch(None, 10**18, 20 * MS, 2 * MS, 0, 0, 0, 17 * MS, 15 * MS)
    captured.with_run(batches=tuple(replace(batch, start_ns=10**18 + n) for n in range(40)))
    assert captured.is_found(NativeThreads())


def test_without_a_capture_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 50)
    assert "traceadvisor capture" in skipped(NativeThreads(), builder, tmp_path)
