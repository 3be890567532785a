"""The breakdown: each instant of a recording in exactly one category, and each step's share of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceadvisor.analysis.collectives import host_collective_rows
from traceadvisor.analysis.idle_causes import idle_partition
from traceadvisor.analysis.marks import recording_extent
from traceadvisor.analysis.names import name_mask, rows_named
from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.step_kinds import BACKWARD
from traceadvisor.model.arrays import Int64
from traceadvisor.model.breakdown import DEVICE_CATEGORIES, Category, StepBreakdown
from traceadvisor.model.events import Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step

Partition = Mapping[Category, SpanSet]
"""Disjoint sets that together fill an extent."""

_DEVICE_PRECEDENCE = (
    (Category.KERNEL, (Kind.KERNEL,)),
    (Category.COMMUNICATION, (Kind.COLLECTIVE,)),
    (Category.H2D_COPY, (Kind.COPY_H2D,)),
    (Category.OTHER_COPY, (Kind.COPY_D2H, Kind.COPY_OTHER, Kind.MEMSET)),
)


def partition_recording(observation: Observation) -> Partition:
    """Each instant of the recording in its category: the device's, or the host's where there is no device activity."""
    extent = recording_extent(observation.trace)
    return _device_partition(observation, extent) if observation.has_device else _host_partition(observation, extent)


def break_down(step: Step, partition: Partition, *, has_loader: bool) -> StepBreakdown:
    """One step's time per category; data wait is None where no loader was recorded."""
    parts: dict[Category, int | None] = {
        category: spans.clip(step.start_ns, step.end_ns).total_ns for category, spans in partition.items()
    }
    if not has_loader:
        parts[Category.DATA_WAIT] = None
    return StepBreakdown(step.duration_ns, parts)


def _device_partition(observation: Observation, extent: tuple[int, int]) -> Partition:
    """By what the device does, and by the cause where it is idle."""
    events, launches = observation.trace.events, observation.launches
    kinds = events.kind[launches.work_rows]
    result: dict[Category, SpanSet] = {}
    busy = SpanSet.empty()
    for category, members in _DEVICE_PRECEDENCE:
        spans = events.spans(launches.work_rows[np.isin(kinds, members)]).clip(*extent)
        result[category] = spans - busy
        busy |= spans
    idle = idle_partition(observation, extent)
    return {category: result[category] if category in result else idle[category] for category in DEVICE_CATEGORIES}


def _host_partition(observation: Observation, extent: tuple[int, int]) -> Partition:
    """By what the host does."""
    trace, events = observation.trace, observation.trace.events
    operators = events.rows(Kind.OPERATOR)
    backward = name_mask(trace.names, lambda name: name.startswith(BACKWARD))
    precedence: dict[Category, SpanSet | Int64] = {
        Category.DATA_WAIT: observation.loading,
        Category.OPTIMIZER: rows_named(trace, Kind.ANNOTATION, lambda name: name.startswith("Optimizer.step#")),
        Category.BACKWARD: operators[backward[events.name_id[operators]]],
        Category.FORWARD: operators[events.thread[operators] == observation.thread],
        Category.COMMUNICATION: host_collective_rows(trace),
    }
    result: dict[Category, SpanSet] = {}
    rest = SpanSet.of(extent)
    for category, what in precedence.items():
        spans = what if isinstance(what, SpanSet) else events.spans(what)
        result[category] = rest & spans
        rest -= spans
    return {**result, Category.OTHER_HOST: rest}
