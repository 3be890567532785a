"""The replay of one recording: its graph, how far it can be trusted, and what edits of it would save."""

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

UNTESTED_DEVICE = "with the fix made the step waits for the device, and the replay of that is not put to the test"
"""What makes the saving of an edit of the host's work less sure."""


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What can be tried on a recording."""

    graph: StepGraph
    """The steps undisturbed by the profiler, where that gives what the run's times say: what edits start from."""

    baseline_ns: float
    """The replayed step with nothing changed."""

    gate: Gate
    """How the replay of the recorded steps came out."""

    def doubt(self, edit: Edit) -> str | None:
        """Why the replay is not to be believed of an edit; None where it is."""
        return self.gate.device_doubt if edit.changes_device else self.gate.doubt

    def saving_share(self, edits: Iterable[Edit], scenario: Scenario) -> float:
        """Share of the step that some edits save together; negative where they cost time."""
        edited = reduce(lambda graph, edit: edit.applied(graph, scenario), edits, self.graph)
        return 1 - simulate(edited).interior_mean_ns() / max(self.baseline_ns, 1.0)

    def saving(self, edit: Edit, step_ns: float) -> Estimate:
        """What an edit saves of a step of this length; nothing where it costs time."""
        shares = {scenario: self.saving_share((edit,), scenario) for scenario in Scenario}
        low, expected, high = sorted(max(share, 0.0) * step_ns for share in shares.values())
        is_untested = self._waits_for_untested_device(edit, 1 - shares[Scenario.EXPECTED])
        return Estimate(low, expected, high, Method.REPLAY, UNTESTED_DEVICE if is_untested else None)

    def _waits_for_untested_device(self, edit: Edit, left_share: float) -> bool:
        """Whether what is left of the step with an edit of the host hangs on the device, which nothing tested."""
        if self.gate.device_doubt is None:
            return False
        alone = without_device(edit.applied(self.graph, Scenario.EXPECTED))
        return left_share - simulate(alone).interior_mean_ns() / max(self.baseline_ns, 1.0) > MOST_ERROR_SHARE

    def joint_step_ns(self, what_ifs: Iterable[WhatIf], step_ns: float) -> float | None:
        """What is left of a step of this length with several fixes made; None where none of them can be replayed."""
        edits = [one for one in what_ifs if isinstance(one, Edit) and not self.doubt(one)]
        return (1 - self.saving_share(edits, Scenario.EXPECTED)) * step_ns if edits else None

    def figures(self, joint_step_ns: float | None) -> ReplayFigures:
        """What the report says of the replay."""
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
    """The replay of the steps nearest to the median; None where no step is kept.

    Args:
        observation: the recording.
        table: its steps.
        timing: the steps of the run that it is part of.
        worker_count: processes that make batches; None where that is not known.
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
