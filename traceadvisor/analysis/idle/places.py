"""Places of plain Python that every step passes, told by the operators around them, for recordings without stacks."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.analysis.steps.detection import position_at
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
from traceadvisor.model.trace import Trace

FEWEST_STEPS = 3
"""Fewest steps that show whether a place recurs."""

MOST_RATIO = 3.0
"""A step that spends more than this times the median at a place does not count there: another program delayed it."""


@frozen(eq=False)
class Place:
    """Plain Python between two operators, in most steps."""

    before: str | None
    """The outermost operator that runs before; None if the recording begins here."""

    after: str | None
    """The outermost operator that runs next; None if the recording ends here."""

    spans: SpanSet

    @property
    def label(self) -> str:
        """The place as a label."""
        if self.before is None or self.after is None:
            return f"Python after {self.before}" if self.before else f"Python before {self.after}"
        return f"Python between {self.before} and {self.after}"


def recurring_places(
    observation: Observation, tree: OperatorTree, spans: SpanSet, steps: Sequence[Step], least_ns: float
) -> list[Place]:
    """Return the places that take the training thread at least ``least_ns`` of the median step, costliest first.

    A thread that waits for a busy core looks like plain Python. It waits at random places, so it has no median.

    Args:
        observation: the recording.
        tree: its operators.
        spans: plain Python of the training thread.
        steps: the steps to compare, in order; fewer than three have no places.
        least_ns: minimum of the median step.
    """
    if len(steps) < FEWEST_STEPS or not spans:
        return []
    trace = observation.trace
    outer = tree.rows[tree.tops(observation.thread)]
    begun = np.searchsorted(trace.events.start_ns[outer], spans.starts_ns, side="right")
    names = np.concatenate(([NONE], trace.events.name_id[outer], [NONE]))
    keys = np.stack((names[begun], names[begun + 1]), axis=1)
    numbers = position_at([(step.start_ns, step.end_ns) for step in steps], spans.starts_ns)
    distinct, group = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(group.ravel(), kind="stable")
    pieces = np.split(order, np.cumsum(np.bincount(group.ravel(), minlength=len(distinct)))[:-1])
    found = []
    for (before, after), members in zip(distinct.tolist(), pieces, strict=True):
        kept = _usual(members[numbers[members] != NONE], numbers, spans, len(steps), least_ns)
        if kept.size:
            where = SpanSet(spans.starts_ns[kept], spans.ends_ns[kept])
            found.append(Place(_name(trace, before), _name(trace, after), where))
    return sorted(found, key=lambda place: -place.spans.total_ns)


def _usual(members: Int64, numbers: Int64, spans: SpanSet, step_count: int, least_ns: float) -> Int64:
    """Return the spans of one place without those of delayed steps; none if the median step spends too little here."""
    lengths = (spans.ends_ns - spans.starts_ns)[members]
    by_step = np.bincount(numbers[members], weights=lengths, minlength=step_count)
    usual = float(median(by_step.tolist()))
    if usual < least_ns or usual <= 0:
        return members[:0]
    return np.sort(members[by_step[numbers[members]] <= MOST_RATIO * usual])


def _name(trace: Trace, name: int) -> str | None:
    return None if name == NONE else trace.names[name]
