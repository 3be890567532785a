"""GPU005: the optimizer updates parameters one at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.operators.launches import work_within
from traceadvisor.analysis.operators.names import rows_with_prefix
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import Kind
from traceadvisor.replay.fixes.launches import FusedOptimizer
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit

_MARK = "Optimizer.step#"

HAS_FUSED = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})
"""Optimizers that take ``fused=True``: https://docs.pytorch.org/docs/stable/optim.html, "Algorithms"."""


@dataclass(frozen=True, slots=True)
class UnfusedOptimizer(Rule):
    """The optimizer launches several tiny kernels for every parameter.

    What it finds: Many kernels, each shorter than its own launch, inside ``Optimizer.step``.
    Why it costs time: A model has hundreds of parameters, and an update takes three to a dozen operations for each. The
        host needs longer to launch them than the device to do them, and until it is done it launches nothing else.
    How to fix it: ``fused=True`` updates all parameters with a few kernels; ``foreach=True`` does with one kernel for
        each operation, and exists for every optimizer of torch. Newer versions choose ``foreach`` by themselves on
        GPUs.
    How the saving is estimated: The step is replayed with a tenth of the host's time in the optimizer (at the least
        half, at the most 0.03) and its kernels as one, without gaps between them.
    When it may be wrong: ``foreach`` takes memory for intermediate results, about as much as the parameters. An
        optimizer from elsewhere may have neither setting. Where the host is far ahead of the device, little is gained.
        Only a capture tells what is set already; of several optimizers it describes the first.
    """

    meta = RuleMeta("GPU005", "unfused-optimizer", "The optimizer launches several tiny kernels for every parameter")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES})
    refines = frozenset({"IDLE002"})
    popular_fix = "A fused or foreach optimizer"

    min_share: float = 0.02
    """Share of the step, host and device together; less is not worth a change."""

    fewest_kernels: int = 50
    """Short kernels in a step; a foreach optimizer launches about ten, a few dozen where parameters are many."""

    short_kernel_us: float = 10.0
    """A kernel shorter than this does not outlast its own launch."""

    def check(self, facts: Facts) -> Outcome:
        """Count the short kernels that the optimizer launches."""
        events, windows = facts.trace.events, facts.steps.kept_windows
        ranges = rows_with_prefix(facts.trace, Kind.ANNOTATION, _MARK)
        if not ranges.size:
            return Skipped("No Optimizer.step was recorded: the recording is of no training, or of the device alone.")
        launched = work_within(events, facts.launches, ranges, windows)
        kernels = launched.work_rows[events.kind[launched.work_rows] == Kind.KERNEL]
        short = float((events.duration_ns[kernels] < self.short_kernel_us * 1000).sum()) / facts.step_count
        optimizer = facts.trace.names[events.name_id[ranges[0]]].removeprefix(_MARK).removesuffix(".step")
        is_set = _best_setting(facts, optimizer)
        if short < self.fewest_kernels or is_set:
            remark = f"{optimizer} has {is_set} already, and torch has nothing beyond it"
            told = remark if short >= self.fewest_kernels else None
            return Clear("short kernels of the optimizer", short, self.fewest_kernels, Unit.PER_STEP, told)
        host = events.spans(ranges) & windows
        cost = host | (events.spans(kernels) & windows)
        share, setting = facts.share(cost), "fused=True" if optimizer in HAS_FUSED else "foreach=True"
        fix = Fix("Update all parameters with a few kernels", f"{optimizer}(..., {setting})", what_if=FusedOptimizer())
        if share < self.min_share:
            return facts.clear("time in the optimizer", share, self.min_share, Unit.SHARE, fix=fix)
        device_ns = facts.device_work.time_ns(kernels) / facts.step_count
        return facts.finding(
            claims=facts.exposed(kernels, Category.KERNEL) | (host & facts.claim(Category.IDLE_LAUNCH)),
            fix=fix,
            effort=Effort.SETTING,
            evidence=(
                facts.count_per_step("kernels of the optimizer", kernels.size),
                Evidence("median of them", float(np.median(events.duration_ns[kernels])), Unit.NS),
                Evidence("their time", device_ns, Unit.NS_PER_STEP),
                facts.time_per_step("the host's time in the optimizer", host),
            ),
            most_ns=facts.per_step_ns(cost),
            locations=facts.locations(np.append(launched.call_rows[:1], ranges[:1])),
            caveats=("foreach=True takes memory for intermediate results, about as much as the parameters.",),
        )


def _best_setting(facts: Facts, optimizer: str) -> str | None:
    """What a capture saw set, where the optimizer has nothing better; None where it has, or nothing is known."""
    settings = facts.settings
    if settings.optimizer != optimizer:
        return None
    if settings.optimizer_fused:
        return "fused=True"
    return "foreach=True" if settings.optimizer_foreach and optimizer not in HAS_FUSED else None
