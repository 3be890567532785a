"""The gate: how far the replay of a recording can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from traceadvisor.analysis.observation import Loader, Observation
from traceadvisor.frozen import frozen, replace
from traceadvisor.model.arrays import Int64, distinct, within
from traceadvisor.model.events import DEVICE_WORK, NONE
from traceadvisor.model.saving import Doubt, Reason
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
from traceadvisor.replay.fixes.data_wait import FETCH_NS
from traceadvisor.replay.fixes.host_work import fetches, is_loading
from traceadvisor.replay.simulate import simulate
from traceadvisor.replay.step_graph import FEWEST_STEPS, Action, StepGraph, Workers
from traceadvisor.replay.what_if import Scenario

MOST_ERROR_SHARE = 0.02
"""Largest error of the unchanged replay at which it is trusted; savings have errors of the same size."""

MOST_TURN_ERROR_SHARE = 0.10
"""The same for one turn of the loader workers, which is one step or a few; batches differ."""

MOST_UNEXPLAINED_SHARE = 0.10
"""Largest share of the step in unexplained waits for the device at which the replay is trusted."""


@frozen
class Gate:
    """The unchanged replay compared with the recording."""

    steps: int
    baseline_ns: float
    """Mean replayed step, without the first and the last."""

    measured_ns: float
    """The same steps as recorded."""

    null_model_ns: float
    """The same steps replayed with an infinitely fast device."""

    unexplained_share: float
    """Share of the steps in which the host waits for the device and the graph does not explain why."""

    elsewhere_share: float = 0.0
    """Share of the steps in which another device of this process is busy; the graph does not model it."""

    paced_ns: float | None = None
    """The same steps with batches at the workers' mean pace; None if the workers do not limit the loop."""

    turn_error_share: float = 0.0
    """Relative error of the worker turn that differs most from the recording at that pace."""

    late_share: float = 0.0
    """Share of the recorded steps spent waiting for batches, where workers do not limit the loop."""

    unknown_share: float = 0.0
    """Share of the steps in which the recording does not show whether the device worked; the graph shows no work."""

    distorted: Reason | None = None
    """Why recorded steps do not show undisturbed ones; None if they do."""

    @property
    def judged_steps(self) -> int:
        """Steps compared with the recording, without the first and the last."""
        return self.steps - 2 if self.steps >= FEWEST_STEPS else self.steps

    @property
    def paced_error_share(self) -> float | None:
        """Relative error of the steps at the workers' pace."""
        return None if self.paced_ns is None else self.paced_ns / self.measured_ns - 1

    @property
    def error_share(self) -> float:
        """Relative error of the replayed step; negative if it is shorter than recorded."""
        return self.baseline_ns / self.measured_ns - 1

    @property
    def null_error_share(self) -> float:
        """The same with an infinitely fast device."""
        return self.null_model_ns / self.measured_ns - 1

    @property
    def wrong_share(self) -> float:
        """Share of the step by which the simulation may be wrong, from what it gets wrong with nothing changed."""
        turns = max(abs(self.turn_error_share) - MOST_TURN_ERROR_SHARE, 0.0)
        return max(abs(self.error_share), abs(self.paced_error_share or 0.0)) + turns

    @property
    def unsure_share(self) -> float:
        """Share of the step in which something may happen that the graph does not show, and then takes over."""
        late_share = self.late_share if self.late_share > _LEAST_WAIT_SHARE else 0.0
        return min(self.unknown_share + self.elsewhere_share + late_share, 1.0)

    @property
    def doubt(self) -> Reason | None:
        """The first doubt about all of the simulation; None if it reproduces the recorded steps."""
        if self.steps < FEWEST_STEPS:
            return Reason(Doubt.ONE_STEP if self.steps == 1 else Doubt.TWO_STEPS)
        if self.distorted:
            return self.distorted
        found = (
            (Doubt.UNKNOWN_TIME, self.unknown_share, MOST_ERROR_SHARE),
            (Doubt.OTHER_DEVICE, self.elsewhere_share, MOST_ERROR_SHARE),
            (Doubt.ERROR, self.error_share, MOST_ERROR_SHARE),
            (Doubt.UNEXPLAINED_WAITS, self.unexplained_share, MOST_UNEXPLAINED_SHARE),
            (Doubt.PACE_ERROR, self.paced_error_share or 0.0, MOST_ERROR_SHARE),
            (Doubt.UNEVEN_BATCHES, self.turn_error_share, MOST_TURN_ERROR_SHARE),
            (Doubt.LATE_BATCHES, self.late_share, _LEAST_WAIT_SHARE),
        )
        return next((Reason(doubt, share) for doubt, share, most in found if abs(share) > most), None)

    @property
    def device_doubt(self) -> Reason | None:
        """The first doubt about changes to device work; None if the step shows how long the device takes."""
        if self.doubt is None and abs(self.null_error_share) <= MOST_ERROR_SHARE:
            return Reason(Doubt.CPU_EXPLAINS_STEP, abs(self.null_error_share))
        return self.doubt


def gate(graph: StepGraph, observation: Observation, steps: Sequence[Step], unknown: SpanSet) -> Gate:
    """Replay the steps unchanged, and with an infinitely fast device.

    Args:
        graph: the tasks of the steps, with batch times as recorded.
        observation: the recording.
        steps: the steps it was built from, at least one.
        unknown: time in which the recording does not show whether the device worked.
    """
    inner = _inner(steps)
    windows = SpanSet.of(*((step.start_ns, step.end_ns) for step in steps[inner]))
    measured = [step.duration_ns for step in steps][inner]
    return Gate(
        len(steps),
        simulate(graph).interior_mean_ns(),
        max(fmean(measured), 1.0),
        simulate(without_device(graph)).interior_mean_ns(),
        sum(graph.unexplained_ns[inner]) / max(sum(measured), 1),
        _elsewhere_share(observation, steps),
        unknown_share=(unknown & windows).total_ns / max(sum(measured), 1),
    )


def held_to_workers(held: Gate, at_pace: StepGraph, steps: Sequence[Step], turn: int, late_share: float) -> Gate:
    """Add the check of a loader with workers: the steps replayed at their mean pace, turn by turn.

    Batch times as recorded fit every step, and their mean fits the mean step, so turns are compared.

    Args:
        held: the gate of the unchanged replay.
        at_pace: the tasks with batches at mean pace; unchanged if the workers do not limit the loop.
        steps: the steps that are replayed.
        turn: steps per turn of the workers.
        late_share: share of the recorded steps spent waiting for batches.
    """
    if at_pace.workers is None:
        return replace(held, late_share=late_share)
    replayed, inner = simulate(at_pace), _inner(steps)
    measured_ns = _turns_ns([step.duration_ns for step in steps][inner], turn)
    errors = _turns_ns(replayed.durations_ns[inner], turn) / np.maximum(measured_ns, 1) - 1
    worst = float(errors[np.argmax(np.abs(errors))])
    return replace(held, paced_ns=replayed.interior_mean_ns(), turn_error_share=worst)


def _inner(steps: Sequence[Step]) -> slice:
    """Return the slice of compared steps, without the first and the last."""
    return slice(1, -1) if len(steps) >= FEWEST_STEPS else slice(None)


def _turns_ns(durations_ns: Sequence[int], turn: int) -> Int64:
    whole = np.array(durations_ns[: len(durations_ns) // turn * turn], dtype=np.int64)
    turns_ns: Int64 = whole.reshape(-1, turn).sum(axis=1)
    return turns_ns


def _elsewhere_share(observation: Observation, steps: Sequence[Step]) -> float:
    """Return the share of some steps in which other devices are busy."""
    events = observation.trace.events
    rows = events.rows(*DEVICE_WORK)
    if not rows.size:
        return 0.0
    mine = distinct(np.sort(events.device[observation.launches.work_rows]))
    others = np.setdiff1d(distinct(np.sort(events.device[rows])), [NONE, *mine])
    rows = rows[np.isin(events.device[rows], others)] if others.size else others
    windows = SpanSet.of(*((step.start_ns, step.end_ns) for step in steps))
    return (events.spans(rows) & windows).total_ns / max(windows.total_ns, 1)


def without_device(graph: StepGraph) -> StepGraph:
    """Return the graph with an infinitely fast device."""
    return replace(
        graph,
        device=replace(graph.device, duration_ns=np.zeros_like(graph.device.duration_ns)),
        constants=replace(graph.constants, launch_latency_ns=0, queued_gap_ns=0),
    )


_LEAST_WAIT_SHARE = 0.05
"""Share of time that fetches take beyond fetching a ready batch, from which the loop counts as waiting."""

_FEWEST_TURNS = 2


def turn_of(workers: int | None, steps: Sequence[Step]) -> int:
    """Return the steps within which each worker delivers once; 1 if unknown, or if there are not two such turns.

    Workers that start together deliver together: one fetch waits for all of them, the next ones for none.
    """
    inner = max(len(steps) - 2, 1)
    return workers if workers and inner >= _FEWEST_TURNS * workers else 1


def late_share(loader: Loader, steps: Sequence[Step]) -> float:
    """Return the share of inner steps' host time spent waiting for batches that are not ready.

    The first step may begin an epoch, with an empty queue.

    ``loader``: the fetches of a recording. ``steps``: its steps, in order of time.
    """
    windows = SpanSet.of(*((step.host_start_ns, step.host_end_ns) for step in steps[1:-1]))
    taking = loader.spans & windows
    return int(_late_ns(taking.ends_ns - taking.starts_ns).sum()) / max(windows.total_ns, 1)


def paced(graph: StepGraph, steps: Sequence[Step], turn: int = 1, undisturbed_share: float = 1.0) -> StepGraph:
    """Return the graph with batches at the workers' pace, if the workers limited the recorded loop.

    A recording does not show the workers. If the loop waits for them in most turns, they make batches as fast as the
    loop takes them. That pace is one constant: the host's mean step over the batches it takes. (The host's step is
    shorter than the window of a device that lags more and more.) A fetch costs the training thread the time of the
    quickest recorded one, at most the assumed cost of a ready batch. If the loop waits in few turns or none, fetches
    stay unchanged: late workers are faster than the loop at other times, and how fast is unknown.

    Args:
        graph: the tasks of steps whose loader has workers.
        steps: those steps.
        turn: successive fetches in one turn of the workers.
        undisturbed_share: undisturbed over recorded step time; the pace is assumed to scale with it.
    """
    takes, spent_ns = fetches(graph.host)
    inner = range(1, len(steps) - 1) if len(steps) >= FEWEST_STEPS else range(len(steps))
    is_inner = within(graph.host.step[takes], inner)
    taken = int(is_inner.sum())
    if not taken:
        return graph
    spans_ns = sum(steps[position].host_end_ns - steps[position].host_start_ns for position in inner)
    pace_ns = round(spans_ns * undisturbed_share / taken)
    late_ns = _late_ns(spent_ns)
    turns_ns = late_ns[is_inner][: taken - taken % turn].reshape(-1, turn).sum(axis=1)
    if not turns_ns.size:  # fewer fetches than one turn of the workers show no pace
        return graph
    if np.mean(turns_ns >= _LEAST_WAIT_SHARE * turn * spans_ns / taken) <= 0.5:  # most turns
        return graph
    host = graph.host
    work_ns = np.where(is_loading(host), 0, host.work_ns)
    call_ns, action = host.call_ns.copy(), host.action.copy()
    call_ns[takes], action[takes] = int((spent_ns - late_ns).min()), Action.FETCH
    workers = Workers(count=1, ahead=2, load_ns=(pace_ns,) * int(takes.size))
    return replace(graph, host=replace(host, work_ns=work_ns, call_ns=call_ns, action=action), workers=workers)


def _late_ns(spent_ns: Int64) -> Int64:
    """Return the time of fetches beyond the quickest one, or beyond the assumed cost of a ready batch."""
    quickest_ns = min(int(spent_ns.min(initial=FETCH_NS[Scenario.EXPECTED])), FETCH_NS[Scenario.EXPECTED])
    late_ns: Int64 = spent_ns - quickest_ns
    return late_ns
