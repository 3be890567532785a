"""All facts about one recording on one device, computed on first use and then cached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from traceadvisor.analysis.communication.collectives import Collectives, collectives, communication_rows, exposed_alone
from traceadvisor.analysis.communication.gradients import StepGradients, step_gradients
from traceadvisor.analysis.data.loading import Loading, worker_curve
from traceadvisor.analysis.data.worker_curve import WorkerCurve
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
from traceadvisor.model.communication import CommunicationRow, Purpose
from traceadvisor.model.events import Kind
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
    """Facts that rules read, for one recording on one device.

    Shares refer to the mean kept step, 0..1. An unmeasured figure is None; :meth:`needed` then skips the rule.
    """

    trace: Trace
    device_index: int | None
    """None for a recording without device activity."""

    recording_id: str
    captured: Run | None = None
    """What ``traceadvisor capture`` recorded beside the trace; None without a capture."""

    run_notes: tuple[HealthNote, ...] = ()
    """Problems of the capture."""

    @cached_property
    def run(self) -> RunFacts:
        """The run of this recording: its settings, steps and machine."""
        return RunFacts(self.trace, self.device_index, self.captured)

    @property
    def settings(self) -> RunSettings:
        """The run's settings; all unknown without a capture."""
        return self.run.settings

    @property
    def device(self) -> Device | None:
        """The device; None for a recording without device activity."""
        return None if self.device_index is None else self.trace.device(self.device_index)

    # -- steps and their breakdown -----------------------------------------------------------------------------

    @cached_property
    def launches(self) -> Launches:
        """The GPU operations and the calls that launched them."""
        return link_launches(self.trace.events).of_device(self.trace.events, self.device_index)

    @cached_property
    def observation(self) -> Observation:
        """The recording, limited to this device."""
        return observe(self.trace, self.launches)

    @cached_property
    def steps(self) -> StepTable:
        """The steps and their windows."""
        return step_windows(self.trace, self.launches, self.run.not_counted)

    @cached_property
    def partition(self) -> Partition:
        """The category of every instant of the recording."""
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
        """The mean breakdown of the kept steps; None without any."""
        kept = [row.breakdown for row in self.step_rows if row.step.kept]
        return MeanBreakdown.over(kept) if kept else None

    @cached_property
    def overlaps(self) -> Mapping[Work, Overlap | None]:
        """Total and exposed time of each kind of work; None if it was not recorded."""
        return overlaps(self.observation, self.partition, self.steps)

    @cached_property
    def tree(self) -> OperatorTree:
        """The tree of nested operators."""
        return operator_tree(self.trace.events)

    @cached_property
    def collectives(self) -> Collectives:
        """The collectives of the kept steps, with their kinds and purposes."""
        found = collectives(self.observation, self.tree)
        return found.take(self.steps.kept_windows.contains(self.trace.events.start_ns[found.rows]))

    @cached_property
    def communication(self) -> tuple[CommunicationRow, ...]:
        """Figures of each kind and purpose of communication, most exposed time first."""
        exposed = self.claim(Category.COMMUNICATION)
        return communication_rows(self.collectives, self.trace.events, exposed, self.step_count)

    @cached_property
    def gradients(self) -> StepGradients:
        """The gradient all-reduces of the kept steps beside their backward passes."""
        reduced = self.collectives.of((Purpose.GRADIENTS,))
        return step_gradients(self.trace, self.launches, self.tree, reduced, self.steps.kept)

    @cached_property
    def device_work(self) -> DeviceWork:
        """The arithmetic of the device in the kept steps, compared with its peak rates."""
        from traceadvisor.analysis.arithmetic.device_work import DeviceWork  # noqa: PLC0415  # a breakdown does not need it

        return DeviceWork(self.trace, self.launches, self.tree, self.steps.kept_windows, self.device, self.settings)

    @cached_property
    def worker_curve(self) -> WorkerCurve | None:
        """The step by number of loader workers; None if the cost of a batch is unknown."""
        return None if self.loading is None else worker_curve(self.loading)

    @cached_property
    def loading(self) -> Loading | None:
        """Figures on the loop and its loader; None without loader events or kept steps."""
        loader, total = self.observation.loader, self.overlaps[Work.DATA_LOADING]
        if loader is None or total is None or not self.step_count:
            return None
        run, timing = self.run, self.run.timing
        step_ns, loader_ns = self.per_step_ns(self.steps.kept_windows), float(total.total_ns)
        exposed_share = self.per_step_ns(self.claim(Category.DATA_WAIT)) / max(loader_ns, 1.0)
        if timing.undisturbed_ns and timing.undisturbed_loader_ns is not None:
            step_ns, loader_ns = timing.undisturbed_ns, timing.undisturbed_loader_ns
        fetched = self.steps.kept_windows.contains(self.trace.events.start_ns[loader.rows]).sum() / self.step_count
        return Loading(
            step_ns,
            min(exposed_share, 1.0) * loader_ns,
            loader_ns,
            float(timing.fetches_per_step or fetched),
            0 if loader.in_training_process else run.worker_count,
            self.device is not None,
            self.settings,
            run.telemetry,
            run.captured.batches if run.captured else (),
            run.undisturbed,
            run.host_cores,
        )

    # -- figures for rules -------------------------------------------------------------------------------------

    @property
    def step_count(self) -> int:
        """Number of kept steps, over which means are taken."""
        return len(self.steps.kept)

    def claim(self, *categories: Category) -> SpanSet:
        """The time of some categories within the kept steps."""
        found = [self.partition[category] for category in categories if category in self.partition]
        return (found[0] if len(found) == 1 else SpanSet.union_all(found)) & self.steps.kept_windows

    def exposed(self, rows: Int64, *categories: Category) -> SpanSet:
        """The time of some categories within the kept steps while given events run.

        Args:
            rows: rows of the event table, in any order, shape ``(n,)``.
            categories: the categories to include.
        """
        return self.trace.events.spans(rows) & self.claim(*categories)

    def exposed_alone(self, mine: Collectives) -> SpanSet:
        """The exposed time in which only these collectives run, which a fix of these can save at most."""
        return exposed_alone(self.collectives, mine, self.trace.events, self.claim(Category.COMMUNICATION))

    def per_step_ns(self, spans: SpanSet) -> float:
        """Mean nanoseconds per kept step."""
        return spans.total_ns / max(self.step_count, 1)

    def share(self, spans: SpanSet) -> float:
        """Share of the kept windows."""
        return spans.total_ns / max(self.steps.kept_windows.total_ns, 1)

    @staticmethod
    def needed(value: T | None, what: Input) -> T:
        """A figure that a rule requires.

        Raises:
            MissingInput: it was not recorded. The engine then skips the rule and says how to get it.
        """
        if value is None:
            raise MissingInput(what)
        return value

    @staticmethod
    def known(label: str, value: float | str | None, unit: Unit) -> Evidence | None:
        """A figure as evidence; None if it was not measured."""
        return None if value is None else Evidence(label, value, unit)

    def time_per_step(self, label: str, spans: SpanSet) -> Evidence:
        """Mean time per kept step, as evidence."""
        return Evidence(label, self.per_step_ns(spans), Unit.NS_PER_STEP)

    def count_per_step(self, label: str, count: float) -> Evidence:
        """A count over all kept steps, as evidence per step."""
        return Evidence(label, count / self.step_count, Unit.PER_STEP)

    def locations(self, rows: Int64, most: int = 1) -> tuple[Location, ...]:
        """The first distinct lines of the user's code that caused some events; empty without recorded stacks.

        Args:
            rows: rows of the event table, shape ``(n,)``; searched in this order.
            most: maximum number of lines.
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
        """The line of the loop over the training loader, from the capture or from stacks; empty if unknown."""
        loader = self.settings.loader
        if loader and loader.location:
            return (loader.location,)
        return self.locations(self.observation.loader.rows) if self.observation.loader else ()

    # -- outcomes of rules -------------------------------------------------------------------------------------

    def finding(  # noqa: PLR0913  # a finding has this many parts
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
        """A finding, with the saving of its fix and its confidence.

        Args:
            fix: what to change.
            effort: how much work the fix is.
            evidence: figures; None, for a figure that was not measured, is left out.
            claims: the time that the finding accounts for; none by default.
            most_ns: upper limit of the saving per mean recorded step; by default the claimed time per step.
            most_share: the same limit as a share of the training time, for a fix that cannot be simulated.
            saving: the saving, if the rule computes it.
            confidence: the confidence, if the rule determines it; by default from the recording and the saving.
            locations: places in the user's code.
            caveats: sentences on when the finding may be wrong.
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
        """A passed check, with the upper limit of what the popular fix would still save.

        Args:
            label: what was measured, as a noun phrase.
            value: the figure. If it is 0, there is nothing to fix, and nothing is simulated.
            limit: the limit of the figure.
            unit: unit of both.
            remark: another reason for passing, besides the limit.
            fix: the popular fix of the rule.
        """
        share, doubt = None, fix.not_replayed
        if value > 0 and isinstance(fix.what_if, Edit):
            doubt = self.doubt(fix.what_if)
            if self.replay and not doubt:
                share = max(self.replay.saving_share((fix.what_if,), Scenario.HIGH), 0.0)
        return Clear(label, value, limit, unit, remark, share, doubt)

    @property
    def step_ns(self) -> float | None:
        """The step time that savings refer to: the median undisturbed step, else the median recorded one."""
        return self.run.timing.undisturbed_ns or measured_step_ns(self.steps)

    def bound(self, most_ns: float, reason: str) -> Estimate:
        """A saving of up to ``most_ns`` of the mean recorded step, scaled to :attr:`step_ns`.

        Args:
            most_ns: the upper limit; the expected value is half of it.
            reason: why it is not simulated, as a clause without its stop.
        """
        recorded_ns = self.mean.duration_ns if self.mean else 0.0
        scale = self.step_ns / recorded_ns if self.step_ns and recorded_ns else 1.0
        return Estimate.bound(most_ns * scale, reason)

    def saving(self, fix: Fix, most_ns: float) -> Estimate:
        """The saving of a fix: simulated, else up to ``most_ns`` of the mean recorded step, else nothing."""
        if isinstance(fix.what_if, Edit):
            return self.what_if(fix.what_if, most_ns)
        return self.bound(most_ns, fix.not_replayed) if fix.not_replayed else Estimate.nothing()

    @cached_property
    def replay(self) -> Replay | None:
        """The simulation of the steps; None without kept steps."""
        from traceadvisor.replay.replay import replay  # noqa: PLC0415  # a breakdown does not need it

        return replay(self.observation, self.steps, self.run.timing, self.run.worker_count)

    def what_if(self, edit: Edit, most_ns: float) -> Estimate:
        """The simulated saving of an edit; an upper limit if the simulation is not trusted.

        Args:
            edit: how the fix changes the steps.
            most_ns: that limit, for the mean recorded step.
        """
        doubt = self.doubt(edit)
        if doubt or self.replay is None or self.step_ns is None:
            return self.bound(most_ns, doubt or NO_STEP)
        return self.replay.saving(edit, self.step_ns)

    def doubt(self, edit: Edit) -> str | None:
        """Why the simulation of an edit is not trusted, as a clause without its stop; None if it is trusted."""
        return NO_STEP if self.replay is None or self.step_ns is None else self.replay.doubt(edit)

    def confidence(self, saving: Estimate | None = None) -> Confidence:
        """Confidence in a cause: lower without step marks, with few steps, or with an incomplete recording.

        Args:
            saving: the saving of the fix. A simulated range wider than the expected value makes confidence low. A
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
        """The missing input of a rule with these needs, and how to get it; None if nothing is missing."""
        return next((reason for need, reason in self._missing_inputs.items() if need in needs), None)

    @cached_property
    def _missing_inputs(self) -> Mapping[Input, str]:
        device, run = self.device, self.run
        present = {
            Input.STEPS: bool(self.steps.kept),
            Input.DEVICE: bool(self.partition.get(Category.KERNEL)),
            Input.LOADER: self.observation.loader is not None,
            Input.LAUNCHES: bool((self.launches.call_rows >= 0).any()),
            Input.COLLECTIVES: bool((self.trace.events.kind[self.launches.work_rows] == Kind.COLLECTIVE).any()),
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
        """GPU memory that the run holds; None if it was not measured."""
        if self.device_index is None:
            return None
        return device_memory(self.trace, self.device_index, self.steps.kept_windows, self.run.device_telemetry)

    @cached_property
    def memory_figures(self) -> MemoryFigures | None:
        """The parts of the peak GPU memory of kept steps; None if they were not recorded."""
        if self.device_index is None:
            return None
        steps = step_memory(self.trace, self.device_index, self.steps.kept)
        return memory_figures(steps, self.settings.autocast_dtype)

    @property
    def fullest_step(self) -> StepMemory | None:
        """The step with the highest peak of GPU memory; None if memory was not recorded."""
        return fullest(self.memory_figures.steps) if self.memory_figures else None

    # -- figures for the report --------------------------------------------------------------------------------

    @cached_property
    def notes(self) -> tuple[HealthNote, ...]:
        """Notes on problems of the file, the capture, the recording and its steps."""
        return (
            *self.trace.health.notes,
            *self.run_notes,
            *recording_notes(self.observation, self.steps),
            *timing_notes(self.run.timing),
        )

    @property
    def recorded_wall_ns(self) -> tuple[int, int] | None:
        """Wall-clock start and end of the recording, in nanoseconds; None without a recorded wall clock."""
        start = self.trace.wall_clock_start_ns
        return None if start is None else (start, start + recording_extent(self.trace)[1])
