"""Steps that take far longer than most, and what only these steps contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import EventTable, Kind
from traceadvisor.model.report import StepRow
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

_REGULAR_SHARE = 0.1
"""Intervals are regular if they differ from their median by at most this share."""

_TELLING = (Kind.OPERATOR, Kind.RUNTIME, Kind.ANNOTATION)


@dataclass(frozen=True, slots=True)
class Outliers:
    """The slow steps of a run."""

    indices: tuple[int, ...]
    step_count: int
    """Number of compared steps, slow or not."""

    median_ns: float
    longest_ns: float
    """The longest slow step; 0 without one."""

    excess_ns: float
    """Time of slow steps beyond the median, averaged over all steps."""

    @property
    def every(self) -> int | None:
        """Steps from one slow step to the next; None unless at least three intervals are regular."""
        intervals = [after - before for before, after in pairwise(self.indices)]
        usual = median(intervals) if len(intervals) > 2 else 0
        regular = usual > 1 and all(abs(one - usual) <= _REGULAR_SHARE * usual for one in intervals)
        return round(usual) if regular else None


def find_outliers(lengths_ns: Mapping[int, float], ratio: float) -> Outliers:
    """Steps longer than ``ratio`` times the median.

    Args:
        lengths_ns: by step index, in order; at least one.
        ratio: to the median. In a short recording, a limit in standard deviations cannot be exceeded.
    """
    usual = float(median(lengths_ns.values()))
    far = {index: length for index, length in lengths_ns.items() if length > ratio * usual}
    excess = sum(length - usual for length in far.values()) / len(lengths_ns)
    return Outliers(tuple(far), len(lengths_ns), usual, max(far.values(), default=0.0), excess)


def undisturbed_lengths(steps: Sequence[TimedStep]) -> dict[int, float]:
    """Lengths of undisturbed steps without time in the loader; without the first step of the run and of each epoch."""
    plain = [step for step in steps if step.state is StepState.PLAIN and step.index > 0 and not step.loader_start_ns]
    return {step.index: float(max(step.duration_ns - step.loader_ns, 0)) for step in plain}


def recorded_lengths(rows: Sequence[StepRow], *, edges: bool = False) -> dict[int, float]:
    """Lengths of kept recorded steps without data wait; ``edges`` includes the first and the last step."""
    kept = [row for row in rows if row.step.kept]
    kept = kept if edges else kept[1:-1]
    return {row.step.index: float(row.step.duration_ns - _part(row, Category.DATA_WAIT)) for row in kept}


def grown_category(odd: Sequence[StepRow], ordinary: Sequence[StepRow]) -> tuple[Category, float]:
    """The category that grew most in slow steps, and its growth in nanoseconds. Unknown time is no cause."""
    growth = {
        category: float(np.mean([_part(row, category) for row in odd]))
        - float(np.median([_part(row, category) for row in ordinary]))
        for category in odd[0].breakdown.parts_ns
        if category not in (Category.DATA_WAIT, Category.IDLE_UNKNOWN)
    }
    largest = max(growth, key=lambda category: growth[category])
    return largest, growth[largest]


def only_in(trace: Trace, odd: SpanSet, ordinary: SpanSet) -> list[tuple[str, float]]:
    """Operators, calls and ranges that only slow steps contain, with their time in nanoseconds, longest first."""
    events = trace.events
    rows = np.flatnonzero(events.is_kind(*_TELLING))
    here, there = _named_in(events, rows, odd), _named_in(events, rows, ordinary)
    own = rows[odd.contains(events.start_ns[rows]) & np.isin(events.name_id[rows], np.setdiff1d(here, there))]
    names, group = np.unique(events.name_id[own], return_inverse=True)
    spent = np.bincount(group, weights=events.duration_ns[own]) if own.size else np.empty(0)
    found = [(trace.names[name], float(ns)) for name, ns in zip(names.tolist(), spent.tolist(), strict=True)]
    return sorted((one for one in found if not one[0].startswith("ProfilerStep#")), key=lambda one: -one[1])


def _named_in(events: EventTable, rows: np.typing.NDArray[np.int64], spans: SpanSet) -> np.typing.NDArray[np.int32]:
    return np.unique(events.name_id[rows[spans.contains(events.start_ns[rows])]])


def _part(row: StepRow, category: Category) -> int:
    return row.breakdown.parts_ns.get(category) or 0
