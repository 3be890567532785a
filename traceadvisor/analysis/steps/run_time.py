"""Time of a whole run by phase, from its step log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from traceadvisor.analysis.steps.clocks import pauses
from traceadvisor.analysis.steps.run_timing import median_of_bursts
from traceadvisor.frozen import frozen
from traceadvisor.model.run import Run, StepState, TimedStep
from traceadvisor.model.run_time import RunPart, RunTime

_PROFILED = frozenset({StepState.WARMUP, StepState.SETTLING, StepState.RECORDED, StepState.STALLED})
_AFTER_RECORDER = frozenset({StepState.WARMUP, StepState.SETTLING, StepState.STALLED})
"""States of steps right before which the profiler may have started or exported."""


def run_time(run: Run) -> RunTime | None:
    """Return where the time of a run goes; None without a timed step.

    Steps with a monotonic clock are placed by it. Others are placed by the wall clock, and gaps between them count only
    where the profiler worked: a wall clock may jump.
    """
    rows = _placed(run)
    if not rows:
        return None
    usual = _Usual.of(run)
    measured = any(row.step.checkpoint_ns is not None for row in rows)
    is_whole = run.started is not None and run.ended is not None and rows[0].by_clock
    parts = dict.fromkeys(RunPart, 0)
    parts[RunPart.RECORDING] = sum(row.gap_ns for row in rows)
    for row, part, ns in _split(rows, usual):
        parts[part] += ns
        if part is RunPart.TRAINING and row.step.index == 0 and usual.step_ns:
            late_ns = min(max(row.length_ns - round(usual.step_ns), 0), ns)
            parts[RunPart.TRAINING] -= late_ns
            parts[RunPart.START_UP] += late_ns
    added_ns = min(_added_by_recording(rows, usual), parts[RunPart.TRAINING])
    parts[RunPart.TRAINING] -= added_ns
    parts[RunPart.RECORDING] += added_ns
    if is_whole:
        _add_ends(parts, rows, run)
    left_out = set() if is_whole else {RunPart.AFTER}
    left_out |= set() if measured else {RunPart.CHECKPOINTS}
    left_out |= set() if any(row.step.loader_start_ns is not None for row in rows) else {RunPart.EPOCH_STARTS}
    left_out |= set() if parts[RunPart.PAUSED] else {RunPart.PAUSED}
    kept = {part: ns for part, ns in parts.items() if part not in left_out}
    training = sum(row.step.state is not StepState.OTHER for row in rows)
    return RunTime(sum(kept.values()), kept, training, is_whole)


@frozen
class _Row:
    """A step in its place, without the time that an earlier one covers."""

    step: TimedStep
    start_ns: int
    length_ns: int
    gap_ns: int
    """Time since the step before it."""

    by_clock: bool
    """Whether a monotonic clock places it."""

    paused_ns: int
    loader_start_ns: int
    """Time to start the loop over the training loader, within this step."""

    @property
    def is_training(self) -> bool:
        return self.step.state is not StepState.OTHER

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.length_ns


@frozen
class _Usual:
    """Medians of undisturbed steps without epoch starts and checkpoints; None without such steps."""

    step_ns: float | None
    loader_ns: float

    @classmethod
    def of(cls, run: Run) -> _Usual:
        """Medians of a run; of all training steps if none is undisturbed."""
        workers = run.settings.loader.worker_count if run.settings.loader else None
        later = [step for step in run.steps if step.index > 0 and step.state is not StepState.OTHER]
        plain = [step for step in later if step.state is StepState.PLAIN] or later
        within = [step for step in plain if not step.loader_start_ns] or plain
        lengths = [max(step.duration_ns - (step.checkpoint_ns or 0), 0) for step in within]
        return cls(
            median_of_bursts(lengths, max(workers or 1, 1)),
            float(median(step.loader_ns for step in within)) if within else 0.0,
        )


def _placed(run: Run) -> list[_Row]:
    steps = sorted(run.steps, key=lambda step: step.index)
    by_clock = bool(steps) and all(step.clock_ns is not None for step in steps)
    stopped = pauses(run)
    inside = _starts_inside(steps)
    rows: list[_Row] = []
    at: int | None = None
    for step, loader_start_ns in zip(steps, inside, strict=True):
        given = step.clock_ns if by_clock and step.clock_ns is not None else step.start_ns
        start = given if at is None else max(given, at)
        end = start + step.duration_ns  # a duration is right on any clock
        gap = 0 if at is None else start - at
        if not by_clock and step.state not in _AFTER_RECORDER:
            gap = 0  # nothing is known to happen there, so a gap is a jump of the clock
        wall = (step.start_ns, step.start_ns + step.duration_ns)
        paused = sum(max(min(wall[1], last) - max(wall[0], first), 0) for first, last in stopped)
        length = end - start
        rows.append(_Row(step, start, length, gap, by_clock, min(paused, length), loader_start_ns))
        at = end
    return rows


def _starts_inside(steps: Sequence[TimedStep]) -> list[int]:
    """The time within each step to start a loop over the training loader.

    The loop is started before its first fetch, where the step before ends: in that step if it is validation, which
    lasts until that fetch. Otherwise the fetch that found no further batch has begun the new step.
    """
    inside = [0] * len(steps)
    for place, step in enumerate(steps):
        if step.state is StepState.OTHER or not step.loader_start_ns or not place:
            continue
        before = steps[place - 1].state is StepState.OTHER
        inside[place - 1 if before else place] += step.loader_start_ns
    return inside


def _split(rows: Sequence[_Row], usual: _Usual) -> Iterator[tuple[_Row, RunPart, int]]:
    """The parts of each step; they sum to its length."""
    for row in rows:
        left = row.length_ns
        first_wait = 0
        if row.is_training and row.step.loader_start_ns and row.step.index > 0:
            first_wait = max(row.step.loader_ns - round(usual.loader_ns), 0)
        for part, ns in (
            (RunPart.PAUSED, row.paused_ns),
            (RunPart.CHECKPOINTS, row.step.checkpoint_ns or 0),
            (RunPart.EPOCH_STARTS, row.loader_start_ns + first_wait),
        ):
            taken = min(ns, left)
            left -= taken
            yield row, part, taken
        if row.is_training:
            yield row, RunPart.TRAINING, left
        else:
            yield row, RunPart.VALIDATION if row.step.fetches else RunPart.OTHER, left


def _added_by_recording(rows: Sequence[_Row], usual: _Usual) -> int:
    """The time by which the profiler made steps longer; 0 if unknown.

    A single long step has a cause of its own: recorded steps count by their median.
    """
    if not usual.step_ns or not any(row.step.state is StepState.PLAIN for row in rows):
        return 0
    rest = {
        state: [
            max(row.length_ns - (row.step.checkpoint_ns or 0) - row.paused_ns, 0)
            for row in rows
            if row.step.state is state and not row.step.loader_start_ns
        ]
        for state in _PROFILED
    }
    return sum(round(max(median(lengths) - usual.step_ns, 0.0) * len(lengths)) for lengths in rest.values() if lengths)


def _add_ends(parts: dict[RunPart, int], rows: Sequence[_Row], run: Run) -> None:
    """Add the time before the first step and after the last."""
    if run.started is None or run.ended is None:
        return
    parts[RunPart.START_UP] += max(rows[0].start_ns - run.started.clock_ns, 0)
    after = max(run.ended.clock_ns - rows[-1].end_ns, 0)
    saved = min(run.checkpoint_after_ns or 0, after)
    parts[RunPart.CHECKPOINTS] += saved
    parts[RunPart.AFTER] += after - saved
