"""MEM004: steady steps still ask the driver for memory."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import FEWEST_STEPS
from traceadvisor.replay.fixes.allocations import CachedMemory
from traceadvisor.rules.base import Clear, Effort, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit

MOST_LOCATIONS = 3


@dataclass(frozen=True, slots=True)
class AllocatorStalls(Rule):
    """Memory is taken from the driver and given back inside steady steps.

    What it finds: Calls of cudaMalloc, cudaFree and their kin, pinned host memory included, within the recorded steps,
        and the idle time of the device while the launching thread is inside them.
    Why it costs time: torch keeps the memory it once took and hands it out without asking the driver. A run that still
        asks in steady steps has emptied that cache, or finds no piece in it that is large enough. A call costs from
        tens of microseconds to milliseconds, and cudaFree waits for the device first.
    How to fix it: No ``torch.cuda.empty_cache()`` in the loop. Where sizes change from step to step,
        ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True``, or sizes rounded up to a few. Near full memory, a smaller
        batch: the allocator frees its cache and starts again before it gives up.
    How the saving is estimated: The step is replayed without these calls and without their waits; at the least half of
        their own time stays.
    When it may be wrong: The first steps of a run fill the cache and are no steady steps: a recording that begins with
        the run shows calls that would not come again.
    """

    meta = RuleMeta("MEM004", "allocator-stalls", "Steps take memory from the driver and give it back")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES})

    min_share: float = 0.01
    """Share of the step; a single call now and then stays below it."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the idle time beside such calls with the step."""
        if facts.step_count < FEWEST_STEPS:
            return Skipped(f"Fewer than {FEWEST_STEPS} steps may all be the first, which fill the cache: record more.")
        idle = facts.claim(Category.IDLE_ALLOCATOR)
        share = facts.share(idle)
        if share < self.min_share:
            return Clear("idle while memory is taken or given back", share, self.min_share, Unit.SHARE)
        events, rows = facts.trace.events, facts.observation.allocator_calls
        rows = rows[facts.steps.kept_marks.contains(events.start_ns[rows])]
        calls = events.spans(rows)
        return facts.finding(
            claims=idle,
            fix=Fix(
                "Let torch keep its memory: no empty_cache() in the loop, and segments that can grow",
                change="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                what_if=CachedMemory(calls, frozenset(rows.tolist())),
            ),
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("device idle while memory is taken or given back", idle),
                facts.count_per_step("such calls", rows.size),
                facts.time_per_step("inside them", calls),
            ),
            locations=facts.locations(rows, MOST_LOCATIONS),
            caveats=("The first steps of a run fill the cache: make sure that the recorded ones are not among them.",),
        )
