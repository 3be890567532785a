from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.launches import work_within
from traceadvisor.analysis.operators.optimizer import additions_to_zeros, zero_grad_rows
from traceadvisor.model.arrays import either
from traceadvisor.model.findings import Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.rules.base import (
    Category,
    Facts,
    Input,
    Option,
    Outcome,
    Part,
    Rule,
    RuleMeta,
    clear_of,
    finding_of,
    frozen,
)


@frozen
class ZeroGradMemset(Rule):
    """Gradients are set to zero on the GPU before each step instead of to None.

    What it finds: Kernels and memsets launched in ``Optimizer.zero_grad``, and the additions of new gradients to these
        zeros.
    Why it costs time: Each parameter costs two small kernels and their launches: one writes zeros, one adds the new
        gradient. If the old gradient is None, autograd keeps the new one without an addition.
    How to fix it: Call ``optimizer.zero_grad(set_to_none=True)``, the default since PyTorch 2.0. Pass the argument in
        older versions, and remove ``set_to_none=False``.
    How the saving is estimated: The step is simulated without these GPU operations, and without half of the CPU time
        before their launches (range: none to all of it).
    When it may be wrong: If several backward passes accumulate gradients before a step, only the first addition
        disappears; such additions are not counted. Code that reads ``parameter.grad`` between steps must handle None.
    """

    meta = RuleMeta("GPU014", "zero-grad-memset", "Gradients are set to zero instead of None")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES})
    training_only = True
    popular_fix = "zero_grad(set_to_none=True)"
    claims = frozenset({Category.KERNEL, Category.OTHER_COPY, Category.IDLE_LAUNCH})
    also_saves = "launches beside a busy GPU, which leave it a longer queue"

    min_share: float = 0.01
    """Share of the step, CPU and GPU time together. Less is not worth a change."""

    def check(self, facts: Facts) -> Outcome:
        events, windows = facts.trace.events, facts.steps.typical_windows
        ranges = zero_grad_rows(facts.trace)
        if not ranges.size:
            return Skipped(facts.unknown_without("No Optimizer.zero_grad was recorded", Option.CPU))
        fills = work_within(events, facts.launches, ranges, windows)
        rows = either(fills.work_rows, additions_to_zeros(facts.trace, facts.launches, windows, fills))
        host = events.spans(ranges) & windows if fills.work_rows.size else SpanSet.empty()
        cost = host | (events.spans(rows) & windows)
        share, device_ns = facts.share(cost), facts.device_work.time_ns(rows) / facts.step_count
        fix = Fix(
            "Set gradients to None instead of zero",
            "optimizer.zero_grad(set_to_none=True)",
            settings={"set_to_none": True},
            what_if=SparedWork(rows),
            needs=frozenset({Part.BACKWARD}),
        )
        if share < self.min_share:
            label = "time in zero_grad memsets and additions to the zeros"
            return clear_of(facts, label, share, self.min_share, fix=fix)
        busy = facts.exposed(rows, Category.KERNEL, Category.OTHER_COPY)
        return finding_of(
            facts,
            claims=busy | (host & facts.claim(Category.IDLE_LAUNCH)),
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("memsets in zero_grad", fills.work_rows.size),
                facts.time_per_step("CPU time in zero_grad", host),
                Evidence("GPU time of memsets and additions", device_ns, Unit.NS_PER_STEP),
            ),
            most_ns=facts.per_step_ns(cost),
            locations=facts.locations(np.append(fills.call_rows[:1], ranges[:1])),
            caveats=("Code that reads gradients between steps must handle None.",),
        )
