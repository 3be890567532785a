"""The limit of the loading of a run, so that one rule proposes one fix for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from weakref import WeakKeyDictionary

from traceadvisor.analysis.data.batch_cost import CostSource
from traceadvisor.analysis.data.loader_time import BLOCKING_POOLS
from traceadvisor.analysis.data.loading import Loading, is_late_by_chance
from traceadvisor.analysis.data.worker_curve import (
    NO_GAIN_SHARE,
    SENDING_NS,
    TAKING_NS,
    Crowding,
    Point,
    WorkerCurve,
)
from traceadvisor.model.findings import Clear, Estimate, Evidence, Unit
from traceadvisor.model.loader_time import LoaderPart, MakerPart
from traceadvisor.model.run import LoaderSettings
from traceadvisor.model.saving import of_the_fix
from traceadvisor.rules.base import Category, Facts, frozen
from traceadvisor.rules.data.loader_bursts import MOST_TAKING_NS, bursts
from traceadvisor.rules.data.worker_proposal import (
    BUSY_FACTOR,
    Proposal,
    busy_factor,
    proposal_of,
    sampler_share,
    without_others,
    workers_fix,
)

MIN_IO_SHARE = 0.5
"""I/O wait per loading process, as a share of its time. Half is the usual sign of slow storage."""

FEWEST_READERS = 4
"""Loading processes that read at the same time. A solid-state disk answers four requests at once about as fast as one,
and a hard disk answers one at a time. With fewer readers, more of them read more."""

HEAVY_COLLATE_SHARE = 0.5
"""Share of the loading thread's CPU time in collating, from which collating is the part to make cheaper."""

MOST_TAKING_SHARE = 0.2
"""Share of the undisturbed step below which the cost of taking a batch is no finding: only larger batches lower it."""

READY = "batches are ready in time; the training thread takes this long to receive one"

LATE_BY_CHANCE = "workers are late by less than the rest of the step varies"

RAN_AHEAD = "The CPU ran ahead of the GPU, so its clock does not show how long undisturbed steps take."

STACKED = "it stacks or pads whole tensors with one call already"

FULL_SHARE = 0.95
"""Share of all cores that a training without workers keeps busy, from which none is left for a worker. With 1.98 of 2,
one worker made steps 25% longer, and two 17%."""

MOSTLY = 0.5
"""Share of the time in the loader, from which one part of it is the limit."""

LEAST_WAITING = 0.1
"""Share of the time in the loader spent waiting for a worker, below which workers are not the limit."""

MOSTLY_IDLE = 0.8
"""Share of the run in which workers make no batch, from which they are not the limit."""

CHEAP_ROW_NS = 5_000
"""CPU time per sample, below which a batch costs mostly what Python does for each row: an index, a dict and collating
its scalars take 1 to 3 us."""

INDEX_NS, ROWS_BYTES_PER_NS = 150_000, 1.0
"""Time to take the rows of a batch from tensors in memory with one index, and bytes of rows that it copies per
nanosecond at least: 0.15 to 0.4 ms for batches of 16 to 256 rows of 76 to 12,000 bytes on two busy cores, where rows
one by one took 0.4 to 5.5 ms (``docs/rules/DATA001.md``)."""

MOST_LEFT = 0.5
"""Part of the time of a batch that one index may take at most, so that it is the fix."""

MIN_LOCK_SHARE = 0.2
"""Share of the time to make a batch spent waiting for a lock. Two workers of which each holds it for a fifth of a batch
wait less."""

FEWEST_LOCKED = 2
"""Workers: one alone waits for the training process or for a server, and another one may help."""

UNKNOWN_SPIN = "how much of the CPU time of native threads is busy waiting is unknown"

OF_LOADERS = frozenset({"RandomSampler", "SequentialSampler"})
"""Samplers that a loader makes by itself."""


class Limit(Enum):
    """The limit of loading."""

    WORKERS = "workers"
    """More workers deliver batches faster."""

    CORES = "cores"
    """Batches need CPU time, and no core is free for it."""

    STORAGE = "storage"
    """Several processes wait for the same disk."""

    BURSTS = "bursts"
    """The loader is fast enough on average, and late at times."""

    HANDOVER = "handover"
    """Workers make batches fast enough; the training thread takes long to receive one."""

    SAMPLER = "sampler"
    """The training process takes long to choose the samples of a batch."""

    LOCK = "lock"
    """Workers wait for a lock that one of them holds."""

    THREADS = "threads"
    """Native libraries compute in threads of their own, on all cores already."""

    NOTHING = "nothing"
    """More workers would not shorten the step, even with a core each."""

    UNKNOWN = "unknown"


NOT_WORKERS = {
    Limit.SAMPLER: "most of the time in the data loader is the sampler's",
    Limit.LOCK: "workers wait for a lock that one of them holds",
    Limit.HANDOVER: READY,
}
"""Why the loop waits, if neither workers nor what they do is the reason."""

WITHOUT_WORKERS = {
    Limit.SAMPLER: NOT_WORKERS[Limit.SAMPLER],
    Limit.CORES: "loading needs CPU time, and no core is free for a worker",
    Limit.STORAGE: "storage limits data loading",
    Limit.NOTHING: "workers would not shorten the step",
    Limit.THREADS: "threads of native libraries use the cores already",
    Limit.UNKNOWN: "with so few CPU cores, workers may not shorten the step",
}
"""Why workers are not proposed."""


@frozen(eq=False)
class LoadingLimit:
    """The limit of the loading, and the proposal if it is the number of workers."""

    kind: Limit
    proposal: Proposal | None = None
    """Set for :attr:`Limit.WORKERS` alone: the fewest workers that hide the wait, or come as close as cores allow."""


_KNOWN: WeakKeyDictionary[Facts, LoadingLimit] = WeakKeyDictionary()
"""Several rules ask the same of one recording, and the answer takes simulations."""


def wait_share(facts: Facts) -> float:
    """Return the share of the step spent waiting for data: of undisturbed steps with workers, else of recorded if less.

    A recording slows down the loader, and may hold the start of an epoch; it slows the training down, too, so that
    workers get ahead. Undisturbed steps usually wait less where a loader with workers is late at times; then recorded
    ones count.
    """
    share, loading, timing = facts.share(facts.claim(Category.DATA_WAIT)), facts.loading, facts.timing
    if not timing.undisturbed_ns or timing.undisturbed_loader_ns is None:
        return share
    if loading is None or not loading.workers:
        return min(share, timing.undisturbed_loader_ns / timing.undisturbed_ns)
    if bursts(facts.run.steps, loading.workers, is_fast=usually_fast(facts)):
        return share
    return (loading.wait_ns + (loading.handover_ns or 0.0)) / loading.step_ns


def loading_limit(facts: Facts) -> LoadingLimit:
    """Return what limits the loading; only meaningful if the loop waits."""
    if facts not in _KNOWN:
        _KNOWN[facts] = _limit(facts)
    return _KNOWN[facts]


def _limit(facts: Facts) -> LoadingLimit:  # noqa: C901, PLR0911, PLR0912  # one answer per kind of limit
    loading, curve = facts.loading, facts.worker_curve
    workers = loading.workers if loading else None
    if kind := shown_cause(facts):
        return LoadingLimit(kind)
    if workers and is_dear_to_send(facts):
        return LoadingLimit(Limit.HANDOVER)
    if workers and bursts(facts.run.steps, workers, is_fast=usually_fast(facts)):
        return LoadingLimit(Limit.BURSTS)
    if storage_share(facts) >= MIN_IO_SHARE and (workers or 1) >= FEWEST_READERS:
        return LoadingLimit(Limit.STORAGE)
    if loading is None or curve is None or workers is None:
        return LoadingLimit(Limit.UNKNOWN)
    computes = curve.cost.is_split and not curve.cost.is_waiting
    is_timed = curve.cost.source is CostSource.CLOCKS
    if workers and is_timed and _workers_suffice(loading, curve):
        # With a core each they are fast enough: either they have none, or it takes long to receive a batch.
        lacks_cores = computes and (curve.cost.waits_for_cores or not curve.at(workers).is_hidden)
        return LoadingLimit(Limit.CORES if lacks_cores else Limit.HANDOVER)
    handed_over_ns = (TAKING_NS + SENDING_NS) * busy_factor(loading)
    if not workers and (_batch_ns(facts, loading) <= handed_over_ns or _has_cheap_rows(facts, curve)):
        return LoadingLimit(Limit.NOTHING)
    point = curve.best() if _leaves_a_core(loading) else curve.at(workers)
    if point.workers > workers and point.step_ns < (1 - NO_GAIN_SHARE) * loading.step_ns:
        proposal = proposal_of(facts, loading, curve, point)
        saving, least_ns = proposal.saving, NO_GAIN_SHARE * (facts.step_ns or 0.0)
        is_sure = not curve.cost.has_threads or _has_room(curve, point)
        if (saving.expected_ns if is_sure else saving.low_ns) >= least_ns:
            return LoadingLimit(Limit.WORKERS, proposal)
        if saving.expected_ns < least_ns and not computes:  # the simulation also counts the time to take a batch
            return LoadingLimit(Limit.NOTHING)
    if loading.is_beside_others and (crowded := without_others(facts, loading, curve)):
        return LoadingLimit(Limit.WORKERS, crowded)
    if curve.cost.has_threads:
        return _threads_limit(facts, loading, curve)
    unlimited = WorkerCurve(curve.cost, replace(curve.loop, cores=None)).best()
    would_gain = unlimited.step_ns < (1 - NO_GAIN_SHARE) * loading.step_ns
    if not would_gain:
        return LoadingLimit(Limit.NOTHING)
    return LoadingLimit(Limit.CORES if curve.cost.is_split else Limit.UNKNOWN)


def _has_cheap_rows(facts: Facts, curve: WorkerCurve) -> bool:
    """Whether a batch costs mostly what Python does for each row, so that one index for all of them saves most."""
    loader = facts.settings.loader
    if loader is None or not loader.batch_size or curve.cost.source is not CostSource.CLOCKS or curve.cost.is_waiting:
        return False
    if (index_ns := one_index_ns(loader)) is not None:
        return index_ns <= MOST_LEFT * curve.cost.mean_cpu_ns
    return loader.collates is True and curve.cost.mean_cpu_ns <= CHEAP_ROW_NS * loader.batch_size


def is_dear_to_send(facts: Facts) -> bool:
    """Return whether no worker should make these batches: they cost more to hand over than to make with one index."""
    curve = facts.worker_curve
    return curve is not None and _has_cheap_rows(facts, curve) and _costs_more_to_send(facts)


def _costs_more_to_send(facts: Facts) -> bool:
    """Return whether a worker makes a batch in less CPU time than both processes take to hand it over."""
    loading, time = facts.loading, facts.loader_time
    if loading is None or time is None or not loading.fetches or not time.makers:
        return False
    made_ns = sum(map(time.per_batch_ns, (MakerPart.COMPUTING, MakerPart.THREADS, MakerPart.WAITING)))
    received_ns = time.per_step_ns(LoaderPart.RECEIVING) if time.sample_count else 0.0
    received_ns = (received_ns if loading.handover_ns is None else loading.handover_ns) / loading.fetches
    return made_ns < received_ns + _sending_ns(loading)


def _sending_ns(loading: Loading) -> float:
    """Mean CPU time per batch of workers beside what makes it: a thread that pickles batches takes it."""
    sent = [
        batch.process_cpu_ns - batch.thread_cpu_ns - batch.threads_cpu_ns
        for batch in loading.batches
        if batch.worker is not None and batch.threads_cpu_ns is not None
    ]
    return max(sum(sent) / len(sent), 0.0) if sent else 0.0


def one_index_ns(loader: LoaderSettings | None) -> float | None:
    """Return how long one index takes for all rows of a batch of tensors in memory; None for other data."""
    if loader is None or loader.tensor_row_bytes is None or not loader.batch_size:
        return None
    return INDEX_NS + loader.batch_size * loader.tensor_row_bytes / ROWS_BYTES_PER_NS


def lacks_cores(facts: Facts) -> bool:
    """Return whether workers wait for cores, because all are in use or they and the training need more than they get.

    Then the loading lengthens the whole step, not its wait alone: workers take cores from the training.
    """
    loading, curve = facts.loading, facts.worker_curve
    if loading is None or not loading.workers or curve is None or curve.cost.source is not CostSource.CLOCKS:
        return False
    if curve.cost.is_waiting or not curve.cost.waits_for_cores:
        return False
    return loading.cores_are_full or not curve.at(loading.workers).is_hidden


def shown_cause(facts: Facts) -> Limit | None:
    """Return the limit that samples of the training thread and of its workers show; None if workers may be it."""
    time, curve, workers = facts.loader_time, facts.worker_curve, facts.loading.workers if facts.loading else None
    if workers == 0 and sampler_share(facts) >= MOSTLY:
        return Limit.SAMPLER
    if not workers:
        return None
    if time and time.sample_count:
        waiting = time.share(LoaderPart.WAITING) + time.share(LoaderPart.QUEUE)
        if time.share(LoaderPart.SAMPLER) >= MOSTLY:
            return Limit.SAMPLER
        are_idle = time.idle_share >= MOSTLY_IDLE
        is_slowed = _is_late_while_received(facts) or lacks_cores(facts)
        receives = time.share(LoaderPart.RECEIVING) >= MOSTLY and not is_slowed
        if receives and (waiting < LEAST_WAITING or are_idle):
            return Limit.HANDOVER
    if curve and workers >= FEWEST_LOCKED and curve.cost.lock_share >= MIN_LOCK_SHARE:
        return Limit.LOCK
    return None


def _is_late_while_received(facts: Facts) -> bool:
    """Whether batches that were ready took far less: a worker without a core is late to pass on the memory, too."""
    loading = facts.loading
    if loading is None or loading.handover_ns is None:
        return False
    return loading.handover_ns < MOSTLY * loading.loader_ns


def _leaves_a_core(loading: Loading) -> bool:
    """Whether the training without workers does not use all cores already, by several threads of its operators."""
    own, cores = loading.own_cores, loading.cores(beside_others=False)
    return bool(loading.workers) or own is None or cores is None or own < FULL_SHARE * cores or cores <= 1


def _has_room(curve: WorkerCurve, point: Point) -> bool:
    """Whether each worker has a core beside the training."""
    return curve.loop.cores is None or curve.loop.cores >= curve.loop.training_cores + point.workers


def _threads_limit(facts: Facts, loading: Loading, curve: WorkerCurve) -> LoadingLimit:
    """The limit where other threads of the loading process take a notable part of its CPU time.

    How much of that is busy waiting is unknown. If all of it were, workers with one thread each would gain most. Of
    libraries whose threads sleep between two calls it is work, for which no core is free.
    """
    if BLOCKING_POOLS.intersection(facts.settings.thread_pools) and not _has_room(curve, curve.best()):
        return LoadingLimit(Limit.THREADS)
    most = WorkerCurve(curve.cost.single_threaded(), curve.loop)
    point = most.best()
    gained_ns = loading.step_ns - point.step_ns
    if loading.workers or gained_ns < NO_GAIN_SHARE * loading.step_ns:
        return LoadingLimit(Limit.THREADS)
    fix = workers_fix(facts, loading, most, point)
    return LoadingLimit(Limit.WORKERS, Proposal(point, fix, Estimate.bound(gained_ns, of_the_fix(UNKNOWN_SPIN))))


def _workers_suffice(loading: Loading, curve: WorkerCurve) -> bool:
    """Whether workers with a core each make batches as fast as the loop takes them, or would, but for chance."""
    if is_late_by_chance(loading, curve):
        return True
    return loading.batches_are_ready or curve.at(loading.workers or 0, crowding=Crowding.NONE).is_hidden


def usual_time(facts: Facts) -> str | None:
    """Return a remark if the wait is what taking a batch from any worker costs, and not known to be for slow workers.

    Only undisturbed steps tell. If a fifth of such a step takes batches, that is worth a fix even then.
    """
    loading, curve, timing = facts.loading, facts.worker_curve, facts.timing
    if loading is None or not loading.workers or timing.undisturbed_loader_ns is None or not timing.undisturbed_ns:
        return None
    if curve and (lacks_cores(facts) or not _workers_suffice(loading, curve)):
        return None
    if loading.loader_ns > MOST_TAKING_SHARE * loading.step_ns and is_dear_to_send(facts):
        return None
    most_ns = MOST_TAKING_NS * (BUSY_FACTOR if loading.is_beside_others else 1.0) * max(loading.fetches, 1.0)
    taking_ns = least_ns = timing.undisturbed_loader_ns
    by_chance = curve is not None and is_late_by_chance(loading, curve)
    if loading.handover_ns is not None and (by_chance or loading.batches_are_ready):
        taking_ns = loading.handover_ns
        # a machine in a slow phase lengthens the rest of the step as well
        least_ns = taking_ns * min(loading.least_rest_ns / max(loading.rest_ns, 1.0), 1.0)
    is_usual = least_ns <= most_ns and taking_ns <= MOST_TAKING_SHARE * timing.undisturbed_ns
    usual = LATE_BY_CHANCE if by_chance else "taking a batch from any worker costs about as much"
    return usual if is_usual else None


def no_wait(facts: Facts, min_share: float, *others: Callable[[Facts], str | None]) -> Clear | None:
    """Return the passed check of a rule on data wait; None if the loop waits for long, and for no usual reason.

    ``others``: return a remark each if the wait has another reason than the rule's.
    """
    share = wait_share(facts)
    if share < min_share:
        return Clear("data wait", share, min_share, Unit.SHARE)
    remark = next(filter(None, (tell(facts) for tell in (usual_time, *others))), None)
    return Clear("data wait", share, min_share, Unit.SHARE, remark) if remark else None


def workers_keep_up(facts: Facts) -> bool:
    """Return whether batches are known to be ready when the loop requests them, or late by chance."""
    loading, curve = facts.loading, facts.worker_curve
    if loading is None or curve is None:
        return False
    return loading.batches_are_ready or is_late_by_chance(loading, curve)


def not_workers(facts: Facts) -> str | None:
    """Return why the loop waits, if samples show that neither workers nor what they do is the reason."""
    cause = shown_cause(facts)
    return NOT_WORKERS.get(cause) if cause else None


def received_only(facts: Facts) -> str | None:
    """Return a remark if most of the time in the loader receives batches that are ready, and cores are free."""
    loading, curve = facts.loading, facts.worker_curve
    if loading is None or curve is None or loading.handover_ns is None:
        return None
    by_chance = is_late_by_chance(loading, curve)
    if not by_chance and loading.wait_ns >= loading.handover_ns:
        return None
    if loading_limit(facts).kind is Limit.HANDOVER:
        return LATE_BY_CHANCE if by_chance else READY
    return None


def stacks_only(facts: Facts) -> str | None:
    """Return a remark if workers gain nothing, and most of the loading stacks tensors that are ready."""
    line = facts.run.loader_line
    return STACKED if line and line.only_stacks and loading_limit(facts).kind is Limit.NOTHING else None


def _batch_ns(facts: Facts, loading: Loading) -> float:
    """Undisturbed time of the training process to load a batch; endless if no undisturbed step was timed."""
    loader_ns = facts.timing.undisturbed_loader_ns
    return float("inf") if loader_ns is None else loader_ns / max(loading.fetches, 1e-9)


def usually_fast(facts: Facts) -> bool | None:
    """Return whether the workers make usual batches faster than the loop uses them; None if not timed."""
    loading, curve = facts.loading, facts.worker_curve
    if loading is None or not loading.workers or curve is None or curve.cost.source is not CostSource.CLOCKS:
        return None
    return WorkerCurve(curve.cost.usual(), curve.loop).at(loading.workers).is_hidden


def storage_share(facts: Facts) -> float:
    """Return the I/O wait per loading process, as a share of its time; 0 if it was not measured."""
    telemetry, cores = facts.run.telemetry, facts.run.host_cores
    if telemetry is None or telemetry.node.mean_iowait_share is None or not cores:
        return 0.0
    processes = max(facts.run.worker_count or 1, 1) * facts.settings.ranks_on_host
    return telemetry.node.mean_iowait_share * cores / processes


def cost_evidence(facts: Facts) -> tuple[Evidence | None, ...]:
    """Return the figures of the cost of a batch."""
    curve = facts.worker_curve
    if curve is None:
        return ()
    cost = curve.cost
    if not cost.is_split:
        return (Evidence("time to load a batch", cost.mean_ns, Unit.NS),)
    return (
        Evidence("CPU time per batch", cost.mean_cpu_ns, Unit.NS),
        Evidence("waiting time per batch", cost.mean_wait_ns, Unit.NS),
        facts.known("CPU time of native threads per batch", cost.native_ns if cost.has_threads else None, Unit.NS),
        facts.known("share of the time of a batch waiting for a lock", cost.lock_share or None, Unit.SHARE),
        facts.known("share of CPU time in collate_fn", cost.collate_share, Unit.SHARE),
        facts.known("wait for a CPU core per batch", cost.core_wait_ns or None, Unit.NS),
    )
