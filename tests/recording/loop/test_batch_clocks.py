"""Clock reads around the loading of real batches: what they show, and that the training does not see them."""

import hashlib
import itertools
import multiprocessing
import os
import pickle
import random
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data._utils import fetch, worker
from torch.utils.data.dataloader import _BaseDataLoaderIter, _SingleProcessDataLoaderIter

from tests.few import few
from traceadvisor.bundle.batches import read_batches
from traceadvisor.bundle.layout import Schedule
from traceadvisor.bundle.settings import decode_settings
from traceadvisor.bundle.stacks import read_stacks
from traceadvisor.model.run import StepState, TimedBatch
from traceadvisor.model.samples import StackSamples
from traceadvisor.recording.capture import Capture
from traceadvisor.recording.loop import worker_clocks
from traceadvisor.recording.loop.batch_clocks import ALL_BATCHES, SHORT_NS
from traceadvisor.recording.loop.worker_clocks import BatchClock, CoreWait, arrived
from traceadvisor.recording.options import CaptureOptions

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
NIGHTLY = pytest.mark.nightly("traceadvisor/recording")

NEVER = Schedule(skip_first=10**6, wait=0, warmup=1, active=8, repeat=1)
MS = 1_000_000


class Slow(Dataset[torch.Tensor]):
    """Samples that sleep, compute, or fail."""

    def __init__(self, count: int = 12, *, sleep_ms: float = 0, burn_ms: float = 0, broken: int | None = None) -> None:
        self.count, self.sleep_ms, self.burn_ms, self.broken = count, sleep_ms, burn_ms, broken

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.broken:
            raise KeyError("a broken sample")
        time.sleep(self.sleep_ms / 1000)
        burn(self.burn_ms)
        return torch.tensor([float(index), random.random()])


class Batched(Slow):
    """Gives all samples of a batch at once."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [self[index] for index in indices]


class Stream(IterableDataset[torch.Tensor]):
    """Samples in turn; each worker gives all of them."""

    def __init__(self, sleep_ms: float) -> None:
        self.sleep_ms = sleep_ms

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(6):
            time.sleep(self.sleep_ms / 1000)
            yield torch.tensor(float(number))


class Behind(IterableDataset[torch.Tensor]):
    """A stream that a thread computes in the background."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(6):
            thread = threading.Thread(target=burn, args=(10,))
            thread.start()
            thread.join()
            yield torch.tensor(float(number))


def burn(ms: float) -> None:
    """Compute for some CPU time of this thread."""
    until = time.thread_time_ns() + ms * MS
    while time.thread_time_ns() < until:
        pass


def slow_collate(samples: list[torch.Tensor]) -> torch.Tensor:
    burn(8)
    return torch.stack(samples)


def set_seed(number: int) -> None:
    random.seed(100 + number)


def train(loader: DataLoader[Any], epochs: int = 1) -> list[Any]:
    """Use all batches, and return them."""
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    taken = []
    for _ in range(epochs):
        for batch in loader:
            optimizer.step()
            taken.append(batch)
    return taken


@contextmanager
def captured(folder: Path) -> Iterator[None]:
    with Capture(CaptureOptions(NEVER, folder=folder / "bundle")):
        yield


def timed(folder: Path, dataset: Dataset[Any], epochs: int = 1, **arguments: Any) -> tuple[TimedBatch, ...]:
    """Train in a capture, and return the batches that it timed."""
    with captured(folder):
        train(DataLoader(dataset, **{"batch_size": 2, **arguments}), epochs)
    batches, notes = read_batches(folder / "bundle" / "batches.0.csv")
    assert notes == ()
    return batches


def least_ms(batches: tuple[TimedBatch, ...], field: str) -> float:
    """The time of the fastest batch: a busy machine delays some, seldom all."""
    return min(getattr(batch, field) or 0 for batch in batches) / MS


def mean_ms(batches: tuple[TimedBatch, ...], field: str) -> float:
    return sum(getattr(batch, field) or 0 for batch in batches) / len(batches) / MS


# -- what they show ----------------------------------------------------------------------------------------------------


def test_of_many_short_batches_only_some_are_timed(tmp_path: Path) -> None:
    batches = timed(tmp_path, Slow(1000), batch_size=1)
    assert ALL_BATCHES <= len(batches) < 1000
    later = batches[ALL_BATCHES:]
    assert all(after.start_ns - before.start_ns >= SHORT_NS for before, after in itertools.pairwise(later))


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_waiting_takes_time_but_no_cpu_time(workers: int, tmp_path: Path) -> None:
    batches = timed(tmp_path, Slow(16, sleep_ms=10), num_workers=workers)
    assert len(batches) == 8
    assert 20 <= least_ms(batches, "fetch_ns") < 400
    assert least_ms(batches, "fetch_cpu_ns") < 5
    assert {batch.worker for batch in batches} == ({None} if workers == 0 else set(range(workers)))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_computing_is_cpu_time_of_the_thread_and_of_the_process(workers: int, tmp_path: Path) -> None:
    batches = timed(tmp_path, Slow(burn_ms=10), num_workers=workers)
    assert 20 <= least_ms(batches, "fetch_cpu_ns") < 24
    assert mean_ms(batches, "process_cpu_ns") >= 20


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [Slow(burn_ms=1), Batched(burn_ms=1)], ids=["samples", "batches"])
def test_collating_is_separated_from_fetching(dataset: Slow, workers: int, tmp_path: Path) -> None:
    batches = timed(tmp_path, dataset, num_workers=workers, collate_fn=slow_collate)
    assert 8 <= least_ms(batches, "collate_cpu_ns") < 10
    assert 2 <= least_ms(batches, "fetch_cpu_ns") < 4


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_a_stream_are_timed_without_its_end(workers: int, tmp_path: Path) -> None:
    batches = timed(tmp_path, Stream(5), num_workers=workers)
    assert len(batches) == 3 * max(workers, 1)
    assert 10 <= least_ms(batches, "fetch_ns") < 400


@pytest.mark.parametrize("workers", [0, 1])
def test_single_samples_without_automatic_batches_are_timed(workers: int, tmp_path: Path) -> None:
    batches = timed(tmp_path, Slow(6, sleep_ms=5), num_workers=workers, batch_size=None)
    assert len(batches) == 6
    assert 5 <= least_ms(batches, "fetch_ns") < 200


def test_computing_in_a_background_thread_is_cpu_time_of_the_process(tmp_path: Path) -> None:
    batches = timed(tmp_path, Behind(), num_workers=1)
    assert least_ms(batches, "fetch_cpu_ns") < 5
    assert mean_ms(batches, "process_cpu_ns") >= 20


@pytest.mark.parametrize("persistent", few([True, False], "traceadvisor/recording"))
def test_batches_of_all_epochs_are_timed(persistent: bool, tmp_path: Path) -> None:  # noqa: FBT001
    batches = timed(tmp_path, Slow(), epochs=3, num_workers=2, persistent_workers=persistent)
    assert len(batches) == 3 * 6


@NIGHTLY
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_batches_of_workers_that_were_not_forked_are_timed(method: str, tmp_path: Path) -> None:
    before = time.time_ns()
    batches = timed(tmp_path, Slow(sleep_ms=5), num_workers=2, multiprocessing_context=method)
    assert len(batches) == 6
    assert 10 <= least_ms(batches, "fetch_ns") < 400
    assert {batch.collate_ns is None for batch in batches} == {False}
    starts = [batch.start_ns for batch in batches]
    assert before - MS <= min(starts) <= max(starts) <= time.time_ns() + MS, "on the wall clock"


def test_only_batches_of_the_training_loader_are_written(tmp_path: Path) -> None:
    with captured(tmp_path):
        train(DataLoader(Slow(), batch_size=2, num_workers=1))
        for _ in DataLoader(Slow(40), batch_size=2, num_workers=2):
            pass
    batches, _ = read_batches(tmp_path / "bundle" / "batches.0.csv")
    assert len(batches) == 6


def test_a_loader_inside_a_data_set_does_not_count_as_collating(tmp_path: Path) -> None:
    class Nested(Slow):
        def __getitem__(self, index: int) -> torch.Tensor:
            (sample,) = DataLoader(Slow(1))
            burn(5)
            return torch.as_tensor(sample)

    for workers in (0, 1):
        batches = timed(tmp_path / str(workers), Nested(), num_workers=workers)
        assert mean_ms(batches, "fetch_cpu_ns") >= 10
        assert least_ms(batches, "collate_cpu_ns") < 2


# -- what the training sees --------------------------------------------------------------------------------------------


SPAWNING = {"num_workers": 1, "multiprocessing_context": "spawn"}
"""Loads torch four times."""

LOADERS: list[dict[str, Any]] = [
    {"num_workers": 0},
    {"num_workers": 2},
    {"num_workers": 2, "worker_init_fn": set_seed},
    {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 4},
    {"num_workers": 2, "batch_sampler": [[3, 1], [2], [0, 5, 4]]},
    {"num_workers": 2, "batch_size": None},
    {"num_workers": 2, "in_order": False, "batch_size": 12},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [*LOADERS[:2], *(pytest.param(one, marks=NIGHTLY) for one in (*LOADERS[2:], SPAWNING))],
    ids=lambda one: "-".join(map(str, one)),
)
def test_batches_and_random_numbers_are_the_same_as_without_a_capture(
    arguments: dict[str, Any], tmp_path: Path
) -> None:
    results = []
    for folder in (None, tmp_path):
        random.seed(1)
        torch.manual_seed(2)
        size: dict[str, Any] = {} if {"batch_sampler", "batch_size"} & arguments.keys() else {"batch_size": 5}
        loader = DataLoader(Slow(), **size, **arguments)
        if folder:
            with captured(folder):
                taken = train(loader, epochs=2)
        else:
            taken = train(loader, epochs=2)
        results.append(([batch.tolist() for batch in taken], torch.get_rng_state().tolist()))
        if "worker_init_fn" not in arguments and arguments["num_workers"] == 0:
            results[-1] += (random.getstate(),)  # type: ignore[assignment]
    assert results[0] == results[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_in_a_data_set_has_the_same_message_and_traceback(workers: int, tmp_path: Path) -> None:
    texts = []
    for folder in (None, tmp_path):
        try:
            if folder:
                with captured(folder):
                    train(DataLoader(Slow(broken=7), num_workers=workers))
            else:
                train(DataLoader(Slow(broken=7), num_workers=workers))
        except KeyError as error:
            texts.append(str(error) if workers else "".join(traceback.format_exception(error)).partition("fetch.py")[2])
            traceback.clear_frames(error.__traceback__)  # else a later collection waits 5 s for each worker
    assert texts[0] == texts[1]
    assert "a broken sample" in texts[0]


def test_a_worker_that_dies_is_reported_as_ever(tmp_path: Path) -> None:
    class Deadly(Slow):
        def __getitem__(self, index: int) -> torch.Tensor:
            os._exit(3)

    with captured(tmp_path), pytest.raises(RuntimeError, match="exited unexpectedly"):
        train(DataLoader(Deadly(), num_workers=1))


class OwnIterator(_BaseDataLoaderIter):
    """Makes batches itself, as the iterator of torchdata's ``StatefulDataLoader`` does without workers."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self._dataset_fetcher = fetch._MapDatasetFetcher(
            self._dataset, self._auto_collation, self._collate_fn, self._drop_last
        )

    def _next_data(self) -> Any:
        data = self._dataset_fetcher.fetch(self._next_index())  # type: ignore[no-untyped-call]
        assert not self._pin_memory
        return data


class OwnLoader(DataLoader[Any]):
    def _get_iterator(self) -> Any:
        return OwnIterator(self)


def test_batches_of_an_iterator_of_another_library_are_timed_too(tmp_path: Path) -> None:
    before, loader = dict(vars(OwnIterator)), OwnLoader(Slow(sleep_ms=2))
    with captured(tmp_path):
        train(loader)
        train(DataLoader(Slow()))
        train(loader)
    batches, notes = read_batches(tmp_path / "bundle" / "batches.0.csv")
    assert (len(batches), notes) == (24, ())
    assert least_ms(batches, "fetch_ns") >= 2
    assert dict(vars(OwnIterator)) == before


def test_torch_is_as_before_after_a_capture(tmp_path: Path) -> None:
    loop, single, fetcher = worker._worker_loop, dict(vars(_SingleProcessDataLoaderIter)), fetch._BaseDatasetFetcher
    loader = DataLoader(Slow(sleep_ms=1), num_workers=1, persistent_workers=True)
    with captured(tmp_path):
        train(loader)
        own = iter(DataLoader(Slow()))
        next(own)
    assert worker._worker_loop is loop
    assert dict(vars(_SingleProcessDataLoaderIter)) == single
    assert "collate_fn" not in vars(fetcher)
    assert worker_clocks.arrivals is None
    assert len(train(loader)) == 12, "workers that live on still send their figures, which nobody keeps"
    assert len(list(own)) == 11


def test_another_librarys_worker_loop_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = worker._worker_loop

    def own_loop(*args: Any) -> None:
        plain(*args)

    monkeypatch.setattr(worker, "_worker_loop", own_loop)
    with captured(tmp_path):
        assert worker._worker_loop is own_loop
        assert len(train(DataLoader(Slow(), num_workers=2))) == 12
    assert not (tmp_path / "bundle" / "batches.0.csv").exists()


def test_a_torch_without_these_classes_is_trained_without_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(worker, "_worker_loop")
    with captured(tmp_path):
        assert len(train(DataLoader(Slow()))) == 12
    assert (tmp_path / "bundle" / "steps.0.csv").exists()
    assert not (tmp_path / "bundle" / "batches.0.csv").exists()


def test_clocks_that_fail_break_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("no clock")

    for name in ("begin", "collating", "end"):
        monkeypatch.setattr(BatchClock, name, fail)
    with captured(tmp_path):
        assert len(train(DataLoader(Slow()))) == 12
        assert len(train(DataLoader(Slow(), num_workers=2))) == 12
    assert not (tmp_path / "bundle" / "batches.0.csv").exists()


def test_an_unknown_signature_of_the_worker_loop_runs_without_clocks() -> None:
    seen = []

    def loop(*args: int) -> int:
        seen.append(args)
        return 7

    worker_clocks.torch_loop, before = loop, worker_clocks.torch_loop
    try:
        assert worker_clocks.timed_worker_loop(1, 2) == 7
    finally:
        worker_clocks.torch_loop = before
    assert seen == [(1, 2)]


def test_an_index_arrives_as_a_plain_number() -> None:
    clock = BatchClock(3)
    clock.begin()
    stamped, batch = worker_clocks._stamped((5, "batch"), clock)
    index = pickle.loads(pickle.dumps(stamped))  # noqa: S301  # our own
    assert (type(index), index, batch) == (int, 5, "batch")
    assert arrived(5) == 5


@pytest.mark.parametrize("item", [(None, None), ("resume", None), (True, 1), (1, 2, 3), [1, 2]])
def test_other_messages_of_a_worker_are_sent_as_they_are(item: Any) -> None:
    clock = BatchClock(0)
    clock.begin()
    assert worker_clocks._stamped(item, clock) is item


class Fixed(Slow):
    """Samples that are always the same."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index), 1.0])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("dataset", "are_drawn"), [(Slow(24), True), (Fixed(24), False)])
def test_loading_that_draws_random_numbers_is_noticed(
    dataset: Slow, workers: int, tmp_path: Path, *, are_drawn: bool
) -> None:
    with captured(tmp_path):
        train(DataLoader(dataset, batch_size=4, shuffle=True, num_workers=workers))
    (file,) = (tmp_path / "bundle").glob("settings.*.json")
    found = decode_settings(file.read_bytes()).repeated_results
    assert found
    assert found.are_drawn is are_drawn


# -- waiting for a core ------------------------------------------------------------------------------------------------


def test_the_wait_for_a_core_is_read_from_the_scheduler(tmp_path: Path) -> None:
    (tmp_path / "schedstat").write_bytes(b"17 42 3\n")
    wait = CoreWait(str(tmp_path / "schedstat"))
    assert wait.total_ns() == 42
    wait.close()
    assert wait.total_ns() is None
    wait.close()


@pytest.mark.parametrize("content", [None, b"", b"17", b"a b c"])
def test_without_the_schedulers_figures_the_wait_is_unknown(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "schedstat").write_bytes(content)
    assert CoreWait(str(tmp_path / "schedstat")).total_ns() is None


def test_a_reused_descriptor_is_not_closed(tmp_path: Path) -> None:
    (tmp_path / "schedstat").write_bytes(b"17 42 3\n")
    (tmp_path / "other").touch()
    wait = CoreWait(str(tmp_path / "schedstat"))
    descriptor = wait._descriptor
    assert descriptor is not None
    other = os.open(tmp_path / "other", os.O_RDONLY)
    os.dup2(other, descriptor)
    wait.close()
    assert os.fstat(descriptor)
    os.close(other)
    os.close(descriptor)


@NIGHTLY
@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="needs Linux's scheduler statistics")
def test_threads_that_share_cores_wait_for_them(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("fork")
    rivals = [context.Process(target=burn, args=(600,)) for _ in range(2 * cores)]
    for rival in rivals:
        rival.start()
    try:
        batches = timed(tmp_path, Slow(8, burn_ms=15), num_workers=1)
    finally:
        for rival in rivals:
            rival.kill()
            rival.join()
    assert mean_ms(batches, "core_wait_ns") > 0.3 * mean_ms(batches, "fetch_cpu_ns")


# -- samples of the workers' stacks ------------------------------------------------------------------------------------


def sampled(folder: Path, dataset: Dataset[Any], *, samples: bool = True, **arguments: Any) -> StackSamples | None:
    """Train in a capture, and return the samples of the loader workers."""
    with Capture(CaptureOptions(NEVER, worker_samples=samples, folder=folder / "bundle")):
        train(DataLoader(dataset, **{"batch_size": 2, "num_workers": 2, **arguments}))
    path = folder / "bundle" / "loader_stacks.0.jsonl"
    return read_stacks(path)[0] if path.exists() else None


def shares(samples: StackSamples | None) -> dict[tuple[str, bool], float]:
    """The share of samples by the innermost function of this file and whether the thread waited."""
    assert samples is not None
    found: dict[tuple[str, bool], float] = {}
    for stack in samples.stacks:
        users = [samples.frames[at].function for at in stack.frames if samples.frames[at].is_user]
        key = (users[-1] if users else "", stack.is_waiting)
        found[key] = found.get(key, 0) + stack.by_state[StepState.PLAIN].time_ns / samples.time_ns
    return found


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=NIGHTLY)])
def test_samples_of_workers_tell_the_line_that_waits_from_the_one_that_computes(start: str, tmp_path: Path) -> None:
    found = shares(sampled(tmp_path, Slow(24, sleep_ms=80, burn_ms=20), multiprocessing_context=start))
    assert found[("__getitem__", True)] > 2 * found.get(("__getitem__", False), 0)
    assert found[("burn", False)] > 2 * found.get(("burn", True), 0)


@NIGHTLY
def test_the_first_batch_of_a_worker_is_not_sampled(tmp_path: Path) -> None:
    assert sampled(tmp_path, Slow(4, sleep_ms=200)) is None


@NIGHTLY
def test_samples_of_workers_can_be_turned_off(tmp_path: Path) -> None:
    assert sampled(tmp_path, Slow(16, sleep_ms=60), samples=False) is None
    assert read_batches(tmp_path / "bundle" / "batches.0.csv")[0]


@NIGHTLY
def test_workers_that_stay_are_sampled_in_all_epochs(tmp_path: Path) -> None:
    with captured(tmp_path):
        train(DataLoader(Slow(4, sleep_ms=100), batch_size=2, num_workers=2, persistent_workers=True), epochs=4)
    samples, _ = read_stacks(tmp_path / "bundle" / "loader_stacks.0.jsonl")
    assert samples is not None
    assert samples.time_ns > 0.5 * 2 * 3 * 200 * MS


@NIGHTLY
def test_samples_tell_a_wait_beside_threads_that_compute(tmp_path: Path) -> None:
    samples = sampled(tmp_path, BesideThread(12), num_workers=1)
    assert samples is not None
    beside = sum(stack.by_state[StepState.PLAIN].time_ns for stack in samples.stacks if stack.is_beside)
    assert beside > 0.3 * samples.time_ns  # on full cores, threads of others wait, too


@NIGHTLY
def test_cpu_time_of_other_threads_is_counted_while_a_batch_is_made(tmp_path: Path) -> None:
    busy = timed(tmp_path / "busy", BesideThread(8), num_workers=1)
    alone = timed(tmp_path / "alone", Slow(8, burn_ms=30), num_workers=1)
    assert mean_ms(busy, "threads_cpu_ns") > 15
    assert mean_ms(alone, "threads_cpu_ns") < 10


@pytest.mark.parametrize(("sends", "counts"), [(True, False), (False, True)])
def test_the_thread_that_sends_batches_is_no_other_thread(*, sends: bool, counts: bool) -> None:
    """A thread that sends for another queue is the script's, and so is each in the training process."""
    computed, left = threading.Event(), threading.Event()

    def send() -> None:
        hash_for(40)
        computed.set()
        left.wait(60)

    sender = threading.Thread(target=send, name="QueueFeederThread")
    clock = BatchClock(0, sends=SimpleNamespace(_thread=sender if sends else None))
    sender.start()
    clock.begin()
    computed.wait(60)
    reading = clock.end()
    left.set()
    sender.join()
    assert reading is not None
    assert (reading.threads_cpu_ns > 20 * MS) is counts
    assert reading.process_cpu_ns > 20 * MS


@pytest.mark.parametrize(("name", "counts"), [("anything", True), ("traceadvisor-stacks", False)])
def test_cpu_time_of_the_captures_own_threads_is_none_of_a_batch(name: str, *, counts: bool) -> None:
    clock = BatchClock(0)
    clock.begin()
    reading = clock.end()
    left = threading.Event()

    def work() -> None:
        hash_for(30)
        left.wait(60)

    for _ in range(2):  # what ran before the batch does not count either
        thread = threading.Thread(target=work, name=name)
        clock.begin()
        thread.start()
        hash_for(1)
        while time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0)) < 0.03:
            time.sleep(0.001)
        reading = clock.end()
        left.set()
        thread.join()
        left.clear()
    assert reading is not None
    assert (reading.threads_cpu_ns > 20 * MS) is counts
    assert (reading.process_cpu_ns > 20 * MS) is counts


@NIGHTLY
def test_cpu_time_to_send_batches_of_many_objects_is_not_that_of_other_threads(tmp_path: Path) -> None:
    batches = timed(tmp_path, Words(24, burn_ms=10), num_workers=1, collate_fn=list)
    sent_ms = mean_ms(batches, "process_cpu_ns") - mean_ms(batches, "fetch_cpu_ns")
    assert sent_ms > 10
    assert mean_ms(batches, "threads_cpu_ns") < 0.25 * sent_ms


class Words(Slow):
    """Samples of many small objects, which take long to pickle."""

    def __getitem__(self, index: int) -> Any:
        return [super().__getitem__(index), *({"word": str(word)} for word in range(20_000))]


class BesideThread(Slow):
    """Its samples are computed in a thread, for which the loading thread waits."""

    def __getitem__(self, index: int) -> Any:
        thread = threading.Thread(target=hash_for, args=(60,))
        thread.start()
        thread.join()
        return super().__getitem__(index)


def hash_for(cpu_ms: float) -> None:
    """Compute without the interpreter lock, as native libraries do."""
    begun = time.thread_time()
    while time.thread_time() - begun < cpu_ms / 1000:
        hashlib.sha256(bytes(1 << 20)).digest()
