"""H2D005: what a step needs is copied in many small pieces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.model.arrays import Int64
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE, Kind
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit


@dataclass(frozen=True, slots=True)
class ManySmallCopies(Rule):
    """Each step copies many small tensors to the device.

    What it finds: Host-to-device copies of a few kilobytes each, many in a step, with the idle time of the device while
        they are made.
    Why it costs time: A copy takes some ten microseconds of the host, whatever its size, and from pageable memory the
        host waits for each. Many small ones take longer than one that carries it all.
    How to fix it: Collate into one tensor what belongs together and copy that; take views of it on the device.
    How the saving is estimated: The step is replayed with one of these copies left in each step and half of the host's
        work that leads up to the others (at the least all of it stays, at the most none).
    When it may be wrong: Copies of values that only come about during the step, one after the other, cannot be made
        together.
    """

    meta = RuleMeta("H2D005", "many-small-copies", "Each step copies many small tensors to the device")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES})
    popular_fix = "Collating small copies into one"

    min_share: float = 0.01
    """Share of the step in which the device waits for them; less is hidden already."""

    fewest_copies: int = 10
    """In a step; a batch and its labels, masks and lengths come to half of that."""

    small_bytes: int = 65_536
    """A copy of this size takes as long as the call that makes it: 5 µs at 12 GB/s."""

    def check(self, facts: Facts) -> Outcome:
        """Count the small copies, and compare the time that the device waits for them with the step."""
        events = facts.trace.events
        work, calls = self._copies(facts)
        if work.size < self.fewest_copies * facts.step_count:
            return Clear("small copies to the device", work.size / facts.step_count, self.fewest_copies, Unit.PER_STEP)
        exposed = facts.exposed(work, Category.H2D_COPY)
        claims = exposed | facts.exposed(_around(facts, calls), Category.IDLE_LAUNCH, Category.IDLE_SYNC)
        share = facts.share(claims)
        fix = Fix(
            "Collate what belongs together into one tensor, copy that and take views of it",
            what_if=SparedWork(_all_but_the_first(facts, work)),
        )
        if share < self.min_share:
            return facts.clear("idle around small copies to the device", share, self.min_share, Unit.SHARE, fix=fix)
        return facts.finding(
            claims=claims,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("small copies", work.size),
                Evidence("median size", float(np.median(events.byte_count[work])), Unit.BYTES),
                facts.time_per_step("their exposed time", exposed),
                facts.time_per_step("the host's time in their calls", events.spans(calls)),
            ),
            locations=facts.locations(calls[:1]),
            caveats=("Values that come about one after the other cannot be copied together.",),
        )

    def _copies(self, facts: Facts) -> tuple[Int64, Int64]:
        """Small copies of the kept steps, and their calls."""
        events, launches = facts.trace.events, facts.launches
        rows = launches.work_rows
        small = (events.kind[rows] == Kind.COPY_H2D) & (launches.call_rows != NONE)
        small &= (events.byte_count[rows] != NONE) & (events.byte_count[rows] <= self.small_bytes)
        small &= facts.steps.kept_windows.contains(events.start_ns[rows])
        return rows[small], launches.call_rows[small]


def _around(facts: Facts, calls: Int64) -> Int64:
    """The calls and the innermost operators that make them."""
    events = facts.trace.events
    inside = facts.tree.enclosing(events.thread[calls].astype(np.int64), events.start_ns[calls])
    return np.union1d(calls, facts.tree.rows[inside[inside != NONE]])


def _all_but_the_first(facts: Facts, copies: Int64) -> Int64:
    """The copies without the first of each kept step's window."""
    starts = facts.trace.events.start_ns[copies]
    step = np.searchsorted([step.start_ns for step in facts.steps.kept], starts, side="right")
    _, first = np.unique(step, return_index=True)
    return np.delete(copies, first)
