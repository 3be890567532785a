"""Splits the time of a data loader by cause, from clock reads around steps and batches, and from sampled stacks.

Clocks tell how long: the training thread's time in its loader, and the time, CPU time and wait for a core of each
batch. Samples tell where: each share of a total is that of its samples. So the parts sum exactly to what was timed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from statistics import median
from typing import TypeVar

from traceadvisor.analysis.data.batch_cost import own_threads
from traceadvisor.analysis.sampled.loader_frames import part_of, starts_loop, waits_for_lock
from traceadvisor.model.loader_time import LoaderPart, LoaderTime, MakerPart, MakerTime
from traceadvisor.model.run import Run, StepState, TimedBatch, TimedStep
from traceadvisor.model.samples import SampledFrame, StackSamples, Tallies

Part = TypeVar("Part", bound=Hashable)
_Frames = Sequence[SampledFrame]

FEWEST_SAMPLES = 12
"""Samples of undisturbed steps. With fewer, those of all steps count; with fewer of these, nothing is split by them."""

BLOCKING_POOLS = frozenset({"tokenizers", "Arrow", "Polars", "OpenCV", "TBB"})
"""Libraries whose threads compute while the thread that calls them waits. Without any, threads that compute just after
an operator may be torch's own, which spin."""


SHARE_OF = 1_000_000
"""Whole of which a share is taken."""


def loader_time(run: Run, *, operator_share: float = 1.0) -> LoaderTime | None:
    """Return the time of the training loader by cause; None if no undisturbed step was timed.

    ``operator_share``: share of the time in the loader in which threads of torch's operators may compute or spin.
    """
    steps = [step for step in run.steps if step.state is StepState.PLAIN and step.index]
    if not steps:
        return None
    loader = run.settings.loader
    workers = loader.worker_count if loader else None
    fetching_ns = sum(step.loader_ns for step in steps)
    starting_ns = sum(step.loader_start_ns or 0 for step in steps)
    parts_ns, count = _split(run.stacks, fetching_ns, workers)
    started_ns, _ = _split(run.stacks, starting_ns, workers, is_start=True)
    if timed := next((loops for loops in run.settings.loops or () if loops.trains and loops.start_ns), None):
        weights = {LoaderPart.SAMPLER: timed.sampler_ns, LoaderPart.START: timed.worker_start_ns}
        weights[LoaderPart.OTHER] = max(timed.start_ns - sum(weights.values()), 0)
        started_ns = shared_out(starting_ns, weights)
    makers = tuple(_makers(run, operator_share))
    found, starts = _ordered(parts_ns), _ordered(started_ns)
    return LoaderTime(len(steps), fetching_ns, found, count, makers, starting_ns, starts)


def _ordered(parts_ns: Mapping[LoaderPart, int]) -> dict[LoaderPart, int]:
    return {part: parts_ns[part] for part in LoaderPart if parts_ns.get(part)}


def _split(
    samples: StackSamples | None, total_ns: int, workers: int | None, *, is_start: bool = False
) -> tuple[dict[LoaderPart, int], int]:
    """Return a time of the training thread by the parts of its samples, and their number.

    ``is_start``: whether it is the time to start loops, otherwise that to fetch batches.
    """
    found: dict[LoaderPart, int] = defaultdict(int)
    every: dict[LoaderPart, int] = defaultdict(int)
    counts = [0, 0]
    for frames, is_fetching, tallies in _stacks(samples):
        if starts_loop(frames) is not is_start or not (is_fetching or is_start):
            continue
        part = part_of(frames)
        for state, sampled in tallies.items():
            counts[1] += sampled.count
            every[part] += sampled.time_ns
            if state is StepState.PLAIN and not is_start:
                counts[0] += sampled.count
                found[part] += sampled.time_ns
    if counts[0] >= FEWEST_SAMPLES:
        return shared_out(total_ns, found), counts[0]
    if counts[1] >= FEWEST_SAMPLES:
        return shared_out(total_ns, every), counts[1]
    usual = LoaderPart.START if is_start else LoaderPart.MAKING if workers == 0 else LoaderPart.WAITING
    return ({usual: total_ns} if total_ns else {}), 0


def sampler_share(samples: StackSamples | None) -> float | None:
    """Return the sampler's share of the time to start loops over a ``DataLoader``; None with too few samples."""
    parts_ns, count = _split(samples, SHARE_OF, None, is_start=True)
    return parts_ns.get(LoaderPart.SAMPLER, 0) / SHARE_OF if count else None


def _stacks(samples: StackSamples | None) -> Iterator[tuple[_Frames, bool, Tallies]]:
    for stack in samples.stacks if samples else ():
        yield [samples.frames[place] for place in stack.frames] if samples else [], stack.is_fetching, stack.by_state


def shared_out(total_ns: int, weights: Mapping[Part, int]) -> dict[Part, int]:
    """Return a time in parts that are as their weights and sum exactly to it: the largest remainders are rounded up."""
    whole = sum(weights.values())
    if not whole:
        return {}
    scaled = {part: divmod(total_ns * weight, whole) for part, weight in weights.items()}
    missing = total_ns - sum(each for each, _ in scaled.values())
    up = sorted(scaled, key=lambda part: -scaled[part][1])[:missing]
    return {part: each + (part in up) for part, (each, _) in scaled.items()}


def _makers(run: Run, operator_share: float) -> Iterator[MakerTime]:
    by_worker: dict[int | None, list[TimedBatch]] = defaultdict(list)
    for batch in run.batches:
        by_worker[batch.worker].append(batch)
    makes_itself = set(by_worker) == {None}
    samples = run.stacks if makes_itself else run.loader_stacks
    waits, count = _waits(samples, makes_itself=makes_itself)
    if makes_itself and not BLOCKING_POOLS.intersection(run.settings.thread_pools):
        waits = _without_spin(waits, run)
    starts_ns = _loop_starts(run.steps)
    own = own_threads(run.settings, operator_share)
    for worker, batches in sorted(by_worker.items(), key=lambda one: -1 if one[0] is None else one[0]):
        usual_ns = median(batch.duration_ns for batch in batches)
        firsts = {} if worker is None else _firsts(batches, starts_ns)
        parts: dict[MakerPart, int] = dict.fromkeys(MakerPart, 0)
        threads_cpu_ns = 0
        for place, batch in enumerate(batches):
            extra_ns = max(batch.duration_ns - round(usual_ns), 0) if place in firsts else 0
            threads_cpu_ns += own.native_ns(batch)
            within = _of_batch(batch, 0 if waits else own.native_ns(batch))
            for part, ns in shared_out(batch.duration_ns - extra_ns, within).items():
                parts[part] += ns
            parts[MakerPart.START] += extra_ns
        if waits:
            parts |= {MakerPart.WAITING: 0, **shared_out(parts[MakerPart.WAITING], waits)}
        busy_ns = sum(parts.values())
        ends_ns = max(batch.start_ns + batch.duration_ns for batch in batches)
        total_ns = busy_ns if worker is None else max(ends_ns - batches[0].start_ns, busy_ns)
        parts[MakerPart.IDLE] = total_ns - busy_ns
        kept = {part: ns for part, ns in parts.items() if ns}
        yield MakerTime(worker, len(batches), total_ns, kept, threads_cpu_ns, count if waits else 0)


def _of_batch(batch: TimedBatch, other_ns: int) -> dict[MakerPart, int]:
    """Return the parts of the time of a batch; ``other_ns``: CPU time of other threads, in which its thread waited."""
    computing_ns = min(batch.thread_cpu_ns, batch.duration_ns)
    core_ns = min(batch.core_wait_ns or 0, batch.duration_ns - computing_ns)
    beside_ns = batch.duration_ns - computing_ns - core_ns
    threads_ns = min(beside_ns, other_ns)
    return {
        MakerPart.COMPUTING: computing_ns,
        MakerPart.CORE: core_ns,
        MakerPart.THREADS: threads_ns,
        MakerPart.WAITING: beside_ns - threads_ns,
    }


def _waits(samples: StackSamples | None, *, makes_itself: bool) -> tuple[dict[MakerPart, int], int]:
    """Return the sampled time in which makers wait, by what they wait for, and the number of samples; empty if few."""
    found: dict[MakerPart, int] = defaultdict(int)
    count = 0
    for stack in samples.stacks if samples else ():
        frames = [samples.frames[place] for place in stack.frames] if samples else []
        if not (stack.is_waiting or stack.is_beside) or (makes_itself and part_of(frames) is not LoaderPart.MAKING):
            continue
        part = MakerPart.LOCK if waits_for_lock(frames) else MakerPart.WAITING
        found[MakerPart.THREADS if stack.is_beside else part] += sum(one.time_ns for one in stack.by_state.values())
        count += sum(one.count for one in stack.by_state.values())
    return (dict(found), count) if count >= FEWEST_SAMPLES else ({}, 0)


def _without_spin(waits: dict[MakerPart, int], run: Run) -> dict[MakerPart, int]:
    """Return the waits with the time that spinning threads of operators explain counted as waiting."""
    threads_ns = waits.get(MakerPart.THREADS, 0)
    spin_ns = own_threads(run.settings, 0.0).spin_ns if (run.settings.torch_threads or 1) > 1 else 0
    usual_ns = median(batch.duration_ns for batch in run.batches)
    by_spin_ns = min(threads_ns, round(sum(waits.values()) * min(spin_ns / max(usual_ns, 1), 1.0)))
    moved = {
        MakerPart.THREADS: threads_ns - by_spin_ns,
        MakerPart.WAITING: waits.get(MakerPart.WAITING, 0) + by_spin_ns,
    }
    return {part: ns for part, ns in (waits | moved).items() if ns}


def _loop_starts(steps: Sequence[TimedStep]) -> list[int]:
    """The wall clock at which loops over the loader began."""
    return sorted(step.start_ns - step.loader_start_ns for step in steps if step.loader_start_ns)


def _firsts(batches: Sequence[TimedBatch], starts_ns: Sequence[int]) -> set[int]:
    """The places of a worker's first batches after each start of a loop."""
    seen, found = -1, set()
    for place, batch in enumerate(batches):
        loop = bisect_right(starts_ns, batch.start_ns)
        if loop != seen:
            found.add(place)
        seen = loop
    return found
