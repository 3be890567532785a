"""The optimizer of a training without a GPU: many short operators, and the Python code between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from traceadvisor.analysis.operators.optimizer import STEP_PREFIX, optimizer_steps
from traceadvisor.analysis.recording_health import is_busy
from traceadvisor.analysis.sampled.shares import SampledShare, in_optimizer, lines_of_optimizer, share_of_steps
from traceadvisor.model.arrays import Int64
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, Skipped, Unit
from traceadvisor.model.location import Location, Role
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.what_if import Scenario
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
    rows = events.within(own, tree.rows[tree.tops(facts.observation.thread)])
    short = rows[events.duration_ns[rows] < short_us * 1000]
    per_step = short.size / facts.step_count
    cost = own - (events.spans(rows) - events.spans(short))
    optimizer = optimizer_name(facts, steps.rows)
    is_fused = facts.settings.optimizer == optimizer and facts.settings.optimizer_fused is True
    is_done = is_fused and not has_small_groups(facts, optimizer)
    if per_step < fewest or is_done:
        remark = "the optimizer is fused" if is_done else None
        return Clear("short optimizer operators", per_step, fewest, Unit.PER_STEP, remark)
    if facts.share(cost) < min_share:
        label = "time in short optimizer operators and between them"
        return Clear(label, facts.share(cost), min_share, Unit.SHARE)
    if not has_fused_on_cpu(optimizer, facts.settings.torch_version):
        return Skipped(f"{optimizer} has no fused version for the CPU in this version of torch.")
    has_threads = (facts.settings.torch_threads or 1) > 1
    if has_threads and is_busy(facts.run.telemetry, facts.run.host_cores):
        return Skipped(THREADS_WAIT)
    fix = replace(_fix_on_cpu(facts, optimizer), not_replayed=DOUBT)
    sampled = share_of_steps(facts.run.stack_samples, in_optimizer)
    sampled = sampled and sampled.times(facts.timing.rest_share)
    saving = _saving(facts, fix, own, sampled, LEFT_ON_CPU.get(optimizer, LEFT_OF_OTHERS))
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
            facts.known("parameter groups", _known_groups(facts, optimizer), Unit.COUNT),
        ),
        locations=lines_of_steps(facts, np.append(short[:1], steps.rows[:1])),
        caveats=(PROFILED, *((THREADS_EACH,) if has_threads else ())),
    )


def lines_of_steps(facts: Facts, rows: Int64) -> tuple[Location, ...]:
    """Return the line of the first of some events of optimizers; if that is unknown, the lines that samples show."""
    found = facts.locations(rows)
    lines = () if found and found[0].is_line else lines_of_optimizer(facts.run.stack_samples)
    return lines[:MOST_LINES] or found


def _saving(
    facts: Facts, fix: Fix, own: SpanSet, sampled: SampledShare | None, left: Mapping[Scenario, float]
) -> Estimate:
    """The part of the optimizer's time that a fused update does not need: at most, unless samples show that time.

    The profiler makes short operators longer than others, so the optimizer has no larger share of undisturbed steps.
    """
    if sampled and facts.step_ns:
        return _by_samples(sampled, left, facts.step_ns)
    saving = saving_of(facts, fix, own)
    most_ns = min(saving.high_ns, facts.share(own) * (facts.step_ns or saving.high_ns))
    return replace(saving, high_ns=most_ns).part(1 - left[Scenario.HIGH])


def _by_samples(sampled: SampledShare, left: Mapping[Scenario, float], step_ns: float) -> Estimate:
    """The part of the sampled time that a fused update does not need."""
    shares = ((Scenario.LOW, sampled.low), (Scenario.EXPECTED, sampled.share), (Scenario.HIGH, sampled.high))
    low_ns, expected_ns, high_ns = ((1 - left[scenario]) * share * step_ns for scenario, share in shares)
    return Estimate(low_ns, expected_ns, high_ns, Method.MODEL)


def _known_groups(facts: Facts, optimizer: str) -> int | None:
    """Parameter groups of the optimizer; None if unknown."""
    return facts.settings.optimizer_groups if facts.settings.optimizer == optimizer else None


def has_small_groups(facts: Facts, optimizer: str) -> bool:
    """Return whether the optimizer has so many groups that an operator for each is hardly fewer than before."""
    groups, tensors = _known_groups(facts, optimizer), facts.settings.optimizer_tensors
    return groups is not None and tensors is not None and groups > max(SMALL_GROUPS * tensors, 1)


def _fix_on_cpu(facts: Facts, optimizer: str) -> Fix:
    if not has_small_groups(facts, optimizer):
        places = optimizer_places(facts, optimizer)
        each = f", in each optimizer: {' and '.join(places)}" if len(places) > 1 else ""
        return fused_fix(f"Update all parameters with one operator{each}", optimizer, "fused")
    return Fix(
        "Put parameters with the same settings into one group, and update each group with one operator: "
        "with a group for each parameter, fused=True alone saves nothing",
        _ONE_GROUP.format(optimizer=optimizer),
        needs=frozenset({Part.BACKWARD}),
    )


def optimizer_places(facts: Facts, optimizer: str) -> tuple[str, ...]:
    """Return the lines of the script that construct such optimizers, as ``train.py:12``."""
    found = [one for one in facts.settings.constructed if one.role is Role.OPTIMIZER and one.name == optimizer]
    return tuple(dict.fromkeys(f"{one.place.file}:{one.place.line}" for one in found if not one.through))


SMALL_GROUPS = 0.25
"""Groups per parameter, from which they have so few parameters that a fused update saves little. With a group for
each parameter, it took 0.96 to 1.39 of the time of the loop (AdamW of torch 2.13, 8 x 8 to 512 x 512)."""

_ONE_GROUP = """\
# one group for all parameters that share their settings, such as learning rate and weight decay
optimizer = torch.optim.{optimizer}([{{"params": list(model.parameters())}}], lr=lr, fused=True)"""

DOUBT = "how long the fused update takes on this CPU is unknown"

LEFT_ON_CPU: Mapping[str, Mapping[Scenario, float]] = {
    "Adam": {Scenario.LOW: 0.6, Scenario.EXPECTED: 0.37, Scenario.HIGH: 0.13},
    "AdamW": {Scenario.LOW: 0.6, Scenario.EXPECTED: 0.37, Scenario.HIGH: 0.13},
}
LEFT_OF_OTHERS: Mapping[Scenario, float] = {Scenario.LOW: 0.95, Scenario.EXPECTED: 0.6, Scenario.HIGH: 0.15}
"""Remaining share of the time in the optimizer on a CPU: the fused update still reads and writes parameters, gradients
and states, and its Python code still lists them. Few parameters save less, as do large ones. Median CPU time with
``fused=True`` over that without, in turns (torch 2.13, one thread, 2 cores of AMD EPYC that other programs used, too):

| parameters of elements | Adam | AdamW | SGD, momentum |
|---|---|---|---|
| 4, 12, 50, 200 of 64 | 0.45, 0.27, 0.16, 0.16 | 0.40, 0.23, 0.14, 0.17 | 0.64, 0.48, 0.26, 0.22 |
| 4, 12, 50, 200 of 1,024 | 0.40, 0.26, 0.22, 0.21 | 0.41, 0.25, 0.20, 0.21 | 0.65, 0.50, 0.31, 0.33 |
| 4, 12, 50, 200 of 16,384 | 0.45, 0.44, 0.41, 0.51 | 0.37, 0.39, 0.36, 0.60 | 0.67, 0.73, 0.79, 0.57 |
| 4, 12, 50, 200 of 262,144 | 0.39, 0.39, 0.56, 0.27 | 0.51, 0.57, 0.43, 0.15 | 0.56, 0.71, 0.59, 0.17 |
| 4, 12 of 2,097,152 | 0.47, 0.24 | 0.38, 0.35 | 0.91, 0.41 |

In trainings, in turns: 0.37 (13 parameters, AdamW), 0.35 (8, Adam) and 0.29 (50, AdamW)."""

PROFILED = "The profiler adds a few microseconds to each operator. Without it, this share is smaller."

THREADS_EACH = "A fused update runs all threads of torch for each parameter. Beside other programs, it may be slower."

THREADS_WAIT = (
    "A fused update runs all threads of torch for each parameter, even a small one, and other programs use the cores: "
    "it may be slower. Capture on an idle machine, or with OMP_NUM_THREADS=1."
)
"""Measured with two threads on two busy cores: 4 and 50 parameters of 64 elements took 29 and 46 times the CPU time of
the loop, which runs one thread for so few elements (AdamW of torch 2.13). On idle cores, Adam took 0.1 to 0.5 of it."""

MOST_LINES = 4
"""Lines that call optimizers."""

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
