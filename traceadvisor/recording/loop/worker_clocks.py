"""Clock reads around the loading of batches, inside loader workers.

A worker's loop takes an index from a queue, makes the batch, and puts index and batch on another queue. The clocks are
read when an index has been taken, when the samples are about to be collated, and when the batch is put. The figures
travel with the index: it is pickled as a call of :func:`arrived`, which keeps the figures and gives the plain index
back. The batch, its order and its exceptions stay as they are, and no frame of this package is below the user's code.

Started workers import this module, so it must not import torch or numpy.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from inspect import signature
from multiprocessing import parent_process
from typing import TYPE_CHECKING, Any, NamedTuple

from traceadvisor.recording.loop.random_numbers import random_state
from traceadvisor.recording.script.own_code import unseen
from traceadvisor.system import clocks

if TYPE_CHECKING:
    from traceadvisor.recording.loop.worker_stacks import Sample, WorkerStacks

MOST_WAITING = 1 << 16
"""Figures that wait until the training thread takes its next batch; only a stalled reader has more."""

MOST_LOOKED = 4
"""First batches of a thread in which to look whether random numbers are drawn, which takes about 0.1 ms."""

OWN_THREADS = "traceadvisor-"
"""How names of a capture's threads begin."""

_NO_BATCH = ("ExceptionWrapper", "_IterableDatasetStopIteration")
"""Values that a worker puts in place of a batch."""


class Reading(NamedTuple):
    """Figures of one batch, named as in :class:`~traceadvisor.model.run.TimedBatch`."""

    pid: int
    worker: int
    start_ns: int
    """As :func:`time.perf_counter_ns` gives it: on one machine, all processes share that clock."""

    fetch_ns: int
    fetch_cpu_ns: int
    collate_ns: int | None
    collate_cpu_ns: int | None
    core_wait_ns: int | None
    process_cpu_ns: int
    threads_cpu_ns: int
    samples: tuple[Sample, ...] = ()
    """Samples of the worker's stack in this batch."""

    has_drawn: bool = False
    """Whether random numbers were drawn, as far as that was looked at."""


class CoreWait:
    """Time in which the thread that made this object could run but had no CPU core: from Linux's ``schedstat``."""

    def __init__(self, path: str = "/proc/thread-self/schedstat") -> None:
        self._descriptor: int | None = None
        self._file: os.stat_result | None = None
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._file = os.fstat(self._descriptor)
            self.total_ns()
        except (OSError, ValueError, IndexError, AttributeError):  # no Linux, or a kernel that does not count it
            self.close()

    def total_ns(self) -> int | None:
        """Nanoseconds since the thread started; None where the system does not tell."""
        if self._descriptor is None:
            return None
        return int(os.pread(self._descriptor, 80, 0).split()[1])

    def close(self) -> None:
        """Close the file; from now on the time is unknown."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None and _same_file(descriptor, self._file):
            os.close(descriptor)


def _same_file(descriptor: int, file: os.stat_result | None) -> bool:
    """Whether a descriptor is still that file: the script may have closed it, and opened another."""
    try:
        return file is None or os.path.samestat(os.fstat(descriptor), file)
    except OSError:
        return False


class SenderClock:
    """CPU time of the thread that sends what a queue of ``multiprocessing`` gets, and that the first batch starts.

    It pickles batches while the next one is made: for batches that are cheap to make, as long as that takes.
    """

    def __init__(self, queue: object) -> None:
        self._queue, self._latest_ns = queue, 0
        self._clock: int | None = None

    def total_ns(self) -> int:
        """Nanoseconds since the thread started, or until it ended; 0 without such a thread."""
        if self._clock is None:
            thread = getattr(self._queue, "_thread", None)
            if isinstance(thread, threading.Thread) and thread.ident is not None and thread.is_alive():
                self._clock = clocks.pthread_getcpuclockid(thread.ident)
        with suppress(OSError):  # the thread has ended
            self._latest_ns = self._latest_ns if self._clock is None else clocks.clock_gettime_ns(self._clock)
        return self._latest_ns


class OwnThreadsClock:
    """CPU time of a capture's own threads in this process: that of no batch, also where they run beside one.

    The clock of a thread by its number, as ``pthread_getcpuclockid`` of glibc gives it
    (``sysdeps/unix/sysv/linux/kernel-posix-cpu-timers.h``); on other systems, there is none.
    """

    def __init__(self) -> None:
        self._latest_ns: dict[int, int] = {}

    def total_ns(self) -> int:
        """Nanoseconds of all of them, also of those that ended."""
        for thread in threading.enumerate():
            if thread.name.startswith(OWN_THREADS) and thread.native_id is not None:
                with suppress(OSError, OverflowError):  # it has ended, or the system has no such clock
                    self._latest_ns[thread.native_id] = clocks.clock_gettime_ns(~thread.native_id << 3 | 6)
        return sum(self._latest_ns.values())


class BatchClock:
    """Reads the clocks of one loading thread; ``sends``: the queue by which its process sends batches, if it does."""

    def __init__(self, worker: int, *, sends: object = None) -> None:
        self._worker, self._pid = worker, os.getpid()
        self._core_wait, self._own = CoreWait(), OwnThreadsClock()
        self._sender = None if sends is None else SenderClock(sends)
        self._begun: tuple[int, int, int | None, int, int] | None = None
        self._split: tuple[int, int] | None = None
        self._process_ns: int | None = None
        self._left = MOST_LOOKED
        self._state: tuple[object, ...] | None = None
        """That of random numbers when the batch began; None if it is not looked at."""
        self.stacks: WorkerStacks | None = None
        """Samples this thread while it makes a batch; None if nothing does."""

    @property
    def is_loading(self) -> bool:
        """Whether a batch has begun and is not complete."""
        return self._begun is not None

    def begin(self) -> None:
        """The loading of a batch begins."""
        self._state = random_state() if self._left > 0 else None
        self._left -= 1
        process_ns = self._process_time_ns()
        if self._process_ns is None:
            self._process_ns = process_ns
        self._split = None
        times = (clocks.perf_counter_ns(), clocks.thread_time_ns(), self._core_wait.total_ns())
        self._begun = (*times, process_ns, self._sent_ns())

    def collating(self) -> None:
        """Its samples are complete. Loaders inside a data set come here too, but before."""
        if self._begun:
            self._split = (clocks.perf_counter_ns(), clocks.thread_time_ns())

    def end(self) -> Reading | None:
        """The batch is complete; None if its beginning was not seen."""
        if self._begun is None or self._process_ns is None:
            return None
        now_ns, cpu_ns, process_ns = clocks.perf_counter_ns(), clocks.thread_time_ns(), self._process_time_ns()
        begun_ns, begun_cpu_ns, begun_wait_ns, begun_process_ns, begun_sent_ns = self._begun
        wait_ns, own_ns = self._core_wait.total_ns(), cpu_ns - begun_cpu_ns + self._sent_ns() - begun_sent_ns
        split_ns, split_cpu_ns = self._split or (now_ns, cpu_ns)
        used_ns, self._process_ns, self._begun = process_ns - self._process_ns, process_ns, None
        return Reading(
            self._pid,
            self._worker,
            begun_ns,
            split_ns - begun_ns,
            split_cpu_ns - begun_cpu_ns,
            now_ns - split_ns if self._split else None,
            cpu_ns - split_cpu_ns if self._split else None,
            None if wait_ns is None or begun_wait_ns is None else wait_ns - begun_wait_ns,
            used_ns,
            max(process_ns - begun_process_ns - own_ns, 0),
            self.stacks.taken() if self.stacks else (),
            self._state is not None and random_state() != self._state,
        )

    def _process_time_ns(self) -> int:
        return clocks.process_time_ns() - self._own.total_ns()

    def _sent_ns(self) -> int:
        return self._sender.total_ns() if self._sender else 0

    def forget(self) -> None:
        """The batch did not come about."""
        self._begun = None

    def restart(self) -> None:
        """Count the CPU time of the process from the next batch on."""
        self._process_ns = None

    def close(self) -> None:
        """Close what is open."""
        self._core_wait.close()


class Moment:
    """An attribute of instances that also reports when it is read: a hook without a frame of its own around a call.

    The value stays in the instance, so objects made before or used after the hook keep working.
    """

    def __init__(self, name: str, read: Callable[[Any], None]) -> None:
        self._name, self._read = name, read

    @unseen
    def __get__(self, instance: Any, owner: type) -> Any:
        """The value of the instance; the hook itself for the class."""
        if instance is None:
            return self
        try:
            value = instance.__dict__[self._name]
        except KeyError:
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self._name!r}") from None
        with suppress(Exception):  # the value is what matters
            self._read(instance)
        return value

    @unseen
    def __set__(self, instance: Any, value: Any) -> None:
        """Store the value in the instance."""
        instance.__dict__[self._name] = value

    @unseen
    def __delete__(self, instance: Any) -> None:
        """Remove the value from the instance."""
        del instance.__dict__[self._name]


arrivals: deque[tuple[Any, ...]] | None = None
"""Figures of batches that reached this process; None if nobody collects them."""


@unseen
def arrived(index: int, *figures: Any) -> int:
    """Keep the figures of a batch that a worker sent, and return its index. Called when the index is unpickled."""
    if arrivals is not None:
        arrivals.append(figures)
    return index


class _Stamped:
    """A batch's index with the figures of the batch, for the way to the training process."""

    __slots__ = ("_content",)

    def __init__(self, index: int, figures: Reading) -> None:
        self._content = (index, *figures)

    def __reduce__(self) -> tuple[Callable[..., int], tuple[Any, ...]]:
        return arrived, self._content


torch_loop: Callable[..., Any] | None = None
"""The loop that this one replaces, in the training process and in what it forks."""


def timed_worker_loop(*args: Any, **kwargs: Any) -> Any:
    """Run torch's worker loop with clock reads; runs it without them if anything is unlike what was expected."""
    loop = torch_loop or _loop_of_torch()
    with suppress(Exception):  # the worker works without figures
        _read_clocks(signature(loop).bind(*args, **kwargs).arguments)
    return loop(*args, **kwargs)


def sampled_worker_loop(*args: Any, **kwargs: Any) -> Any:
    """Run torch's worker loop with clock reads and samples of the stack, or with as much of it as is possible."""
    loop = torch_loop or _loop_of_torch()
    stacks: WorkerStacks | None = None
    with suppress(Exception):  # as above
        if clock := _read_clocks(signature(loop).bind(*args, **kwargs).arguments):
            from traceadvisor.recording.loop.worker_stacks import WorkerStacks  # noqa: PLC0415  # only if asked for

            clock.stacks = stacks = WorkerStacks(lambda: clock.is_loading)
    try:
        return loop(*args, **kwargs)
    finally:
        if stacks:
            stacks.stop()


def _loop_of_torch() -> Callable[..., Any]:
    from torch.utils.data._utils import worker  # noqa: PLC0415  # only workers that were not forked come here

    loop: Callable[..., Any] = worker._worker_loop
    return loop


def _read_clocks(arguments: dict[str, Any]) -> BatchClock | None:
    """Hook the queues of this worker; its copies of them, not those of the training process. None if it is a thread."""
    if parent_process() is None or threading.current_thread() is not threading.main_thread():
        return None  # a worker thread shares the queues and the CPU time with the training thread
    from torch.utils.data._utils.fetch import _BaseDatasetFetcher  # noqa: PLC0415  # workers have imported torch

    tasks, batches = arguments["index_queue"], arguments["data_queue"]
    clock = BatchClock(int(arguments["worker_id"]), sends=batches)
    take, put = tasks.get, batches.put
    collating = Moment("collate_fn", lambda _: clock.collating())

    @unseen
    def timed_take(*args: Any, **kwargs: Any) -> Any:
        task = take(*args, **kwargs)
        with suppress(Exception):  # the task is what matters
            clock.begin()
        return task

    @unseen
    def timed_put(item: Any, *args: Any, **kwargs: Any) -> Any:
        return put(_stamped(item, clock), *args, **kwargs)

    tasks.get, batches.put = timed_take, timed_put
    _BaseDatasetFetcher.collate_fn = collating
    return clock


def _stamped(item: Any, clock: BatchClock) -> Any:
    """The item with figures, if it is a batch with its index."""
    try:
        if type(item) is not tuple or len(item) != 2 or type(item[0]) is not int:
            return item
        if type(item[1]).__name__ in _NO_BATCH:
            clock.forget()
            return item
        figures = clock.end()
        return item if figures is None else (_Stamped(item[0], figures), item[1])
    except Exception:  # noqa: BLE001  # the batch is what matters
        return item
