"""The number of loader workers to propose: the fix that sets it, its saving, and what to know before using it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from traceadvisor.analysis.data.batch_cost import CostSource
from traceadvisor.analysis.data.loading import Loading
from traceadvisor.analysis.data.worker_curve import (
    MOST_WAITING_WORKERS,
    NO_GAIN_SHARE,
    TAKING_NS,
    Crowding,
    Point,
    WorkerCurve,
)
from traceadvisor.model.findings import Estimate, Fix, Method
from traceadvisor.model.loader_time import LoaderPart
from traceadvisor.model.saving import of_the_fix
from traceadvisor.replay.fixes.loader_workers import LoaderWorkers, MadeBatch
from traceadvisor.rules.base import Category, Facts, Part, frozen
from traceadvisor.savings.estimates import saving_of

SLOWER_TRAINING = 0.1
"""Share by which the rest of the step is assumed to grow at most, as for simulated savings (``docs/how-savings-are-
estimated.md``)."""

BUSY_FACTOR = 2.0
"""Time to take a batch while other programs use the cores, relative to an idle machine: two threads share a core."""

WAIT_LESS = "Fetch many samples at once, read ahead in threads, or keep a local copy of the data"

OTHER_NUMBERS = "Workers draw other random numbers: with random augmentation, the loss differs even with the same seed."

NO_FREE_CORE = "no CPU core was free beside other programs, so what more workers would get is unknown"

CAVEATS_OF_THREADS = (
    "Limit the threads first: workers whose libraries use all cores slow each other down, and may be slower than none.",
    "The variables also hold in the training process. In a worker_init_fn, threadpoolctl limits workers alone.",
)

ONE_THREAD = {
    "OpenBLAS": ("OPENBLAS_NUM_THREADS", "1"),
    "MKL": ("MKL_NUM_THREADS", "1"),
    "BLIS": ("BLIS_NUM_THREADS", "1"),
    "libiomp5": ("OMP_NUM_THREADS", "1"),
    "OpenCV": ("OPENCV_FOR_THREADS_NUM", "1"),
    "tokenizers": ("TOKENIZERS_PARALLELISM", "false"),
    "Arrow": ("OMP_NUM_THREADS", "1"),
    "Polars": ("POLARS_MAX_THREADS", "1"),
}
"""The environment variable that limits a library to one thread, by its documentation, and its value."""


@frozen(eq=False)
class Proposal:
    """Another number of workers."""

    point: Point
    fix: Fix
    saving: Estimate
    alone_ns: float | None = None
    """Saving of workers that compute if no other program used cores, in the time of the recorded step. None if unknown:
    workers load already, or other programs do not matter."""


def sampler_share(facts: Facts) -> float:
    """The share of the sampler in the time in the loader: workers do not take it over. 0 without samples."""
    time = facts.loader_time
    return time.share(LoaderPart.SAMPLER) if time and time.sample_count else 0.0


def busy_factor(loading: Loading) -> float:
    """How many times as long it takes to hand over a batch as on an idle machine."""
    return BUSY_FACTOR if loading.cores_are_full and loading.is_beside_others else 1.0


def unsaved_ns(facts: Facts, loading: Loading) -> float:
    """Time of a step in the loader that no worker saves: choosing samples, and taking a batch in undisturbed steps."""
    is_timed = facts.timing.undisturbed_loader_ns is not None
    taking_ns = TAKING_NS * loading.fetches * busy_factor(loading) if is_timed else 0.0
    return min(sampler_share(facts) * loading.loader_ns + taking_ns, loading.loader_ns)


def workers_fix(facts: Facts, loading: Loading, curve: WorkerCurve, point: Point) -> Fix:
    """Return the fix that sets these workers, and one thread in each where native libraries have several."""
    arguments = {"num_workers": point.workers, "persistent_workers": True}
    if point.prefetch != curve.loop.prefetch:
        arguments["prefetch_factor"] = point.prefetch
    summary = "Use enough workers to hide the loading"
    if loading.workers == 0:
        summary = "Load batches in worker processes while the step runs"
    if curve.cost.is_waiting and point.workers == MOST_WAITING_WORKERS and not point.is_hidden:
        less = f"{WAIT_LESS[:1].lower()}{WAIT_LESS[1:]}"
        summary = f"Use {point.workers} workers, which still leave a wait. To remove it, {less}"
    limits = bool(facts.worker_curve and facts.worker_curve.cost.has_threads)
    if limits:
        summary = "Load batches in worker processes, and limit the threads of native libraries to one per worker"
    fix = loader_fix(facts, summary, arguments)
    if not limits:
        return fix
    settings = {**fix.settings, "native_threads": 1}
    return replace(fix, change=f"{one_thread(facts)}\n\n{fix.change}", settings=settings, caveats=CAVEATS_OF_THREADS)


def one_thread(facts: Facts) -> str:
    """Return the code that limits native libraries to one thread in the workers, and in the training process."""
    pools = facts.settings.thread_pools
    known = dict.fromkeys(line for pool, line in ONE_THREAD.items() if pool in pools) or {ONE_THREAD["OpenBLAS"]: None}
    lines = (f'os.environ["{name}"] = "{value}"' for name, value in known)
    return "\n".join(("import os  # in the first lines of the script", "", *lines))


def with_cores(loading: Loading, curve: WorkerCurve, *, beside_others: bool) -> WorkerCurve:
    """Return the curve with the cores that other programs leave, or with all of them.

    Without a GPU, workers and other programs on full cores delay the rest of the step: alone, it is its CPU time.
    """
    loop = replace(curve.loop, cores=loading.cores(beside_others=beside_others))
    if loading.workers and not loading.has_device and loading.cores_are_full:  # else it waits for something else
        training = loop.training_cores
        loop = replace(loop, rest_ns=loop.rest_ns * min(training, 1.0), training_cores=max(training, 1.0))
    return replace(curve, loop=loop)


def steps_with_less_work(
    loading: Loading, curve: WorkerCurve, removed: float, *, beside_others: bool
) -> tuple[float, float]:
    """Return the step of these workers as it is, and without a share of the CPU time of a batch."""
    now = with_cores(loading, curve, beside_others=beside_others)
    cost = replace(now.cost, cpu_ns=now.cost.cpu_ns * (1 - removed))
    as_it_is, changed = (one.at(loading.workers or 0).step_ns for one in (now, replace(now, cost=cost)))
    return as_it_is, changed


def _alone(loading: Loading, curve: WorkerCurve, workers: int | None = None) -> tuple[Point, float] | None:
    """Return the best setting without other programs, and its saving in the time of the recorded step.

    ``workers``: their number if that is settled.

    Loading takes longer beside other programs, and so does the rest of a step without a GPU. CPU time tells the share
    of the loading that is saved; other programs are assumed to lengthen the rest as much. Beside workers, the CPU time
    of the training tells how long the rest takes.
    """
    if loading.workers is None or not curve.cost.is_split or curve.cost.is_waiting or curve.cost.has_threads:
        return None
    free = with_cores(loading, curve, beside_others=False)
    if not loading.workers and not loading.has_device:
        longer = max(loading.loader_ns / max(curve.cost.mean_ns * loading.fetches, 1.0), 1.0)
        free = free.with_step(curve.loop.rest_ns / longer)
    now, then = free.at(loading.workers), free.at(workers) if workers else free.best()
    saved_ns = max(now.step_ns - then.step_ns, 0.0)
    if loading.workers:
        return then, saved_ns / max(now.step_ns, 1.0) * loading.step_ns
    return then, min(saved_ns / max(now.wait_ns, 1.0), 1.0) * loading.loader_ns


def without_others(facts: Facts, loading: Loading, curve: WorkerCurve) -> Proposal | None:
    """Return the workers that save time only while other programs leave them a core: an upper limit."""
    if (alone := _alone(loading, curve)) is None or alone[1] < NO_GAIN_SHARE * loading.step_ns:
        return None
    point, alone_ns = alone
    waits_ns = facts.per_step_ns(facts.claim(Category.DATA_WAIT))
    most_ns = min(alone_ns, waits_ns, loading.loader_ns - unsaved_ns(facts, loading))
    if most_ns < NO_GAIN_SHARE * loading.step_ns:
        return None
    saving = Estimate.bound(most_ns, of_the_fix(NO_FREE_CORE))
    return Proposal(point, workers_fix(facts, loading, curve, point), saving, alone_ns)


def proposal_of(facts: Facts, loading: Loading, curve: WorkerCurve, point: Point) -> Proposal:
    """Return the fix that sets these workers, and its saving: simulated, else by the worker curve."""
    even = curve.even()
    unequal_ns = (curve.at(loading.workers or 0).wait_ns, -even.at(loading.workers or 0).wait_ns)
    edit = _edit(curve, even, point, is_beside=loading.workers != 0)
    fix = replace(workers_fix(facts, loading, curve, point), what_if=edit)
    if sum(unequal_ns) > NO_GAIN_SHARE * loading.step_ns:  # the simulated steps lack the longest batches
        share = loading.step_ns / max(curve.at(loading.workers or 0).step_ns, 1.0)
        return Proposal(point, fix, _by_curve(curve, point, curve.at(loading.workers or 0).step_ns, share))
    waits = facts.claim(Category.DATA_WAIT)
    is_crowded = loading.cores_are_full and loading.is_beside_others
    simulated = saving_of(facts, fix, waits)
    saving = simulated
    is_trusted = facts.replay is not None and not facts.replay.doubt(edit)
    is_free = is_trusted and not (is_crowded and curve.cost.delay_ns)  # a replay promises a core
    if curve.cost.source is not CostSource.LOADER_TIME and not is_free:
        saving = _by_curve(curve, point, loading.step_ns, 1.0)
    if is_crowded and loading.workers == 0 and not curve.cost.is_waiting:
        # beside the same programs, each worker takes as long for a batch as the training thread did
        left_ns = unsaved_ns(facts, loading)
        made_ns = (loading.loader_ns - left_ns) / point.workers
        most_ns = max(loading.step_ns - max(loading.rest_ns + left_ns, made_ns), 0.0)
        saving = Estimate.bound(min(saving.high_ns, simulated.high_ns, most_ns), of_the_fix(NO_FREE_CORE))
    alone = _alone(loading, curve, point.workers) if loading.is_beside_others or not loading.workers else None
    return Proposal(point, fix, saving, alone[1] if alone else None)


def loader_fix(
    facts: Facts, summary: str, arguments: Mapping[str, int | bool], *, not_replayed: str | None = None
) -> Fix:
    """Return the fix that makes the loader with changed arguments; not simulated yet."""
    code, needs = _loader_code(facts, arguments), frozenset({Part.LOADER})
    return Fix(summary, code, not_replayed=not_replayed, settings=arguments, needs=needs)


def _loader_code(facts: Facts, arguments: Mapping[str, int | bool]) -> str:
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


def _edit(curve: WorkerCurve, even: WorkerCurve, point: Point, *, is_beside: bool) -> LoaderWorkers:
    """Return the edit; ``is_beside``: workers load already, so the loop does not show how long a batch takes."""
    cost, loop = curve.cost, curve.loop
    made = None
    if cost.source is not CostSource.LOADER_TIME or is_beside:
        uneven_ns = point.wait_ns - even.at(point.workers, point.prefetch).wait_ns
        uneven_ns = max(uneven_ns, 0.0) / max(loop.fetches, 1e-9)
        made = MadeBatch(cost.mean_cpu_ns, cost.mean_wait_ns, uneven_ns, cost.delay_ns, cost.shared_ns)
    return LoaderWorkers(point.workers, loop.cores, point.prefetch, made, loop.training_cores, loop.taking_ns or None)


def _by_curve(curve: WorkerCurve, point: Point, step_ns: float, scale: float) -> Estimate:
    """Return the saving by the worker curve; low: all processes compute at once, and the training slows down."""
    worst, alone = (curve.at(point.workers, point.prefetch, crowding) for crowding in (Crowding.WORST, Crowding.NONE))
    slowed_ns = worst.step_ns + curve.loop.rest_ns * SLOWER_TRAINING
    low_ns, expected_ns, high_ns = sorted(
        max(step_ns - one, 0.0) * scale for one in (slowed_ns, point.step_ns, alone.step_ns)
    )
    return Estimate(low_ns, expected_ns, high_ns, Method.MODEL)


def core_caveats(facts: Facts, workers: int, alone_ns: float | None) -> tuple[str, ...]:
    """Return what to know before using this many workers; ``alone_ns``: the saving without other programs."""
    curve = facts.worker_curve
    memory = (
        "Each worker holds its own copy of the data set's Python objects and its prefetched batches. It sees no change "
        "that the training makes to the data set."
    )
    if _needs_more_than_free(facts, workers):
        memory += f" If each grows as large as the processes of this run, {workers} need more memory than was free."
    if curve is None or not curve.cost.is_split:
        unknown = "It was not recorded whether loading uses the CPU or waits. Workers that compute need a core each."
        return (unknown, memory, OTHER_NUMBERS)
    if curve.cost.is_waiting:
        waits = "Workers that wait need no core."
        if curve.loop.cores is not None and workers > curve.loop.cores:
            waits += " So you can ignore PyTorch's warning about more workers than cores."
        return (waits, "A disk or server may answer more slowly when more workers ask.", memory, OTHER_NUMBERS)
    few = "With few CPU cores the gain is smaller: workers and the training thread share them."
    return (*beside_others(facts, alone_ns), few, memory, OTHER_NUMBERS)


def _needs_more_than_free(facts: Facts, workers: int) -> bool:
    """Return whether further workers as large as the processes of the run would not fit into its free memory."""
    telemetry = facts.run.telemetry
    if telemetry is None or not telemetry.processes.peak_rss_bytes or not telemetry.processes.peak_process_count:
        return False
    each = telemetry.processes.peak_rss_bytes / telemetry.processes.peak_process_count
    free = telemetry.node.least_available_memory_bytes
    return free is not None and (workers - (facts.run.worker_count or 0)) * each > free


def beside_others(facts: Facts, alone_ns: float | None) -> tuple[str, ...]:
    """Return a sentence on cores that other programs kept busy, if that matters, and the saving without them."""
    loading = facts.loading
    if loading is None or not loading.is_beside_others:
        return ()
    used = f"{loading.others_cores:.1f} of {loading.host_cores} CPU cores"
    alone = "larger" if alone_ns is None else f"about {alone_ns / max(loading.step_ns, 1.0):.0%} of the step"
    says = "" if alone_ns is None and loading.workers else f" Without them the saving is {alone}."
    return (f"Other programs kept {used} busy.{says}",)
