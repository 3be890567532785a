"""Everything known of one recording on one device, computed when first asked for and then kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from traceadvisor.analysis.memory.device_memory import DeviceMemory, device_memory
from traceadvisor.analysis.memory.step_memory import fullest, memory_figures, step_memory
from traceadvisor.analysis.observation import Observation, observe
from traceadvisor.analysis.operators.launches import Launches, link_launches
from traceadvisor.analysis.operators.source_lines import first_location
from traceadvisor.analysis.operators.tree import OperatorTree, operator_tree
from traceadvisor.analysis.recording_health import missing_parts, recording_notes, timing_notes
from traceadvisor.analysis.steps.breakdown import Partition, break_down, overlaps, partition_recording
from traceadvisor.analysis.steps.run_timing import DISTURBED_SHARE
from traceadvisor.analysis.steps.windows import step_windows
from traceadvisor.hardware.tensor_cores import has_tensor_cores
from traceadvisor.model.breakdown import Category, MeanBreakdown
from traceadvisor.model.findings import HOW_TO_GET, Confidence, Estimate, Input, Location, Method
from traceadvisor.model.health import HealthNote
from traceadvisor.model.report import Overlap, StepRow, Work
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.step_memory import MemoryFigures, StepMemory
from traceadvisor.model.steps import StepSource, StepTable
from traceadvisor.replay.step_graph import measured_step_ns
from traceadvisor.replay.what_if import Edit
from traceadvisor.run_facts import RunFacts

if TYPE_CHECKING:
    from traceadvisor.analysis.arithmetic.device_work import DeviceWork
    from traceadvisor.replay.replay import Replay

FEWEST_STEPS = 3
"""Below this a mean says little of the run."""

TOO_FEW_STEPS = f"Fewer than {FEWEST_STEPS} steps tell nothing of what a step usually does: record more."
"""Why what the host does in them is no cost of every step: the first calls of a run compile, load and allocate."""

NO_STEP = "no complete step was recorded"


@dataclass(frozen=True, eq=False)
class Facts(RunFacts):
    """What rules read. Shares are of the mean kept step, 0..1."""

    # -- steps and where their time goes -----------------------------------------------------------------------

    @cached_property
    def launches(self) -> Launches:
        """The device's work and the calls that launched it."""
        return link_launches(self.trace.events).of_device(self.trace.events, self.device_index)

    @cached_property
    def observation(self) -> Observation:
        """The recording as this device saw it."""
        return observe(self.trace, self.launches)

    @cached_property
    def steps(self) -> StepTable:
        """The steps and their windows."""
        return step_windows(self.trace, self.launches, self._not_counted)

    @cached_property
    def partition(self) -> Partition:
        """Every instant of the recording in its category."""
        return partition_recording(self.observation)

    @cached_property
    def step_rows(self) -> tuple[StepRow, ...]:
        """Each step with its breakdown."""
        has_loader = self.observation.loader is not None
        return tuple(
            StepRow(step, break_down(step, self.partition, has_loader=has_loader)) for step in self.steps.steps
        )

    @cached_property
    def mean(self) -> MeanBreakdown | None:
        """The mean over the kept steps; None where there are none."""
        kept = [row.breakdown for row in self.step_rows if row.step.kept]
        return MeanBreakdown.over(kept) if kept else None

    @cached_property
    def overlaps(self) -> Mapping[Work, Overlap | None]:
        """Total and exposed time of each kind of work."""
        return overlaps(self.observation, self.partition, self.steps)

    @cached_property
    def tree(self) -> OperatorTree:
        """Which operator runs inside which."""
        return operator_tree(self.trace.events)

    @cached_property
    def device_work(self) -> DeviceWork:
        """What the device did in the kept steps, against what it could do."""
        from traceadvisor.analysis.arithmetic.device_work import DeviceWork  # noqa: PLC0415  # a breakdown needs nothing of it

        return DeviceWork(self.trace, self.launches, self.tree, self.steps.kept_windows, self.device, self.settings)

    # -- what rules ask ----------------------------------------------------------------------------------------

    def claim(self, category: Category) -> SpanSet:
        """The instants of a category within the kept windows."""
        return self.partition[category] & self.steps.kept_windows

    def per_step_ns(self, spans: SpanSet) -> float:
        """Mean nanoseconds per kept step."""
        return spans.total_ns / max(len(self.steps.kept), 1)

    def share(self, spans: SpanSet) -> float:
        """Share of the kept windows."""
        return spans.total_ns / max(self.steps.kept_windows.total_ns, 1)

    @property
    def step_ns(self) -> float | None:
        """The step that savings are of: the undisturbed one where it is known, else the median recorded one."""
        return self.timing.undisturbed_ns or measured_step_ns(self.steps)

    def bound(self, most_ns: float, reason: str) -> Estimate:
        """A saving known only to lie between nothing and ``most_ns`` of the mean recorded step.

        It is brought to the scale of the step that savings are of; the middle stands for the expected value.

        Args:
            most_ns: the most that can be saved.
            reason: why it is not replayed, as a sentence without its stop.
        """
        recorded_ns = self.mean.duration_ns if self.mean else 0.0
        scale = self.step_ns / recorded_ns if self.step_ns and recorded_ns else 1.0
        return Estimate.bound(most_ns * scale, reason)

    @cached_property
    def replay(self) -> Replay | None:
        """The steps as tasks that can be run again; None where no step is kept."""
        from traceadvisor.replay.replay import replay  # noqa: PLC0415  # as above

        loader = self.settings.loader
        return replay(self.observation, self.steps, self.timing, loader.worker_count if loader else None)

    def what_if(self, edit: Edit, most_ns: float) -> Estimate:
        """What a fix saves of the step, replayed; a bound where the replay of it is not to be believed.

        Args:
            edit: the fix.
            most_ns: the most that it can save of the mean recorded step, for the bound.
        """
        doubt = self.doubt(edit)
        if doubt or self.replay is None or self.step_ns is None:
            return self.bound(most_ns, doubt or NO_STEP)
        return self.replay.saving(edit, self.step_ns)

    def doubt(self, edit: Edit) -> str | None:
        """Why the replay of a fix is not to be believed, as a sentence without its stop; None where it is."""
        return NO_STEP if self.replay is None or self.step_ns is None else self.replay.doubt(edit)

    def confidence(self, saving: Estimate | None = None) -> Confidence:
        """How sure a cause seen in this recording is: less without step marks, with few steps, with parts missing.

        Args:
            saving: what the fix saves; where a replay leaves a range wider than the expected value, little is sure;
                where something speaks against what was replayed, less.
        """
        if saving and saving.method is Method.REPLAY and saving.high_ns - saving.low_ns > saving.expected_ns:
            return Confidence.LOW
        doubts = (
            (self.steps.source is not StepSource.MARKS)
            + (len(self.steps.kept) < FEWEST_STEPS)
            + any(note.degrades for note in (*self.trace.health.notes, *missing_parts(self.observation, self.steps)))
            + (abs(self.timing.disturbance_share or 0.0) > DISTURBED_SHARE)
            + (saving is not None and saving.method is Method.REPLAY and saving.reason is not None)
        )
        return (Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW)[min(doubts, 2)]

    def missing(self, needs: frozenset[Input]) -> str | None:
        """Why a rule with these needs cannot look, and how to get what is missing; None where nothing is."""
        return next((reason for need, reason in self._missing_inputs.items() if need in needs), None)

    @cached_property
    def _missing_inputs(self) -> Mapping[Input, str]:
        device = self.device
        present = {
            Input.STEPS: bool(self.steps.kept),
            Input.DEVICE: bool(self.partition.get(Category.KERNEL)),
            Input.LOADER: self.observation.loader is not None,
            Input.LAUNCHES: bool((self.launches.call_rows >= 0).any()),
            Input.COLLECTIVES: bool(self.partition.get(Category.COMMUNICATION)) and self.device is not None,
            Input.STACKS: self.trace.with_stacks,
            Input.DTYPES: self.trace.with_shapes,
            Input.SHAPES: bool(self.trace.details.dims_id.rows.size),
            Input.DEVICE_MODEL: device is not None and has_tensor_cores(device) is not None,
            Input.PEAK_RATES: self.device_work.row is not None,
            Input.SETTINGS: self.run is not None and self.run.settings.loader is not None,
            Input.HOST_TELEMETRY: self.telemetry is not None and self.telemetry.node.sample_count > 0,
            Input.DEVICE_TELEMETRY: self.device_telemetry is not None,
            Input.DEVICE_MEMORY: self.memory is not None,
        }
        return {need: HOW_TO_GET[need] for need in Input if not present[need]}

    @property
    def loader_location(self) -> Location | None:
        """The line of the training loader's loop, as captured or as far as stacks tell."""
        if self.settings.loader and self.settings.loader.location:
            return self.settings.loader.location
        loader = self.observation.loader
        return first_location(self.trace, self.tree, loader.rows) if loader else None

    @cached_property
    def memory(self) -> DeviceMemory | None:
        """How much of the device's memory the run holds; None where not measured."""
        if self.device_index is None:
            return None
        return device_memory(self.trace, self.device_index, self.steps.kept_windows, self.device_telemetry)

    @cached_property
    def memory_figures(self) -> MemoryFigures | None:
        """What the kept steps' peaks of memory are made of; None where the recording does not tell."""
        if self.device_index is None:
            return None
        steps = step_memory(self.trace, self.device_index, self.steps.kept)
        return memory_figures(steps, self.settings.autocast_dtype)

    @property
    def fullest_step(self) -> StepMemory | None:
        """The step with the highest peak of memory; None where the recording does not tell."""
        return fullest(self.memory_figures.steps) if self.memory_figures else None

    # -- the report's part -------------------------------------------------------------------------------------

    @cached_property
    def notes(self) -> tuple[HealthNote, ...]:
        """What a reader must know before believing the figures."""
        return (
            *self.trace.health.notes,
            *self.run_notes,
            *recording_notes(self.observation, self.steps),
            *timing_notes(self.timing),
        )
