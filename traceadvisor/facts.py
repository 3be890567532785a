"""Everything known of one recording on one device, computed when first asked for and then kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from traceadvisor.analysis.memory.device_memory import DeviceMemory, device_memory
from traceadvisor.analysis.memory.step_memory import fullest, memory_figures, step_memory
from traceadvisor.analysis.observation import Observation, observe
from traceadvisor.analysis.operators.launches import Launches, link_launches
from traceadvisor.analysis.operators.source_lines import location_of_call
from traceadvisor.analysis.operators.tree import OperatorTree, operator_tree
from traceadvisor.analysis.recording_health import missing_parts, recording_notes, timing_notes
from traceadvisor.analysis.steps.breakdown import Partition, break_down, overlaps, partition_recording
from traceadvisor.analysis.steps.marks import recording_extent
from traceadvisor.analysis.steps.run_timing import DISTURBED_SHARE
from traceadvisor.analysis.steps.windows import step_windows
from traceadvisor.hardware.tensor_cores import has_tensor_cores
from traceadvisor.model.arrays import Int64
from traceadvisor.model.breakdown import Category, MeanBreakdown
from traceadvisor.model.findings import (
    FEWEST_STEPS,
    HOW_TO_GET,
    Clear,
    Confidence,
    Effort,
    Estimate,
    Evidence,
    Finding,
    Fix,
    Input,
    Location,
    Method,
    MissingInput,
    Unit,
)
from traceadvisor.model.health import HealthNote
from traceadvisor.model.report import Overlap, StepRow, Work
from traceadvisor.model.run import Run, RunSettings
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.step_memory import MemoryFigures, StepMemory
from traceadvisor.model.steps import StepSource, StepTable
from traceadvisor.model.trace import Device, Trace
from traceadvisor.replay.step_graph import measured_step_ns
from traceadvisor.replay.what_if import Edit, Scenario
from traceadvisor.run_facts import RunFacts

if TYPE_CHECKING:
    from traceadvisor.analysis.arithmetic.device_work import DeviceWork
    from traceadvisor.replay.replay import Replay

T = TypeVar("T")

NO_STEP = "no complete step was recorded"


@dataclass(frozen=True, eq=False)
class Facts:
    """What rules read of one recording on one device. Shares are of the mean kept step, 0..1; absent figures are None.

    A rule gets a figure that it cannot do without by :meth:`needed`.
    """

    trace: Trace
    device_index: int | None
    """None for a recording without device activity."""

    recording_id: str
    captured: Run | None = None
    """What ``traceadvisor capture`` recorded beside the trace; None for a recording made otherwise."""

    run_notes: tuple[HealthNote, ...] = ()
    """What went wrong with the capture."""

    @cached_property
    def run(self) -> RunFacts:
        """The run that the recording is part of: its settings, its steps, its machine."""
        return RunFacts(self.trace, self.device_index, self.captured)

    @property
    def settings(self) -> RunSettings:
        """The run's settings; all unknown without a capture."""
        return self.run.settings

    @property
    def device(self) -> Device | None:
        """The device; None for a recording without device activity."""
        return None if self.device_index is None else self.trace.device(self.device_index)

    # -- steps and where their time goes -----------------------------------------------------------------------

    @cached_property
    def launches(self) -> Launches:
        """The GPU operations and the calls that launched them."""
        return link_launches(self.trace.events).of_device(self.trace.events, self.device_index)

    @cached_property
    def observation(self) -> Observation:
        """The recording as this device saw it."""
        return observe(self.trace, self.launches)

    @cached_property
    def steps(self) -> StepTable:
        """The steps and their windows."""
        return step_windows(self.trace, self.launches, self.run.not_counted)

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
        """Total and exposed time of each kind of work; None for what was not recorded."""
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

    @property
    def step_count(self) -> int:
        """Kept steps: those that figures are means over."""
        return len(self.steps.kept)

    def claim(self, *categories: Category) -> SpanSet:
        """The instants of some categories within the kept steps."""
        found = [self.partition[category] for category in categories if category in self.partition]
        return (found[0] if len(found) == 1 else SpanSet.union_all(found)) & self.steps.kept_windows

    def exposed(self, rows: Int64, *categories: Category) -> SpanSet:
        """The instants of some categories within the kept steps at which given events run.

        Args:
            rows: rows of the event table, in any order, shape ``(n,)``.
            categories: what the instants must count as.
        """
        return self.trace.events.spans(rows) & self.claim(*categories)

    def per_step_ns(self, spans: SpanSet) -> float:
        """Mean nanoseconds per kept step."""
        return spans.total_ns / max(self.step_count, 1)

    def share(self, spans: SpanSet) -> float:
        """Share of the kept windows."""
        return spans.total_ns / max(self.steps.kept_windows.total_ns, 1)

    @staticmethod
    def needed(value: T | None, what: Input) -> T:
        """A figure that a rule cannot do without.

        Raises:
            MissingInput: it was not recorded; the engine skips the rule and says how to get it.
        """
        if value is None:
            raise MissingInput(what)
        return value

    @staticmethod
    def known(label: str, value: float | str | None, unit: Unit) -> Evidence | None:
        """A figure as evidence; None where it was not measured."""
        return None if value is None else Evidence(label, value, unit)

    def time_per_step(self, label: str, spans: SpanSet) -> Evidence:
        """Mean time per kept step, as evidence."""
        return Evidence(label, self.per_step_ns(spans), Unit.NS_PER_STEP)

    def count_per_step(self, label: str, count: float) -> Evidence:
        """A number over all kept steps, as evidence per step."""
        return Evidence(label, count / self.step_count, Unit.PER_STEP)

    def locations(self, rows: Int64, most: int = 1) -> tuple[Location, ...]:
        """The first different lines of the user's code behind some events; empty where no stacks were recorded.

        Args:
            rows: rows of the event table, shape ``(n,)``; asked in this order.
            most: how many lines to look for.
        """
        found: dict[Location, None] = {}
        for row in rows.tolist():
            if len(found) == most:
                break
            if location := location_of_call(self.trace, self.tree, row):
                found[location] = None
        return tuple(found)

    @property
    def loader_locations(self) -> tuple[Location, ...]:
        """The line of the training loader's loop, as captured or from stacks; empty where neither shows it."""
        loader = self.settings.loader
        if loader and loader.location:
            return (loader.location,)
        return self.locations(self.observation.loader.rows) if self.observation.loader else ()

    # -- what rules say ----------------------------------------------------------------------------------------

    def finding(  # noqa: PLR0913  # a finding has as many parts
        self,
        *,
        fix: Fix,
        effort: Effort,
        evidence: Iterable[Evidence | None],
        claims: SpanSet | None = None,
        most_ns: float | None = None,
        most_share: float | None = None,
        saving: Estimate | None = None,
        confidence: Confidence | None = None,
        locations: tuple[Location, ...] = (),
        caveats: tuple[str, ...] = (),
    ) -> Finding:
        """A finding, with what its fix saves and how sure that is.

        Args:
            fix: what to change.
            effort: what that asks of the user.
            evidence: figures; None stands for one that was not measured, and is left out.
            claims: the time that the finding accounts for; none by default.
            most_ns: the most that the fix can save of the mean recorded step; by default the claimed time per step.
            most_share: the same as a share of the training time, for a fix that cannot be simulated.
            saving: what the fix saves, where the rule itself knows.
            confidence: how sure the cause is, where the recording as a whole does not tell.
            locations: places in the user's code.
            caveats: when the finding may be wrong, in sentences.
        """
        claims = claims or SpanSet.empty()
        if most_share is not None:
            saving = Estimate.bound(most_share * (self.step_ns or 0.0), fix.not_replayed or "")
        saving = saving or self.saving(fix, self.per_step_ns(claims) if most_ns is None else most_ns)
        return Finding(
            claims=claims,
            saving=saving,
            confidence=confidence or self.confidence(saving),
            effort=effort,
            evidence=tuple(row for row in evidence if row is not None),
            fix=fix,
            locations=locations,
            caveats=caveats,
        )

    def clear(  # noqa: PLR0913  # as a Clear
        self, label: str, value: float, limit: float, unit: Unit, remark: str | None = None, *, fix: Fix
    ) -> Clear:
        """All is well, and the most that a popular fix would save all the same.

        Args:
            label: what was measured.
            value: the figure; where it is 0 there is nothing to fix, and nothing is simulated.
            limit: what it was held against.
            unit: of both.
            remark: why the limit was not the whole story.
            fix: the rule's popular fix.
        """
        share, doubt = None, fix.not_replayed
        if value > 0 and isinstance(fix.what_if, Edit):
            doubt = self.doubt(fix.what_if)
            if self.replay and not doubt:
                share = max(self.replay.saving_share((fix.what_if,), Scenario.HIGH), 0.0)
        return Clear(label, value, limit, unit, remark, share, doubt)

    @property
    def step_ns(self) -> float | None:
        """The step that savings are of: the median undisturbed one, else the median recorded one."""
        return self.run.timing.undisturbed_ns or measured_step_ns(self.steps)

    def bound(self, most_ns: float, reason: str) -> Estimate:
        """A saving of up to ``most_ns`` of the mean recorded step, scaled to the step that savings are of.

        Args:
            most_ns: the upper limit; half of it stands for the expected value.
            reason: why it is not simulated, as a clause without its stop.
        """
        recorded_ns = self.mean.duration_ns if self.mean else 0.0
        scale = self.step_ns / recorded_ns if self.step_ns and recorded_ns else 1.0
        return Estimate.bound(most_ns * scale, reason)

    def saving(self, fix: Fix, most_ns: float) -> Estimate:
        """What a fix saves of the step: simulated, else up to ``most_ns`` of the mean recorded step, else nothing."""
        if isinstance(fix.what_if, Edit):
            return self.what_if(fix.what_if, most_ns)
        return self.bound(most_ns, fix.not_replayed) if fix.not_replayed else Estimate.nothing()

    @cached_property
    def replay(self) -> Replay | None:
        """The simulation of the steps; None where no step is kept."""
        from traceadvisor.replay.replay import replay  # noqa: PLC0415  # as above

        return replay(self.observation, self.steps, self.run.timing, self.run.worker_count)

    def what_if(self, edit: Edit, most_ns: float) -> Estimate:
        """What an edit of the recorded steps saves, simulated; an upper limit where the simulation is not trusted.

        Args:
            edit: what a fix does to the steps.
            most_ns: that limit: the most that it can save of the mean recorded step.
        """
        doubt = self.doubt(edit)
        if doubt or self.replay is None or self.step_ns is None:
            return self.bound(most_ns, doubt or NO_STEP)
        return self.replay.saving(edit, self.step_ns)

    def doubt(self, edit: Edit) -> str | None:
        """Why the simulation of an edit is not trusted, as a clause without its stop; None where it is."""
        return NO_STEP if self.replay is None or self.step_ns is None else self.replay.doubt(edit)

    def confidence(self, saving: Estimate | None = None) -> Confidence:
        """How sure a cause seen in this recording is: less without step marks, with few steps, with parts missing.

        Args:
            saving: what the fix saves; a simulated range wider than the expected value makes confidence low, and a
                doubt about the simulation lowers it.
        """
        if saving and saving.method is Method.REPLAY and saving.high_ns - saving.low_ns > saving.expected_ns:
            return Confidence.LOW
        doubts = (
            (self.steps.source is not StepSource.MARKS)
            + (self.step_count < FEWEST_STEPS)
            + any(note.degrades for note in (*self.trace.health.notes, *missing_parts(self.observation, self.steps)))
            + (abs(self.run.timing.disturbance_share or 0.0) > DISTURBED_SHARE)
            + (saving is not None and saving.method is Method.REPLAY and saving.reason is not None)
        )
        return (Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW)[min(doubts, 2)]

    def missing(self, needs: frozenset[Input]) -> str | None:
        """Why a rule with these needs cannot look, and how to get what is missing; None where nothing is missing."""
        return next((reason for need, reason in self._missing_inputs.items() if need in needs), None)

    @cached_property
    def _missing_inputs(self) -> Mapping[Input, str]:
        device, run = self.device, self.run
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
            Input.SETTINGS: run.settings.loader is not None,
            Input.HOST_TELEMETRY: run.telemetry is not None and run.telemetry.node.sample_count > 0,
            Input.DEVICE_TELEMETRY: run.device_telemetry is not None,
            Input.DEVICE_MEMORY: self.memory is not None,
            Input.SEVERAL_STEPS: self.step_count >= FEWEST_STEPS,
        }
        return {need: HOW_TO_GET[need] for need in Input if not present[need]}

    @cached_property
    def memory(self) -> DeviceMemory | None:
        """How much of the device's memory the run holds; None where not measured."""
        if self.device_index is None:
            return None
        return device_memory(self.trace, self.device_index, self.steps.kept_windows, self.run.device_telemetry)

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
        """What limits the figures: of the file, the capture, the recording and its steps."""
        return (
            *self.trace.health.notes,
            *self.run_notes,
            *recording_notes(self.observation, self.steps),
            *timing_notes(self.run.timing),
        )

    @property
    def recorded_wall_ns(self) -> tuple[int, int] | None:
        """When the recording began and ended, wall clock; None where it holds no wall clock."""
        start = self.trace.wall_clock_start_ns
        return None if start is None else (start, start + recording_extent(self.trace)[1])
