"""The time that the profiler adds to the steps and the validation of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from traceadvisor.analysis.steps.run_pieces import Pieces, StepRows
from traceadvisor.analysis.whole_run.sampled_steps import SampledSteps
from traceadvisor.model.arrays import Float64, Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.run import StepState
from traceadvisor.model.run_time import RunPart
from traceadvisor.model.samples import OWN_WORK

_PROFILED = frozenset({StepState.WARMUP, StepState.SETTLING, StepState.RECORDED, StepState.STALLED})


def with_recording(
    pieces: Sequence[Pieces], rows: StepRows, usual_ns: float | None, sampled: SampledSteps | None
) -> Iterator[Pieces]:
    """The same parts, with the time by which the profiler made steps longer; unchanged if that is unknown.

    A single long step has a cause of its own: steps count by their median, and what is beyond that as far as samples
    show the capture at work. Validation that the profiler watches, or before whose end it exports, counts as long as
    the longest of the others. What runs between steps and loops is the profiler's as far as samples show the capture
    at work. ``usual_ns``: a step without the profiler.
    """
    for one in pieces:
        moved_ns = np.zeros_like(one.ns)
        if one.part is RunPart.TRAINING:
            moved_ns = np.rint(_added_ns(one.ns, rows, usual_ns, sampled)).astype(np.int64)
        elif one.part is RunPart.VALIDATION:
            moved_ns = _added_to_validation(one.ns, rows)
        elif one.part is RunPart.OTHER and sampled is not None:
            moved_ns = np.minimum(_own_work_ns(rows, sampled), one.ns)
        yield replace(one, ns=one.ns - moved_ns)
        yield replace(one, part=RunPart.RECORDING, ns=moved_ns)


def _added_ns(training_ns: Int64, rows: StepRows, usual_ns: float | None, sampled: SampledSteps | None) -> Float64:
    """The time of each step's training by which the profiler made it longer."""
    added, within = np.zeros(training_ns.size), rows.is_training & [not step.loader_start_ns for step in rows.steps]
    if not usual_ns or not rows.has(StepState.PLAIN).any():
        return added
    own_ns = _own_work_ns(rows, sampled) if sampled is not None else None
    for state in _PROFILED:
        own = within & rows.has(state)
        beyond = _typical_ns(training_ns, own) - usual_ns
        if beyond <= 0:
            continue
        share = beyond / (beyond + usual_ns)
        added[own] = share * training_ns[own]
        if own_ns is not None:
            watched = own if state is not StepState.STALLED else within & rows.has(StepState.RECORDED)
            slowed_ns = max(_typical_ns(training_ns, watched) - usual_ns, 0.0)
            added[own] = np.minimum(added[own], slowed_ns + own_ns[own])
    return added


def _typical_ns(training_ns: Int64, which: Mask) -> float:
    return float(np.median(training_ns[which])) if which.any() else 0.0


def _own_work_ns(rows: StepRows, sampled: SampledSteps) -> Int64:
    """The time of each step in which samples show the capture at work, such as when it saves a recording."""
    is_own = np.array([OWN_WORK in frames for frames in sampled.frames], dtype=np.bool_)[sampled.stack]
    is_own &= sampled.step != NONE
    found: Int64 = np.bincount(sampled.step[is_own], sampled.weight_ns[is_own], len(rows.steps)).astype(np.int64)
    return found


def _added_to_validation(validation_ns: Int64, rows: StepRows) -> Int64:
    """The time of each validation that follows a step with the profiler, beyond the longest without it."""
    validates = ~rows.is_training & rows.has_fetches
    latest = np.maximum.accumulate(np.where(rows.is_training, np.arange(validates.size), -1))
    is_profiled = validates & (latest >= 0) & rows.has(*_PROFILED)[latest]
    others = validates & ~is_profiled
    if not others.any():
        return np.zeros_like(validation_ns)
    beyond_ns: Int64 = np.maximum(validation_ns - rows.length_ns[others].max(), 0) * is_profiled
    return beyond_ns
