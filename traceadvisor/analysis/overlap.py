"""How much of each kind of work is hidden behind more useful work."""

from __future__ import annotations

from collections.abc import Mapping

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.step_breakdown import Partition
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import Kind
from traceadvisor.model.report import Overlap, Work
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import StepTable

_BY_PRECEDENCE = (
    (Work.KERNEL, Kind.KERNEL),
    (Work.COMMUNICATION, Kind.COLLECTIVE),
    (Work.H2D_COPY, Kind.COPY_H2D),
    (Work.D2H_COPY, Kind.COPY_D2H),
    (Work.D2D_COPY, Kind.COPY_OTHER),
    (Work.MEMSET, Kind.MEMSET),
)


def overlaps(observation: Observation, partition: Partition, table: StepTable) -> Mapping[Work, Overlap | None]:
    """Total and exposed time of each kind of work, mean nanoseconds per kept step.

    Returns:
        None for device work where there is no device activity, for data loading where no loader was recorded, and for
        everything where no step was kept.
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
