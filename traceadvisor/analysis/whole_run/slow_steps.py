"""Slow steps of a whole run by cause: the time of each beyond that of the usual steps around it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np

from traceadvisor.analysis.sampled.paths import place_of
from traceadvisor.analysis.sampled.shares import is_beside_training
from traceadvisor.analysis.steps.run_timing import RAN_AHEAD_SHARE
from traceadvisor.analysis.whole_run.sampled_steps import SampledSteps
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64, Int64, Mask
from traceadvisor.model.location import Location
from traceadvisor.model.loop_starts import ends_with_start
from traceadvisor.model.run import Pause, PauseKind, Run, StepState, TimedStep
from traceadvisor.model.run_time import RunCause
from traceadvisor.model.samples import SampledFrame
from traceadvisor.model.spans import SpanSet

SLOW_RATIO = 1.5
"""A step without a known pause is slow from this multiple of the usual step on."""

STRETCHES = 64
FEWEST_IN_STRETCH = 40
"""Steps of a stretch whose median is usual: a growing step is compared with its neighbours."""

FEWEST_SAMPLES = 3
LEAST_SURPLUS_SHARE = 0.4
LEAST_DEVIATIONS = 2.5
"""Least surplus of a line in slow steps: as a share of their extra time, and in deviations of its samples."""

MOST_USUAL_SHARE = 0.1
"""Share of usual steps up to which an activity may be what makes others slow."""

LEAST_LINE_SHARE = 0.5
"""Share of the time that samples must show at a line, so that it is named."""


@frozen
class OwnWork:
    """The part of some samples in the user's code beside calls of modules, backward passes and optimizers."""

    share: float
    line: Location
    """The line with most of it, in the innermost function that has most of it."""


@frozen(eq=False)
class SlowSteps:
    """Slow steps of a run."""

    parts: Mapping[int, Sequence[tuple[RunCause, int]]] = field(default_factory=dict)
    """Time beyond the usual by step index and cause, without epoch starts and checkpoints."""

    lines: Mapping[RunCause, Location] = field(default_factory=dict)
    """The line with most of the time of a cause, where samples show it."""

    own: Mapping[RunCause, OwnWork] = field(default_factory=dict)
    """The work of the user's own code at the line of a cause, where samples show a function with most of it."""

    cpu_ratio: float | None = None
    """CPU time of a slow step over that of another, both without known pauses; None if it was not sampled."""

    changed: Pause | None = None
    """The latest of the compilations after the first step, among those before which most often the same changed."""

    def total_ns(self, cause: RunCause) -> int:
        """Time of a cause."""
        return sum(ns for parts in self.parts.values() for one, ns in parts if one is cause)

    def ns_of(self, index: int, *causes: RunCause) -> int:
        """Time of some causes in a step."""
        return sum(ns for one, ns in self.parts.get(index, ()) if one in causes)

    def steps_with(self, cause: RunCause) -> list[int]:
        """Indices of the steps with a cause, ascending."""
        return sorted(index for index, parts in self.parts.items() if any(one is cause for one, _ in parts))


def slow_steps(run: Run, sampled: SampledSteps | None, work_ns: float = 0.0) -> SlowSteps:
    """Return the slow steps of a run, without its first one, which is start-up.

    ``work_ns``: the device's work of a step. If the CPU launches it in less, it waits for the device in some later
    steps: only known pauses make a step slow then.
    """
    places = [at for at, step in enumerate(run.steps) if step.index > 0 and step.state is not StepState.OTHER]
    if not places:
        return SlowSteps()
    steps = [run.steps[at] for at in places]
    compiling, collecting = (_paused(run, steps, kind) for kind in (PauseKind.COMPILATION, PauseKind.COLLECTION))
    collecting -= _paused(run, steps, PauseKind.COLLECTION, PauseKind.COMPILATION)
    known = compiling + collecting
    fetching_ns = np.array([step.loader_ns for step in steps], dtype=np.float64)
    loader_ns = _evened(fetching_ns, run.settings.loader.worker_count if run.settings.loader else None)
    lengths_ns = np.array([_length_ns(step) for step in steps], dtype=np.float64)
    rest_ns = np.maximum(lengths_ns - known - fetching_ns + loader_ns, 0.0)
    is_plain = np.array([step.state is StepState.PLAIN for step in steps], dtype=np.bool_)
    starts = ends_with_start(run.steps)
    is_usual_start = np.array([not step.loader_start_ns and step.index not in starts for step in steps], dtype=np.bool_)
    usual_ns, usual_loader_ns = (usual(one, is_plain & is_usual_start) for one in (rest_ns, loader_ns))
    is_slow = is_plain & is_usual_start & (rest_ns > SLOW_RATIO * usual_ns) & (usual_ns >= RAN_AHEAD_SHARE * work_ns)
    excess_ns = np.where(is_slow, rest_ns - usual_ns, 0.0)
    waiting = np.minimum(np.where(is_slow, np.maximum(loader_ns - usual_loader_ns, 0.0), 0.0), excess_ns)
    found = {RunCause.COMPILATION: compiling, RunCause.COLLECTION: collecting, RunCause.LOADER: waiting}
    left, usual_ones = excess_ns - waiting, is_plain & ~is_slow
    if sampled is not None:
        causes = [(cause, np.round(left * shares)) for cause, shares in _sampled_causes(sampled, places, usual_ones)]
        for cause, ns in causes:
            found[cause] = found.get(cause, 0.0) + ns
        left = left - sum(ns for _, ns in causes)
    found[RunCause.OTHER] = np.maximum(left, 0.0)
    parts = {
        step.index: [(cause, int(ns[at])) for cause, ns in found.items() if ns[at] >= 1]
        for at, step in enumerate(steps)
    }
    kept, changed = {index: rows for index, rows in parts.items() if rows}, _changed(run, steps)
    if sampled is None:
        return SlowSteps(kept, changed=changed)
    seen = list(_lines(sampled, np.array(places), found, usual_ones))
    own = {cause: work for cause, _, which in seen if (work := own_work(sampled, which))}
    ratio = _cpu_ratio(sampled, np.array(places), is_slow, usual_ones)
    return SlowSteps(kept, {cause: line for cause, line, _ in seen}, own, ratio, changed)


def _evened(fetching_ns: Float64, workers: int | None) -> Float64:
    """Return the time in the loader as the mean over as many steps as it has workers.

    Workers that set the pace deliver in bursts: one step waits for all of them, and the next ones for none.
    """
    burst = min(max(workers or 1, 1), fetching_ns.size)
    sums = np.concatenate(([0.0], np.cumsum(fetching_ns)))
    first = np.clip(np.arange(fetching_ns.size) - burst // 2, 0, fetching_ns.size - burst)
    evened: Float64 = (sums[first + burst] - sums[first]) / burst
    return evened


def _length_ns(step: TimedStep) -> int:
    return max(step.duration_ns - (step.checkpoint_ns or 0) - (step.loader_start_ns or 0), 0)


def usual(values: Float64, counts: Mask) -> Float64:
    """Return for each step the median of those that count in its stretch of the run; zeros without any."""
    size = max(-(-values.size // STRETCHES), FEWEST_IN_STRETCH)
    found = np.zeros(values.size)
    whole = float(np.median(values[counts])) if counts.any() else 0.0
    for first in range(0, values.size, size):
        first = min(first, max(values.size - size, 0))  # noqa: PLW2901  # the last stretch is as long as the others
        here = values[first : first + size][counts[first : first + size]]
        found[first : first + size] = float(np.median(here)) if here.size >= FEWEST_SAMPLES else whole
    return found


def _paused(run: Run, steps: Sequence[TimedStep], *kinds: PauseKind) -> Float64:
    """Return the time of each step in pauses of all of some kinds at once."""
    spans: SpanSet | None = None
    for kind in kinds:
        pauses = [one for one in run.settings.pauses if one.kind is kind]
        own = SpanSet.of(*((one.clock_ns, one.clock_ns + one.duration_ns) for one in pauses))
        spans = own if spans is None else spans & own
    starts = np.array([step.clock_ns or 0 for step in steps], dtype=np.int64)
    if not spans or any(step.clock_ns is None for step in steps):
        return np.zeros(len(steps))
    ends = starts + np.array([step.duration_ns for step in steps], dtype=np.int64)
    return spans.measure_in(starts, ends).astype(np.float64)


_SAMPLED = (RunCause.COMPILATION, RunCause.SYNCHRONISATION, RunCause.LOGGING, RunCause.EVALUATION)
"""Causes of a slow step that samples in it show."""


def _sampled_causes(sampled: SampledSteps, places: Sequence[int], is_usual: Mask) -> Iterator[tuple[RunCause, Float64]]:
    """Yield the share of the samples of each step, without those that get a batch, that do something else.

    What usual steps do as well is no cause: it is longer where a step is, such as beside other programs.
    """
    most = max(places) + 1
    inside = sampled.step >= 0
    counts = inside & ~sampled.doing(RunCause.LOADER) & ~sampled.doing(RunCause.SAVING)
    whole = np.bincount(sampled.step[counts], sampled.weight_ns[counts], minlength=most)[places]
    for cause in _SAMPLED:
        here = counts & sampled.doing(cause)
        part = np.bincount(sampled.step[here], sampled.weight_ns[here], minlength=most)[places]
        known = float(part[is_usual].sum()) / max(float(whole[is_usual].sum()), 1.0)
        yield cause, part / np.maximum(whole, 1.0) * (known <= MOST_USUAL_SHARE)


def _cpu_ratio(sampled: SampledSteps, places: Int64, is_slow: Mask, is_usual: Mask) -> float | None:
    own = ~sampled.doing(RunCause.COMPILATION)
    sums = [float(sampled.cpu_ns[own & np.isin(sampled.step, places[one])].sum()) for one in (is_slow, is_usual)]
    counts = [max(int(one.sum()), 1) for one in (is_slow, is_usual)]
    return sums[0] / counts[0] / (sums[1] / counts[1]) if sums[1] and is_slow.any() else None


def _lines(
    sampled: SampledSteps, places: Int64, found: Mapping[RunCause, Float64], is_usual: Mask
) -> Iterator[tuple[RunCause, Location, Mask]]:
    """Yield the line of each cause that most samples in its steps show, beyond what usual steps have of them.

    Yields:
        Cause, line, and the samples of the cause at it.
    """
    for cause in (*_SAMPLED, RunCause.OTHER):
        has_it = found.get(cause, np.zeros(places.size)) > 0
        inside = np.isin(sampled.step, places[has_it])
        if cause is RunCause.OTHER:
            own = ~sampled.in_optimizers  # every step runs these: other programs held them up in some
            usual_ones = np.isin(sampled.step, places[is_usual]) & own
            line = _surplus(sampled, inside & own, usual_ones, float(found[cause].sum()))
        else:
            inside &= sampled.doing(cause)
            line = most_sampled_line(sampled, inside)
        if line:
            at_line = np.array([one == line for one in sampled.lines], dtype=np.bool_)[sampled.stack]
            yield cause, place_of(line), inside & at_line


def own_work(sampled: SampledSteps, which: Mask) -> OwnWork | None:
    """Return what the user's code does itself in some samples; None if they are few, or no function has most of it."""
    own = [(sampled.frames[at], ns) for at, ns in _weights(sampled, which) if is_beside_training(sampled.frames[at])]
    whole_ns, own_ns = int(sampled.weight_ns[which].sum()), sum(ns for _, ns in own)
    by_function, by_line, depths = Counter[_Function](), Counter[SampledFrame](), dict[_Function, int]()
    for frames, ns in own:
        depth = {_function(frame): at for at, frame in enumerate(frames) if frame.is_user}
        by_function.update(dict.fromkeys(depth, ns))
        depths |= depth
    most = [one for one, ns in by_function.items() if ns >= LEAST_LINE_SHARE * own_ns]
    if len(own) < FEWEST_SAMPLES or not most:
        return None
    inner = max(most, key=lambda one: depths[one])
    for frames, ns in own:
        by_line.update({frame: ns for frame in frames if frame.is_user and _function(frame) == inner})
    (line, _), *_ = by_line.most_common(1)
    return OwnWork(own_ns / max(whole_ns, 1), place_of(line))


_Function = tuple[str | None, str]


def _function(frame: SampledFrame) -> _Function:
    return frame.file, frame.function


def most_sampled_line(sampled: SampledSteps, which: Mask) -> SampledFrame | None:
    """Return the line that most of some samples show; None if they are too few or show several."""
    weights = _by_line(sampled, which)
    line = max(weights, key=lambda one: weights[one], default=None)
    is_sure = int(which.sum()) >= FEWEST_SAMPLES and line is not None
    return line if is_sure and line and weights[line] >= LEAST_LINE_SHARE * sum(weights.values()) else None


def _surplus(sampled: SampledSteps, slow: Mask, others: Mask, excess_ns: float) -> SampledFrame | None:
    """Return the line that slow steps have more of, beyond what they had if other programs made all lines longer."""
    here, there = _by_line(sampled, slow), _by_line(sampled, others)
    slow_ns, others_ns = sum(here.values()), max(sum(there.values()), 1.0)
    more = {line: ns - slow_ns * there.get(line, 0.0) / others_ns for line, ns in here.items()}
    line = max(more, key=lambda one: more[one], default=None)
    if line is None or more[line] < LEAST_SURPLUS_SHARE * excess_ns:
        return None
    own = [weight for stack, weight in _weights(sampled, slow) if sampled.lines[stack] == line]
    is_sure = len(own) >= FEWEST_SAMPLES and more[line] >= LEAST_DEVIATIONS * sum(one**2 for one in own) ** 0.5
    return line if is_sure else None


def _weights(sampled: SampledSteps, which: Mask) -> Iterator[tuple[int, int]]:
    return zip(sampled.stack[which].tolist(), sampled.weight_ns[which].tolist(), strict=True)


def _by_line(sampled: SampledSteps, which: Mask) -> dict[SampledFrame, float]:
    found = defaultdict[SampledFrame, float](float)
    for stack, weight in _weights(sampled, which):
        if (line := sampled.lines[stack]) is not None:
            found[line] += weight
    return found


def _changed(run: Run, steps: Sequence[TimedStep]) -> Pause | None:
    """Return a compilation for the most frequent kind of change; the text of torch begins with a number of its own."""
    first_ns = steps[0].clock_ns or 0
    again = [one for one in run.settings.pauses if one.reason and one.clock_ns >= first_ns]
    counts = Counter(one.change for one in again)
    change = counts.most_common(1)[0][0] if counts else None
    return max((one for one in again if one.change is change), key=lambda one: one.clock_ns, default=None)
