"""Time of a whole run by phase, from its step log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import numpy as np

from traceadvisor.analysis.sampled.paths import place_of
from traceadvisor.analysis.steps.feeding_loops import feeding_loops
from traceadvisor.analysis.steps.recording_cost import with_recording
from traceadvisor.analysis.steps.run_pieces import Pieces, StepRows, numbers, step_rows
from traceadvisor.analysis.steps.run_timing import median_of_bursts
from traceadvisor.analysis.whole_run.sampled_steps import SampledSteps
from traceadvisor.analysis.whole_run.slow_steps import (
    LEAST_LINE_SHARE,
    SlowSteps,
    most_sampled_line,
    own_work,
    slow_steps,
)
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64, Int64, Mask
from traceadvisor.model.location import Location
from traceadvisor.model.run import Run, StepState
from traceadvisor.model.run_time import CauseTime, RunCause, RunPart, RunStretch, RunTime
from traceadvisor.model.telemetry import ProcessColumn


def run_time(run: Run, slow: SlowSteps | None = None, sampled: SampledSteps | None = None) -> RunTime | None:
    """Return where the time of a run goes; None without a timed step.

    Steps with a monotonic clock are placed by it. Others are placed by the wall clock, and gaps between them count only
    where the profiler worked: a wall clock may jump.
    """
    if not run.steps or sum(step.duration_ns for step in run.steps) > LONGEST_RUN_NS:
        return None
    rows = step_rows(run)
    slow, usual = slow or slow_steps(run, sampled), _Usual.of(run)
    is_whole = run.started is not None and run.ended is not None and rows.by_clock
    pieces = [
        *with_recording(list(_split(rows, usual, slow, sampled)), rows, usual.step_ns, sampled),
        Pieces(RunPart.RECORDING, None, rows.start_ns - rows.gap_ns, rows.start_ns, rows.gap_ns),
        *(_ends(rows, run) if is_whole else ()),
    ]
    parts = dict.fromkeys(RunPart, 0)
    for piece in pieces:
        parts[piece.part] += piece.total_ns
    left_out = set() if is_whole and not run.was_stopped else {RunPart.AFTER}
    left_out |= set() if any(step.checkpoint_ns is not None for step in rows.steps) else {RunPart.CHECKPOINTS}
    left_out |= set() if any(step.loader_start_ns is not None for step in rows.steps) else {RunPart.EPOCH_STARTS}
    left_out |= {part for part in (RunPart.PAUSED, RunPart.SLOW) if not parts[part]}
    kept = {part: ns for part, ns in parts.items() if part not in left_out}
    first = int(rows.start_ns[0]), int(rows.end_ns[0])
    start_causes = _start_causes(first, parts[RunPart.START_UP], sampled)
    end_causes = _end_causes(int(rows.end_ns[-1]), kept.get(RunPart.AFTER, 0), sampled)
    saving = _saving(kept.get(RunPart.CHECKPOINTS, 0), sampled)
    evaluation = _evaluation(parts[RunPart.TRAINING] + parts[RunPart.SLOW], rows, slow, sampled)
    causes = (*start_causes, *evaluation, *_slow_causes(pieces, slow), *saving, *end_causes)
    stretches = tuple(_stretches(pieces, rows, run))
    return RunTime(sum(kept.values()), kept, int(rows.is_training.sum()), is_whole, causes, stretches)


MOST_STRETCHES = 64
LONGEST_RUN_NS = 1 << 61
"""73 years of steps: their places still fit 64 bits."""


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


def _split(rows: StepRows, usual: _Usual, slow: SlowSteps, sampled: SampledSteps | None) -> Iterator[Pieces]:
    """The parts of each step; they sum to its length."""
    left = rows.length_ns.copy()
    beside = list(_beside(rows, usual))
    for part, cause, ns in (*beside, *_beyond(rows, usual, slow, sum(ns for _, _, ns in beside))):
        taken = np.minimum(ns, left)
        left -= taken
        yield rows.pieces(part, cause, taken)
    feeds = np.isin(np.arange(left.size), list(feeding_loops(rows.steps, sampled)))
    trains = rows.is_training | feeds
    yield rows.pieces(RunPart.TRAINING, None, left * trains)
    yield rows.pieces(RunPart.VALIDATION, None, left * (~trains & rows.has_fetches))
    yield rows.pieces(RunPart.OTHER, None, left * (~trains & ~rows.has_fetches))


_PartNs = tuple[RunPart, RunCause | None, Int64]


def _beside(rows: StepRows, usual: _Usual) -> Iterator[_PartNs]:
    """The parts of steps that are no training."""
    begins = [step.index > 0 and bool(step.loader_start_ns) for step in rows.steps]
    waits_ns = numbers(step.loader_ns for step in rows.steps) - round(usual.loader_ns)
    yield RunPart.PAUSED, None, rows.paused_ns
    yield RunPart.CHECKPOINTS, None, numbers(step.checkpoint_ns for step in rows.steps)
    yield RunPart.EPOCH_STARTS, None, rows.loader_start_ns + np.maximum(waits_ns, 0) * (begins & rows.is_training)


def _beyond(rows: StepRows, usual: _Usual, slow: SlowSteps, beside_ns: Int64 | int) -> Iterator[_PartNs]:
    """The time of training steps beyond that of a usual one; ``beside_ns``: the parts that are no training."""
    if usual.step_ns:
        is_first = rows.is_training & [step.index == 0 for step in rows.steps]
        more_ns = rows.length_ns - beside_ns - round(usual.step_ns)
        yield RunPart.START_UP, None, np.maximum(more_ns, 0) * is_first
    places = {step.index: place for place, step in enumerate(rows.steps) if step.index in slow.parts}
    for cause in RunCause:
        ns = np.zeros_like(rows.length_ns)
        for index, place in places.items():
            ns[place] = slow.ns_of(index, cause)
        yield RunPart.SLOW, cause, ns * rows.is_training


def _ends(rows: StepRows, run: Run) -> Iterator[Pieces]:
    """The time before the first step and after the last, which is the recording's if the run was stopped after it."""
    if run.started is None or run.ended is None:
        return
    first_ns, last_ns = int(rows.start_ns[0]), int(rows.end_ns[-1])
    start_ns, end_ns = min(run.started.clock_ns, first_ns), max(run.ended.clock_ns, last_ns)
    saved_ns = min(run.checkpoint_after_ns or 0, end_ns - last_ns)
    for part, begin_ns, until_ns, ns in (
        (RunPart.START_UP, start_ns, first_ns, first_ns - start_ns),
        (RunPart.CHECKPOINTS, last_ns, end_ns, saved_ns),
        (RunPart.RECORDING if run.was_stopped else RunPart.AFTER, last_ns, end_ns, end_ns - last_ns - saved_ns),
    ):
        yield Pieces(part, None, *(np.array([at], dtype=np.int64) for at in (begin_ns, until_ns, ns)))


FEWEST_SAMPLES = 5

LEAST_EVALUATING = 0.01
"""Share of the training steps, from which on code without gradients in them is named."""

LEAST_SAMPLED = 0.5
"""Share of the start-up, or of the end, in samples, from which they stand for all of it. A child process is sampled
from its first optimizer on: what it does before, such as to import torch, no sample tells."""


def _start_causes(first: tuple[int, int], total_ns: int, sampled: SampledSteps | None) -> Iterator[CauseTime]:
    """Start-up by cause, from samples before the end of the first step: their shares of it, or of its sampled part.

    ``first``: start and end of the first step.
    """
    if sampled is not None:
        before = sampled.at_ns < first[1]
        in_step = before & (sampled.at_ns >= first[0])
        doing = {cause: before & sampled.doing(cause) for cause in RunCause}
        other = sampled.doing(None) | doing[RunCause.EVALUATION]
        doing[RunCause.SET_UP] |= before & ~in_step & other
        doing[RunCause.FIRST_STEP] |= in_step & other
        doing[RunCause.EVALUATION] &= False
        yield from _sampled_causes(RunPart.START_UP, RunCause.SET_UP, total_ns, sampled, doing)


def _end_causes(last_end_ns: int, total_ns: int, sampled: SampledSteps | None) -> Iterator[CauseTime]:
    """The time after the last step by cause, in the same way."""
    if sampled is not None:
        after = sampled.at_ns >= last_end_ns
        doing = {cause: after & sampled.doing(cause) for cause in RunCause}
        doing[RunCause.OTHER] |= after & sampled.doing(None)
        doing[RunCause.SAVING] &= False  # its time is that of checkpoints
        yield from _sampled_causes(RunPart.AFTER, RunCause.OTHER, total_ns, sampled, doing)


def _sampled_causes(
    part: RunPart, rest: RunCause, total_ns: int, sampled: SampledSteps, doing: Mapping[RunCause, Mask]
) -> Iterator[CauseTime]:
    """A part of the run by cause; what rounding leaves is of the cause ``rest``."""
    weights = {cause: int(sampled.weight_ns[own].sum()) for cause, own in doing.items()}
    whole_ns = sum(weights.values())
    if sum(int(own.sum()) for own in doing.values()) < FEWEST_SAMPLES or not total_ns or not whole_ns:
        return
    told_ns = total_ns if whole_ns >= LEAST_SAMPLED * total_ns else whole_ns
    shares = {cause: told_ns * ns // whole_ns for cause, ns in weights.items()}
    shares[rest] += told_ns - sum(shares.values())
    for cause, ns in shares.items():
        if ns:
            yield CauseTime(part, cause, ns, line=_line(sampled, doing[cause]))


def _line(sampled: SampledSteps, which: Mask) -> Location | None:
    """The line with most of some samples: of what the user's code does itself, if that is most."""
    if (own := own_work(sampled, which)) and own.share >= LEAST_LINE_SHARE:
        return own.line
    line = most_sampled_line(sampled, which)
    return place_of(line) if line else None


def _evaluation(total_ns: int, rows: StepRows, slow: SlowSteps, sampled: SampledSteps | None) -> Iterator[CauseTime]:
    """Code without gradients in training steps after the first, but for what is known to make steps slow."""
    if sampled is not None:
        inside = (sampled.step > 0) & rows.is_training[sampled.step]
        own = inside & sampled.doing(RunCause.EVALUATION)
        share = sampled.weight_ns[own].sum() / max(sampled.weight_ns[inside].sum(), 1)
        ns = round(share * total_ns) - slow.total_ns(RunCause.EVALUATION)
        if own.sum() >= FEWEST_SAMPLES and ns >= LEAST_EVALUATING * total_ns:
            yield CauseTime(RunPart.TRAINING, RunCause.EVALUATION, ns, line=_line(sampled, own))


def _slow_causes(pieces: Sequence[Pieces], slow: SlowSteps) -> Iterator[CauseTime]:
    """Slow steps by cause, the largest first."""
    for one in sorted(pieces, key=lambda one: -one.total_ns):
        if one.cause and one.total_ns:
            changed = slow.changed.reason if slow.changed and one.cause is RunCause.COMPILATION else None
            count, line = int((one.ns > 0).sum()), slow.lines.get(one.cause)
            yield CauseTime(RunPart.SLOW, one.cause, one.total_ns, count, line, changed)


def _saving(total_ns: int, sampled: SampledSteps | None) -> Iterator[CauseTime]:
    """The line that saves most of the checkpoints, where samples show one."""
    if total_ns and sampled is not None and (line := most_sampled_line(sampled, sampled.doing(RunCause.SAVING))):
        yield CauseTime(RunPart.CHECKPOINTS, RunCause.SAVING, total_ns, line=place_of(line))


def _stretches(pieces: Sequence[Pieces], rows: StepRows, run: Run) -> Iterator[RunStretch]:
    """The run in stretches of equal length; the time of a part within a longer time is spread evenly over it."""
    begin_ns = min(int(one.start_ns[0]) for one in pieces)
    end_ns = max(int(one.end_ns[-1]) for one in pieces)
    edges = np.array([begin_ns + (end_ns - begin_ns) * at // MOST_STRETCHES for at in range(MOST_STRETCHES + 1)])
    found = {part: np.zeros(MOST_STRETCHES) for part in RunPart}
    for one in pieces:
        found[one.part] += _by_stretch(one, edges)
    held = np.minimum(np.searchsorted(edges, rows.start_ns, side="right") - 1, MOST_STRETCHES - 1)
    counts = np.bincount(held[rows.is_training], minlength=MOST_STRETCHES)
    is_plain, memory = rows.has(StepState.PLAIN), _memory(run, rows, edges)
    for at in range(MOST_STRETCHES):
        plain = rows.length_ns[(held == at) & is_plain]
        yield RunStretch(
            int(edges[at] - begin_ns),
            int(edges[at + 1] - begin_ns),
            {part: round(float(ns[at])) for part, ns in found.items() if ns[at] >= 1},
            int(counts[at]),
            float(np.median(plain)) if plain.size else None,
            memory[at],
        )


def _by_stretch(pieces: Pieces, edges: Int64) -> Float64:
    """The time of some pieces in each stretch."""
    known = np.flatnonzero((pieces.ns > 0) & (pieces.end_ns > pieces.start_ns))
    starts, ends, ns = (column[known] for column in (pieces.start_ns, pieces.end_ns, pieces.ns.astype(np.float64)))
    firsts, lasts = (np.searchsorted(edges, at, side="right") - 1 for at in (starts, ends - 1))
    found = np.bincount(firsts[firsts == lasts], ns[firsts == lasts], MOST_STRETCHES).astype(np.float64)
    for at in np.flatnonzero(firsts != lasts).tolist():
        here = slice(firsts[at], lasts[at] + 1)
        covered = np.minimum(edges[1:][here], ends[at]) - np.maximum(edges[here], starts[at])
        found[here] += covered * (ns[at] / (ends[at] - starts[at]))
    return found


def _memory(run: Run, rows: StepRows, edges: Int64) -> list[float | None]:
    """Mean memory of the processes in each stretch; the wall clock of the first step tells its place."""
    series = run.telemetry.processes if run.telemetry else None
    figures = series.figures.get(ProcessColumn.RSS_BYTES) if series else None
    if series is None or figures is None:
        return [None] * MOST_STRETCHES
    known = np.isfinite(figures)
    at = np.searchsorted(edges, series.time_ns[known] - rows.steps[0].start_ns + rows.start_ns[0], side="right") - 1
    parts = (figures[known][at == place] for place in range(MOST_STRETCHES))
    return [float(part.mean()) if part.size else None for part in parts]
