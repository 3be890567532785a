"""The replay of one recording: its task graph, its gate, and what edits change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, rows_with_prefix
from traceadvisor.analysis.steps.run_timing import RunTiming
from traceadvisor.frozen import frozen, replace
from traceadvisor.model.arrays import Int64, Mask, one_of
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.saving import Reason
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
from traceadvisor.replay.profiler_cost import largest_cost_ns, missing_calls_ns
from traceadvisor.replay.simulate import simulate
from traceadvisor.replay.step_graph import Action, StepGraph, chosen_steps
from traceadvisor.replay.what_if import Edit, Scenario

UNCAPTURED_HOST_FACTOR = 0.9
"""Share of the host time of a step outside the recording that it takes without a capture, at least.

A capture watches steps and samples stacks. With three trainings on an H200, it was 0.87 to 0.97.
"""

_WAITING = (Action.LAUNCH_AND_WAIT, Action.WAIT, Action.WAIT_ALL)


_KEPT_GRAPHS = 12
"""Edited graphs kept: the estimates of one finding ask for the same ones, one after the other."""


@dataclass(slots=True)
class _Edited:
    """A graph with edits, and its step once it was simulated."""

    edits: tuple[Edit, ...]
    graph: StepGraph
    step_ns: float | None = None
    busiest_ns: float | None = None


@frozen(eq=False)
class Variant:
    """The tasks of the steps if the CPU's own time, which the profiler hides, is what it may be at one end."""

    graph: StepGraph
    baseline_ns: float
    """The replayed step without any edit."""

    _edited: dict[tuple[Any, ...], _Edited] = field(default_factory=dict, init=False)
    """The last edited graphs, by scenario and the identity of the edits."""

    @classmethod
    def of(cls, graph: StepGraph) -> Variant:
        """Simulate a graph without any edit."""
        graph = replace(graph, host=replace(graph.host, unprofiled_work_ns=graph.host.work_ns))
        return cls(graph, _step_ns(graph))

    def saving_share(self, edits: Iterable[Edit], scenario: Scenario) -> float:
        """Return the share of the step that some edits save together; negative if they cost time."""
        edited = self._find(tuple(edits), scenario)
        if edited.step_ns is None:
            is_as_recorded = edited.graph is self.graph  # these edits change nothing
            edited.step_ns = self.baseline_ns if is_as_recorded else _step_ns(edited.graph)
        return 1 - edited.step_ns / max(self.baseline_ns, 1.0)

    def edited(self, edits: Iterable[Edit], scenario: Scenario) -> StepGraph:
        """Return the tasks with some edits."""
        return self._find(tuple(edits), scenario).graph

    def busiest_ns(self, edits: Iterable[Edit], scenario: Scenario) -> float:
        """Return the time per step of the busiest stream or thread with some edits, if nothing waits for anything."""
        edited = self._find(tuple(edits), scenario)
        if edited.busiest_ns is None:
            edited.busiest_ns = _busiest_ns(edited.graph)
        return edited.busiest_ns

    def _find(self, edits: tuple[Edit, ...], scenario: Scenario) -> _Edited:
        key = (scenario, *map(id, edits))
        found = self._edited.pop(key, None)
        if found is None:
            before = self._find(edits[:-1], scenario).graph if len(edits) > 1 else self.graph
            found = _Edited(edits, edits[-1].applied(before, scenario) if edits else before)
        self._edited[key] = found
        if len(self._edited) > _KEPT_GRAPHS:
            del self._edited[next(iter(self._edited))]
        return found


@frozen
class Removed:
    """Time per replayed step that an edit removes from host work, waits and device tasks."""

    in_loader_ns: float
    elsewhere_ns: float

    @property
    def whole_ns(self) -> float:
        """Both together."""
        return self.in_loader_ns + self.elsewhere_ns


def _no_longer_waits(action: NDArray[np.int8], left: NDArray[np.int8], row: Int64) -> Mask:
    """Whether each call waits by its action before, and not by the one after."""
    waits: Mask = one_of(action, *_WAITING) & ~one_of(left, *_WAITING) & (row != NONE)
    return waits


@frozen(eq=False)
class Replay:
    """A recording's steps, ready to replay with edits.

    How long the CPU's own work takes without the profiler is an interval. The likely tasks are the ones that match the
    step times of the run; the others are what these leave open.
    """

    likely: Variant
    gate: Gate
    """The comparison of the unchanged replay with the recorded steps."""

    slow: Variant | None = None
    """With the slowest CPU; None if the step times of the run leave nothing open at this end."""

    fast: Variant | None = None
    """With the fastest CPU; None as above."""

    other: Variant | None = None
    """With the profiler's time taken off evenly, instead of by recorded events; where Python calls are missing in the
    file, the fastest CPU if there were none. None if there is little of it."""

    @property
    def graph(self) -> StepGraph:
        """The likely tasks."""
        return self.likely.graph

    @property
    def baseline_ns(self) -> float:
        """The likely step without any edit."""
        return self.likely.baseline_ns

    def saving_share(self, edits: Iterable[Edit], scenario: Scenario) -> float:
        """Return the share of the step that some edits save together; negative if they cost time."""
        chosen = {Scenario.LOW: self.slow, Scenario.HIGH: self.fast}.get(scenario) or self.likely
        return chosen.saving_share(each_kernel_once(edits), scenario)

    def saving_shares(self, edits: Iterable[Edit]) -> tuple[float, float, float]:
        """Return the least, the likely and the largest share of the step that some edits save together."""
        once = each_kernel_once(edits)
        expected = self.likely.saving_share(once, Scenario.EXPECTED)
        variants = [one for one in (self.likely, self.slow, self.fast, self.other) if one]
        low = min(one.saving_share(once, Scenario.LOW) for one in variants)
        high = max(one.saving_share(once, Scenario.HIGH) for one in variants)
        return min(low, expected), expected, max(high, expected)

    def doubt(self, edit: Edit) -> Reason | None:
        """Return the first doubt about the replay of an edit; None without one."""
        return self.gate.device_doubt if edit.changes_device else self.gate.doubt

    def removed_ns(self, edit: Edit, recorded_ns: Int64, scenario: Scenario = Scenario.EXPECTED) -> Removed:
        """Return the time that an edit removes from host work, waits and device tasks, per replayed step.

        A step becomes shorter by at most this time: the tasks may run side by side.

        Args:
            edit: how the fix changes the steps.
            recorded_ns: the recorded duration of each row of the event table.
            scenario: the assumptions about the fix.
        """
        before, after = self.graph, self.likely.edited((edit,), scenario)
        if len(before.host) != len(after.host) or len(before.device) != len(after.device):
            return Removed(0.0, 0.0)
        spared_ns = before.host.work_ns + before.host.call_ns - after.host.work_ns - after.host.call_ns
        spared_ns = np.maximum(spared_ns, 0)
        if after.host.action is not before.host.action:
            waits = before.once(_no_longer_waits, before.host.action, after.host.action, before.host.row)
            spared_ns[waits] += recorded_ns[before.host.row[waits]]
        (tasks, launched), count = before.inner_tasks, max(len(before.inner_steps), 1)
        on_device_ns = np.maximum(before.device.duration_ns[launched] - after.device.duration_ns[launched], 0)
        spared_ns = spared_ns[tasks]
        in_loader_ns = float(spared_ns[before.once(is_loading, before.host)[tasks]].sum())
        all_ns = float(spared_ns.sum() + on_device_ns.sum())
        return Removed(in_loader_ns / count, (all_ns - in_loader_ns) / count)

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
    if observation.has_device:
        recorded = replace(recorded, events_ns=_recorded_starts_ns(observation))
    held = gate(recorded, observation, steps, unknown or SpanSet.empty())
    if distortion := timing.distortion():
        held = replace(held, distorted=distortion.doubt)
    share, paced_like = timing.undisturbed_share, _Pace(observation, table, steps, worker_count)
    shown = paced_like.graph(recorded, 1.0)
    held = paced_like.held(held, shown)
    hidden = _hidden_cost(recorded, observation, steps, timing, held)
    if hidden is not None:
        relieved = Variant.of(paced_like.graph(_relieved(recorded, hidden), share))
        if share - MOST_ERROR_SHARE <= relieved.baseline_ns / max(held.baseline_ns, 1.0) <= 1 + MOST_ERROR_SHARE:
            held = replace(held, null_model_ns=simulate(without_device(relieved.graph)).interior_mean_ns())
            quickest = replace(relieved.graph, host=slowed(relieved.graph.host, UNCAPTURED_HOST_FACTOR))
            return Replay(relieved, held, Variant.of(shown), Variant.of(quickest))
    likely = Variant.of(paced_like.graph(_undisturbed(recorded, observation, steps, timing), share))
    if abs(likely.baseline_ns / max(held.baseline_ns, 1.0) - share) > MOST_ERROR_SHARE:
        likely = Variant.of(shown)
    least_ns = (1 - MOST_ERROR_SHARE) * share * held.baseline_ns if timing.undisturbed_ns else 0.0
    cost_ns, missing_ns = largest_cost_ns(recorded, observation), missing_calls_ns(recorded, observation)
    fast = _fast(recorded, cost_ns if missing_ns is None else cost_ns + missing_ns, paced_like, least_ns)
    if fast and _host_ns(fast.graph) >= _host_ns(likely.graph):
        fast = None
    even = None
    if share < 1 - MOST_ERROR_SHARE:
        even = Variant.of(paced_like.graph(_even(recorded, observation, timing, len(steps)), share))
    elif missing_ns is not None:
        even = _fast(recorded, cost_ns, paced_like, least_ns)
    return Replay(likely, held, None, fast, even)


@frozen(eq=False)
class _Pace:
    """The loader's workers of a recording, which a graph takes its batches from."""

    observation: Observation
    table: StepTable
    steps: Sequence[Step]
    worker_count: int | None

    @property
    def has_workers(self) -> bool:
        loader = self.observation.loader
        return loader is not None and not loader.in_training_process

    def graph(self, graph: StepGraph, undisturbed_share: float) -> StepGraph:
        """Return the graph with batches at the workers' pace, if they limited the recorded loop."""
        if not self.has_workers:
            return graph
        return paced(graph, self.steps, turn_of(self.worker_count, self.steps), undisturbed_share)

    def held(self, held: Gate, shown: StepGraph) -> Gate:
        """Return the gate with the check of that pace."""
        loader = self.observation.loader
        if loader is None or not self.has_workers:
            return held
        late = late_share(loader, self.table.kept)
        return held_to_workers(held, shown, self.steps, turn_of(self.worker_count, self.steps), late)


def _hidden_cost(
    graph: StepGraph, observation: Observation, steps: Sequence[Step], timing: RunTiming, held: Gate
) -> Int64 | None:
    """Return the profiler's time on each task where the device hides it, and steps launched ahead show its sum."""
    if timing.host_ns is None:
        return None
    hidden_ns = held.null_model_ns - (timing.recorded_loader_ns or 0.0) - timing.host_ns
    return _spread(hidden_ns * len(steps), _events_before(graph, observation)) if hidden_ns > 0 else None


FAST_SHARES = (1.0, 0.5, 0.25)
"""Shares of the largest known cost of recording that are tried for the fastest CPU."""


def _fast(graph: StepGraph, cost_ns: Int64, pace: _Pace, least_ns: float) -> Variant | None:
    """Return the steps without the largest cost of recording, as far as undisturbed steps allow it; None if small.

    ``least_ns``: the shortest step that those allow; 0 if none was timed.
    """
    if cost_ns.sum() <= MOST_ERROR_SHARE * max(_host_ns(graph), 1):
        return None
    for share in FAST_SHARES:
        variant = Variant.of(pace.graph(_relieved(graph, scaled(cost_ns, share)), 1.0))
        if variant.baseline_ns >= least_ns:
            return variant
    return None


def _host_ns(graph: StepGraph) -> int:
    """Return the CPU time of all tasks."""
    return int((graph.host.work_ns + graph.host.call_ns).sum())


def _even(graph: StepGraph, observation: Observation, timing: RunTiming, step_count: int) -> StepGraph:
    """Return the graph with the profiler's time taken off the CPU's work evenly, wherever it is recorded."""
    excess_ns, excess_loading_ns = timing.excess_ns
    own_ns, loading = graph.host.work_ns + graph.host.call_ns, is_loading(graph.host)
    added_ns = _spread((excess_ns - excess_loading_ns) * step_count, np.where(loading, 0, own_ns))
    if observation.loader is not None and observation.loader.in_training_process:
        added_ns += _spread(excess_loading_ns * step_count, np.where(loading, own_ns, 0))
    return _relieved(graph, added_ns)


def _step_ns(graph: StepGraph) -> float:
    """Simulate a graph, and return the mean of its inner steps."""
    return simulate(_in_balance(graph)).interior_mean_ns()


def _busiest_ns(graph: StepGraph) -> float:
    host, device, (tasks, launched) = graph.host, graph.device, graph.inner_tasks
    host_ns = host.work_ns[tasks] + host.call_ns[tasks]
    on_host = np.bincount(host.thread[tasks], weights=host_ns, minlength=1)
    on_device = np.bincount(device.stream[launched], weights=device.duration_ns[launched], minlength=1)
    return float(max(*on_host.tolist(), *on_device.tolist())) / max(len(graph.inner_steps), 1)


def _in_balance(graph: StepGraph) -> StepGraph:
    """Return the graph without what the streams have left at its beginning, if the host limits its steps.

    Such a host is not ahead of the device. Work left from before would let the first steps end early.
    """
    if not any(graph.leads):
        return graph
    work_ns = np.bincount(graph.device.stream, weights=graph.device.duration_ns, minlength=1).max()
    return replace(graph, leads=()) if _host_ns(graph) >= work_ns else graph


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
    return graph.begun(_recorded_starts_ns(observation))


def _recorded_starts_ns(observation: Observation) -> Int64:
    """Return the starts of the events that cost the host time to record."""
    events = observation.trace.events
    starts_ns: Int64 = events.start_ns[events.rows(*_RECORDED_ON_HOST)]
    return starts_ns


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
