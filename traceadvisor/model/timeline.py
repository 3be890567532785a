"""One step over time: activity of each host thread and stream, and why the device was idle."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, read_only
from traceadvisor.model.breakdown import Category
from traceadvisor.model.spans import SpanSet


class Activity(Enum):
    """Activities in a lane of the timeline, besides the breakdown's categories."""

    OPERATOR = "operator"
    RUNTIME_CALL = "runtime_call"
    BLOCKED = "blocked"
    """A runtime call that waits for the device."""

    LOADING = "loading"
    """Inside the data loader."""

    OPTIMIZER = "optimizer"


@frozen(eq=False)
class Lane:
    """One row of the timeline."""

    title: str
    spans: Mapping[Category | Activity, SpanSet]
    """Later entries are drawn over earlier ones."""


@frozen(eq=False)
class TraceLane:
    """The events of one thread or stream in a step; arrays of shape ``(n,)``, by start."""

    title: str
    start_ns: Int64
    """Since the start of the step. What began before it begins at 0."""

    duration_ns: Int64
    """Within the step."""

    name: Int64
    """Row of :attr:`StepTrace.names`."""

    kind: Int64
    """Row of :attr:`StepTrace.kinds`."""

    depth: Int64
    """Number of events around it on its lane; at most :data:`DEEPEST_SHOWN`."""

    row: Int64
    """Row of the recording's event table."""

    launch: Int64
    """The row of the call that launched it; NONE on a thread, and if that was not recorded."""

    left_out: Int64
    """Number of further events that start in each of equal parts of the step, shape ``(PARTS,)``."""

    def __post_init__(self) -> None:
        columns = (self.start_ns, self.duration_ns, self.name, self.kind, self.depth, self.row, self.launch)
        read_only(*columns, self.left_out)


DEEPEST_SHOWN = 7
"""Deeper events are not kept."""

PARTS = 200
"""Parts of a step in which events that were not kept are counted."""


@frozen(eq=False)
class StepTrace:
    """The named events of one step: the longest ones of its threads and streams."""

    names: tuple[str, ...]
    kinds: tuple[Category | Activity, ...]
    lanes: tuple[TraceLane, ...]


@frozen(eq=False)
class Timeline:
    """One representative step. Times are nanoseconds since the trace's first event."""

    step_index: int
    start_ns: int
    end_ns: int
    host: tuple[Lane, ...]
    streams: tuple[Lane, ...]
    categories: Lane
    """The step's breakdown over time: each instant has one category."""

    trace: StepTrace | None = None
    """Its events by name; None in a report that does not hold them."""
