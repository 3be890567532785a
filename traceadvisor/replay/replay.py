"""The replay of one recording: its task graph, its gate, and what edits change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, rows_with_prefix
from traceadvisor.analysis.steps.run_timing import RunTiming
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step, StepTable
from traceadvisor.replay.build_graph import build_graph
from traceadvisor.replay.fixes.host_work import is_loading, scaled, slowed
from traceadvisor.replay.fixes.kernels import each_kernel_once
from traceadvisor.replay.gate import (
    MOST_ERROR_SHARE,
    Gate,
    gate,
    held_to_workers,
    late_share,
    paced,
    turn_of,
    without_device,
)
from traceadvisor.replay.simulate import simulate
from traceadvisor.replay.step_graph import Action, StepGraph, chosen_steps
from traceadvisor.replay.what_if import Edit, Scenario

UNCAPTURED_HOST_FACTOR = 0.9
"""Share of the host time of a step outside the recording that it takes without a capture, at least.

A capture watches steps and samples stacks. With three trainings on an H200, it was 0.87 to 0.97.
"""

_WAITING = (Action.LAUNCH_AND_WAIT, Action.WAIT, Action.WAIT_ALL)


@frozen(eq=False)
class Replay:
    """A recording's steps, ready to replay with edits."""

    graph: StepGraph
    """The task graph that edits start from: without the profiler's overhead, if that matches the run's step times."""

    baseline_ns: float
    """The replayed step without any edit."""

    gate: Gate
    """The comparison of the unchanged replay with the recorded steps."""

    slow: StepGraph | None = None
    """The same with the profiler's overhead, for the smallest saving, if steps do not show how much of it there is: the
    device hides it. None otherwise."""

    fast: StepGraph | None = None
    """The same with a host that no capture slows down, for the largest saving, in that case."""

    fast_baseline_ns: float = 0.0
    """The replayed step of that graph without any edit."""

    def doubt(self, edit: Edit) -> str | None:
        """Return why the replay is not trusted for an edit; None if it is."""
        return self.gate.device_doubt if edit.changes_device else self.gate.doubt

    def saving_share(self, edits: Iterable[Edit], scenario: Scenario) -> float:
        """Return the share of the step that some edits save together; negative if they cost time."""
        once = each_kernel_once(edits)
        base = {Scenario.LOW: self.slow, Scenario.HIGH: self.fast}.get(scenario) or self.graph
        baseline_ns = self.fast_baseline_ns if base is self.fast else self.baseline_ns
        edited = _in_balance(reduce(lambda graph, edit: edit.applied(graph, scenario), once, base))
        return 1 - simulate(edited).interior_mean_ns() / max(baseline_ns, 1.0)

    def removed_ns(self, edit: Edit, recorded_ns: Int64) -> float:
        """Return the time that an edit removes from host work, waits and device tasks, per replayed step.

        A step becomes shorter by at most this time: the tasks may run side by side.

        ``edit``: how the fix changes the steps. ``recorded_ns``: the recorded duration of each row of the event table.
        """
        before, after = self.graph, edit.applied(self.graph, Scenario.EXPECTED)
        if len(before.host) != len(after.host) or len(before.device) != len(after.device):
            return 0.0
        spared_ns = before.host.work_ns + before.host.call_ns - after.host.work_ns - after.host.call_ns
        waits = np.isin(before.host.action, _WAITING) & ~np.isin(after.host.action, _WAITING)
        waits &= before.host.row != NONE
        total_ns = np.maximum(before.device.duration_ns - after.device.duration_ns, 0).sum()
        total_ns += np.maximum(spared_ns, 0).sum() + recorded_ns[before.host.row[waits]].sum()
        return float(total_ns) / max(self.graph.step_count, 1)

    def figures(self, joint_step_ns: float | None) -> ReplayFigures:
        """Return the figures that the report shows about the replay."""
        return ReplayFigures(
            self.gate.judged_steps,
            self.gate.baseline_ns,
            self.gate.error_share,
            self.gate.null_error_share,
            self.gate.unexplained_share,
            self.gate.doubt,
            self.gate.device_doubt,
            joint_step_ns,
            None if self.gate.paced_ns is None else self.gate.turn_error_share,
        )


def replay(
    observation: Observation,
    table: StepTable,
    timing: RunTiming,
    worker_count: int | None = None,
    unknown: SpanSet | None = None,
) -> Replay | None:
    """Return the replay of the steps nearest to the median; None if no step is typical.

    Args:
        observation: the recording.
        table: its steps.
        timing: step times of the whole run.
        worker_count: loader worker processes; None if unknown.
        unknown: time in which the recording does not show whether the device worked; none by default.
    """
    steps = chosen_steps(table)
    if not steps:
        return None
    recorded = build_graph(observation, steps)
    graph = _undisturbed(recorded, observation, steps, timing)
    held = gate(recorded, observation, steps, unknown or SpanSet.empty())
    hidden_ns = 0.0
    if timing.host_ns is not None:
        hidden_ns = held.null_model_ns - (timing.recorded_loader_ns or 0.0) - timing.host_ns
    relieved = None
    if hidden_ns > 0:
        relieved = _relieved(recorded, _spread(hidden_ns * len(steps), _events_before(recorded, observation)))
    if distortion := timing.distortion():
        held = replace(held, distorted=distortion.doubt)
    share, shown = timing.undisturbed_share, recorded
    if observation.loader and not observation.loader.in_training_process:
        turn, late = turn_of(worker_count, steps), late_share(observation.loader, table.kept)
        shown = paced(recorded, steps, turn)
        held = held_to_workers(held, shown, steps, turn, late)
        graph = paced(graph, steps, turn, share)
        relieved = paced(relieved, steps, turn, share) if relieved else None
    if relieved:
        baseline_ns = simulate(relieved).interior_mean_ns()
        if share - MOST_ERROR_SHARE <= baseline_ns / max(held.baseline_ns, 1.0) <= 1 + MOST_ERROR_SHARE:
            held = replace(held, null_model_ns=simulate(without_device(relieved)).interior_mean_ns())
            fast = replace(relieved, host=slowed(relieved.host, UNCAPTURED_HOST_FACTOR))
            return Replay(relieved, baseline_ns, held, shown, fast, simulate(fast).interior_mean_ns())
    baseline_ns = held.baseline_ns if graph is recorded else simulate(graph).interior_mean_ns()
    if abs(baseline_ns / max(held.baseline_ns, 1.0) - share) > MOST_ERROR_SHARE:
        graph, baseline_ns = shown, held.paced_ns or held.baseline_ns
    return Replay(graph, baseline_ns, held)


def _in_balance(graph: StepGraph) -> StepGraph:
    """Return the graph without what the streams have left at its beginning, if the host limits its steps.

    Such a host is not ahead of the device. Work left from before would let the first steps end early.
    """
    work_ns = np.bincount(graph.device.stream, weights=graph.device.duration_ns, minlength=1).max()
    host_ns = (graph.host.work_ns + graph.host.call_ns).sum()
    return replace(graph, leads=()) if graph.leads and host_ns >= work_ns else graph


_RECORDED_ON_HOST = (Kind.OPERATOR, Kind.ANNOTATION, Kind.RUNTIME)
"""Events that cost the host time to record."""


def _undisturbed(graph: StepGraph, observation: Observation, steps: Sequence[Step], timing: RunTiming) -> StepGraph:
    """Return the graph with host work as without the profiler; unchanged if that is unknown.

    The run's step times show how much longer recorded steps take, and how much of that is in the loader. If the
    replayed step does not shrink by the time removed from the host, the device hides some of the overhead, and the
    difference between steps does not show its size.
    """
    result = _relieved(graph, _added(graph, observation, steps, timing))
    host, left = graph.host, result.host
    taken_ns = int((host.work_ns + host.call_ns - left.work_ns - left.call_ns).sum()) / len(steps)
    if not taken_ns:
        return graph
    recorded_ns = simulate(graph).interior_mean_ns()
    shown_ns = recorded_ns - simulate(result).interior_mean_ns()
    return result if abs(taken_ns - shown_ns) <= MOST_ERROR_SHARE * recorded_ns else graph


def _relieved(graph: StepGraph, added_ns: Int64) -> StepGraph:
    """Return the graph with some time less in each host task: of its work first, then of its call."""
    host = graph.host
    of_work_ns = np.minimum(added_ns, host.work_ns)
    of_call_ns = np.minimum(added_ns - of_work_ns, host.call_ns)
    return replace(graph, host=replace(host, work_ns=host.work_ns - of_work_ns, call_ns=host.call_ns - of_call_ns))


def _added(graph: StepGraph, observation: Observation, steps: Sequence[Step], timing: RunTiming) -> Int64:
    """Return the profiler's overhead on each task; zero if recorded steps were not longer.

    With loader workers, time in the loader is a wait, which may shrink because of overhead elsewhere. With a device,
    every recorded event costs the same. Without a device, operators compute on the host, and the profiler's own records
    scatter memory: new activations and gradients lie in fresh pages, so the forward and backward pass take longer.
    """
    excess_ns, excess_loading_ns = timing.excess_ns
    own_loader = observation.loader is not None and observation.loader.in_training_process
    if own_loader:
        excess_loading_ns = min(max(excess_loading_ns, 0.0), max(excess_ns, 0.0))
    loading = is_loading(graph.host)
    weight = _events_before(graph, observation) if observation.has_device else _passes_ns(graph, observation, steps)
    added_ns = _spread((excess_ns - excess_loading_ns) * len(steps), np.where(loading, 0, weight))
    if own_loader:
        added_ns += _spread(excess_loading_ns * len(steps), np.where(loading, graph.host.work_ns, 0))
    return added_ns


def _events_before(graph: StepGraph, observation: Observation) -> Int64:
    """Count the recorded events in each task's work and call; 0 for tasks without time."""
    events = observation.trace.events
    starts_ns = events.start_ns[events.rows(*_RECORDED_ON_HOST)]
    since_ns = graph.recorded_ns - graph.host.recorded_work_ns
    before, until = (np.searchsorted(starts_ns, at_ns, side="right") for at_ns in (since_ns, graph.recorded_ns))
    takes_time = graph.host.work_ns + graph.host.call_ns > 0
    return np.where(takes_time, until - before, 0)


def _passes_ns(graph: StepGraph, observation: Observation, steps: Sequence[Step]) -> Int64:
    """Return the work of tasks that begin before a step's backward pass ends; of all tasks without one."""
    backward = observation.trace.events.spans(rows_with_prefix(observation.trace, Kind.OPERATOR, BACKWARD_PREFIX))
    ends_ns = np.array([_last_end(backward, step) for step in steps], dtype=np.int64)
    begun_ns = graph.recorded_ns - graph.host.recorded_work_ns
    return np.where(begun_ns < ends_ns[graph.host.step], graph.host.work_ns, 0)


def _last_end(spans: SpanSet, step: Step) -> int:
    within = spans & SpanSet.of((step.host_start_ns, step.host_end_ns))
    return int(within.ends_ns[-1]) if within else step.host_end_ns


def _spread(excess_ns: float, weight: Int64) -> Int64:
    """Spread time over tasks by weight; zero if the time is negative."""
    return scaled(weight, max(excess_ns, 0.0) / max(int(weight.sum()), 1))
