"""GPU014: gradients are filled with zeros, and new ones added to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.operators.launches import Launches, work_within
from traceadvisor.analysis.operators.names import rows_named, rows_with_prefix
from traceadvisor.model.arrays import Int64
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.rules.base import Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit


@dataclass(frozen=True, slots=True)
class ZeroGradMemset(Rule):
    """Gradients are set to zero on the device before each step instead of being let go.

    What it finds: Kernels and memsets launched inside ``Optimizer.zero_grad``, and the additions of each new gradient
        to those zeros.
    Why it costs time: Every parameter costs two small kernels and the host their launches: one writes zeros, one adds
        to them. Without an old gradient, autograd keeps the new one as it is.
    How to fix it: ``optimizer.zero_grad(set_to_none=True)``, the default since PyTorch 2.0; with an older version, or
        where ``set_to_none=False`` is passed, it has to be written out.
    How the saving is estimated: The step is replayed without this work and with half of the host's work that leads up
        to it (at the least all of that stays, at the most none).
    When it may be wrong: Where several backward passes add up before a step, only the first addition goes; such
        additions are not counted. Code that reads ``parameter.grad`` between steps has to expect None.
    """

    meta = RuleMeta("GPU014", "zero-grad-memset", "Gradients are filled with zeros instead of set to None")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES})
    popular_fix = "zero_grad(set_to_none=True)"

    min_share: float = 0.01
    """Share of the step, host and device together; less is not worth a second look."""

    def check(self, facts: Facts) -> Outcome:
        """Look for work launched while gradients are reset."""
        events, windows = facts.trace.events, facts.steps.kept_windows
        ranges = rows_with_prefix(facts.trace, Kind.ANNOTATION, "Optimizer.zero_grad#")
        if not ranges.size:
            return Skipped("No Optimizer.zero_grad was recorded: record with ProfilerActivity.CPU beside the device's.")
        fills = work_within(events, facts.launches, ranges, windows)
        rows = np.union1d(fills.work_rows, _additions(facts, fills))
        host = events.spans(ranges) & windows if fills.work_rows.size else SpanSet.empty()
        cost = host | (events.spans(rows) & windows)
        share, device_ns = facts.share(cost), facts.device_work.time_ns(rows) / facts.step_count
        fix = Fix(
            "Let gradients go instead of filling them with zeros",
            "optimizer.zero_grad(set_to_none=True)",
            what_if=SparedWork(rows),
        )
        if share < self.min_share:
            label = "setting gradients to zero, and adding to the zeros"
            return facts.clear(label, share, self.min_share, Unit.SHARE, fix=fix)
        busy = facts.exposed(rows, Category.KERNEL, Category.OTHER_COPY)
        return facts.finding(
            claims=busy | (host & facts.claim(Category.IDLE_LAUNCH)),
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("fills", fills.work_rows.size),
                facts.time_per_step("the host's time in zero_grad", host),
                Evidence("fills and additions on the device", device_ns, Unit.NS_PER_STEP),
            ),
            most_ns=facts.per_step_ns(cost),
            locations=facts.locations(np.append(fills.call_rows[:1], ranges[:1])),
            caveats=("Code that reads gradients between steps has to expect None.",),
        )


def _additions(facts: Facts, fills: Launches) -> Int64:
    """Rows that add gradients to what was filled; none where several backward passes add up between two fills."""
    accumulating = rows_named(facts.trace, Kind.OPERATOR, lambda name: name.endswith("torch::autograd::AccumulateGrad"))
    added = work_within(facts.trace.events, facts.launches, accumulating, facts.steps.kept_windows).work_rows
    return added if added.size <= fills.work_rows.size else added[:0]
