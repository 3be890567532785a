"""What limits the loading of a run, so that one rule proposes one fix for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from traceadvisor.analysis.data.batch_cost import BatchCost, CostSource
from traceadvisor.analysis.data.worker_curve import NO_GAIN_SHARE, Crowding, Point, WorkerCurve
from traceadvisor.replay.fixes.loader_workers import LoaderWorkers, MadeBatch
from traceadvisor.rules.base import Estimate, Evidence, Facts, Fix, Method, Unit
from traceadvisor.rules.data.loader_bursts import Bursts, bursts

MIN_IO_SHARE = 0.5
"""I/O wait per loading process, as a share of its time. Half is the usual sign of slow storage."""

FEWEST_READERS = 4
"""Loading processes that read at the same time. A solid-state disk answers four requests at once about as fast as one,
and a hard disk answers one at a time. With fewer readers, more of them read more."""

HEAVY_COLLATE_SHARE = 0.5
"""Share of the loading thread's CPU time in collating, from which collating is the part to make cheaper."""

SLOWER_TRAINING = 0.1
"""Share by which the rest of the step is assumed to grow at most, as for simulated savings (``docs/how-savings-are-
estimated.md``)."""

WAITS_FOR_CORES_SHARE = 0.5
"""Time that a loading thread waits for a core, as a share of its CPU time. Short delays by other threads are less."""


class Limit(Enum):
    """What limits the loading."""

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

    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, eq=False)
class LoadingLimit:
    """What limits the loading, and the best number of workers."""

    kind: Limit
    best: Point | None = None
    """The fewest workers that hide the wait, or that come as close as the cores allow; None if unknown."""

    uneven: Bursts | None = None


def loading_limit(facts: Facts) -> LoadingLimit:
    """Return what limits the loading; only meaningful if the loop waits."""
    loading, curve = facts.loading, facts.worker_curve
    workers = loading.workers if loading else None
    if workers and (uneven := bursts(facts.run.steps, workers)):
        return LoadingLimit(Limit.BURSTS, uneven=uneven)
    if storage_share(facts) >= MIN_IO_SHARE and (workers or 1) >= FEWEST_READERS:
        return LoadingLimit(Limit.STORAGE)
    if loading is None or curve is None or workers is None:
        return LoadingLimit(Limit.UNKNOWN)
    best = curve.fewest()
    gains = best.step_ns < (1 - NO_GAIN_SHARE) * loading.step_ns
    if workers and curve.cost.source is CostSource.CLOCKS and curve.at(workers, crowding=Crowding.NONE).is_hidden:
        # Workers that had a core each would be fast enough: either they have none, or taking a batch takes long.
        lacks_cores = not curve.at(workers).is_hidden
        return LoadingLimit(Limit.CORES if lacks_cores or _without_cores(curve.cost) else Limit.HANDOVER, best)
    if best.workers > workers and gains:
        return LoadingLimit(Limit.WORKERS, best)
    computes = curve.cost.is_split and not curve.cost.is_waiting
    return LoadingLimit(Limit.CORES if computes else Limit.UNKNOWN, best)


def _without_cores(cost: BatchCost) -> bool:
    """Whether loading threads wait for a core about as long as they compute."""
    return (cost.core_wait_ns or 0.0) >= WAITS_FOR_CORES_SHARE * max(cost.mean_cpu_ns, 1.0)


def storage_share(facts: Facts) -> float:
    """Return the I/O wait per loading process, as a share of its time; 0 if it was not measured."""
    telemetry, cores = facts.run.telemetry, facts.run.host_cores
    if telemetry is None or telemetry.node.mean_iowait_share is None or not cores:
        return 0.0
    processes = max(facts.run.worker_count or 1, 1) * facts.settings.ranks_on_host
    return telemetry.node.mean_iowait_share * cores / processes


def with_workers(facts: Facts, point: Point, summary: str) -> tuple[Fix, Estimate]:
    """Return the fix that sets this number of workers, and its saving: simulated, else by the worker curve."""
    curve, loading = facts.worker_curve, facts.loading
    assert curve  # noqa: S101  # the point comes from it
    assert loading  # noqa: S101  # and the curve from this
    edit = _edit(curve, point, is_beside=loading.workers != 0)
    fix = Fix(summary, loader_code(facts, num_workers=point.workers, persistent_workers=True), edit)
    simulated = facts.saving(fix, loading.wait_ns)
    if simulated.method is Method.REPLAY or curve.cost.source is CostSource.LOADER_TIME:
        return fix, simulated
    return fix, _by_curve(curve, point, loading.step_ns)


def loader_code(facts: Facts, **arguments: object) -> str:
    """Return the call that makes the loader with changed arguments, as code."""
    loader = facts.settings.loader
    before = {
        "num_workers": loader.worker_count if loader else None,
        "prefetch_factor": loader.prefetch_factor if loader else None,
    }
    if before["num_workers"] is None and facts.loading and facts.loading.workers == 0:
        before["num_workers"] = 0
    changed = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    old = [f"{name}={before[name]}" for name in arguments if before.get(name) not in (None, arguments[name])]
    note = f"instead of {', '.join(old)}; " if old else ""
    return f"DataLoader(dataset, {changed})  # {note}keep the other arguments"


def _edit(curve: WorkerCurve, point: Point, *, is_beside: bool) -> LoaderWorkers:
    """Return the edit; ``is_beside``: workers load already, so the loop does not show how long a batch takes."""
    cost, loop = curve.cost, curve.loop
    even = WorkerCurve(cost.even(), loop).at(point.workers)
    made = None
    if cost.source is not CostSource.LOADER_TIME or is_beside:
        uneven_ns = max(point.wait_ns - even.wait_ns, 0.0) / max(loop.fetches, 1e-9)
        made = MadeBatch(cost.mean_cpu_ns, cost.mean_wait_ns, uneven_ns)
    return LoaderWorkers(point.workers, loop.cores, loop.prefetch, made, loop.training_cores)


def _by_curve(curve: WorkerCurve, point: Point, step_ns: float) -> Estimate:
    """Return the saving by the worker curve; low: all processes compute at once, and the training slows down."""
    worst = curve.at(point.workers, crowding=Crowding.WORST)
    slowed_ns = worst.step_ns + curve.loop.rest_ns * SLOWER_TRAINING
    steps_ns = (slowed_ns, point.step_ns, curve.at(point.workers, crowding=Crowding.NONE).step_ns)
    low_ns, expected_ns, high_ns = sorted(max(step_ns - one, 0.0) for one in steps_ns)
    return Estimate(low_ns, expected_ns, high_ns, Method.MODEL)


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
        facts.known("share of CPU time in collate_fn", cost.collate_share, Unit.SHARE),
        facts.known("wait for a CPU core per batch", cost.core_wait_ns or None, Unit.NS),
    )


def core_caveats(facts: Facts, workers: int) -> tuple[str, ...]:
    """Return what to know before using this many workers."""
    curve = facts.worker_curve
    memory = "Each worker holds its own copy of the data set's Python objects and its prefetched batches."
    if curve is None or not curve.cost.is_split:
        unknown = "It was not recorded whether loading uses the CPU or waits. Workers that compute need a core each."
        return (unknown, memory)
    if curve.cost.is_waiting:
        waits = "Workers that wait need no core."
        if curve.loop.cores is not None and workers > curve.loop.cores:
            waits += " So you can ignore PyTorch's warning about more workers than cores."
        return (waits, "A disk or server may answer more slowly when more workers ask.", memory)
    return ("With few CPU cores the gain is smaller: workers and the training thread share them.", memory)
