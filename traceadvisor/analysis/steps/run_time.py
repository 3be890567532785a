"""Time of a whole run by phase, from its step log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from traceadvisor.analysis.steps.clocks import pauses
from traceadvisor.analysis.steps.run_timing import median_of_bursts
from traceadvisor.analysis.whole_run.sampled_steps import SampledSteps
from traceadvisor.analysis.whole_run.slow_steps import SlowSteps, slow_steps
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.run import Run, StepState, TimedStep
from traceadvisor.model.run_time import CauseTime, RunCause, RunPart, RunStretch, RunTime
from traceadvisor.model.telemetry import ProcessColumn

_PROFILED = frozenset({StepState.WARMUP, StepState.SETTLING, StepState.RECORDED, StepState.STALLED})
_AFTER_RECORDER = frozenset({StepState.WARMUP, StepState.SETTLING, StepState.STALLED})
"""States of steps right before which the profiler may have started or exported."""


def run_time(run: Run, slow: SlowSteps | None = None, sampled: SampledSteps | None = None) -> RunTime | None:
    """Return where the time of a run goes; None without a timed step.

    Steps with a monotonic clock are placed by it. Others are placed by the wall clock, and gaps between them count only
    where the profiler worked: a wall clock may jump.
    """
    rows = _placed(run)
    if not rows:
        return None
    slow, usual = slow or slow_steps(run, sampled), _Usual.of(run)
    is_whole = run.started is not None and run.ended is not None and rows[0].by_clock
    pieces = [
        *_with_added(list(_split(rows, usual, slow)), rows, usual),
        *(_Piece(row.start_ns - row.gap_ns, row.start_ns, RunPart.RECORDING, row.gap_ns) for row in rows),
        *(_ends(rows, run) if is_whole else ()),
    ]
    parts = dict.fromkeys(RunPart, 0)
    for piece in pieces:
        parts[piece.part] += piece.ns
    left_out = set() if is_whole else {RunPart.AFTER}
    left_out |= set() if any(row.step.checkpoint_ns is not None for row in rows) else {RunPart.CHECKPOINTS}
    left_out |= set() if any(row.step.loader_start_ns is not None for row in rows) else {RunPart.EPOCH_STARTS}
    left_out |= {part for part in (RunPart.PAUSED, RunPart.SLOW) if not parts[part]}
    kept = {part: ns for part, ns in parts.items() if part not in left_out}
    training = sum(row.step.state is not StepState.OTHER for row in rows)
    causes = (*_start_causes(rows[0], parts[RunPart.START_UP], sampled), *_slow_causes(pieces, slow))
    stretches = tuple(_stretches(pieces, rows, run))
    return RunTime(sum(kept.values()), kept, training, is_whole, causes, stretches)


MOST_STRETCHES = 64


@frozen
class _Piece:
    """Time of one part within some other time, which may be longer."""

    start_ns: int
    end_ns: int
    part: RunPart
    ns: int
    cause: RunCause | None = None
    index: int = 0
    """Index of the step."""


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


def _split(rows: Sequence[_Row], usual: _Usual, slow: SlowSteps) -> Iterator[_Piece]:
    """The parts of each step; they sum to its length."""
    for row in rows:
        left = row.length_ns
        for part, cause, ns in (*_beside(row, usual), *_beyond(row, usual, slow)):
            taken = min(ns, left)
            left -= taken
            yield _Piece(row.start_ns, row.end_ns, part, taken, cause, row.step.index)
        rest = RunPart.VALIDATION if row.step.fetches else RunPart.OTHER
        yield _Piece(row.start_ns, row.end_ns, RunPart.TRAINING if row.is_training else rest, left)


_PartNs = tuple[RunPart, RunCause | None, int]


def _beside(row: _Row, usual: _Usual) -> Iterator[_PartNs]:
    """The parts of a step that are no training."""
    first_wait = 0
    if row.is_training and row.step.loader_start_ns and row.step.index > 0:
        first_wait = max(row.step.loader_ns - round(usual.loader_ns), 0)
    yield RunPart.PAUSED, None, row.paused_ns
    yield RunPart.CHECKPOINTS, None, row.step.checkpoint_ns or 0
    yield RunPart.EPOCH_STARTS, None, row.loader_start_ns + first_wait


def _beyond(row: _Row, usual: _Usual, slow: SlowSteps) -> Iterator[_PartNs]:
    """The time of a training step beyond a usual one."""
    if row.is_training and row.step.index == 0 and usual.step_ns:
        beside = sum(ns for _, _, ns in _beside(row, usual))
        yield RunPart.START_UP, None, max(row.length_ns - beside - round(usual.step_ns), 0)
    elif row.is_training:
        for cause, ns in slow.parts.get(row.step.index, ()):
            yield RunPart.SLOW, cause, ns


def _with_added(pieces: Sequence[_Piece], rows: Sequence[_Row], usual: _Usual) -> Iterator[_Piece]:
    """The same parts, with the time by which the profiler made steps longer; unchanged if that is unknown.

    A single long step has a cause of its own: recorded steps count by their median. Validation that the profiler
    watches, or before whose end it exports, counts as long as the longest of the others.
    """
    beside = _longest_beside(rows)
    states = {row.start_ns: row.step.state for row in rows if not row.step.loader_start_ns}
    added = dict.fromkeys(_PROFILED, 0.0)
    if usual.step_ns and any(row.step.state is StepState.PLAIN for row in rows):
        for state in _PROFILED:
            own = [one for one in pieces if states.get(one.start_ns) is state and one.part is RunPart.TRAINING]
            typical_ns = median(one.ns for one in own) if own else 0.0
            added[state] = max(typical_ns - usual.step_ns, 0.0) / typical_ns if typical_ns else 0.0
    for one in pieces:
        moved = round(added.get(states.get(one.start_ns, StepState.OTHER), 0.0) * one.ns)
        if one.part is not RunPart.TRAINING:
            moved = max(one.ns - beside.get(one.start_ns, one.ns), 0)
        if one.part in (RunPart.TRAINING, RunPart.VALIDATION) and moved:
            yield replace(one, ns=one.ns - moved)
            yield replace(one, part=RunPart.RECORDING, ns=moved)
        else:
            yield one


def _longest_beside(rows: Sequence[_Row]) -> dict[int, int]:
    """The longest validation without the profiler, for the start of each one that follows a step with it."""
    found: dict[bool, list[_Row]] = {True: [], False: []}
    is_profiled = False
    for row in rows:
        if row.is_training:
            is_profiled = row.step.state in _PROFILED
        elif row.step.fetches:
            found[is_profiled].append(row)
    longest_ns = max((row.length_ns for row in found[False]), default=None)
    return {} if longest_ns is None else {row.start_ns: longest_ns for row in found[True]}


def _ends(rows: Sequence[_Row], run: Run) -> Iterator[_Piece]:
    """The time before the first step and after the last."""
    if run.started is None or run.ended is None:
        return
    first_ns, last_ns = rows[0].start_ns, rows[-1].end_ns
    start_ns, end_ns = min(run.started.clock_ns, first_ns), max(run.ended.clock_ns, last_ns)
    yield _Piece(start_ns, first_ns, RunPart.START_UP, first_ns - start_ns)
    saved_ns = min(run.checkpoint_after_ns or 0, end_ns - last_ns)
    yield _Piece(last_ns, end_ns, RunPart.CHECKPOINTS, saved_ns)
    yield _Piece(last_ns, end_ns, RunPart.AFTER, end_ns - last_ns - saved_ns)


FEWEST_START_SAMPLES = 5


def _start_causes(first: _Row, total_ns: int, sampled: SampledSteps | None) -> Iterator[CauseTime]:
    """Start-up by cause, from samples before the end of the first step: their shares of it."""
    before = None if sampled is None else sampled.at_ns < first.end_ns
    if sampled is None or before is None or int(before.sum()) < FEWEST_START_SAMPLES or not total_ns:
        return
    by_cause = dict.fromkeys(RunCause, 0)
    for stack, ns in zip(sampled.stack[before].tolist(), sampled.weight_ns[before].tolist(), strict=True):
        cause = sampled.causes[stack]
        by_cause[cause if cause and cause is not RunCause.EVALUATION else RunCause.SET_UP] += ns
    whole_ns, given = max(sum(by_cause.values()), 1), 0
    for cause, ns in by_cause.items():
        own_ns = total_ns * ns // whole_ns
        given += own_ns
        if own_ns and cause is not RunCause.SET_UP:
            yield CauseTime(RunPart.START_UP, cause, own_ns)
    set_up_ns = total_ns * by_cause[RunCause.SET_UP] // whole_ns
    yield CauseTime(RunPart.START_UP, RunCause.SET_UP, total_ns - given + set_up_ns)


def _slow_causes(pieces: Sequence[_Piece], slow: SlowSteps) -> Iterator[CauseTime]:
    """Slow steps by cause, the largest first."""
    by_cause: dict[RunCause, list[_Piece]] = {}
    for one in pieces:
        if one.cause and one.ns:
            by_cause.setdefault(one.cause, []).append(one)
    for cause, own in sorted(by_cause.items(), key=lambda item: -sum(one.ns for one in item[1])):
        changed = slow.changed.reason if slow.changed and cause is RunCause.COMPILATION else None
        steps = len({one.index for one in own})
        yield CauseTime(RunPart.SLOW, cause, sum(one.ns for one in own), steps, slow.lines.get(cause), changed)


def _stretches(pieces: Sequence[_Piece], rows: Sequence[_Row], run: Run) -> Iterator[RunStretch]:
    """The run in stretches of equal length; the time of a part within a longer time is spread evenly over it."""
    begin_ns = min(one.start_ns for one in pieces)
    end_ns = max(one.end_ns for one in pieces)
    edges = np.array([begin_ns + (end_ns - begin_ns) * at // MOST_STRETCHES for at in range(MOST_STRETCHES + 1)])
    found = {part: np.zeros(MOST_STRETCHES) for part in RunPart}
    for one in pieces:
        if one.ns and one.end_ns > one.start_ns:
            first, last = _place(edges, one.start_ns), _place(edges, one.end_ns)
            begins, ends = edges[first : last + 1], edges[first + 1 : last + 2]
            covered = np.minimum(ends, one.end_ns) - np.maximum(begins, one.start_ns)
            found[one.part][first : last + 1] += covered * (one.ns / (one.end_ns - one.start_ns))
    starts = np.array([row.start_ns for row in rows if row.is_training], dtype=np.int64)
    held = np.minimum(np.searchsorted(edges, starts, side="right") - 1, MOST_STRETCHES - 1)
    is_plain = np.array([row.step.state is StepState.PLAIN for row in rows if row.is_training], dtype=np.bool_)
    lengths = np.array([row.length_ns for row in rows if row.is_training], dtype=np.float64)
    memory = _memory(run, rows, edges)
    for at in range(MOST_STRETCHES):
        plain = lengths[(held == at) & is_plain]
        yield RunStretch(
            int(edges[at] - begin_ns),
            int(edges[at + 1] - begin_ns),
            {part: round(float(ns[at])) for part, ns in found.items() if ns[at] >= 1},
            int((held == at).sum()),
            float(np.median(plain)) if plain.size else None,
            memory[at],
        )


def _place(edges: Int64, at_ns: int) -> int:
    """The stretch that holds a moment of the run."""
    return int(np.clip(np.searchsorted(edges, at_ns, side="right") - 1, 0, MOST_STRETCHES - 1))


def _memory(run: Run, rows: Sequence[_Row], edges: Int64) -> list[float | None]:
    """Mean memory of the processes in each stretch; the wall clock of the first step tells its place."""
    series = run.telemetry.processes if run.telemetry else None
    figures = series.figures.get(ProcessColumn.RSS_BYTES) if series else None
    if series is None or figures is None:
        return [None] * MOST_STRETCHES
    known = np.isfinite(figures)
    at = np.searchsorted(edges, series.time_ns[known] - rows[0].step.start_ns + rows[0].start_ns, side="right") - 1
    parts = (figures[known][at == place] for place in range(MOST_STRETCHES))
    return [float(part.mean()) if part.size else None for part in parts]
