"""How long a step waits for its batch with each number of loader workers, and the fewest workers that hide the wait.

A ``DataLoader`` gives its workers batches in turn and takes them in order. It requests batch ``i + workers x prefetch``
when it takes batch ``i``. So a batch is ready when its worker has made all batches that it was given before, and this
one. Waiting needs no core. CPU work does: if the threads that compute need more cores than there are, all of them slow
down alike.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from heapq import heappop, heappush
from itertools import cycle, islice
from math import ceil

from traceadvisor.analysis.data.batch_cost import BatchCost
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64

HIDDEN_SHARE = 0.02
"""The wait is hidden if it takes less than this share of the step."""

MOST_WORKERS = 64
"""More workers are never proposed: each is a process with its own memory."""

MOST_WAITING_WORKERS = 16
"""More workers are never proposed for batches that mostly wait: threads, larger reads or a local copy wait as well, and
take no memory for another process. The same holds if the number of cores is unknown."""

LONGEST_PREFETCH = 64
"""More prefetched batches per worker are never proposed: they all lie in memory."""

MOST_FACTOR_UNEVEN = 2
"""Workers for unequal batches, relative to equal ones, up to which more workers are preferred to a longer queue."""

FEWEST_BATCHES = 200
"""Batches of a simulation, so that a mean over bursts is meaningful."""

MOST_BATCHES = 2000

WORKER_FACTOR = 1.07
"""Factor on the CPU time of a batch that a worker makes instead of the training process. Both share caches and memory.
The middle of the range in public recordings of one ResNet-50 training with 0 and 4 workers (pytorch/kineto, TensorBoard
plugin samples)."""

TAKING_NS = 700_000
"""Time of the training thread to take a batch from a worker, however small: it crosses a queue between processes. The
middle of the range in the same recordings. On two CPU cores, with batches of 32 rows, it was as long."""

SENDING_NS = TAKING_NS
"""Time of a worker to send a batch, however small: both sides of the exchange take about as long."""

NO_GAIN_SHARE = 0.02
"""More workers are not worth it if they shorten the step by less than this share."""


class Crowding(Enum):
    """The degree to which the processes of a step compete for cores."""

    NONE = "none"
    """Each process has a core when it needs one, and other programs delay none."""

    MEAN = "mean"
    """They compete if they need more cores on average than there are."""

    WORST = "worst"
    """All workers compute at the same time as the training process, and take longest."""


@frozen
class Loop:
    """Demand of a training loop on its loader."""

    rest_ns: float
    """The step without its wait for batches, and without the time to take them if that was measured."""

    fetches: float = 1.0
    """Batches per step."""

    prefetch: int = 2
    """Batches that each worker prepares ahead."""

    cores: float | None = None
    """CPU cores for the training process and its workers; None if unknown: then nothing competes."""

    training_cores: float = 1.0
    """Cores that the training process itself keeps busy in the rest of the step."""

    worker_factor: float = 1.0
    """CPU time of a batch in a worker, relative to the process in which it was measured."""

    taking_ns: float = 0.0
    """Time to take a batch that is ready from a worker, if it was measured. No number of workers saves it."""

    is_ordered: bool = True
    """Whether batches are taken in their order: then a slow one keeps finished ones waiting."""


@frozen
class Point:
    """One number of workers."""

    workers: int
    wait_ns: float
    """Mean time that loading adds to a step: the exposed wait, and what competition for cores adds to the rest. As long
    as if a batch that is ready were taken in no time, so a number of workers that hides it has a reserve."""

    step_ns: float
    """Step with this wait, or with the time to take its batches, if that is longer."""

    prefetch: int = 0
    """Batches that each worker prepares ahead; 0 without workers."""

    @property
    def wait_share(self) -> float:
        """The wait as a share of the step."""
        return self.wait_ns / max(self.step_ns, 1.0)

    @property
    def is_hidden(self) -> bool:
        """Whether the wait is hidden."""
        return self.wait_share < HIDDEN_SHARE


@frozen(eq=False)
class WorkerCurve:
    """The step as a function of the number of workers."""

    cost: BatchCost
    loop: Loop

    def at(self, workers: int, prefetch: int | None = None, crowding: Crowding = Crowding.MEAN) -> Point:
        """Return the predicted step.

        Args:
            workers: number of loader workers; with 0, the training process loads batches itself.
            prefetch: batches that each worker prepares ahead; as in the loop by default.
            crowding: how much the processes compete.
        """
        loop = self.loop
        delay_ns = 0.0 if crowding is Crowding.NONE else self.cost.delay_ns
        if workers == 0:
            wait_ns = (self.cost.mean_ns + delay_ns) * loop.fetches
            return Point(0, wait_ns, loop.rest_ns + wait_ns)
        slow = self._slow_down(workers, crowding)
        rest_ns = loop.rest_ns * slow
        cpu_ns = (self.cost.longest() if crowding is Crowding.WORST else self.cost).cpu_ns
        durations = cpu_ns * loop.worker_factor * slow + self.cost.wait_ns + delay_ns
        per_batch_ns = rest_ns / max(loop.fetches, 1e-9)
        ahead = prefetch or loop.prefetch
        mean_ns = mean_wait_ns if loop.is_ordered else mean_wait_in_any_order_ns
        wait_ns = mean_ns(durations, per_batch_ns, workers, ahead) * loop.fetches
        least_ns = self._least_step_ns() if crowding is not Crowding.NONE else 0.0
        step_ns = max(rest_ns + wait_ns, least_ns)
        taken_ns = rest_ns + loop.taking_ns * loop.fetches
        return Point(workers, step_ns - loop.rest_ns, max(step_ns, taken_ns), ahead)

    def even(self) -> WorkerCurve:
        """Return the curve with equal batches."""
        return replace(self, cost=self.cost.even())

    def in_any_order(self) -> WorkerCurve:
        """Return the curve of a loop that takes any batch that is ready (``in_order=False``)."""
        return replace(self, loop=replace(self.loop, is_ordered=False))

    def with_step(self, rest_ns: float) -> WorkerCurve:
        """Return the curve of a loop whose step takes so long without its wait."""
        return replace(self, loop=replace(self.loop, rest_ns=rest_ns))

    def _least_step_ns(self) -> float:
        """The shortest step: all cores only train and make batches."""
        loop = self.loop
        if loop.cores is None:
            return 0.0
        work_ns = loop.rest_ns * min(loop.training_cores, loop.cores) + self._made_cpu_ns * loop.fetches
        return work_ns / loop.cores

    @property
    def _made_cpu_ns(self) -> float:
        """Mean CPU time of a worker per batch."""
        return self.cost.mean_cpu_ns * self.loop.worker_factor

    def _slow_down(self, workers: int, crowding: Crowding) -> float:
        """Return how many times as long computing takes, because the processes share the cores."""
        loop, cost = self.loop, self.cost
        if loop.cores is None or crowding is Crowding.NONE:
            return 1.0
        training = min(loop.training_cores, loop.cores)
        if crowding is Crowding.WORST:
            return max((training + workers * cost.cpu_share) / loop.cores, 1.0)
        least_ns, made_ns = self._least_step_ns(), self._made_cpu_ns * loop.fetches
        by_loop = least_ns / max(loop.rest_ns, 1.0)
        by_workers = (least_ns * workers - cost.mean_wait_ns * loop.fetches) / max(made_ns, 1.0)
        return max(min(by_loop, by_workers), 1.0)  # then loop or workers take as long as the cores need

    def best(self) -> Point:
        """Return the best setting: the fewest workers that hide the wait.

        If batches take so unequally long that more than twice the workers would be needed than for equal ones, a longer
        queue bridges the long ones with less memory. They are enough for workers that take longest.
        """
        point = self._best()
        if not self.cost.shared_ns:
            return point
        longest = replace(self, cost=self.cost.longest())._best()
        most = max(point, longest, key=lambda point: point.workers)
        return self.at(most.workers, most.prefetch)

    def _best(self) -> Point:
        point, equal = self.fewest(), self.even().fewest()
        if not equal.is_hidden or point.workers <= MOST_FACTOR_UNEVEN * equal.workers:
            return point
        for workers in range(equal.workers, min(MOST_FACTOR_UNEVEN * equal.workers, self.most_workers) + 1):
            if (prefetch := self.shortest_prefetch(workers)) is not None:
                return self.at(workers, prefetch)
        return point

    def fewest(self) -> Point:
        """Return the fewest workers that hide the wait; if no number does, the fewest that are about as good as any."""
        points: list[Point] = []
        for workers in range(self._least_workers(), self.most_workers + 1):
            point = self.at(workers)
            if point.is_hidden:
                return point
            points.append(point)
        best_ns = min(point.step_ns for point in points)
        candidates = [self.at(workers) for workers in range(1, min(points[-1].workers, 16) + 1)] + points
        good = [point for point in candidates if point.step_ns <= (1 + NO_GAIN_SHARE) * best_ns]
        return min(good, key=lambda point: point.workers)

    @property
    def most_workers(self) -> int:
        """More are never proposed. Workers that compute need the cores that the training leaves free, rounded up."""
        loop = self.loop
        if self.cost.is_waiting or loop.cores is None:
            return MOST_WAITING_WORKERS
        training = min(loop.training_cores, loop.cores)
        busy = training * loop.rest_ns / max(self._least_step_ns(), loop.rest_ns)
        return min(max(ceil(round(loop.cores - busy, 6)), 1), MOST_WORKERS)

    def _least_workers(self) -> int:
        """The fewest workers that make batches as fast as the loop uses them."""
        made_ns = self._made_cpu_ns + self.cost.mean_wait_ns + self.cost.delay_ns
        needed = made_ns * self.loop.fetches * (1 - HIDDEN_SHARE) / max(self.loop.rest_ns, 1.0)
        return min(max(int(needed), 1), self.most_workers)

    def shortest_prefetch(self, workers: int) -> int | None:
        """Return the smallest ``prefetch_factor`` that hides the wait with these workers; None if none does."""
        low, high = self.loop.prefetch, LONGEST_PREFETCH
        if not self.at(workers, high).is_hidden:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.at(workers, middle).is_hidden else (middle, high)
        return low if self.at(workers, low).is_hidden else high


def mean_wait_ns(durations_ns: Float64, rest_ns: float, workers: int, prefetch: int) -> float:
    """Return the mean wait per batch, once the queue has settled.

    Args:
        durations_ns: time of a worker for each batch, in order; repeated as often as needed; shape ``(n,)``.
        rest_ns: time of the loop between two batches.
        workers: number of loader workers, at least 1.
        prefetch: batches that each worker prepares ahead, at least 1.
    """
    ahead = workers * prefetch
    settling = 2 * ahead
    whole = -(-max(int(durations_ns.size), FEWEST_BATCHES) // workers) * workers
    count = settling + min(whole, max(MOST_BATCHES // workers, 4) * workers)
    free_ns = [0.0] * workers
    """When each worker has made all batches so far."""
    taken_ns: list[float] = []
    now_ns = waited_ns = 0.0
    for number, made_ns in enumerate(islice(cycle(durations_ns.tolist()), count)):
        worker = number % workers
        asked_ns = taken_ns[number - ahead] if number >= ahead else 0.0
        ready_ns = max(free_ns[worker], asked_ns) + made_ns
        free_ns[worker] = ready_ns
        if ready_ns > now_ns:
            if number >= settling:
                waited_ns += ready_ns - now_ns
            now_ns = ready_ns
        taken_ns.append(now_ns)
        now_ns += rest_ns
    return waited_ns / (count - settling)


def mean_wait_in_any_order_ns(durations_ns: Float64, rest_ns: float, workers: int, prefetch: int) -> float:
    """Return the mean wait per batch of a loop that takes the first batch that is ready; arguments as above.

    An index goes to the next worker in turn that has fewer than ``prefetch`` unfinished or untaken batches.
    """
    count = 2 * workers * prefetch + min(max(int(durations_ns.size), FEWEST_BATCHES), MOST_BATCHES)
    made_ns = cycle(durations_ns.tolist())
    free_ns, held, ready = [0.0] * workers, [0] * workers, list[tuple[float, int]]()
    turn, now_ns, waited_ns = 0, 0.0, 0.0

    def ask() -> None:
        nonlocal turn
        while held[turn % workers] >= prefetch:
            turn += 1
        worker = turn % workers
        turn += 1
        held[worker] += 1
        free_ns[worker] = max(free_ns[worker], now_ns) + next(made_ns)
        heappush(ready, (free_ns[worker], worker))

    for _ in range(workers * prefetch):
        ask()
    for number in range(count):
        ready_ns, worker = heappop(ready)
        held[worker] -= 1
        if number >= 2 * workers * prefetch:
            waited_ns += max(ready_ns - now_ns, 0.0)
        now_ns = max(now_ns, ready_ns)
        ask()
        now_ns += rest_ns
    return waited_ns / (count - 2 * workers * prefetch)
