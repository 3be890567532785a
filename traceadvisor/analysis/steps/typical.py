"""Typical steps: the kept ones without start-up, teardown and outliers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.names import rows_with_prefix
from traceadvisor.analysis.operators.optimizer import STEP_PREFIX
from traceadvisor.analysis.steps.breakdown import Partition
from traceadvisor.analysis.steps.detection import position_at, serving_kinds
from traceadvisor.analysis.steps.start_up import start_up
from traceadvisor.model.arrays import Int64
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import Kind
from traceadvisor.model.steps import Step, StepSource, StepTable

MOST_DEVIATIONS = 3.0
"""A step further from the median, in robust standard deviations, is an outlier."""

DEVIATION_PER_MAD = 1.4826
"""Standard deviation of normally distributed values over their median absolute deviation."""

LEAST_DEVIATION_SHARE = 0.02
"""Smallest deviation as a share of the median: steps within 6% of the median are nearly equal."""

LEAST_TYPICAL_SHARE = 0.5
"""Share of the kept steps that stays typical at least."""

FEWEST_TO_COMPARE = 3
"""With two lengths, the lengths alone do not show which one is unusual."""

EXPLAINED_SHARE = 0.5
"""If start-up or its end takes this share of the difference of two steps, the longer one is unusual."""

Lengths = Mapping[int, float]
"""Length of each kept step in nanoseconds, by position."""


def with_typical(table: StepTable, observation: Observation, partition: Partition) -> StepTable:
    """Return the steps, those marked that are kept but not typical, each with the reason.

    Steps are compared by length. If loader workers make the batches, these come in bursts, so waits for data do not
    count, except in the first kept step. Steps with and without ``Optimizer.step`` (gradient accumulation) are compared
    apart. Two steps of different length are compared by what start-up and the end of the recording add.
    """
    kept = [at for at, step in enumerate(table.steps) if step.kept]
    if len(kept) < 2 or table.source is StepSource.WINDOW:
        return table
    whole = {at: float(table.steps[at].duration_ns) for at in kept}
    lengths = _without_bursts(table, whole, observation, partition)
    reasons = dict(_of_another_kind(table, kept, observation))
    for group in _groups(table, [at for at in kept if at not in reasons], observation):
        if len(group) >= FEWEST_TO_COMPARE:
            reasons |= _outliers(group, lengths, kept)
            reasons |= {at: reason for at, reason in _outliers(group, whole, kept).items() if at == kept[0]}
    if len(kept) == 2 and not reasons:
        reasons |= dict(_longer_of_two(table, kept, observation))
    spared = _most_unusual(reasons, lengths, kept)
    steps = [replace(step, atypical=reasons[at]) if at in spared else step for at, step in enumerate(table.steps)]
    return replace(table, steps=tuple(steps))


def _without_bursts(table: StepTable, whole: Lengths, observation: Observation, partition: Partition) -> Lengths:
    """Return the lengths without waits for batches that loader workers deliver in bursts."""
    if observation.loader is None or observation.loader.in_training_process:
        return whole
    waits = partition[Category.DATA_WAIT]
    bounds = np.array([(table.steps[at].start_ns, table.steps[at].end_ns) for at in whole], dtype=np.int64)
    waited = waits.measure_in(*bounds.T).tolist()
    return {at: length - wait for (at, length), wait in zip(whole.items(), waited, strict=True)}


def _of_another_kind(table: StepTable, kept: Sequence[int], observation: Observation) -> Iterator[tuple[int, str]]:
    """Yield serving iterations of the rarer kind: those that process prompts, or those that only generate."""
    if table.source is not StepSource.SERVING:
        return
    prefills = serving_kinds(observation.trace, [table.steps[at].host_start_ns for at in kept])
    count = sum(is_prefill is True for is_prefill in prefills)
    known = sum(is_prefill is not None for is_prefill in prefills)
    if not count or count == known:
        return
    most_are_prefill = 2 * count > known
    reason = "it generates only, and most iterations process prompts"
    if not most_are_prefill:
        reason = "it processes prompts, and most iterations only generate"
    for at, is_prefill in zip(kept, prefills, strict=True):
        if is_prefill is not None and is_prefill != most_are_prefill:
            yield at, reason


def _groups(table: StepTable, kept: Sequence[int], observation: Observation) -> list[list[int]]:
    """Split steps that update the parameters from others; together if a single step has no update."""
    trace = observation.trace
    updates = trace.events.start_ns[rows_with_prefix(trace, Kind.ANNOTATION, STEP_PREFIX)]
    spans = [(table.steps[at].host_start_ns, table.steps[at].host_end_ns) for at in kept]
    holders = set(position_at(spans, updates).tolist())
    updating = [at for number, at in enumerate(kept) if number in holders]
    others = [at for number, at in enumerate(kept) if number not in holders]
    return [updating, others] if updating and len(others) > 1 else [list(kept)]


def _outliers(group: Sequence[int], lengths: Lengths, kept: Sequence[int]) -> dict[int, str]:
    usual = median(lengths[at] for at in group)
    spread = median(abs(lengths[at] - usual) for at in group)
    limit = MOST_DEVIATIONS * max(DEVIATION_PER_MAD * spread, LEAST_DEVIATION_SHARE * usual)
    return {
        at: f"{_place(at, kept)} {_relation(lengths[at], usual)} the median step"
        for at in group
        if abs(lengths[at] - usual) > limit
    }


def _place(at: int, kept: Sequence[int]) -> str:
    if at == kept[0]:
        return "it is the first step of the recording and takes"
    return "it is the last step of the recording and takes" if at == kept[-1] else "it takes"


def _relation(length: float, usual: float) -> str:
    if length > 2 * usual > 0:
        return f"{length / usual:.1f} times as long as"
    return f"{abs(length / max(usual, 1.0) - 1):.0%} {'more' if length > usual else 'less'} time than"


def _longer_of_two(table: StepTable, kept: Sequence[int], observation: Observation) -> Iterator[tuple[int, str]]:
    """Yield the first of two steps if start-up makes it longer, or the last if the end of the recording does."""
    first, last = (table.steps[at] for at in kept)
    excess = first.duration_ns - last.duration_ns
    if abs(excess) <= MOST_DEVIATIONS * LEAST_DEVIATION_SHARE * min(first.duration_ns, last.duration_ns):
        return
    if excess > 0:
        starting = start_up(observation)
        added = starting.clip(first.start_ns, first.end_ns).total_ns
        if added - starting.clip(last.start_ns, last.end_ns).total_ns > EXPLAINED_SHARE * excess:
            yield kept[0], "it is the first step of the recording, and start-up makes it longer than the other"
    elif _tail_ns(last, observation) - _tail_ns(first, observation) > -EXPLAINED_SHARE * excess:
        yield kept[-1], "it is the last step of the recording, and the time after its last operation makes it longer"


def _tail_ns(step: Step, observation: Observation) -> int:
    """Return the time after the last operator, runtime call and GPU operation that the step's mark holds."""
    events = observation.trace.events
    rows = events.rows(Kind.OPERATOR, Kind.RUNTIME, Kind.ANNOTATION)
    mine = rows[(events.start_ns[rows] > step.host_start_ns) & (events.end_ns[rows] <= step.host_end_ns)]
    done = int(events.end_ns[mine].max(initial=step.host_start_ns))
    return max(0, step.end_ns - max(done, _device_end_ns(step, observation.launches.work_rows, observation)))


def _device_end_ns(step: Step, rows: Int64, observation: Observation) -> int:
    ends = observation.trace.events.end_ns[rows]
    return int(ends[ends <= step.end_ns].max(initial=step.start_ns))


def _most_unusual(reasons: Mapping[int, str], lengths: Lengths, kept: Sequence[int]) -> set[int]:
    """Return the unusual steps, the most unusual first, so many that enough steps stay typical."""
    usual = median(lengths.values())
    room = len(kept) - int(np.ceil(LEAST_TYPICAL_SHARE * len(kept)))
    return set(sorted(reasons, key=lambda at: -abs(lengths[at] - usual))[:room])
