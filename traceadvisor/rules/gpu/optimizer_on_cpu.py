"""The optimizer of a training without a GPU: many short operators, and the Python code between them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceadvisor.analysis.operators.optimizer import optimizer_steps
from traceadvisor.analysis.sampled.shares import in_optimizer, share_of_steps
from traceadvisor.model.events import NONE
from traceadvisor.rules.base import Clear, Effort, Estimate, Evidence, Facts, Outcome, Skipped, Unit
from traceadvisor.rules.gpu.fused_optimizers import HAS_FUSED, NO_OPTIMIZER, fused_fix, optimizer_name
from traceadvisor.rules.torch_api import Version, version_of

FUSED_ON_CPU: Version = (2, 4)
"""First torch version whose fused optimizers run on CPUs: https://github.com/pytorch/pytorch/pull/123074 (Adam, AdamW),
https://github.com/pytorch/pytorch/pull/124905 (Adagrad)."""


def check_on_cpu(facts: Facts, short_us: float, fewest: int, min_share: float) -> Outcome:
    """Judge the optimizer of a training without a GPU by the rule's thresholds for short operators."""
    events, tree, steps = facts.trace.events, facts.tree, optimizer_steps(facts.trace)
    if not steps.rows.size:
        return Skipped(NO_OPTIMIZER)
    own = steps.own & facts.steps.typical_windows
    rows = tree.rows[(tree.parent == NONE) & (tree.thread == facts.observation.thread)]
    rows = rows[own.contains(events.start_ns[rows])]
    short = rows[events.duration_ns[rows] < short_us * 1000]
    per_step = short.size / facts.step_count
    cost = own - (events.spans(rows) - events.spans(short))
    optimizer = optimizer_name(facts, steps.rows)
    if per_step < fewest:
        return Clear("short optimizer operators", per_step, fewest, Unit.PER_STEP)
    if facts.share(cost) < min_share:
        label = "time in short optimizer operators and between them"
        return Clear(label, facts.share(cost), min_share, Unit.SHARE)
    version = version_of(facts.settings.torch_version)
    if optimizer not in HAS_FUSED or (version is not None and version < FUSED_ON_CPU):
        return Skipped(f"{optimizer} has no fused version for the CPU in this version of torch.")
    doubt = "how long the fused update takes on this CPU is unknown"
    fix = fused_fix("Update all parameters with one operator", optimizer, "fused")
    fix = replace(fix, not_replayed=doubt)
    saving = facts.saving(fix, facts.per_step_ns(own), own)
    sampled = share_of_steps(facts.run.stack_samples, in_optimizer)
    if sampled and facts.step_ns:
        saving = Estimate.bound(sampled.high * facts.step_ns, doubt)
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
