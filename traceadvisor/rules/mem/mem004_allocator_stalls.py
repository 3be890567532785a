from __future__ import annotations

from traceadvisor.model.findings import FEWEST_STEPS, Clear, Effort, Fix, Skipped, Unit
from traceadvisor.replay.fixes.host_work import CachedMemory
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.mem.memory_growth import RETRIES

MOST_LOCATIONS = 3


@frozen
class AllocatorStalls(Rule):
    """Steady steps allocate memory through the driver and free it again.

    What it finds: Calls of cudaMalloc, cudaFree and similar functions, also for pinned memory, within the recorded
        steps, and the idle time of the GPU meanwhile.
    Why it costs time: PyTorch keeps and reuses memory without the driver. In steady steps, calls show that this cache
        was emptied or has no large enough block. A call takes from tens of microseconds to milliseconds, and cudaFree
        first waits for the GPU.
    How to fix it: Do not call ``torch.cuda.empty_cache()`` in the loop. If sizes change from step to step, set
        ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True``, or round sizes up to a few values. If memory is nearly
        full, use a smaller batch.
    How the saving is estimated: The step is simulated without these calls and their waits. The low estimate keeps half
        of their own time.
    When it may be wrong: The first steps of a run fill the cache. A recording that begins with the run shows calls that
        do not occur later.
    """

    meta = RuleMeta("MEM004", "allocator-stalls", "Steps allocate and free memory through the driver")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES})
    of_cuda = True
    claims = frozenset({Category.IDLE_ALLOCATOR})

    min_share: float = 0.01
    """Share of the step. An occasional single call takes less."""

    def check(self, facts: Facts) -> Outcome:
        facts = facts.of_all_steps
        if facts.step_count < FEWEST_STEPS:
            return Skipped(f"Fewer than {FEWEST_STEPS} steps may all be first steps that fill the cache: record more.")
        idle = facts.claim(Category.IDLE_ALLOCATOR)
        share = facts.share(idle)
        if share < self.min_share:
            return Clear("GPU idle time during memory allocation", share, self.min_share, Unit.SHARE)
        events, rows = facts.trace.events, facts.observation.allocator_calls
        rows = events.within(facts.steps.kept_marks, rows)
        calls = events.spans(rows)
        return finding_of(
            facts,
            claims=idle,
            fix=Fix(
                "Let PyTorch keep its memory: no empty_cache() in the loop, and expandable segments",
                change="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                what_if=CachedMemory(calls, frozenset(rows.tolist())),
            ),
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("GPU idle time during memory allocation", idle),
                facts.count_per_step("calls that allocate or free memory", rows.size),
                facts.time_per_step("CPU time in these calls", calls),
                facts.known(RETRIES, facts.settings.allocator_retries, Unit.COUNT),
            ),
            locations=facts.locations(rows, MOST_LOCATIONS),
            caveats=("Make sure that the recording skips the first steps of the run: they fill the cache.",),
        )
