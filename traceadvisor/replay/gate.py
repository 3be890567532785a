"""How far the replay of a recording can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import DEVICE_WORK, NONE
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
from traceadvisor.replay.loader_pace import LEAST_WAIT_SHARE
from traceadvisor.replay.simulate import simulate
from traceadvisor.replay.step_graph import FEWEST_STEPS, StepGraph

MOST_ERROR_SHARE = 0.02
"""Error of the unchanged replay up to which it is believed; the error of a saving is of the same size."""

MOST_TURN_ERROR_SHARE = 0.10
"""The same of one turn of the loader's workers, which is a step or a few: their batches differ."""

MOST_UNEXPLAINED_SHARE = 0.10
"""Share of the step in waits for the device that the graph does not explain, up to which the replay is believed."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The unchanged replay held against the recording."""

    steps: int
    baseline_ns: float
    """The mean replayed step, the first and last apart."""

    measured_ns: float
    """The same steps as recorded."""

    null_model_ns: float
    """The same steps replayed with a device that takes no time."""

    unexplained_share: float
    """Share of the steps in which the host waits for the device and the graph does not say for what."""

    elsewhere_share: float = 0.0
    """Share of the steps in which another device of this process is busy, of which the graph knows nothing."""

    paced_ns: float | None = None
    """The same steps with batches at the mean pace of the loader's workers; None where these do not set the pace."""

    turn_error_share: float = 0.0
    """How much longer a turn of workers is at that pace than recorded, where it differs most."""

    late_share: float = 0.0
    """Share of the recorded steps in which the loop waits for batches of workers that do not set the pace."""

    @property
    def judged_steps(self) -> int:
        """How many of the steps are held against the recording: one leads in, one follows."""
        return self.steps - 2 if self.steps >= FEWEST_STEPS else self.steps

    @property
    def paced_error_share(self) -> float | None:
        """How much longer steps at the pace of workers are than recorded."""
        return None if self.paced_ns is None else self.paced_ns / self.measured_ns - 1

    @property
    def error_share(self) -> float:
        """How much longer the replayed step is than the recorded one; negative where shorter."""
        return self.baseline_ns / self.measured_ns - 1

    @property
    def null_error_share(self) -> float:
        """The same without any device."""
        return self.null_model_ns / self.measured_ns - 1

    @property
    def doubt(self) -> str | None:
        """Why the replay is not to be believed at all; None where it is."""
        if self.steps < FEWEST_STEPS:
            steps = "1 complete step was" if self.steps == 1 else f"{self.steps} complete steps were"
            return f"only {steps} recorded, and a replay takes {FEWEST_STEPS}"
        if self.elsewhere_share > MOST_ERROR_SHARE:
            return (
                f"in {self.elsewhere_share:.0%} of the step this process keeps another device busy too, "
                "and what the host does and waits for is not known to be for this one"
            )
        if abs(self.error_share) > MOST_ERROR_SHARE:
            return f"the unchanged replay misses the recorded step by {self.error_share:+.1%}"
        if self.unexplained_share > MOST_UNEXPLAINED_SHARE:
            return f"in {self.unexplained_share:.0%} of the step the host waits for something that cannot be told"
        return self._loader_doubt

    @property
    def _loader_doubt(self) -> str | None:
        """Why not to believe what stands for the loader's workers."""
        if abs(self.paced_error_share or 0.0) > MOST_ERROR_SHARE:
            missed = f"{self.paced_error_share:+.1%}"
            return f"with batches at the mean pace of the loader's workers it misses the recorded step by {missed}"
        if abs(self.turn_error_share) > MOST_TURN_ERROR_SHARE:
            missed = f"{abs(self.turn_error_share):.0%}"
            return (
                f"one pace does not stand for all batches of the loader's workers: at it a step comes out {missed} off"
            )
        if self.late_share > LEAST_WAIT_SHARE:
            return (
                f"for {self.late_share:.0%} of the time the loop waits for batches, in some steps and not in others, "
                "and how fast the loader's workers could be is not known"
            )
        return None

    @property
    def device_doubt(self) -> str | None:
        """Why the replay is not to be believed of changes to the device's work; None where it is."""
        if self.doubt is None and abs(self.null_error_share) <= MOST_ERROR_SHARE:
            return (
                f"the host alone explains the recorded step to within {abs(self.null_error_share):.1%}, "
                "so the replay of the device is not put to the test"
            )
        return self.doubt


def gate(graph: StepGraph, observation: Observation, steps: Sequence[Step]) -> Gate:
    """Replay the steps as they are, and as they would be with a device that takes no time.

    Args:
        graph: the tasks of the steps, each batch taking what it took.
        observation: the recording that they are of.
        steps: the steps it was built from, at least one.
    """
    inner = _inner(steps)
    measured = [step.duration_ns for step in steps][inner]
    return Gate(
        len(steps),
        simulate(graph).interior_mean_ns(),
        max(fmean(measured), 1.0),
        simulate(without_device(graph)).interior_mean_ns(),
        sum(graph.unexplained_ns[inner]) / max(sum(measured), 1),
        _elsewhere_share(observation, steps),
    )


def held_to_workers(held: Gate, at_pace: StepGraph, steps: Sequence[Step], turn: int, late_share: float) -> Gate:
    """The same where a loader has workers: the steps replayed at the mean pace of these, turn by turn.

    That each batch takes what it took could not miss any step, and their mean pace not the mean step.

    Args:
        held: the replay held against the recording.
        at_pace: the tasks with batches at their mean pace; as they were where the workers do not set it.
        steps: the steps that are replayed.
        turn: how many of them belong together.
        late_share: share of the recorded steps in which the loop waits for batches.
    """
    if at_pace.workers is None:
        return replace(held, late_share=late_share)
    replayed, inner = simulate(at_pace), _inner(steps)
    measured_ns = _turns_ns([step.duration_ns for step in steps][inner], turn)
    errors = _turns_ns(replayed.durations_ns[inner], turn) / np.maximum(measured_ns, 1) - 1
    worst = float(errors[np.argmax(np.abs(errors))])
    return replace(held, paced_ns=replayed.interior_mean_ns(), turn_error_share=worst)


def _inner(steps: Sequence[Step]) -> slice:
    """The steps that are judged: one leads in, one follows."""
    return slice(1, -1) if len(steps) >= FEWEST_STEPS else slice(None)


def _turns_ns(durations_ns: Sequence[int], turn: int) -> Int64:
    whole = np.array(durations_ns[: len(durations_ns) // turn * turn], dtype=np.int64)
    turns_ns: Int64 = whole.reshape(-1, turn).sum(axis=1)
    return turns_ns


def _elsewhere_share(observation: Observation, steps: Sequence[Step]) -> float:
    """Share of some steps in which devices other than the observed one are busy."""
    events = observation.trace.events
    rows = events.rows(*DEVICE_WORK)
    rows = rows[~np.isin(events.device[rows], [NONE, *np.unique(events.device[observation.launches.work_rows])])]
    windows = SpanSet.of(*((step.start_ns, step.end_ns) for step in steps))
    return (events.spans(rows) & windows).total_ns / max(windows.total_ns, 1)


def without_device(graph: StepGraph) -> StepGraph:
    """The graph with a device that does everything at once."""
    return replace(
        graph,
        device=replace(graph.device, duration_ns=np.zeros_like(graph.device.duration_ns)),
        constants=replace(graph.constants, launch_latency_ns=0, queued_gap_ns=0),
    )
