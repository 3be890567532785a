"""The worker curve of a recording, from all available figures on its loading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from traceadvisor.analysis.data.batch_cost import (
    WAITING_SHARE,
    BatchCost,
    cost_by_clocks,
    cost_by_loader_time,
    cost_by_samples,
    own_threads,
)
from traceadvisor.analysis.data.worker_curve import WORKER_FACTOR, Crowding, Loop, WorkerCurve
from traceadvisor.frozen import frozen
from traceadvisor.model.loader_time import LoaderTime, MakerPart
from traceadvisor.model.run import LoaderSettings, RunSettings, TimedBatch
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.telemetry_window import TelemetryWindow
from traceadvisor.model.verdict import FAR_TIMES, USUAL_NOISE

DEFAULT_PREFETCH = 2
"""Default ``prefetch_factor`` of a ``DataLoader`` with workers."""

BUSY_SHARE = 0.9
"""Share of CPU time in use. From this value on, threads wait for cores."""

THROTTLED_SHARE = 0.1
"""Share of scheduler periods with a used-up quota, from which threads wait for the quota."""

WAITING_LOOP_SHARE = 0.05
"""Share of the step spent waiting, from which the loop takes batches as fast as the workers make them."""

CROWDED_WAIT_SHARE = 0.5
"""The same on busy cores."""

MIN_OTHERS_SHARE = 0.2
"""Share of a machine's cores that other programs keep busy, from which they change how many workers help."""

MOST_CHANCE: float = (1 + USUAL_NOISE) ** FAR_TIMES
"""Factor by which workers are slower than the loop in its fastest steps, from which they are not late by chance,
however much the rest of the step varies: a comparison of two captures calls such a difference likely."""


@frozen(eq=False)
class Loading:
    """Figures on a loop and its loader. Times are means per step."""

    step_ns: float
    """Undisturbed, if a capture timed such steps."""

    wait_ns: float
    """Exposed wait for batches in it, without the time to receive those that are ready, if that is known."""

    loader_ns: float
    """Time in the data loader in it."""

    least_rest_ns: float
    """Shortest usual time of the step outside the loader."""

    fetches: float
    """Batches per step."""

    workers: int | None
    """Loader workers; None if unknown."""

    has_device: bool
    settings: RunSettings
    telemetry: TelemetryWindow | None
    """Over the undisturbed steps."""

    batches: Sequence[TimedBatch]
    undisturbed: SpanSet
    """Wall-clock spans of the undisturbed steps."""

    host_cores: int | None
    """Cores of the machine."""

    handover_ns: float | None = None
    """Exposed time in it to receive batches that workers have finished; None if unknown."""

    rest_spread: float | None = None
    """Factor within which the rest of the step lies in stretches of the run; None if unknown."""

    operator_share: float = 1.0
    """Share of the time in the data loader in operators, which may use several threads; 1 if unknown."""

    time: LoaderTime | None = None
    """The time of the loader by cause; None if no capture timed it."""

    threads_share: float = 1.0
    """Share of the time in the data loader in which threads of operators may compute, or spin after one."""

    def share_of_waits(self, part: MakerPart) -> float:
        """Share of a part in the time in which those who make batches wait for something else than a core, 0..1."""
        if self.time is None:
            return 0.0
        waits = [self.time.maker_share(one) for one in (MakerPart.THREADS, MakerPart.LOCK, MakerPart.WAITING)]
        return self.time.maker_share(part) / sum(waits) if sum(waits) else 0.0

    @property
    def batches_are_ready(self) -> bool:
        """Whether batches are known to be ready when the loop requests them, so that other workers save nothing."""
        return self.handover_ns is not None and self.wait_ns < WAITING_LOOP_SHARE * self.step_ns

    @property
    def rest_ns(self) -> float:
        """The step without its time in the loader."""
        return max(self.step_ns - self.loader_ns, 0.0)

    @property
    def cores_are_free(self) -> bool | None:
        """Whether cores are idle on average; None if unknown."""
        if self.telemetry is None:
            return None
        shares = (self.telemetry.node.mean_cpu_share, self.telemetry.processes.granted_cpu_share)
        known = [share for share in shares if share is not None]
        throttled = self.telemetry.processes.mean_throttled_share or 0.0
        return max(known) < BUSY_SHARE and throttled < THROTTLED_SHARE if known else None

    @property
    def fair_share(self) -> float | None:
        """The share of a core that a thread gets at least if it always wants one; None if unknown.

        The scheduler divides the cores evenly among the threads that want one: on average as many as the load.
        """
        load = self.telemetry.node.mean_load if self.telemetry else None
        return None if load is None or not self.host_cores else min(self.host_cores / max(load, 1.0), 1.0)

    def cores(self, *, beside_others: bool, of_waiting: bool = False) -> float | None:
        """Cores for this rank's training process and its workers; None if unknown.

        Args:
            beside_others: whether cores that other programs use do not count.
            of_waiting: whether loading mostly waits. Once that wait is hidden, the training process always wants a
                core; where other programs use all of them, it may get less than one.
        """
        if self.host_cores is None:
            return None if self.settings.cpu_quota is None else max(self._per_rank(self.settings.cpu_quota), 1.0)
        used = self.others_cores if beside_others else 0.0
        is_crowded = bool(used) and of_waiting and self.cores_are_full
        share = self._share_with_a_worker(used, by_load=is_crowded)
        least = min(self._per_rank(share), 1.0) if is_crowded else 1.0
        free = max(self.host_cores - used, share if self.workers == 0 or is_crowded else 0.0)
        return max(self._per_rank(min(free, self.settings.cpu_quota or free)), least)

    def _per_rank(self, cores: float) -> float:
        return cores / self.settings.ranks_on_host

    @property
    def cores_are_full(self) -> bool:
        """Whether all cores of the machine are in use."""
        share = self.telemetry.node.mean_cpu_share if self.telemetry else None
        return share is not None and share >= BUSY_SHARE

    def _share_with_a_worker(self, used: float, *, by_load: bool) -> float:
        """Cores that a training process and one worker get next to other programs.

        What a training process without workers leaves to others says little: its single thread can use one core. The
        scheduler divides the cores evenly among the threads that want one, and others want at least as many cores as
        they use; where all cores are in use, the load tells how many threads of theirs want one.
        """
        load = self.telemetry.node.mean_load if by_load and self.telemetry else None
        ranks = self.settings.ranks_on_host
        others = max(used, (load or 0.0) - ranks)
        return (self.host_cores or 0.0) * min(2.0 * ranks / (2.0 * ranks + others), 1.0)

    @property
    def others_cores(self) -> float:
        """Cores that other programs keep busy; 0 if unknown."""
        return (self.telemetry.others_cores(self.host_cores) if self.telemetry else None) or 0.0

    @property
    def is_beside_others(self) -> bool:
        """Whether other programs keep some of the machine's cores busy."""
        return self.others_cores >= MIN_OTHERS_SHARE * (self.host_cores or 1)

    @property
    def own_cores(self) -> float | None:
        """Cores that this rank's processes keep busy; None if unknown."""
        if self.telemetry is None or self.telemetry.processes.mean_cpu_cores is None:
            return None
        return self.telemetry.processes.mean_cpu_cores / self.settings.ranks_on_host

    @property
    def worker_cores(self) -> float | None:
        """Cores that this rank's loader workers keep busy together; None if they were not sampled."""
        sampled = self.telemetry.processes.workers if self.telemetry else ()
        busy = [worker.mean_cpu_cores for worker in sampled if worker.mean_cpu_cores is not None]
        return sum(busy) / self.settings.ranks_on_host if busy else None


def worker_curve(loading: Loading) -> WorkerCurve | None:
    """Return the step by number of workers; None if the cost of a batch is unknown."""
    cost = batch_cost(loading) if loading.fetches > 0 else None
    if cost is None:
        return None
    if cost.is_waiting:
        cost = replace(cost, delay_ns=(cost.core_wait_ns or 0.0) * _others_share(loading))
    threads = loading.settings.torch_threads or 1
    shared_ns = cost.mean_cpu_ns * loading.operator_share * (threads - 1)
    if cost.has_threads:  # one thread of each library was counted: the others may compute, too
        shared_ns += cost.native_ns * (max(loading.host_cores or 1, 1) - 1)
    cost = replace(cost, shared_ns=min(cost.beside_ns, shared_ns))
    loader = loading.settings.loader or LoaderSettings()
    rest_ns = max(loading.step_ns - loading.wait_ns - (loading.handover_ns or 0.0), 1.0)
    loop = Loop(
        rest_ns,
        loading.fetches,
        loader.prefetch_factor or DEFAULT_PREFETCH,
        # otherwise it is unknown whether workers need them
        loading.cores(beside_others=cost.is_split, of_waiting=cost.delay_ns > 0),
        _training_cores(loading, cost, rest_ns),
        WORKER_FACTOR if loading.workers == 0 else 1.0,
        (loading.handover_ns or 0.0) / loading.fetches,
        loader.in_order is not False,
    )
    return WorkerCurve(cost, loop)


def is_late_by_chance(loading: Loading, curve: WorkerCurve) -> bool:
    """Return whether workers are late, but by less than the rest of the step varies in this run.

    They are in time as soon as the rest takes longer, so the next run may have no wait. More workers then gain less
    than identical runs differ by. Workers that are far too slow for the fastest steps are not late by chance, nor are
    those that lack cores, or that the loop waits for longer than chance explains: other programs make the rest vary.
    """
    if loading.handover_ns is None or loading.rest_spread is None or not loading.workers or curve.cost.waits_for_cores:
        return False
    is_small = loading.wait_ns < (min(loading.rest_spread, MOST_CHANCE) - 1) * loading.rest_ns
    ready_ns = loading.least_rest_ns + loading.handover_ns
    fastest = curve.with_step(max(loading.least_rest_ns, 1.0))
    late_ns = fastest.at(loading.workers, crowding=Crowding.NONE).step_ns
    return is_small and not loading.batches_are_ready and late_ns < MOST_CHANCE * ready_ns


def batch_cost(loading: Loading) -> BatchCost | None:
    """Return the cost of a batch by the best source; None if none shows it. At least one batch per step is fetched."""
    free = loading.cores_are_free
    if loading.batches:
        threads = loading.settings.torch_threads or 1
        found = cost_by_clocks(
            loading.batches,
            loading.undisturbed,
            core_is_free=bool(free),
            threads=threads,
            own_threads=own_threads(loading.settings, loading.threads_share),
            beside_share=loading.share_of_waits(MakerPart.THREADS),
        )
        locked = loading.time.maker_share(MakerPart.LOCK) if loading.time else 0.0
        return found and replace(found, lock_share=locked)
    if loading.workers == 0:
        own = loading.own_cores
        most_cpu_ns = None if own is None else own * loading.step_ns / loading.fetches
        made_ns = loading.step_ns if loading.time and loading.time.is_from_thread else loading.loader_ns
        return cost_by_loader_time(made_ns / loading.fetches, most_cpu_ns)
    busy = loading.worker_cores
    if loading.workers is None or loading.wait_ns < WAITING_LOOP_SHARE * loading.step_ns:
        return None  # workers that are ahead of the loop take an unknown time for a batch
    if free is False and not _leaves_cores(loading, busy):
        return None  # so do workers without a core
    pace_ns = loading.step_ns / loading.fetches
    if busy is None:
        return cost_by_loader_time(loading.workers * pace_ns)
    return cost_by_samples(pace_ns, loading.workers, min(busy, float(loading.workers)))


def _leaves_cores(loading: Loading, busy: float | None) -> bool:
    """Whether workers on busy cores use far less than they would get, so that they mostly wait for something else.

    On busy cores, receiving a batch takes long, too. So the loop has to wait for most of the step.
    """
    fair = loading.fair_share
    if busy is None or fair is None or loading.wait_ns < CROWDED_WAIT_SHARE * loading.step_ns:
        return False
    return busy < (1 - WAITING_SHARE) * fair * (loading.workers or 1)


def _others_share(loading: Loading) -> float:
    """Return the share of the used cores that other programs use; 0 if unknown."""
    others, own = loading.others_cores, loading.telemetry.processes.mean_cpu_cores if loading.telemetry else None
    return others / (others + own) if others and own is not None else 0.0


def _training_cores(loading: Loading, cost: BatchCost, rest_ns: float) -> float:
    """Return the cores that the training process keeps busy while it does not load; 1 if unknown.

    With a GPU it launches kernels or waits for them, in one thread.
    """
    if loading.has_device or loading.own_cores is None:
        return 1.0
    used_ns = loading.own_cores * loading.step_ns - (
        (cost.mean_cpu_ns + cost.beside_ns) * loading.fetches if cost.is_split else 0.0
    )
    return min(max(used_ns / rest_ns, 0.1), float(loading.settings.torch_threads or 1))
