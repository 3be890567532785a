"""The breakdown: each instant of a recording in one category, per step, and how much work is exposed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from traceadvisor.analysis.communication.collectives import host_collective_rows
from traceadvisor.analysis.idle.causes import idle_partition
from traceadvisor.analysis.idle.gaps import Gaps
from traceadvisor.analysis.idle.unknown import Unknown
from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, name_mask
from traceadvisor.analysis.operators.optimizer import optimizer_steps
from traceadvisor.analysis.operators.unrecorded_device import mps_waits
from traceadvisor.analysis.steps.compiled_calls import xla_rows
from traceadvisor.analysis.steps.detection import recording_extent
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, one_of, without
from traceadvisor.model.breakdown import DEVICE_CATEGORIES, Category, StepBreakdown
from traceadvisor.model.events import EXCHANGE, EventTable, Kind
from traceadvisor.model.report import Overlap, Work
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step, StepTable

Partition = Mapping[Category, SpanSet]
"""Disjoint sets that fill an extent."""

DEVICE_PRECEDENCE = (
    (Category.KERNEL, (Kind.KERNEL,)),
    (Category.COMMUNICATION, (Kind.COLLECTIVE,)),
    (Category.H2D_COPY, (Kind.COPY_H2D,)),
    (Category.OTHER_COPY, (Kind.COPY_D2H, Kind.COPY_OTHER, Kind.MEMSET)),
)


def partition_recording(observation: Observation, gaps: Gaps, unknown: Unknown) -> Partition:
    """Assign each instant of the recording to a category: of the device, or of the host without device activity.

    ``unknown``: gaps in which the recording does not show whether the device worked.
    """
    if observation.has_device:
        return _device_partition(observation, gaps, unknown)
    if observation.is_unread:
        return dict.fromkeys(DEVICE_CATEGORIES, SpanSet.empty()) | {Category.IDLE_UNKNOWN: unknown.spans}
    return _host_partition(observation, recording_extent(observation.trace))


def break_down(steps: Sequence[Step], partition: Partition, *, has_loader: bool) -> list[StepBreakdown]:
    """Return each step's time per category; data wait is None if no loader was recorded."""
    starts = np.array([step.start_ns for step in steps], dtype=np.int64)
    ends = np.array([step.end_ns for step in steps], dtype=np.int64)
    columns: dict[Category, Sequence[int | None]] = {
        category: spans.measure_in(starts, ends).tolist() for category, spans in partition.items()
    }
    if not has_loader:
        columns[Category.DATA_WAIT] = [None] * len(steps)
    return [
        StepBreakdown(step.duration_ns, {category: column[position] for category, column in columns.items()})
        for position, step in enumerate(steps)
    ]


def _device_partition(observation: Observation, gaps: Gaps, unknown: Unknown) -> Partition:
    """Partition by what the device does, and by cause if it is idle."""
    events, launches = observation.trace.events, observation.launches
    kinds, extent = events.kind[launches.work_rows], recording_extent(observation.trace)
    result: dict[Category, SpanSet] = {}
    busy = SpanSet.empty()
    for category, members in DEVICE_PRECEDENCE:
        spans = events.spans(launches.work_rows[one_of(kinds, *members)]).clip(*extent)
        result[category] = spans - busy
        busy |= spans
    idle = idle_partition(observation, gaps, unknown.spans)
    return {category: result[category] if category in result else idle[category] for category in DEVICE_CATEGORIES}


def _communicates(name: str) -> bool:
    """Whether an operator starts a collective, sends or receives, or waits for it."""
    return name.startswith(("c10d::", "_c10d_functional::", EXCHANGE))


def _host_partition(observation: Observation, extent: tuple[int, int]) -> Partition:
    trace, events = observation.trace, observation.trace.events
    operators = events.rows(Kind.OPERATOR)
    backward = name_mask(trace.names, lambda name: name.startswith(BACKWARD_PREFIX))
    xla = events.spans(xla_rows(trace))  # runs while the training thread makes the next batch
    of_step = operators if trace.framework else operators[events.thread[operators] == observation.thread]
    communicating = events.spans(of_step[name_mask(trace.names, _communicates)[events.name_id[of_step]]])
    waits = mps_waits(trace)
    unrecorded: dict[Category, SpanSet | Int64] = {Category.IDLE_UNKNOWN: waits} if waits.size else {}
    precedence: dict[Category, SpanSet | Int64] = {
        Category.DATA_WAIT: observation.loading - xla,
        **unrecorded,
        Category.OPTIMIZER: optimizer_steps(trace).own,
        Category.BACKWARD: operators[backward[events.name_id[operators]]],
        Category.FORWARD: events.spans(of_step) - communicating,
        Category.COMMUNICATION: communicating | events.spans(host_collective_rows(trace)),
    }
    result: dict[Category, SpanSet] = {}
    rest = SpanSet.of(extent)
    for category, what in precedence.items():
        spans = what if isinstance(what, SpanSet) else events.spans(what)
        result[category] = rest & spans
        rest -= spans
    return {**result, Category.OTHER_HOST: rest}


_BY_PRECEDENCE = (
    (Work.KERNEL, Kind.KERNEL),
    (Work.COMMUNICATION, Kind.COLLECTIVE),
    (Work.H2D_COPY, Kind.COPY_H2D),
    (Work.D2H_COPY, Kind.COPY_D2H),
    (Work.D2D_COPY, Kind.COPY_OTHER),
    (Work.MEMSET, Kind.MEMSET),
)


def overlaps(observation: Observation, partition: Partition, table: StepTable) -> Mapping[Work, Overlap | None]:
    """Return total and exposed time of each kind of work, mean nanoseconds per kept step.

    Returns:
        None for device work without device activity, for data loading without a loader, and for everything without
        kept steps.
    """
    result: dict[Work, Overlap | None] = dict.fromkeys(Work)
    steps, windows = len(table.kept), table.kept_windows
    if steps and observation.loader is not None:
        waited = partition[Category.DATA_WAIT] & windows
        result[Work.DATA_LOADING] = _overlap(observation.loading & table.kept_marks, waited, steps)
    if not steps or not observation.has_device:
        return result
    events, rows = observation.trace.events, observation.launches.work_rows
    above = SpanSet.empty()
    for work, kind in _BY_PRECEDENCE:
        spans = events.spans(rows[events.kind[rows] == kind]) & windows
        result[work] = _overlap(spans, spans - above, steps)
        above |= spans
    return result


def _overlap(total: SpanSet, exposed: SpanSet, steps: int) -> Overlap:
    return Overlap(total.total_ns / steps, exposed.total_ns / steps)


@frozen(eq=False)
class SharedTime:
    """Instants at which several operations of a device run."""

    events: EventTable
    spans: SpanSet
    rows: Int64
    """The operations that run then, ascending."""

    @staticmethod
    def of(observation: Observation) -> SharedTime:
        """Return the shared time of an observed device."""
        events, rows = observation.trace.events, observation.launches.work_rows
        starts, ends = events.start_ns[rows], events.end_ns[rows]
        until = np.minimum(ends[1:], np.maximum.accumulate(ends)[:-1])
        spans = SpanSet.union_of(starts[1:], until)
        return SharedTime(events, spans, rows[spans.measure_in(starts, ends) > 0])

    def beside(self, rows: Int64) -> SpanSet:
        """Return the time in which operations other than the given ones run, as far as any runs beside another."""
        return self.events.spans(without(self.rows, rows)) if self.rows.size else SpanSet.empty()
