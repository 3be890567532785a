"""The cost of one batch for the process that makes it: CPU time, and time that it waits.

Three sources, the best first: clock reads around the loading of each batch; the CPU samples of loader workers that the
loop waits for; the time in the loader of a training process that loads its own batches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

import numpy as np

from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64
from traceadvisor.model.events import Kind
from traceadvisor.model.run import RunSettings, TimedBatch
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

FEWEST_BATCHES = 8
"""With fewer undisturbed batches, all batches count."""

MOST_BATCHES = 4096
"""Batches that are looked at, the latest ones: more do not change a mean, and simulations take them one by one."""

WAITING_SHARE = 0.5
"""Share of a batch's time that is spent waiting, from which waiting bounds the loading: then more workers than cores
are useful."""

WAITS_FOR_CORES_SHARE = 0.5
"""Time that a loading thread waits for a core, as a share of its time for a batch. Short delays are less."""

SPIN_NS = 20_000_000
"""Time for which each further thread of an operator spins after the operator: GCC's OpenMP tries 300,000 times, which
takes 1 to 14 ms on today's processors (https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html)."""

LONG_SPIN_NS = 220_000_000
"""The same for LLVM's and Intel's OpenMP, whose ``KMP_BLOCKTIME`` is 200 ms by default."""

_WAKES_NO_THREAD = re.compile(
    r"aten::(?:lift_fresh|detach_?|alias|view|reshape|permute|transpose|t|as_strided|(?:un)?squeeze|select|slice|expand"
    r"|narrow|unbind|empty\w*|item|_local_scalar_dense|resize_|set_)$|(?!aten::)"
)
"""Operators that compute nothing, and annotations: no thread wakes for them, so none spins after them."""

NATIVE_SHARE = 0.2
"""CPU time of other threads as a share of the time of a batch, from which these count: a thread that sends batches or
samples stacks takes less."""


class CostSource(Enum):
    """Source of the figures."""

    CLOCKS = "clock reads around each batch"
    SAMPLES = "CPU samples of the workers"
    LOADER_TIME = "time in the data loader"


@frozen(eq=False)
class BatchCost:
    """Cost of a batch in one process that has a CPU core whenever it needs one. Arrays: shape ``(n,)``."""

    source: CostSource
    cpu_ns: Float64
    """CPU time of each batch, in order; one value if only the mean is known."""

    wait_ns: Float64
    """Time in which no thread of the process computes: storage, network, locks, sleep."""

    is_split: bool = True
    """Whether CPU time and waiting are known apart; otherwise all time counts as CPU time."""

    collate_share: float | None = None
    """Share of the CPU time of the loading thread that is spent collating; None if unknown."""

    by_worker_ns: tuple[float, ...] = ()
    """Median time per batch of each worker, longest first; empty if unknown. A mean would blame one worker if it made
    all of the rare slow batches."""

    core_wait_ns: float | None = None
    """Mean time per batch in which the loading thread waited for a CPU core; None if unknown."""

    delay_ns: float = 0.0
    """The part of it that other programs cause, for a thread that mostly waits for something else: it gets a core late
    each time it wakes up, whatever the number of workers. For other threads, the number of free cores tells it."""

    beside_ns: float = 0.0
    """Mean further CPU time of a training process that makes its own batches: other threads share its operators, or
    spin until the next one. A worker runs operators in one thread."""

    shared_ns: float = 0.0
    """The part of it that operators take at most: a worker takes up to so much longer."""

    native_ns: float = 0.0
    """The mean part of the CPU time that native libraries take in threads of their own, such as BLAS, OpenCV or
    tokenizers. A part of it may be busy waiting: a worker with one thread takes less by at most this time."""

    lock_share: float = 0.0
    """Share of the time to make a batch spent waiting for a lock that others hold: more processes wait longer."""

    @property
    def has_threads(self) -> bool:
        """Whether other threads compute for a notable part of the time of a batch."""
        return self.native_ns >= NATIVE_SHARE * self.mean_ns > 0

    def single_threaded(self) -> BatchCost:
        """The cost if all CPU time of other threads were busy waiting."""
        kept = max(1 - self.native_ns / max(self.mean_cpu_ns, 1.0), 0.0)
        return replace(self, cpu_ns=self.cpu_ns * kept, native_ns=0.0)

    def longest(self) -> BatchCost:
        """The same cost if other threads shared the operators, so that a worker takes longest."""
        return replace(self, cpu_ns=self.cpu_ns + self.shared_ns, shared_ns=0.0)

    def even(self) -> BatchCost:
        """The same cost with equal batches."""
        return replace(self, cpu_ns=np.array([self.mean_cpu_ns]), wait_ns=np.array([self.mean_wait_ns]))

    def without_longest(self, count: int) -> BatchCost:
        """The same cost without so many of the longest batches; as it is if no others are left."""
        kept = np.sort(np.argsort(self.cpu_ns + self.wait_ns, kind="stable")[: max(self.cpu_ns.size - count, 0)])
        return replace(self, cpu_ns=self.cpu_ns[kept], wait_ns=self.wait_ns[kept]) if kept.size else self

    def usual(self) -> BatchCost:
        """The cost with equal batches that take as long as the median batch."""
        typical = np.array([int(np.argsort(self.cpu_ns + self.wait_ns)[self.cpu_ns.size // 2])])
        return replace(self, cpu_ns=self.cpu_ns[typical], wait_ns=self.wait_ns[typical])

    @property
    def mean_cpu_ns(self) -> float:
        """Mean CPU time per batch."""
        return float(self.cpu_ns.mean())

    @property
    def mean_wait_ns(self) -> float:
        """Mean waiting time per batch."""
        return float(self.wait_ns.mean())

    @property
    def mean_ns(self) -> float:
        """Mean time to make a batch."""
        return self.mean_cpu_ns + self.mean_wait_ns

    @property
    def cpu_share(self) -> float:
        """CPU time as a share of the time to make a batch; 1 if it is not known apart."""
        return self.mean_cpu_ns / self.mean_ns if self.mean_ns else 1.0

    @property
    def is_waiting(self) -> bool:
        """Whether a worker mostly waits, so that more workers than cores are useful."""
        return self.is_split and 1 - self.cpu_share >= WAITING_SHARE

    @property
    def waits_for_cores(self) -> bool:
        """Whether loading threads wait for a core about as long as they take for a batch."""
        return (self.core_wait_ns or 0.0) >= WAITS_FOR_CORES_SHARE * self.mean_ns


@frozen
class OwnThreads:
    """The threads of torch's operators in the training process, which also compute or spin while a batch is made."""

    threads: int = 1
    """Per operator."""

    operator_share: float = 1.0
    """Share of the time of a batch in operators, or in which threads may spin after one."""

    spin_ns: int = SPIN_NS

    def native_ns(self, batch: TimedBatch) -> int:
        """Return the CPU time of other threads while a batch was made that cannot be theirs."""
        if batch.worker is not None:
            return batch.threads_cpu_ns or 0
        others_ns = batch.threads_cpu_ns
        if others_ns is None:
            others_ns = batch.process_cpu_ns - batch.thread_cpu_ns
        each_ns = self.spin_ns + round(self.operator_share * batch.duration_ns)
        return max(others_ns - each_ns * (self.threads - 1), 0)


_KMP = "libiomp5"


def own_threads(settings: RunSettings, operator_share: float) -> OwnThreads:
    """Return the threads of torch's operators in the training process."""
    spin_ns = LONG_SPIN_NS if _KMP in settings.thread_pools else SPIN_NS
    return OwnThreads(settings.torch_threads or 1, operator_share, spin_ns)


def operator_share(trace: Trace, spans: SpanSet) -> float:
    """Return the share of some time in which operators run; 1 if none was recorded."""
    operators = trace.events.rows(Kind.OPERATOR)
    covered = trace.events.spans(operators) & spans
    return covered.total_ns / max(spans.total_ns, 1) if operators.size else 1.0


def threads_share(trace: Trace, spans: SpanSet, settings: RunSettings) -> float:
    """Return the share of some time in which operators' threads may compute, or spin after one; 1 if none is known.

    Threads that spin beyond the end of a span are those of the operators between it and the next one.
    """
    events, operators = trace.events, trace.events.rows(Kind.OPERATOR)
    wakes = ~name_mask(trace.names, _WAKES_NO_THREAD.match)
    rows = operators[wakes[events.name_id[operators]] & spans.contains(events.start_ns[operators])]
    starts_ns, spin_ns = events.start_ns[rows], own_threads(settings, 0.0).spin_ns
    last_ns = spans.ends_ns[spans.ends_ns.searchsorted(starts_ns, side="right")]
    spinning = SpanSet.union_of(starts_ns, np.minimum(events.end_ns[rows] + spin_ns, last_ns))
    return (spinning & spans).total_ns / max(spans.total_ns, 1) if operators.size else 1.0


def cost_by_clocks(  # noqa: PLR0913  # what a capture knows
    batches: Sequence[TimedBatch],
    undisturbed: SpanSet,
    *,
    core_is_free: bool,
    threads: int = 1,
    own_threads: OwnThreads | None = None,
    beside_share: float = 0.0,
) -> BatchCost | None:
    """Return the cost by clock reads; None without batches.

    Args:
        batches: the timed batches, by start.
        undisturbed: wall-clock spans of the steps that no profiler touched. If too few batches start in them, all
            batches count.
        core_is_free: whether cores were idle on average. If not, and the system does not tell how long a thread waited
            for a core, waiting cannot be told from it, and all time counts as CPU time.
        threads: threads per operator of the training process. While its thread loads, the others spin or share
            operators: that is no CPU time of a worker. A batch made there takes no longer than its time on the wall.
        own_threads: tells the CPU time that these threads can take at most; by default all of it is theirs.
        beside_share: share of the waiting time in which other threads of the process compute.
    """
    used = _used(batches, undisturbed)
    if not used:
        return None
    spent_ns = np.array([batch.duration_ns for batch in used], dtype=np.float64)
    thread_ns = np.array([batch.thread_cpu_ns for batch in used], dtype=np.float64)
    process_ns = np.array([batch.process_cpu_ns for batch in used], dtype=np.float64)
    no_core = [batch.core_wait_ns for batch in used if batch.core_wait_ns is not None]
    knows_cores = len(no_core) == len(used)
    ready_ns = np.maximum(spent_ns - np.array(no_core, dtype=np.float64), 0.0) if knows_cores else spent_ns
    is_own = np.array([batch.worker is None for batch in used], dtype=np.bool_)
    all_cpu_ns = cpu_ns = np.maximum(process_ns, thread_ns)
    other_ns = np.maximum(cpu_ns - thread_ns * threads, 0.0)  # of threads that are not those of operators
    native_ns = np.array([own_threads.native_ns(batch) if own_threads else 0 for batch in used], dtype=np.float64)
    least_ns = np.minimum(thread_ns + other_ns, np.maximum(ready_ns, thread_ns))
    is_native = _are_usual(native_ns, all_cpu_ns)
    native_ns = native_ns if is_native else np.zeros_like(native_ns)
    cpu_ns = np.where(is_own, np.maximum(least_ns, thread_ns + native_ns) if is_native else least_ns, cpu_ns)
    beside_ns = np.maximum(ready_ns - cpu_ns, 0.0)
    wait_ns = beside_ns * (1 - beside_share)
    cpu_ns = cpu_ns + beside_ns * beside_share
    others_ns = np.array([_others_ns(batch) for batch in used], dtype=np.float64)
    native_ns = np.maximum(native_ns, np.minimum(np.maximum(cpu_ns - thread_ns, 0.0) * beside_share, others_ns))
    is_split = knows_cores or core_is_free or float(wait_ns.sum()) < WAITING_SHARE * float(spent_ns.sum())
    if not is_split:
        cpu_ns, wait_ns = cpu_ns + wait_ns, np.zeros_like(wait_ns)
    return BatchCost(
        CostSource.CLOCKS,
        cpu_ns,
        wait_ns,
        is_split,
        _collate_share(used),
        _by_worker(used, all_cpu_ns if is_native else ready_ns),  # its threads wait for cores, too
        float(np.mean(no_core)) if knows_cores else None,
        beside_ns=float((all_cpu_ns - np.minimum(cpu_ns, all_cpu_ns)).mean()),
        native_ns=min(float(native_ns.mean()), float(cpu_ns.mean())),
    )


def _used(batches: Sequence[TimedBatch], undisturbed: SpanSet) -> list[TimedBatch]:
    """Return the last batches that start in some spans; the last of all if these are too few."""
    starts_ns = np.array([batch.start_ns for batch in batches], dtype=np.int64)
    inside = np.flatnonzero(undisturbed.contains(starts_ns)) if undisturbed else np.empty(0, dtype=np.int64)
    chosen = inside if inside.size >= FEWEST_BATCHES else np.arange(len(batches))
    return [batches[number] for number in chosen[-MOST_BATCHES:].tolist()]


def _others_ns(batch: TimedBatch) -> float:
    """Return the CPU time that threads of native libraries take at most for a batch, without the one that sends it."""
    is_known = batch.worker is not None and batch.threads_cpu_ns is not None
    return float(batch.threads_cpu_ns or 0) if is_known else float("inf")


def _are_usual(native_ns: Float64, cpu_ns: Float64) -> bool:
    """Whether native threads compute in most batches: beside a few, a thread of the profiler or the script's may."""
    of_all = float(native_ns.sum()) / max(float(cpu_ns.sum()), 1.0)
    return min(of_all, float(np.median(native_ns / np.maximum(cpu_ns, 1.0)))) >= NATIVE_SHARE


def cost_by_samples(pace_ns: float, workers: int, busy_cores: float) -> BatchCost:
    """Return the cost by the CPU samples of workers that the loop waits for: then all of them are always at work.

    ``pace_ns``: mean time between two batches. ``busy_cores``: CPU cores that they keep busy together, while other
    cores are free.
    """
    cpu_ns = busy_cores * pace_ns
    wait_ns = max(workers * pace_ns - cpu_ns, 0.0)
    return BatchCost(CostSource.SAMPLES, np.array([cpu_ns]), np.array([wait_ns]))


def cost_by_loader_time(batch_ns: float, most_cpu_ns: float | None = None) -> BatchCost:
    """Return the cost by the time that a process takes for a batch.

    ``most_cpu_ns``: upper limit of its CPU time, from samples; None if unknown. Below half, the process mostly waits.
    """
    if most_cpu_ns is None or most_cpu_ns > (1 - WAITING_SHARE) * batch_ns:
        return BatchCost(CostSource.LOADER_TIME, np.array([batch_ns]), np.zeros(1), is_split=False)
    return BatchCost(CostSource.SAMPLES, np.array([most_cpu_ns]), np.array([batch_ns - most_cpu_ns]))


def _collate_share(batches: Sequence[TimedBatch]) -> float | None:
    collated = [batch for batch in batches if batch.collate_cpu_ns is not None]
    cpu_ns = sum(batch.thread_cpu_ns for batch in collated)
    return sum(batch.collate_cpu_ns or 0 for batch in collated) / cpu_ns if cpu_ns else None


def _by_worker(batches: Sequence[TimedBatch], ready_ns: Float64) -> tuple[float, ...]:
    """Median time per batch of each worker, longest first."""
    numbers = np.array([-1 if batch.worker is None else batch.worker for batch in batches], dtype=np.int64)
    order = np.argsort(numbers, kind="stable")
    workers, starts = np.unique(numbers[order], return_index=True)
    if workers[0] < 0:
        return ()
    return tuple(sorted((float(np.median(part)) for part in np.split(ready_ns[order], starts[1:])), reverse=True))
