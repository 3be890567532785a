"""From a simulated run to its replay, and what was predicted beside what would have been."""

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import numpy as np

from tests.analysis.analysing import facts_of
from tests.replay.forward import Truth, simulate
from tests.replay.program import Program
from tests.replay.written import write
from traceadvisor.analysis.operators.names import rows_named
from traceadvisor.analysis.steps.run_timing import RunTiming
from traceadvisor.facts import Facts
from traceadvisor.model.events import Kind
from traceadvisor.replay.fixes.kernels import FasterKernels, each_kernel_once
from traceadvisor.replay.replay import Replay, replay
from traceadvisor.replay.what_if import Edit, Scenario


@dataclass(frozen=True, slots=True)
class Replayed:
    """A run that was recorded, read and replayed."""

    truth: Truth
    facts: Facts
    replay: Replay

    @property
    def error_share(self) -> float:
        """How far the unchanged replay is from the steps as they were."""
        return self.replay.gate.baseline_ns / self.replay.gate.measured_ns - 1

    def predicted(self, *edits: Edit, scenario: Scenario = Scenario.EXPECTED) -> float:
        """Share of the likely step that the replay says the edits save together."""
        return self.replay.likely.saving_share(each_kernel_once(edits), scenario)

    def true(self, mended: Program) -> float:
        """Share of the step that it saves."""
        return 1 - simulate(mended).step_ns() / self.truth.step_ns()

    def calls(self, name: str) -> frozenset[int]:
        """Rows of the runtime calls of a name."""
        return frozenset(rows_named(self.facts.trace, Kind.RUNTIME, name.__eq__).tolist())

    def collectives(self) -> tuple[np.typing.NDArray[np.int64], np.typing.NDArray[np.int64]]:
        """Rows of the collectives, and how long each takes."""
        events = self.facts.trace.events
        rows = events.rows(Kind.COLLECTIVE)
        return rows, events.duration_ns[rows]

    def kernels(self) -> np.typing.NDArray[np.int64]:
        """Rows of kernels that compute."""
        return self.facts.trace.events.rows(Kind.KERNEL)


def replayed(program: Program, *, sync_events: bool = False) -> Replayed:
    """Simulate a program, and give the replay nothing but the recording of it."""
    truth = simulate(program)
    with TemporaryDirectory() as folder:
        facts = facts_of(write(truth, sync_events=sync_events), Path(folder))
    result = replay(facts.observation, facts.steps, facts.timing, program.loader.workers)
    assert result is not None
    return Replayed(truth, facts, result)


def replayed_undisturbed(program: Program, event_ns: int, host_ns: float | None = None) -> Replayed:
    """The same where recording slows the host, and the run's step times tell how long undisturbed steps take.

    The truth is that of the undisturbed run. ``host_ns``: what steps that the host launched ahead tell of its time.
    """
    truth, slowed = simulate(program), simulate(replace(program, event_ns=event_ns))
    with TemporaryDirectory() as folder:
        facts = facts_of(write(slowed), Path(folder))
    loader_ns = [fmean(step.fetch_ns for step in run.recorded[1:]) for run in (truth, slowed)]
    timing = RunTiming(truth.step_ns(), loader_ns[0], slowed.step_ns(), loader_ns[1], 1.0, host_ns=host_ns)
    result = replay(facts.observation, facts.steps, timing, program.loader.workers)
    assert result is not None
    return Replayed(truth, facts, result)


def faster(was: Replayed, speedup: float) -> FasterKernels:
    """All kernels that compute, so many times as fast."""
    rows = was.kernels()
    alike = np.full(rows.size, speedup)
    return FasterKernels(rows, alike, alike, alike)


def settled(program: Program, turn: int = 1) -> Program:
    """The program over many more steps, looked at when queues are as full as they get.

    Args:
        program: what to do for longer.
        turn: steps that belong together, whole numbers of which are looked at.
    """
    again = 12
    steps = len(program.steps) * again
    loader = replace(program.loader, batch_ns=program.loader.batch_ns * again)
    return replace(program, steps=program.steps * again, loader=loader, first_recorded=steps - 8 * turn - 2)
