"""One step over time: activity of each host thread and stream, and why the device was idle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

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


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """One row of the timeline."""

    title: str
    spans: Mapping[Category | Activity, SpanSet]
    """Later entries are drawn over earlier ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """One representative step. Times are nanoseconds since the trace's first event."""

    step_index: int
    start_ns: int
    end_ns: int
    host: tuple[Lane, ...]
    streams: tuple[Lane, ...]
    categories: Lane
    """The step's breakdown over time: each instant has one category."""
