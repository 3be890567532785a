from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceadvisor.analysis.operators.optimizer import optimizer_steps, optimizer_work
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Skipped, Unit
from traceadvisor.replay.fixes.launches import FusedOptimizer
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, clear_of, finding_of, frozen
from traceadvisor.rules.gpu.optimizer_on_cpu import (
    NO_OPTIMIZER,
    best_setting,
    check_on_cpu,
    fastest_setting,
    fused_fix,
    optimizer_name,
)

FOREACH_MEMORY = "foreach=True needs memory for intermediate results, about the size of the parameters."


@frozen
class UnfusedOptimizer(Rule):
    """The optimizer launches several small kernels for each parameter.

    What it finds: Many kernels in ``Optimizer.step`` that are shorter than their own launch. Without a GPU: many
        operators that are as short, and the Python code between them.
    Why it costs time: A model has hundreds of parameters, and each update takes three to about twelve operations. The
        CPU takes longer to launch these kernels than the GPU takes to run them, and launches no others meanwhile.
    How to fix it: Pass ``fused=True`` (Adam, AdamW, SGD, Adagrad), which updates all parameters with a few kernels.
        ``foreach=True``, which most torch optimizers have, uses one kernel per operation, and is the default on GPUs in
        newer versions. Pass one of the two, not both. First put parameter groups with the same settings into one: each
        is updated on its own.
    How the saving is estimated: The step is simulated with 0.1 of the CPU time in the optimizer (range: 0.5 to 0.03)
        and one kernel without gaps. Without a GPU, 0.37 of the time in the optimizer remains with Adam and AdamW
        (range: 0.6 to 0.13), 0.6 with others (0.95 to 0.15): a fused update moves the same bytes. That time is the
        share of the stack samples in a capture, else at most the optimizer's share of recorded steps. With several
        threads on busy cores, a fused update may be slower, so nothing is found.
    When it may be wrong: ``foreach`` needs memory of about the size of the parameters. A third-party optimizer may have
        neither setting. The saving is small if the CPU is far ahead of the GPU. Only a capture shows the current
        setting: that of the first optimizer.
    """

    meta = RuleMeta("GPU005", "unfused-optimizer", "The optimizer launches several small kernels for each parameter")
    needs = frozenset({Input.STEPS})
    training_only = True
    refines = frozenset({"IDLE002"})
    popular_fix = "A fused or foreach optimizer"
    claims = frozenset({Category.KERNEL, Category.IDLE_LAUNCH, Category.OPTIMIZER})
    also_saves = "launches beside a busy GPU, which leave it a longer queue"

    min_share: float = 0.02
    """Share of the step, CPU and GPU time together. Less is not worth a change."""

    fewest_kernels: int = 50
    """Short kernels per step. A foreach optimizer launches about ten, or a few dozen for many parameters."""

    short_kernel_us: float = 10.0
    """A kernel below this duration is shorter than its own launch."""

    min_host_share: float = 0.1
    """The same without a GPU, for the short operators and the Python code between them. The profiler adds to both."""

    def check(self, facts: Facts) -> Outcome:
        if not facts.observation.has_device:
            return check_on_cpu(facts, self.short_kernel_us, self.fewest_kernels, self.min_host_share)
        if missing := facts.missing(frozenset({Input.DEVICE, Input.LAUNCHES})):
            return Skipped(missing)
        events, windows = facts.trace.events, facts.steps.typical_windows
        steps = optimizer_steps(facts.trace)
        ranges = steps.rows
        if not ranges.size:
            return Skipped(NO_OPTIMIZER)
        launched = optimizer_work(facts.trace, facts.launches, windows)
        kernels = launched.work_rows[events.kind[launched.work_rows] == Kind.KERNEL]
        short = float((events.duration_ns[kernels] < self.short_kernel_us * 1000).sum()) / facts.step_count
        optimizer = optimizer_name(facts, ranges)
        is_set = best_setting(facts, optimizer)
        if short < self.fewest_kernels or is_set:
            fastest = f"{optimizer} already uses {is_set}, its fastest setting in torch"
            remark = fastest if short >= self.fewest_kernels else None
            return Clear("short optimizer kernels", short, self.fewest_kernels, Unit.PER_STEP, remark)
        host = steps.own & windows
        cost = host | (events.spans(kernels) & windows)
        share, setting = facts.share(cost), fastest_setting(optimizer, facts.settings.torch_version)
        fix = fused_fix("Update all parameters with a few kernels", optimizer, setting)
        fix = replace(fix, what_if=FusedOptimizer())
        if share < self.min_share:
            return clear_of(facts, "time in the optimizer", share, self.min_share, fix=fix)
        device_ns = facts.device_work.time_ns(kernels) / facts.step_count
        return finding_of(
            facts,
            claims=facts.exposed(kernels, Category.KERNEL) | (host & facts.claim(Category.IDLE_LAUNCH)),
            fix=fix,
            effort=Effort.SETTING,
            evidence=(
                facts.count_per_step("optimizer kernels", kernels.size),
                Evidence("median optimizer kernel", float(np.median(events.duration_ns[kernels])), Unit.NS),
                Evidence("kernel time of the optimizer", device_ns, Unit.NS_PER_STEP),
                facts.time_per_step("CPU time in the optimizer", host),
            ),
            most_ns=facts.per_step_ns(cost),
            locations=facts.locations(np.append(launched.call_rows[:1], ranges[:1])),
            caveats=(FOREACH_MEMORY,) if setting == "foreach" else (),
        )
