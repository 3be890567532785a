"""The replay of one recording: its task graph, its gate, and the savings of edits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.steps.run_timing import RunTiming
from traceadvisor.model.findings import Estimate, Method
from traceadvisor.model.replay import ReplayFigures, WhatIf
from traceadvisor.model.steps import StepTable
from traceadvisor.replay.build_graph import build_graph
from traceadvisor.replay.gate import MOST_ERROR_SHARE, Gate, gate, held_to_workers, without_device
from traceadvisor.replay.loader_pace import late_share, paced, turn_of
from traceadvisor.replay.simulate import simulate
from traceadvisor.replay.step_graph import StepGraph, chosen_steps
from traceadvisor.replay.undisturbed import undisturbed
from traceadvisor.replay.what_if import Edit, Scenario

UNTESTED_DEVICE = "after this fix the step waits for the GPU, and GPU savings could not be validated on this recording"
"""Caveat for savings of host work on a recording that does not validate the device model."""


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """A recording's steps, ready to replay with edits."""

    graph: StepGraph
    """The task graph that edits start from: without the profiler's overhead, if that matches the run's step times."""

    baseline_ns: float
    """The replayed step without any edit."""

    gate: Gate
    """How well the replay reproduces the recorded steps."""

    def doubt(self, edit: Edit) -> str | None:
        """Return why the replay is not trusted for an edit; None if it is."""
        return self.gate.device_doubt if edit.changes_device else self.gate.doubt

    def saving_share(self, edits: Iterable[Edit], scenario: Scenario) -> float:
        """Return the share of the step that some edits save together; negative if they cost time."""
        edited = reduce(lambda graph, edit: edit.applied(graph, scenario), edits, self.graph)
        return 1 - simulate(edited).interior_mean_ns() / max(self.baseline_ns, 1.0)

    def saving(self, edit: Edit, step_ns: float) -> Estimate:
        """Return what an edit saves of a step of this length; zero if it costs time."""
        shares = {scenario: self.saving_share((edit,), scenario) for scenario in Scenario}
        low, expected, high = sorted(max(share, 0.0) * step_ns for share in shares.values())
        is_untested = self._waits_for_untested_device(edit, 1 - shares[Scenario.EXPECTED])
        return Estimate(low, expected, high, Method.REPLAY, UNTESTED_DEVICE if is_untested else None)

    def _waits_for_untested_device(self, edit: Edit, left_share: float) -> bool:
        """Whether the edited step waits for the device although the device model was not validated."""
        if self.gate.device_doubt is None:
            return False
        alone = without_device(edit.applied(self.graph, Scenario.EXPECTED))
        return left_share - simulate(alone).interior_mean_ns() / max(self.baseline_ns, 1.0) > MOST_ERROR_SHARE

    def joint_step_ns(self, what_ifs: Iterable[WhatIf], step_ns: float) -> float | None:
        """Return the length of a step with several fixes; None if none of them can be replayed."""
        edits = [one for one in what_ifs if isinstance(one, Edit) and not self.doubt(one)]
        return (1 - self.saving_share(edits, Scenario.EXPECTED)) * step_ns if edits else None

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
    observation: Observation, table: StepTable, timing: RunTiming, worker_count: int | None = None
) -> Replay | None:
    """Return the replay of the steps nearest to the median; None if no step is typical.

    Args:
        observation: the recording.
        table: its steps.
        timing: step times of the whole run.
        worker_count: loader worker processes; None if unknown.
    """
    steps = chosen_steps(table)
    if not steps:
        return None
    recorded = build_graph(observation, steps)
    graph, held = undisturbed(recorded, observation, steps, timing), gate(recorded, observation, steps)
    if observation.loader and not observation.loader.in_training_process:
        turn, late = turn_of(worker_count, steps), late_share(observation.loader, table.kept)
        at_pace = paced(recorded, steps, turn)
        held = held_to_workers(held, at_pace, steps, turn, late)
        recorded, graph = at_pace, paced(graph, steps, turn, timing.undisturbed_share)
    baseline_ns = held.baseline_ns if graph is recorded else simulate(graph).interior_mean_ns()
    if abs(baseline_ns / max(held.baseline_ns, 1.0) - timing.undisturbed_share) > MOST_ERROR_SHARE:
        graph, baseline_ns = recorded, held.paced_ns or held.baseline_ns
    return Replay(graph, baseline_ns, held)
