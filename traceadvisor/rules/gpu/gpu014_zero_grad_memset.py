"""GPU014: gradients are filled with zeros, and new ones added to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traceadvisor.analysis.operators.launches import Launches, work_within
from traceadvisor.analysis.operators.names import rows_named, rows_with_prefix
from traceadvisor.analysis.operators.source_lines import first_location
from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.rules.base import Rule


@dataclass(frozen=True, slots=True)
class ZeroGradMemset(Rule):
    """Gradients are set to zero on the device before each step instead of being let go.

    What it finds
        Kernels and memsets launched inside ``Optimizer.zero_grad``, and the additions of each new gradient to those
        zeros.

    Why it costs time
        Every parameter costs two small kernels and the host their launches: one writes zeros, one adds to them. Without
        an old gradient, autograd keeps the new one as it is.

    How to fix it
        ``optimizer.zero_grad(set_to_none=True)``, the default since PyTorch 2.0; with an older version, or where
        ``set_to_none=False`` is passed, it has to be written out.

    How the saving is estimated
        The step is replayed without this work and with half of the host's work that leads up to it (at the least all of
        that stays, at the most none). Where the replay is not to be believed, a bound: between nothing and the time
        that the host spends in ``zero_grad`` or the device on this work.

    When it may be wrong
        Where several backward passes add up before a step, only the first addition goes; such additions are not
        counted. Code that reads ``parameter.grad`` between steps has to expect None.
    """

    meta: ClassVar = RuleMeta(
        id="GPU014",
        name="zero-grad-memset",
        title="Gradients are filled with zeros instead of set to None",
        needs=frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES}),
    )
    popular_fix: ClassVar = "zero_grad(set_to_none=True)"

    min_share: float = 0.01
    """Share of the step, host and device together; less is not worth a second look."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Look for work launched while gradients are reset."""
        events, windows = facts.trace.events, facts.steps.kept_windows
        ranges = rows_with_prefix(facts.trace, Kind.ANNOTATION, "Optimizer.zero_grad#")
        if not ranges.size:
            return Skipped("No Optimizer.zero_grad was recorded: record with ProfilerActivity.CPU beside the device's.")
        fills = work_within(events, facts.launches, ranges, windows)
        rows = np.union1d(fills.work_rows, _additions(facts, fills).work_rows)
        host = events.spans(ranges) & windows if fills.work_rows.size else SpanSet.empty()
        cost = host | (events.spans(rows) & windows)
        share = facts.share(cost)
        fix = SparedWork(rows)
        if share < self.min_share:
            label = "setting gradients to zero, and adding to the zeros"
            return Clear(label, share, self.min_share, Unit.SHARE, what_if=fix)
        saving = facts.what_if(fix, facts.per_step_ns(cost))
        location = first_location(facts.trace, facts.tree, np.append(fills.call_rows[:1], ranges[:1]))
        busy = facts.claim(Category.KERNEL) | facts.claim(Category.OTHER_COPY)
        return Finding(
            rule=self.meta,
            claims=(events.spans(rows) & busy) | (host & facts.claim(Category.IDLE_LAUNCH)),
            saving=saving,
            confidence=facts.confidence(saving),
            effort=Effort.LINE,
            evidence=(
                Evidence("fills", fills.work_rows.size / len(facts.steps.kept), Unit.PER_STEP),
                Evidence("the host's time in zero_grad", facts.per_step_ns(host), Unit.NS_PER_STEP),
                Evidence(
                    "fills and additions on the device",
                    facts.device_work.time_ns(rows) / len(facts.steps.kept),
                    Unit.NS_PER_STEP,
                ),
            ),
            fix=Fix("Let gradients go instead of filling them with zeros", "optimizer.zero_grad(set_to_none=True)"),
            locations=(location,) if location else (),
            caveats=("Code that reads gradients between steps has to expect None.",),
            what_ifs=(fix,),
        )


def _additions(facts: Facts, fills: Launches) -> Launches:
    """Where gradients are added to what was filled; none where several backward passes add up between two fills."""
    accumulating = rows_named(facts.trace, Kind.OPERATOR, lambda name: name.endswith("torch::autograd::AccumulateGrad"))
    added = work_within(facts.trace.events, facts.launches, accumulating, facts.steps.kept_windows)
    few = added.work_rows.size <= fills.work_rows.size
    return added if few else Launches(added.work_rows[:0], added.call_rows[:0])
