"""The step with some edits as an interval, the share in which the GPU works, and what sets the pace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import inf

import numpy as np

from traceadvisor.alternatives.cpus import faster_workers
from traceadvisor.facts import Facts
from traceadvisor.model.events import Kind
from traceadvisor.model.whatif import Range, StepLimit
from traceadvisor.replay.fixes.host_work import is_loading, slowed
from traceadvisor.replay.gate import without_device
from traceadvisor.replay.replay import Replay
from traceadvisor.replay.simulate import device_ends_ns, simulate
from traceadvisor.replay.step_graph import FEWEST_STEPS, StepGraph
from traceadvisor.replay.what_if import Edit, Scenario
from traceadvisor.savings.floors import left_share
from traceadvisor.savings.interval import step_spread

LEAST_SPREAD = 0.01
"""Identical runs differ by at least this share of the step."""

RUN_NOISE = 0.05
"""Another run differs by at least that: two cycles of one program on one H100 did (benchmarks/validation)."""

SAME_SHARE = 0.05
"""A part sets the pace if the step is shorter by less than this share without all others."""

LEAST_LEFT = 0.01
"""Share of the likely step that stays at least: no change makes a step endlessly short."""


def step_interval(facts: Facts, replay: Replay, edits: Sequence[Edit], times: Range) -> Range:
    """Return the step with some edits, in nanoseconds.

    Args:
        facts: of the recording.
        replay: its steps.
        edits: the changes; none for the recorded step.
        times: the shortest and longest time of a GPU operation or of the CPU relative to the recorded one, for time in
            which the recording does not show what the GPU does.
    """
    held, step_ns = replay.gate, facts.step_ns or 0.0
    likely = max(step_spread(facts), LEAST_SPREAD)
    if not edits:
        return Range(step_ns * (1 - likely), step_ns, step_ns * (1 + likely))
    likely = max(likely, RUN_NOISE)
    shortest, expected, longest = (1 - share for share in reversed(replay.saving_shares(edits)))
    least, most = _factors(replay.graph, edits, Scenario.EXPECTED)
    expected = min(max(expected, least), most)
    least, most = _factors(replay.graph, edits, Scenario.HIGH)[0], _factors(replay.graph, edits, Scenario.LOW)[1]
    changed = min(2 * max(abs(1 - shortest), abs(1 - longest)), 1.0)
    hidden = held.unsure_share + held.unexplained_share
    off = held.wrong_share * changed
    left = left_share(replay, edits, Scenario.HIGH) if shortest < 1 else shortest
    shortest -= off + hidden * max(1 - times.low, 0.0)
    longest += off * max(longest, 1.0) + hidden * max(times.high - 1, 0.0)
    shortest = min(max(shortest, left - held.wrong_share, least * min(times.low, 1.0), LEAST_LEFT * expected), expected)
    longest = max(min(longest, most * max(times.high, 1.0)), expected)
    return Range(shortest * (1 - likely) * step_ns, expected * step_ns, longest * (1 + likely) * step_ns)


def _factors(before: StepGraph, edits: Sequence[Edit], scenario: Scenario) -> tuple[float, float]:
    """Return the smallest and the largest factor of the duration of a task: no step changes by more.

    0 and infinity where tasks come, go or wait for something new.
    """
    after = edited(before, edits, scenario)
    pairs = [
        (before.device.duration_ns, after.device.duration_ns),
        (before.host.work_ns, after.host.work_ns),
        (before.host.call_ns, after.host.call_ns),
    ]
    if before.workers and after.workers:
        pairs.append((np.array(before.workers.load_ns), np.array(after.workers.load_ns)))
    if (before.workers is None) != (after.workers is None) or any(one.size != two.size for one, two in pairs):
        return 0.0, inf
    least = (((two + 1) / np.maximum(one, 1)).min(initial=1.0) for one, two in pairs)  # 1: durations are rounded
    most = (((two - 1) / np.maximum(one, 1)).max(initial=1.0) for one, two in pairs)
    return float(min(least)), float(max(most))


def edited(graph: StepGraph, edits: Sequence[Edit], scenario: Scenario, on_host: Scenario | None = None) -> StepGraph:
    """Return the tasks with all edits; ``on_host`` is the scenario of those that change the CPU alone."""

    def applied(made: StepGraph, edit: Edit) -> StepGraph:
        return edit.applied(made, scenario if edit.changes_device else on_host or scenario)

    return reduce(applied, edits, graph)


def busy_share(replay: Replay, edits: Sequence[Edit]) -> Range:
    """Return the share of the step in which the GPU works: least with a fast GPU beside a slow CPU."""
    opposite = zip(Scenario, reversed(Scenario), strict=True)
    shares = [_busy(edited(replay.graph, edits, scenario, on_host)) for scenario, on_host in opposite]
    return Range(min(shares), shares[list(Scenario).index(Scenario.EXPECTED)], max(shares))


def _busy(graph: StepGraph) -> float:
    ends_ns = device_ends_ns(graph)
    if not ends_ns.size:
        return 0.0
    order = np.argsort(ends_ns - graph.device.duration_ns, kind="stable")
    starts_ns, ends_ns = (ends_ns - graph.device.duration_ns)[order], ends_ns[order]
    until_ns = np.maximum.accumulate(ends_ns)
    begun_ns = np.maximum(starts_ns, np.append(starts_ns[:1], until_ns[:-1]))
    busy_ns = np.maximum(ends_ns - begun_ns, 0).sum()
    whole_ns = int(until_ns[-1] - starts_ns[0])
    if graph.step_count < FEWEST_STEPS:
        whole_ns = max(whole_ns, sum(simulate(graph).durations_ns))
    return float(min(busy_ns / max(whole_ns, 1), 1.0))


def pace(replay: Replay, edits: Sequence[Edit]) -> StepLimit:
    """Return what sets the pace with the likely times."""
    graph = edited(replay.graph, edits, Scenario.EXPECTED)
    step_ns = simulate(graph).interior_mean_ns()
    least_ns = (1 - SAME_SHARE) * step_ns
    loading = is_loading(graph.host)
    batches = replace(
        graph, host=slowed(graph.host, np.where(loading, 0.0, 1.0)), workers=faster_workers(graph.workers, 0.0)
    )
    if simulate(without_device(graph)).interior_mean_ns() >= least_ns:
        without_loader_ns = simulate(without_device(batches)).interior_mean_ns()
        return StepLimit.LOADER if without_loader_ns < 0.5 * step_ns else StepLimit.CPU
    device = graph.device
    sends = device.kind == Kind.COLLECTIVE
    alone, sending = (replace(device, duration_ns=np.where(one, 0, device.duration_ns)) for one in (sends, ~sends))
    without_sending_ns = simulate(replace(graph, device=alone)).interior_mean_ns()
    only_sending_ns = simulate(replace(graph, device=sending, host=slowed(graph.host, 0.0))).interior_mean_ns()
    if without_sending_ns < (1 - 4 * SAME_SHARE) * step_ns or (sends.any() and only_sending_ns >= least_ns):
        return StepLimit.COMMUNICATION
    idle = replace(batches, host=slowed(graph.host, 0.0))
    if simulate(idle).interior_mean_ns() >= least_ns:
        return StepLimit.GPU
    return StepLimit.SEVERAL
