"""The time of a data loader by cause: in the training process, and in each process that makes batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from traceadvisor.frozen import frozen


class LoaderPart(Enum):
    """Parts of the training thread's time in its data loader, in the order of the report."""

    SAMPLER = "sampler"
    """Sampler and batch sampler: which samples are in the next batch."""

    MAKING = "making"
    """The training process makes the batch itself: index, fetch, collate."""

    WAITING = "waiting_for_worker"
    QUEUE = "waiting_for_thread"
    """Waiting for a thread of the script that iterates the loader."""

    RECEIVING = "receiving"
    """Unpickling, shared memory, rebuilding tensors, handing out indices."""

    PINNING = "pinning"
    START = "starting_workers"
    """Starting and stopping worker processes."""

    OTHER = "other"


class MakerPart(Enum):
    """Parts of the time of a process that makes batches, in the order of the report."""

    COMPUTING = "computing"
    """CPU time of the thread that makes the batch."""

    THREADS = "other_threads"
    """It waits while other threads of its process compute: BLAS, OpenCV, tokenizers, Arrow."""

    LOCK = "lock"
    """Waiting for a lock that others hold."""

    WAITING = "waiting"
    """Waiting for storage, a network or sleep."""

    CORE = "core"
    """Waiting for a CPU core."""

    START = "first_batches"
    """First batch of each loop beyond a usual one: opening files, the data set's ``__iter__``, filling a buffer."""

    IDLE = "idle"
    """The queue is full, or no batch is asked for."""


@frozen
class MakerTime:
    """The time of one process that makes batches.

    Raises:
        ValueError: the parts do not sum to the whole.
    """

    worker: int | None
    """Number of the worker; None for the training process."""

    batches: int
    total_ns: int
    """A worker's from its first batch to the end of its last; the training process's in which it makes batches."""

    parts_ns: Mapping[MakerPart, int]
    """Sums exactly to the total."""

    threads_cpu_ns: int = 0
    """CPU time of the other threads of the process, also while the thread that makes the batch computes. Without that
    of torch's own threads in the training process, as far as these can be told apart."""

    sample_count: int = 0
    """Samples of the stack that split its waiting time; 0 where all of it counts as waiting."""

    def __post_init__(self) -> None:
        if sum(self.parts_ns.values()) != self.total_ns:
            raise ValueError(f"the parts do not sum to {self.total_ns} ns")

    @property
    def making_ns(self) -> int:
        """Time in which it makes batches."""
        return self.total_ns - self.parts_ns.get(MakerPart.IDLE, 0)

    def share(self, part: MakerPart) -> float:
        """Share of the time in which it makes batches, 0..1."""
        return self.parts_ns.get(part, 0) / self.making_ns if self.making_ns else 0.0


@frozen
class LoaderTime:
    """The training thread's time in its data loader over the undisturbed steps, and the time of those who make batches.

    Raises:
        ValueError: the parts do not sum to the whole.
    """

    steps: int
    total_ns: int
    """In ``__next__``."""

    parts_ns: Mapping[LoaderPart, int]
    """Sums exactly to the total."""

    sample_count: int
    """Samples of the training thread's stack that split this time; 0 where the kind of loader alone tells."""

    makers: tuple[MakerTime, ...] = ()
    """Each worker, or the training process; empty where batches were not timed."""

    start_total_ns: int = 0
    """In ``__iter__``: starts of loops right before these steps, or in them."""

    start_parts_ns: Mapping[LoaderPart, int] = field(default_factory=dict)
    """Sums exactly to that."""

    def __post_init__(self) -> None:
        wholes = ((self.parts_ns, self.total_ns), (self.start_parts_ns, self.start_total_ns))
        for parts_ns, total_ns in wholes:
            if sum(parts_ns.values()) != total_ns:
                raise ValueError(f"the parts do not sum to {total_ns} ns")

    @property
    def is_from_thread(self) -> bool:
        """Whether a thread of the script takes the batches from the loader, and the training thread waits for it."""
        return self.parts_ns.get(LoaderPart.QUEUE, 0) > self.total_ns / 2

    def share(self, part: LoaderPart) -> float:
        """Share of the time in the loader, 0..1."""
        return self.parts_ns.get(part, 0) / self.total_ns if self.total_ns else 0.0

    def per_step_ns(self, part: LoaderPart) -> float:
        """Mean time of a part per step."""
        return self.parts_ns.get(part, 0) / self.steps if self.steps else 0.0

    def maker_share(self, part: MakerPart) -> float:
        """Share of a part in the time in which all makers make batches, 0..1."""
        making_ns = sum(maker.making_ns for maker in self.makers)
        return sum(maker.parts_ns.get(part, 0) for maker in self.makers) / making_ns if making_ns else 0.0

    def per_batch_ns(self, part: MakerPart) -> float:
        """Mean time of a part per batch."""
        batches = sum(maker.batches for maker in self.makers)
        return sum(maker.parts_ns.get(part, 0) for maker in self.makers) / batches if batches else 0.0

    @property
    def idle_share(self) -> float:
        """Share of the time of all makers in which they make no batch, 0..1."""
        total_ns = sum(maker.total_ns for maker in self.makers)
        return 1 - sum(maker.making_ns for maker in self.makers) / total_ns if total_ns else 0.0

    @property
    def threads_cpu_ns(self) -> float:
        """CPU time of other threads per batch, mean over all makers."""
        batches = sum(maker.batches for maker in self.makers)
        return sum(maker.threads_cpu_ns for maker in self.makers) / batches if batches else 0.0
