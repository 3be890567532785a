from __future__ import annotations

import numpy as np

from traceadvisor.model.arrays import Int64, either
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Unit
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, clear_of, finding_of, frozen


@frozen
class ManySmallCopies(Rule):
    """Each step copies many small tensors to the GPU, and the GPU waits for them.

    What it finds: Many CPU-to-GPU copies of a few kilobytes within a step, and the idle time of the GPU during their
        calls.
    Why it costs time: A copy takes about ten microseconds of CPU time, whatever its size. With pageable memory, the CPU
        also waits for each.
    How to fix it: Collate related values into one tensor and copy that. Take views of it on the GPU.
    How the saving is estimated: The step is simulated with one of these copies per step, and without half of the CPU
        work before the others (range: none to all of it).
    When it may be wrong: Values that are computed one after the other during the step cannot be copied together.
    """

    meta = RuleMeta("H2D005", "many-small-copies", "Each step copies many small tensors to the GPU")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES})
    popular_fix = "Collating small copies into one"
    refines = frozenset({"H2D003"})
    claims = frozenset({Category.H2D_COPY, Category.IDLE_SYNC, Category.IDLE_LAUNCH})

    min_share: float = 0.01
    """Share of the step in which the GPU waits for these copies. Less is already hidden."""

    fewest_copies: int = 10
    """Number of copies per step. A batch with its labels, masks and lengths needs about half of that."""

    small_bytes: int = 65_536
    """A copy of this size takes as long as its call: 5 µs at 12 GB/s."""

    def check(self, facts: Facts) -> Outcome:
        events = facts.trace.events
        work, calls = self._copies(facts)
        if work.size < self.fewest_copies * facts.step_count:
            return Clear("small copies to the GPU", work.size / facts.step_count, self.fewest_copies, Unit.PER_STEP)
        exposed = facts.exposed(work, Category.H2D_COPY)
        claims = exposed | facts.exposed(_around(facts, calls), Category.IDLE_LAUNCH, Category.IDLE_SYNC)
        share = facts.share(claims)
        fix = Fix(
            "Collate related values into one tensor, copy it and take views of it",
            what_if=SparedWork(_all_but_the_first(facts, work)),
        )
        if share < self.min_share:
            return clear_of(facts, "GPU time in small copies and their calls", share, self.min_share, fix=fix)
        return finding_of(
            facts,
            claims=claims,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("small copies", work.size),
                Evidence("median size", float(np.median(events.byte_count[work])), Unit.BYTES),
                facts.time_per_step("exposed time of these copies", exposed),
                facts.time_per_step("CPU time in their calls", events.spans(calls)),
            ),
            locations=facts.locations(calls[:1]),
            caveats=("Values that are computed one after the other cannot be copied together.",),
        )

    def _copies(self, facts: Facts) -> tuple[Int64, Int64]:
        """Return small copies of the typical steps, and their calls."""
        events, launches = facts.trace.events, facts.launches
        rows = launches.work_rows
        small = (events.kind[rows] == Kind.COPY_H2D) & (launches.call_rows != NONE)
        small &= (events.byte_count[rows] != NONE) & (events.byte_count[rows] <= self.small_bytes)
        small &= facts.steps.typical_windows.contains(events.start_ns[rows])
        return rows[small], launches.call_rows[small]


def _around(facts: Facts, calls: Int64) -> Int64:
    """Return the calls and the innermost operators around them."""
    events = facts.trace.events
    inside = facts.tree.enclosing(events.thread[calls].astype(np.int64), events.start_ns[calls])
    return either(calls, facts.tree.rows[inside[inside != NONE]])


def _all_but_the_first(facts: Facts, copies: Int64) -> Int64:
    """Return the copies without the first of each typical step."""
    starts = facts.trace.events.start_ns[copies]
    step = np.searchsorted([step.start_ns for step in facts.steps.typical], starts, side="right")
    _, first = np.unique(step, return_index=True)
    return np.delete(copies, first)
