from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceadvisor.analysis.operators.optimizer import STEP_PREFIX, optimizer_steps, optimizer_work
from traceadvisor.analysis.sampled.shares import in_optimizer, share_of_steps
from traceadvisor.frozen import frozen
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE, Kind
from traceadvisor.replay.fixes.launches import FusedOptimizer
from traceadvisor.rules.base import (
    Clear,
    Effort,
    Estimate,
    Evidence,
    Facts,
    Fix,
    Input,
    Outcome,
    Part,
    Rule,
    RuleMeta,
    Skipped,
    Unit,
)
from traceadvisor.rules.torch_api import Version, has_api, version_of

NO_OPTIMIZER = "No Optimizer.step was recorded: the recording shows no training, or only GPU activity."

HAS_FUSED = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})
"""Optimizers that support ``fused=True`` on GPUs: https://docs.pytorch.org/docs/stable/optim.html, "Algorithms". Which
torch versions do is in ``torch_api.py``; before 2.13, fused Adagrad only runs on CPUs."""

FUSED_ON_CPU: Version = (2, 4)
"""First torch version whose fused optimizers run on CPUs: https://github.com/pytorch/pytorch/pull/123074 (Adam, AdamW),
https://github.com/pytorch/pytorch/pull/124905 (Adagrad)."""

KEEP = "# keep your other arguments"

HAS_FOREACH = HAS_FUSED | {"ASGD", "Adadelta", "Adafactor", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop"}
"""Optimizers that support ``foreach=True``; LBFGS, Muon, SparseAdam and those of other libraries do not."""


FOREACH_MEMORY = "foreach=True needs memory for intermediate results, about the size of the parameters."


@frozen
class UnfusedOptimizer(Rule):
    """The optimizer launches several small kernels for each parameter.

    What it finds: Many kernels in ``Optimizer.step`` that are shorter than their own launch. Without a GPU: many
        operators that are as short, and the Python code between them.
    Why it costs time: A model has hundreds of parameters, and each update takes three to about twelve operations. The
        CPU takes longer to launch these kernels than the GPU takes to run them. Meanwhile, the CPU launches no other
        kernels.
    How to fix it: ``fused=True`` updates all parameters with a few kernels; Adam, AdamW, SGD and Adagrad have it.
        ``foreach=True`` uses one kernel per operation, and most torch optimizers have it. Pass one of the two, not
        both. Newer torch versions use ``foreach`` on GPUs by default.
    How the saving is estimated: The step is simulated with 0.1 of the CPU time in the optimizer (range: 0.5 to 0.03).
        Its kernels become one kernel without gaps. Without a GPU, the saving is an upper limit: all time in the
        optimizer, because one operator takes the place of long operators, too. In a capture it is at most the share of
        the stack samples there.
    When it may be wrong: ``foreach`` needs memory for intermediate results, about the size of the parameters. A
        third-party optimizer may have neither setting. The saving is small if the CPU is far ahead of the GPU. Only a
        capture shows the current setting. If there are several optimizers, it shows that of the first.
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
        """Count the short kernels that the optimizer launches; without a GPU its short operators."""
        if not facts.observation.has_device:
            return self._on_host(facts)
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
        optimizer = facts.trace.names[events.name_id[ranges[0]]].removeprefix(STEP_PREFIX).removesuffix(".step")
        is_set = _best_setting(facts, optimizer)
        if short < self.fewest_kernels or is_set:
            fastest = f"{optimizer} already uses {is_set}, its fastest setting in torch"
            remark = fastest if short >= self.fewest_kernels else None
            return Clear("short optimizer kernels", short, self.fewest_kernels, Unit.PER_STEP, remark)
        host = steps.own & windows
        cost = host | (events.spans(kernels) & windows)
        share, setting = facts.share(cost), _fastest(optimizer, facts.settings.torch_version)
        fix = _fix("Update all parameters with a few kernels", optimizer, setting)
        fix = replace(fix, what_if=FusedOptimizer())
        if share < self.min_share:
            return facts.clear("time in the optimizer", share, self.min_share, Unit.SHARE, fix=fix)
        device_ns = facts.device_work.time_ns(kernels) / facts.step_count
        return facts.finding(
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

    def _on_host(self, facts: Facts) -> Outcome:
        """Judge the optimizer of a training without a GPU."""
        events, tree, steps = facts.trace.events, facts.tree, optimizer_steps(facts.trace)
        if not steps.rows.size:
            return Skipped(NO_OPTIMIZER)
        own = steps.own & facts.steps.typical_windows
        rows = tree.rows[(tree.parent == NONE) & (tree.thread == facts.observation.thread)]
        rows = rows[own.contains(events.start_ns[rows])]
        short = rows[events.duration_ns[rows] < self.short_kernel_us * 1000]
        per_step = short.size / facts.step_count
        cost = own - (events.spans(rows) - events.spans(short))
        optimizer = facts.trace.names[events.name_id[steps.rows[0]]].removeprefix(STEP_PREFIX).removesuffix(".step")
        if per_step < self.fewest_kernels:
            return Clear("short optimizer operators", per_step, self.fewest_kernels, Unit.PER_STEP)
        if facts.share(cost) < self.min_host_share:
            label = "time in short optimizer operators and between them"
            return Clear(label, facts.share(cost), self.min_host_share, Unit.SHARE)
        version = version_of(facts.settings.torch_version)
        if optimizer not in HAS_FUSED or (version is not None and version < FUSED_ON_CPU):
            return Skipped(f"{optimizer} has no fused version for the CPU in this version of torch.")
        doubt = "how long the fused update takes on this CPU is unknown"
        fix = _fix("Update all parameters with one operator", optimizer, "fused")
        fix = replace(fix, not_replayed=doubt)
        saving = facts.saving(fix, facts.per_step_ns(own), own)
        if sampled := share_of_steps(facts.run.stack_samples, in_optimizer):
            most_ns = min(saving.high_ns, sampled.high * (facts.step_ns or saving.high_ns))
            saving = Estimate.bound(most_ns, saving.reason or doubt)
        return facts.finding(
            claims=own,
            fix=fix,
            saving=saving,
            effort=Effort.SETTING,
            evidence=(
                facts.known("share of undisturbed steps, by samples", sampled.share if sampled else None, Unit.SHARE),
                facts.count_per_step("short optimizer operators", short.size),
                Evidence("median optimizer operator", float(np.median(events.duration_ns[rows])), Unit.NS),
                facts.time_per_step("CPU time in the optimizer", own),
            ),
            locations=facts.locations(np.append(short[:1], steps.rows[:1])),
            caveats=("The profiler adds a few microseconds to each operator. Without it, this share is smaller.",),
        )


def _fastest(optimizer: str, version: str | None) -> str | None:
    """Return the fastest setting that the optimizer has in a torch version; None if it has none.

    Adagrad's fused kernels are new, so an unknown version counts as without them.
    """
    if optimizer not in HAS_FOREACH:
        return None
    has_fused = optimizer in HAS_FUSED and has_api(version, f"{optimizer}(fused=)")
    is_fused = has_fused and (version is not None or optimizer != "Adagrad")
    return "fused" if is_fused else "foreach"


def _fix(summary: str, optimizer: str, setting: str | None) -> Fix:
    """Return the fix, not simulated yet; without a setting, its code is unknown."""
    if setting is None:
        return Fix(summary, needs=frozenset({Part.BACKWARD}))
    change = f"optimizer = torch.optim.{optimizer}(model.parameters(), lr=lr, {setting}=True)  {KEEP}"
    return Fix(summary, change, settings={setting: True}, needs=frozenset({Part.BACKWARD}))


def _best_setting(facts: Facts, optimizer: str) -> str | None:
    """Return the captured setting if the optimizer has no faster one; None if it has, or if the setting is unknown."""
    settings = facts.settings
    if settings.optimizer != optimizer:
        return None
    if settings.optimizer_fused:
        return "fused=True"
    fastest = _fastest(optimizer, settings.torch_version)
    return "foreach=True" if settings.optimizer_foreach and fastest == "foreach" else None
