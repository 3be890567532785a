"""Judges the change of a step part by part: kernels repeat, waiting for data and Python do not."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import exp, expm1, inf, log, log1p
from statistics import fmean

from traceadvisor.comparing.pairing import Capture, PairedRun
from traceadvisor.comparing.signs import fewer_operators, runs_fewer
from traceadvisor.comparing.verdict import compare_runs
from traceadvisor.frozen import frozen
from traceadvisor.model.breakdown import Category
from traceadvisor.model.comparison import CpuChange
from traceadvisor.model.explanation import CategoryChange, StepExplanation
from traceadvisor.model.report import Recording
from traceadvisor.model.run import StepState
from traceadvisor.model.verdict import FAR_TIMES, USUAL_NOISE

KERNEL_NOISE = 0.02
"""Difference of the kernels of one program on one GPU model. Three recordings of ResNet-50 differ by 0.6%."""

LOADING_NOISE = 0.45
"""Difference of the wait for data: 59 and 33 ms in two recordings of one program. With it, chance explains their steps
of 178 and 152 ms, and `make verdicts` calls no more unchanged steps than with one noise for the whole step."""

REMOVED_SHARE = 1 / 3
"""A part that was taken out keeps at most this share of its time."""

LEAST_KEPT = 0.01
"""A step that only ran operators that are gone still keeps this share of its time."""

SPUN = 2.0
"""CPU time of a step with several threads may differ by this, times the number of threads, without a change: they spin
while they wait for one that got no core. Of an unchanged training with two, it was 2.64 times as much."""

FAST = 0.1
"""Quantile of the steps that had a core throughout on a busy machine."""

LEAST_WORK_SHARE = 0.5
"""A step with less CPU time is more waiting than work."""

LEAST_PART_SHARE = 0.05
"""Share of the longer step of a part that explains its change."""


@frozen
class KnownChange:
    """The part of a change that no clock tells."""

    explained: StepExplanation | None = None
    """The difference of the recorded step."""

    fixed_share: float = 0.0
    """Share of the step of BASE that findings took whose fixes were made."""


def noise_by_parts(explained: StepExplanation, other: float) -> float:
    """Return how much identical runs may differ, as a share of the step, by what the step consists of.

    ``other``: the noise of everything but kernels and data wait. Without kernels, it is that of the whole.
    """
    if not any(row.category is Category.KERNEL and row.base_ns and row.head_ns for row in explained.categories):
        return other
    step_ns = max(explained.base_step_ns, explained.head_step_ns)
    return _noise_ns(explained.categories, other) / step_ns if step_ns else other


def _noise_ns(rows: Iterable[CategoryChange], other: float) -> float:
    """Return the sum of what chance may change in some parts: they need not cancel out."""
    noise = {Category.KERNEL: KERNEL_NOISE, Category.DATA_WAIT: LOADING_NOISE}
    return sum(noise.get(row.category, other) * max(row.base_ns or 0.0, row.head_ns or 0.0) for row in rows)


def is_explained(explained: StepExplanation, changed: Collection[Category], ratio: float, other: float) -> bool:
    """Return whether parts that were taken out, or brought in, explain the change, and the rest is as before.

    Args:
        explained: the difference of the recorded step.
        changed: the categories that a recorded change of the program is about.
        ratio: of the compared steps, HEAD over BASE, which may be undisturbed ones.
        other: as for :func:`noise_by_parts`.
    """
    parts = [row for row in explained.categories if row.category in changed]
    rest = [row for row in explained.categories if row.category not in changed]
    before, after = (sum(getattr(row, side) or 0.0 for row in parts) for side in ("base_ns", "head_ns"))
    step_ns = max(explained.base_step_ns, explained.head_step_ns)
    is_removed = min(before, after) <= REMOVED_SHARE * max(before, after)
    if not is_removed or max(before, after) < LEAST_PART_SHARE * step_ns or not explained.head_step_ns:
        return False
    moved_ns = abs(sum(row.delta_ns for row in rest))
    far_ns = FAR_TIMES * _noise_ns(rest, other)
    recorded = log(explained.head_step_ns / explained.base_step_ns) if explained.base_step_ns else 0.0
    agrees = recorded * log(ratio) > 0 and abs(log(ratio)) >= abs(recorded) / FAR_TIMES
    return agrees and moved_ns <= far_ns and (after - before) * recorded > 0 and abs(after - before) > far_ns


def witness(run: PairedRun, ratio: float, known: KnownChange) -> float | None:
    """Return how much of its own work the process does per step, HEAD over BASE, if that speaks for the change.

    It does if it changed in the same direction, far more than that of identical runs differs.

    Its CPU time per step does not depend on how many cores other programs leave, but threads that wait for one another
    take CPU time, too (:data:`SPUN`), unless a recorded change of its work explains the change. Its kernels and the
    number of its operators do not depend on other programs at all.
    """
    kept = _kept_by_operators(run, known.explained, ratio)
    for work_ns, noise in (
        (_cpu_ns, _cpu_noise(run, ratio, known)),
        (_kernel_ns, FAR_TIMES * log1p(KERNEL_NOISE)),
    ):
        sides = [[found for capture in side if (found := work_ns(capture))] for side in (run.base, run.head)]
        if all(sides):
            change = log(fmean(sides[1]) / fmean(sides[0]))
            if change * log(ratio) > 0 and abs(change) > noise:
                return exp(change)
    return kept


def _kept_by_operators(run: PairedRun, explained: StepExplanation | None, ratio: float) -> float | None:
    """The work of a step, HEAD over BASE, if operators that one side does not run show its change; None if not."""
    kept = _kept_share(run, explained, is_faster=ratio < 1) if explained else 1.0
    if -log(kept) <= _FAR:
        return None
    return kept if ratio < 1 else 1 / kept


_FAR = FAR_TIMES * log1p(USUAL_NOISE)


def _cpu_noise(run: PairedRun, ratio: float, known: KnownChange) -> float:
    """The logarithm of the ratio up to which CPU times of single captures may differ without a change.

    Threads that wait for one another cannot be all of the ``ratio`` where a side runs fewer operators, or where the
    findings whose fixes were made took more of the step than identical runs differ by.
    """
    more, less = (run.base, run.head) if ratio < 1 else (run.head, run.base)
    is_fixed = ratio < 1 and known.fixed_share > -expm1(-_FAR)
    spins = not is_fixed and not runs_fewer(more, less) and _kept_by_operators(run, known.explained, ratio) is None
    threads = most_threads(run)
    return (log(SPUN * threads) if spins and threads > 1 else 0.0) + _FAR


def cpu_change(run: PairedRun, growth: float, known: KnownChange) -> CpuChange | None:
    """Compare the CPU time per step, as that of the wall clock is; None where a capture does not tell.

    ``growth``: samples of a step in HEAD over those in BASE.
    """
    sides = [[_cpu_ns(one) if _is_cpu_work(one) else None for one in side] for side in (run.base, run.head)]
    base, head = ([found for found in side if found] for side in sides)
    if len(base) + len(head) < len(run.base) + len(run.head):
        return None
    ratio = fmean(head) / growth / fmean(base)
    noise = expm1(_cpu_noise(run, ratio, known) / FAR_TIMES)
    found = compare_runs(base, [one / growth for one in head], within=0.0, noise=noise)
    return CpuChange(found.ratio, found.low, found.high, found.verdict)


def _is_cpu_work(capture: Capture) -> bool:
    """Whether the CPU works for most of a step: its fastest steps, for which it had a core, are not far longer."""
    for one in capture.recordings:
        steps = one.captured.steps if one.captured else ()
        steps_ns = sorted(step.duration_ns for step in steps if step.state is StepState.PLAIN and step.index > 0)
        fast_ns = steps_ns[int(FAST * len(steps_ns))] if steps_ns else inf
        if one.device or (_cpu_of(one) or 0.0) < LEAST_WORK_SHARE * fast_ns:
            return False
    return bool(capture.recordings)


def _kept_share(run: PairedRun, explained: StepExplanation, *, is_faster: bool) -> float:
    """The share of the slower side's recorded step that the faster side keeps, by operators that only one of them runs.

    Those that came in place of others count against those that went, by their share of their own step: what both sides
    run is the same work. Each share is of one recording, so that a busy machine makes all of its times longer alike.
    """
    base, head = (run.base, "base_ns", explained.base_step_ns), (run.head, "head_ns", explained.head_step_ns)
    (slower, ran, slower_ns), (faster, runs, faster_ns) = (base, head) if is_faster else (head, base)
    gone = _share_of(fewer_operators(slower, faster), explained, ran, slower_ns)
    came = _share_of(fewer_operators(faster, slower), explained, runs, faster_ns)
    return max((1 - gone) / (1 - came), LEAST_KEPT) if came < 1 else 1.0


def _share_of(names: Collection[str], explained: StepExplanation, side: str, step_ns: float) -> float:
    """The share of a side's recorded step in some operators."""
    rows = explained.whole.operators.rows if explained.whole.operators else ()
    return sum(getattr(row, side) or 0.0 for row in rows if row.name in names) / step_ns if step_ns else 0.0


def _mean(figures: Iterable[float | None]) -> float | None:
    known = [figure for figure in figures if figure]
    return fmean(known) if known else None


def most_threads(run: PairedRun) -> int:
    """Return how many threads of one operator can run at the same time in any capture; 1 if unknown."""
    return max((_threads(one) for side in (run.base, run.head) for one in side), default=1)


def _threads(capture: Capture) -> int:
    """Threads of one operator that can run at the same time; 1 if unknown."""
    known = [one.captured.settings for one in capture.recordings if one.captured]
    return max((min(one.torch_threads or 1, one.cpu_count or 1) for one in known), default=1)


def _cpu_ns(capture: Capture) -> float | None:
    """CPU time of all processes of the training per undisturbed step; None if it was not sampled."""
    return _mean(map(_cpu_of, capture.recordings))


def _cpu_of(one: Recording) -> float | None:
    step_ns = one.undisturbed_mean_step_ns or one.undisturbed_median_step_ns
    cores = one.telemetry.processes.mean_cpu_cores if one.telemetry else None
    return cores * step_ns if cores and step_ns else None


def _kernel_ns(capture: Capture) -> float | None:
    """Time of kernels per step, if they take most of it; None if not."""
    return _mean(map(_kernels_of, capture.recordings))


def _kernels_of(one: Recording) -> float | None:
    parts = one.breakdown.parts_ns if one.breakdown else {}
    kernel_ns = parts.get(Category.KERNEL) or 0.0
    return kernel_ns if one.step_ns and kernel_ns >= one.step_ns / 2 else None
