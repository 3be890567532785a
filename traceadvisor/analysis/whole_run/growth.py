"""Whether the steps of a run grow: a test of the trend of successive stretches, and what grows.

The slope is the median of the slopes of all pairs of stretches, with the interval of P. K. Sen, "Estimates of the
regression coefficient based on Kendall's tau", Journal of the American Statistical Association 63, 1968, 1379-1389.
Other programs make steps longer, too, and may come and go. So without a device, the CPU time of the training thread is
what must grow, or the time of one line more than that of all others. Growth without such a line counts if it is large.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import exp
from statistics import median

import numpy as np

from traceadvisor.analysis.sampled.paths import place_of
from traceadvisor.analysis.whole_run.sampled_steps import SampledSteps
from traceadvisor.analysis.whole_run.slow_steps import SLOW_RATIO, usual
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64, Int64, Mask
from traceadvisor.model.run import Run, StepState
from traceadvisor.model.run_time import RunCause, RunGrowth
from traceadvisor.model.samples import SampledFrame

MOST_BLOCKS = 32
FEWEST_BLOCKS = 8
FEWEST_IN_BLOCK = 5
FEWEST_SAMPLES_IN_BLOCK = 3

CRITICAL = 2.576
"""Quantile of the normal distribution that leaves 0.5% on each side."""

LEAST_GROWTH = 0.25
"""Growth over the run as a share of the first steps, at the low end, if what the thread does changes with it."""

LEAST_GROWTH_ALONE = 0.8
"""The same without such a change, as where the only line of the loop grows: a busy machine may come close to it."""

LEAST_GROWTH_STEADY = 0.5
"""The same if nearly all stretches rise, and the other lines do not grow alike: other programs come and go,
and slow down all lines."""

STEADY_RISE = 0.9
"""Share of the pairs of stretches of which the later one takes longer."""

LEAST_LATE_SHARE = 0.25
"""Slope in the second half over that of the whole run; below it, steps have stopped growing."""

LARGEST_CHANCE = 0.01
"""Probability by chance of a change from one level to another."""

LARGEST_CHANCE_LATE = 0.001
"""The same of a change that comes so late that steps are hardly seen to stay as they are: there, slow times of a busy
machine look alike more often."""

LEAST_LEVEL = 0.8
"""Growth of steps that stopped growing, as a share of the first ones: less may be a device that warms up."""

LEAST_LINE_SHARE = 0.4
"""Share of the growth that samples must show at a line."""

MOST_INSIDE = 0.8
"""Share of a line's growth from which a line that it calls is named in its place."""

LEAST_DEVIATIONS = 2.0
"""Growth of a line, in standard deviations of the counts of its samples."""

ALIKE = 0.5
"""Relative growth of all other lines over that of a line, from which the steps do more of the same work: no line is the
cause."""

LEAST_LATER = 2.6
"""How much later in the run samples of a line are than those of all lines, in the same."""

MOST_LEVELS = 4
FEWEST_FOR_LEVELS = 24
"""Blocks: among fewer, noise on a steady rise often looks like levels."""

LEAST_LEVELS_ERROR = 0.6
"""Squared error of so many levels over that of a parabola, each for its degrees of freedom. Below it, steps stay on
levels and jump between them: phases of the training, such as pictures of another size or more passes per step, and no
growth. One jump is a change."""

SUBNORMAL_SHARE = 0.01
"""Share of subnormal numbers from which they are named as the cause."""

SUBNORMAL_RATIO = 1.5
"""CPU time at the end over that of the fastest stretch, if there are subnormal numbers. Those of gradients come and go
before those of parameters, so the first steps may be no measure."""


def run_growth(run: Run, sampled: SampledSteps | None, *, has_device: bool, is_busy: bool = False) -> RunGrowth | None:
    """Return the growth of the undisturbed steps of a run; None if none was shown.

    ``has_device``: whether the CPU may wait for a device, so that its own time need not grow.
    ``is_busy``: whether other programs used the cores. They share caches and memory, too, so code that stays the same
    takes up to twice the CPU time beside them. Steps that stopped growing then count only if one line grew alone.
    """
    usual_ones, plain = _undisturbed(run), _plain(run)
    by_clock, by_cpu = (_blocks(places, sampled) for places in (usual_ones, plain))
    found = None
    if sampled is not None and by_cpu and not has_device:
        series = _cpu_per_step(run, sampled, by_cpu)
        if len(series.blocks) >= FEWEST_BLOCKS:
            line = _growing_line(sampled, sampled.cpu_ns, series)
            found = _found(run, series, line, of_cpu=True)
            if found and is_busy and found.is_level and not (found.subnormal_share or (line and line.is_alone)):
                found = None
    if found is None and by_clock and (has_device or sampled is not None):
        lengths = _lengths(run)
        series = _Series(by_clock, [float(np.median(lengths[block])) for block in by_clock], _training_numbers(run))
        line = None if sampled is None else _growing_line(sampled, sampled.weight_ns, series)
        if has_device or (line and line.is_alone):
            found = _found(run, series, line, of_cpu=False)
    return found


@frozen(eq=False)
class _Series:
    """A time per step over the blocks of a run."""

    blocks: Sequence[Int64]
    """Places of the steps of each."""

    values: Sequence[float]
    numbers: Int64
    """Number of each step of the run among the training steps."""

    @property
    def middles(self) -> list[float]:
        """Number of the middle step of each block."""
        return [float(np.median(self.numbers[block])) for block in self.blocks]

    @property
    def ends(self) -> tuple[float, float]:
        """Medians of the first and the last quarter of the blocks."""
        size = max(len(self.values) // 4, 2)
        return max(float(median(self.values[:size])), 1.0), float(median(self.values[-size:]))

    @property
    def lowest(self) -> float:
        """The lowest median of successive blocks."""
        size = max(len(self.values) // 8, 3)
        return max(min(float(median(self.values[at : at + size])) for at in range(len(self.values) - size + 1)), 1.0)


def _found(run: Run, series: _Series, line: _Growing | None, *, of_cpu: bool) -> RunGrowth | None:
    """Return the growth of a series; None if it may be chance, or small."""
    middles, values = series.middles, series.values
    trend, half = theil_sen(middles, values), len(values) // 2
    is_level = theil_sen(middles[half:], values[half:]).slope < LEAST_LATE_SHARE * trend.slope
    first_ns, last_ns = series.ends
    rise_ns = trend.low * (middles[-1] - middles[0])
    least = _least_growth(trend, line)
    subnormal, lengths = run.settings.subnormal_share or 0.0, _lengths(run)
    if of_cpu and subnormal >= SUBNORMAL_SHARE and last_ns >= SUBNORMAL_RATIO * series.lowest:
        first_ns, is_level = series.lowest, True
    elif is_in_phases(middles, values):
        return None
    elif is_level or trend.low <= 0 or rise_ns < least / 2 * first_ns or last_ns - first_ns < least * first_ns:
        most = LARGEST_CHANCE if is_level else LARGEST_CHANCE_LATE
        if change_probability(values) > most or last_ns - first_ns < LEAST_LEVEL * first_ns:
            return None
        is_level = True
    start_ns = first_ns
    if not is_level:  # steps grew in the first quarter, too
        start_ns = min(first_ns, max(float(median(values)) - trend.slope * (float(median(middles)) - middles[0]), 0.0))
    excess_ns = sum(max(one - start_ns, 0.0) for one in values)
    named = None if line and line.is_alike else line
    return RunGrowth(
        sum(block.size for block in series.blocks),
        first_ns,
        last_ns,
        trend.slope,
        trend.low,
        trend.high,
        excess_ns / sum(float(lengths[one].mean()) for one in series.blocks),
        is_level=is_level,
        of_cpu=of_cpu,
        line=place_of(named.place) if named else None,
        line_share=named.share if named else None,
        is_alike=line is not None and line.is_alike,
        subnormal_share=subnormal if subnormal >= SUBNORMAL_SHARE else None,
        cpu_excess_share=excess_ns / max(sum(values), 1.0) if of_cpu else None,
    )


def _least_growth(trend: Slope, line: _Growing | None) -> float:
    if line and line.is_alone:
        return LEAST_GROWTH
    is_steady = line is not None and not line.is_alike and trend.rising >= STEADY_RISE
    return LEAST_GROWTH_STEADY if is_steady else LEAST_GROWTH_ALONE


@frozen
class Slope:
    """A robust slope with its 99% interval."""

    slope: float
    low: float
    high: float
    rising: float
    """Share of the pairs that rise."""


def theil_sen(x: Sequence[float], y: Sequence[float]) -> Slope:
    """Return the median slope of all pairs of at least two points with ascending ``x``, and its interval."""
    count = len(x)
    pairs = combinations(zip(x, y, strict=True), 2)
    slopes = sorted((later - before) / (at - was) for (was, before), (at, later) in pairs)
    spread = CRITICAL * (count * (count - 1) * (2 * count + 5) / 18) ** 0.5
    first = max(int((len(slopes) - spread) / 2), 0)
    rising = sum(slope > 0 for slope in slopes) / len(slopes)
    return Slope(float(median(slopes)), slopes[first], slopes[-1 - first], rising)


def is_in_phases(x: Sequence[float], y: Sequence[float]) -> bool:
    """Whether values stay on three or four levels, one after another, rather than rise steadily.

    ``x``: ascending. The levels with the least squared error follow from those of each beginning of the series, as in
    W. D. Fisher, "On grouping for maximum homogeneity", Journal of the American Statistical Association 53, 1958,
    789-798.
    """
    values, count = np.array(y, np.float64), len(y)
    if count < FEWEST_FOR_LEVELS:
        return False
    sums, squares = (np.concatenate([[0.0], np.cumsum(one)]) for one in (values, values**2))
    places = np.arange(count + 1)
    parts = np.maximum(places[None, :] - places[:, None], 1)
    errors = (squares[None, :] - squares[:, None]) - (sums[None, :] - sums[:, None]) ** 2 / parts
    errors[places[:, None] >= places[None, :]] = np.inf  # from begin to end
    best = [errors[0]]
    for _ in range(MOST_LEVELS - 1):
        best.append((best[-1][:, None] + errors).min(axis=0))
    smooth = values - np.polyval(np.polyfit(x, values, 2), x)
    least = LEAST_LEVELS_ERROR * float((smooth**2).sum()) / (count - 3)
    errors_of = [float(one[-1]) / (count - 2 * levels + 1) for levels, one in enumerate(best, 1)]
    return errors_of[-1] < least <= errors_of[1]


def change_probability(values: Sequence[float]) -> float:
    """Return the probability that values without a change, in any order, seem to change as much at one point.

    Source: A. N. Pettitt, "A non-parametric approach to the change-point problem", Applied Statistics 28, 1979,
    126-135.
    """
    count = len(values)
    signs = np.sign(np.subtract.outer(values, values)).sum(axis=1)
    largest = float(np.abs(np.cumsum(signs)).max())
    return min(2 * exp(-6 * largest**2 / (count**3 + count**2)), 1.0)


def _undisturbed(run: Run) -> Int64:
    """Return the places of undisturbed steps that are neither slow nor an epoch's first."""
    lengths, plain = _lengths(run), _plain(run)
    counts = np.zeros(lengths.size, dtype=np.bool_)
    counts[plain] = True
    near = lengths <= SLOW_RATIO * np.maximum(usual(lengths, counts), 1.0) if lengths.size else counts
    return np.flatnonzero(counts & near)


def _plain(run: Run) -> Int64:
    """Return the places of undisturbed steps but the first of the run and of each epoch."""
    steps = enumerate(run.steps)
    plain = [at for at, one in steps if one.state is StepState.PLAIN and one.index > 0 and not one.loader_start_ns]
    return np.array(plain, dtype=np.int64)


def _training_numbers(run: Run) -> Int64:
    return np.cumsum([one.state is not StepState.OTHER for one in run.steps], dtype=np.int64)


def _lengths(run: Run) -> Float64:
    return np.array([one.duration_ns - (one.checkpoint_ns or 0) for one in run.steps], dtype=np.float64)


def _blocks(places: Int64, sampled: SampledSteps | None) -> list[Int64]:
    """Return some steps in blocks of about equal size; none if they are too few."""
    counts = [MOST_BLOCKS, places.size // FEWEST_IN_BLOCK]
    if sampled is not None:
        counts.append(int(np.isin(sampled.step, places).sum()) // FEWEST_SAMPLES_IN_BLOCK)
    return np.array_split(places, min(counts)) if min(counts) >= FEWEST_BLOCKS else []


def _cpu_per_step(run: Run, sampled: SampledSteps, blocks: Sequence[Int64]) -> _Series:
    """Return the CPU time of the training thread per step by block: its share of the time, times the step.

    A sample has the CPU time since the sample before, which must be in an undisturbed step, too.
    """
    kept = np.isin(sampled.step, np.concatenate(blocks)) & ~sampled.doing(RunCause.COMPILATION)
    kept[1:] &= kept[:-1]
    kept[:1] = False
    passed_ns = np.diff(sampled.at_ns, prepend=sampled.at_ns[0])
    found: list[tuple[Int64, float]] = []
    for block in blocks:
        here = kept & (sampled.step >= block[0]) & (sampled.step <= block[-1])
        if whole_ns := int(passed_ns[here].sum()):
            step_ns = float(np.mean([run.steps[at].duration_ns for at in block.tolist()]))
            found.append((block, int(sampled.cpu_ns[here].sum()) / whole_ns * step_ns))
    return _Series([block for block, _ in found], [ns for _, ns in found], _training_numbers(run))


def _training(sampled: SampledSteps, places: Int64) -> Mask:
    """Return which samples are in some steps, and neither compile nor do anything else beside training."""
    return np.isin(sampled.step, places) & sampled.doing(None)


@frozen
class _Growing:
    place: SampledFrame
    """The line, or the one that it calls and that grows."""

    share: float
    is_alone: bool
    is_alike: bool


def _growing_line(sampled: SampledSteps, weights: Int64, series: _Series) -> _Growing | None:
    """Return the line that takes most of the growth from the first to the last third of the run; None if none does.

    It is alone if it grows by more than all lines do: other programs make all of them longer alike.
    """
    third = max(len(series.blocks) // 3, 2)
    early, late = np.concatenate(series.blocks[:third]), np.concatenate(series.blocks[-third:])
    before, after = (_time_by_line(sampled, weights, some) for some in (early, late))
    first_ns, last_ns = (sum(one.mean_ns for one in some.values()) for some in (before, after))
    lines = {line: after[line].mean_ns - before[line].mean_ns for line in {*before, *after}}
    line = max(lines, key=lambda one: lines[one], default=None)
    if line is None or last_ns <= first_ns or lines[line] < LEAST_LINE_SHARE * (last_ns - first_ns) or not first_ns:
        return None
    error_ns = (before[line].variance + after[line].variance) ** 0.5
    if lines[line] < LEAST_DEVIATIONS * error_ns:
        return None
    is_alone = _is_later(sampled, weights, np.concatenate(series.blocks), line)
    is_alike = not is_alone and _grow_alike(before, after, line)
    place = _innermost(sampled, weights, (early, late), line)
    return _Growing(place, min(lines[line] / (last_ns - first_ns), 1.0), is_alone, is_alike)


def _innermost(sampled: SampledSteps, weights: Int64, ends: tuple[Int64, Int64], line: SampledFrame) -> SampledFrame:
    """Return the user's line that a line calls and that has nearly all of its growth; the line itself without one."""
    called = [
        next((frame for frame in reversed(frames) if frame.is_user), None) if own == line else None
        for frames, own in zip(sampled.frames, sampled.lines, strict=True)
    ]
    before, after = (_time_by_line(sampled, weights, some, called) for some in ends)
    grown_ns = {one: after[one].mean_ns - before[one].mean_ns for one in {*before, *after}}
    most = max(grown_ns, key=lambda one: grown_ns[one])
    return most if grown_ns[most] >= MOST_INSIDE * sum(grown_ns.values()) else line


def _grow_alike(
    before: Mapping[SampledFrame, _LineTime], after: Mapping[SampledFrame, _LineTime], line: SampledFrame
) -> bool:
    """Return whether the other lines together grow about as a line does, relative to their time at the beginning."""
    first, last = ([one for at, one in some.items() if at != line] for some in (before, after))
    first_ns, last_ns = (sum(one.mean_ns for one in some) for some in (first, last))
    error_ns = sum(one.variance for one in (*first, *last)) ** 0.5
    was_ns, is_ns = before[line].mean_ns, after[line].mean_ns
    is_shown = bool(first_ns) and last_ns - first_ns >= LEAST_DEVIATIONS * error_ns
    return is_shown and (last_ns - first_ns) * was_ns >= ALIKE * (is_ns - was_ns) * first_ns


@frozen
class _LineTime:
    mean_ns: float = 0.0
    """Per step."""

    variance: float = 0.0
    """Variance of that mean, from the number of samples."""


def _is_later(sampled: SampledSteps, weights: Int64, places: Int64, line: SampledFrame) -> bool:
    """Return whether samples of a line are later in the run than those of the others, beyond chance."""
    which = _training(sampled, places)
    own = np.array([one == line for one in sampled.lines], dtype=np.bool_)[sampled.stack[which]]
    at, weight = sampled.step[which].astype(np.float64), weights[which].astype(np.float64)
    if not weight[own].sum() or not weight[~own].sum():
        return False
    means, errors = [], []
    for some in (own, ~own):
        mean = float(np.average(at[some], weights=weight[some]))
        spread = max(float(np.average((at[some] - mean) ** 2, weights=weight[some])), float(np.var(places)) / 4)
        means.append(mean)
        errors.append(spread * float((weight[some] ** 2).sum()) / float(weight[some].sum()) ** 2)
    return bool(means[0] - means[1] >= LEAST_LATER * (errors[0] + errors[1]) ** 0.5)


def _time_by_line(
    sampled: SampledSteps, weights: Int64, places: Int64, lines: Sequence[SampledFrame | None] | None = None
) -> defaultdict[SampledFrame, _LineTime]:
    """Return the time of each line in some steps; ``lines``: that of each stack, by default the one in the loop."""
    found, lines = defaultdict[SampledFrame, _LineTime](_LineTime), lines or sampled.lines
    which = _training(sampled, places)
    for stack, weight in zip(sampled.stack[which].tolist(), weights[which].tolist(), strict=True):
        if (line := lines[stack]) is not None:
            one, share_ns = found[line], weight / places.size
            found[line] = _LineTime(one.mean_ns + share_ns, one.variance + share_ns**2)
    return found
