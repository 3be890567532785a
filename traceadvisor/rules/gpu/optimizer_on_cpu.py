"""The optimizer of a training without a GPU: many short operators, and the Python code between them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceadvisor.analysis.operators.optimizer import STEP_PREFIX, optimizer_steps
from traceadvisor.analysis.sampled.shares import in_optimizer, share_of_steps
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Skipped, Unit
from traceadvisor.model.saving import of_the_fix
from traceadvisor.rules.base import Facts, Outcome, Part, finding_of
from traceadvisor.rules.torch_api import Version, has_api, version_of
from traceadvisor.savings.estimates import saving_of

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
    if not has_fused_on_cpu(optimizer, facts.settings.torch_version):
        return Skipped(f"{optimizer} has no fused version for the CPU in this version of torch.")
    doubt = "how long the fused update takes on this CPU is unknown"
    fix = fused_fix("Update all parameters with one operator", optimizer, "fused")
    fix = replace(fix, not_replayed=doubt)
    saving = saving_of(facts, fix, own)
    sampled = share_of_steps(facts.run.stack_samples, in_optimizer)
    sampled = sampled and sampled.times(facts.timing.rest_share)
    if sampled and facts.step_ns:
        saving = Estimate.bound(sampled.high * facts.step_ns, of_the_fix(doubt))
    return finding_of(
        facts,
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


NO_OPTIMIZER = "No Optimizer.step was recorded: the recording shows no training, or only GPU activity."

_HAS_FUSED = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})
"""Optimizers that support ``fused=True`` on GPUs: https://docs.pytorch.org/docs/stable/optim.html, "Algorithms". Which
torch versions do is in ``torch_api.py``; before 2.13, fused Adagrad only runs on CPUs."""

_KEEP = "# keep your other arguments"

_HAS_FOREACH = _HAS_FUSED | {"ASGD", "Adadelta", "Adafactor", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop"}
"""Optimizers that support ``foreach=True``; LBFGS, Muon, SparseAdam and those of other libraries do not."""


def has_fused_on_cpu(optimizer: str, version: str | None) -> bool:
    """Return whether an optimizer has a fused form for the CPU in a torch version; an unknown version is a new one."""
    known = version_of(version)
    return optimizer in _HAS_FUSED and (known is None or known >= FUSED_ON_CPU)


def optimizer_name(facts: Facts, steps: Int64) -> str:
    """Return the class name of the first optimizer; ``steps`` are the rows of its steps."""
    first: str = facts.trace.names[facts.trace.events.name_id[steps[0]]]
    return first.removeprefix(STEP_PREFIX).removesuffix(".step")


def fastest_setting(optimizer: str, version: str | None) -> str | None:
    """Return the fastest setting that the optimizer has in a torch version; None if it has none.

    Adagrad's fused kernels are new, so an unknown version counts as without them.
    """
    if optimizer not in _HAS_FOREACH:
        return None
    has_fused = optimizer in _HAS_FUSED and has_api(version, f"{optimizer}(fused=)")
    is_fused = has_fused and (version is not None or optimizer != "Adagrad")
    return "fused" if is_fused else "foreach"


def fused_fix(summary: str, optimizer: str, setting: str | None) -> Fix:
    """Return the fix, not simulated yet; without a setting, its code is unknown."""
    if setting is None:
        return Fix(summary, needs=frozenset({Part.BACKWARD}))
    change = f"optimizer = torch.optim.{optimizer}(model.parameters(), lr=lr, {setting}=True)  {_KEEP}"
    return Fix(summary, change, settings={setting: True}, needs=frozenset({Part.BACKWARD}))


def best_setting(facts: Facts, optimizer: str) -> str | None:
    """Return the captured setting if the optimizer has no faster one; None if it has, or if the setting is unknown."""
    settings = facts.settings
    if settings.optimizer != optimizer:
        return None
    if settings.optimizer_fused:
        return "fused=True"
    fastest = fastest_setting(optimizer, settings.torch_version)
    return "foreach=True" if settings.optimizer_foreach and fastest == "foreach" else None
