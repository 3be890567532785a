"""All facts about one recording on one device, computed on first use and then cached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakMethod

import numpy as np

from traceadvisor.analysis.arithmetic.kernel_names import least_capability
from traceadvisor.analysis.communication.collectives import Collectives, collectives, communication_rows, exposed_alone
from traceadvisor.analysis.communication.gradients import StepGradients, backward_kernels, step_gradients
from traceadvisor.analysis.communication.late_ranks import awaited_rank
from traceadvisor.analysis.communication.matching import recorded_waits
from traceadvisor.analysis.communication.micro_batches import (
    BackwardPasses,
    backward_passes,
    backward_passes_on_cpu,
    passes_per_update,
    repeated_later,
)
from traceadvisor.analysis.communication.queues import LEAST_QUEUED_SHARE, QueuedGathers, queued_gathers
from traceadvisor.analysis.data.batch_cost import operator_share, threads_share
from traceadvisor.analysis.data.handover import begin_with_fetch, handover_ns
from traceadvisor.analysis.data.loader_time import loader_time
from traceadvisor.analysis.data.loading import DEFAULT_PREFETCH, Loading, worker_curve
from traceadvisor.analysis.data.worker_curve import WorkerCurve
from traceadvisor.analysis.idle.gaps import Gaps, find_gaps
from traceadvisor.analysis.idle.unknown import Unknown, find_unknown
from traceadvisor.analysis.memory.device_memory import DeviceMemory, PeakParts, device_memory, peak_parts
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.analysis.memory.snapshot_figures import snapshot_figures
from traceadvisor.analysis.memory.trace_memory import trace_memory
from traceadvisor.analysis.observation import Observation, observe
from traceadvisor.analysis.operators.forward import backward_rows
from traceadvisor.analysis.operators.launches import Launches, link_launches, work_within
from traceadvisor.analysis.operators.names import rows_named
from traceadvisor.analysis.operators.stacks import Stacks
from traceadvisor.analysis.operators.tree import OperatorTree, operator_tree
from traceadvisor.analysis.recording_health import (
    machine_notes,
    missing_parts,
    recording_notes,
    start_up_notes,
    timing_notes,
)
from traceadvisor.analysis.steps.breakdown import Partition, SharedTime, break_down, overlaps, partition_recording
from traceadvisor.analysis.steps.clocks import clock_notes
from traceadvisor.analysis.steps.detection import recording_extent
from traceadvisor.analysis.steps.inference_workload import has_training, inference_sign, is_served
from traceadvisor.analysis.steps.run_timing import RunTiming, run_timing
from traceadvisor.analysis.steps.start_up import start_up
from traceadvisor.analysis.steps.typical import with_typical
from traceadvisor.analysis.steps.windows import step_windows
from traceadvisor.hardware.devices import has_tensor_cores
from traceadvisor.hardware.profiler_names import Accelerator, accelerator_named
from traceadvisor.model.arrays import Int64, Mask, among, distinct
from traceadvisor.model.breakdown import Category, MeanBreakdown
from traceadvisor.model.communication import CollectiveKind, CommunicationRow, Purpose
from traceadvisor.model.distortion import Distortion
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import (
    FEWEST_STEPS,
    HOW_TO_GET,
    LEAST_OPERATIONS,
    Evidence,
    Hint,
    Input,
    Location,
    MissingInput,
    Option,
    Unit,
)
from traceadvisor.model.health import HealthNote
from traceadvisor.model.loader_time import LoaderTime
from traceadvisor.model.memory_figures import SnapshotFigures
from traceadvisor.model.report import Overlap, StepRow, Work
from traceadvisor.model.run import Run, RunSettings
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import StepSource, StepTable
from traceadvisor.model.trace import Device, Trace
from traceadvisor.model.workload import InferenceSign, Part, Workload
from traceadvisor.run_facts import RunFacts

if TYPE_CHECKING:
    from traceadvisor.analysis.arithmetic.device_work import DeviceWork
    from traceadvisor.analysis.idle.places import Place
    from traceadvisor.analysis.operators.call_sites import CallSite
    from traceadvisor.analysis.origins.attribution import Attribution
    from traceadvisor.model.origins import Origins
    from traceadvisor.replay.replay import Replay

T = TypeVar("T")

_OWN_WORK = (Category.KERNEL, Category.H2D_COPY, Category.OTHER_COPY)
_GPU_WORK = (*_OWN_WORK, Category.COMMUNICATION)
"""Categories whose time recording hardly changes: the device does not know of the profiler. A collective may also wait
for other ranks."""

_ONE_CLOCK_NOTE = frozenset({"telemetry-clock-back"})
"""Notes that say less than the note on the clocks."""

_OF_THE_RECORDING = (
    "run",
    "launches",
    "observation",
    "partition",
    "tree",
    "stacks",
    "attribution",
    "workload",
    "inference_sign",
    "all_collectives",
    "allocations",
    "memory_figures",
)
"""Cached facts that do not depend on which steps are typical."""

NOT_FOR_INFERENCE = {
    Input.LOADER: Hint("The recording shows inference without a DataLoader"),
    Input.SETTINGS: Hint("The recording shows inference without a DataLoader"),
}
"""Reasons that replace the usual ones: an inference recording needs no training loop."""

CUT_BEFORE_DEVICE = {
    Input.DEVICE: Hint("The file is cut off before any GPU activity: copy the whole file, or record again"),
}
"""A truncated file does not show whether the machine has a GPU."""


@dataclass(frozen=True, eq=False)
class Facts:
    """Facts that rules read, for one recording on one device.

    Figures per step and shares refer to the typical steps: the kept ones without start-up, teardown and outliers.
    Shares are 0..1. An unmeasured figure is None; :meth:`needed` then skips the rule.
    """

    trace: Trace
    device_index: int | None
    """None for a recording without device activity."""

    recording_id: str
    captured: Run | None = None
    """The run that ``traceadvisor capture`` recorded beside the trace; None without a capture."""

    run_notes: tuple[HealthNote, ...] = ()
    """Problems of the capture."""

    rank_waits: SpanSet | None = None
    """Time in which collectives only wait for other ranks; None if it is unknown: the split needs all recordings."""

    def __post_init__(self) -> None:
        """Add the waits that the recording itself shows."""
        if self.recorded_waits:
            known = (self.rank_waits or SpanSet.empty()) | self.recorded_waits
            object.__setattr__(self, "rank_waits", known)

    @cached_property
    def recorded_waits(self) -> SpanSet:
        """Time in which collectives wait for other ranks, as this recording alone shows; empty if it does not."""
        return recorded_waits(self.trace, self.device_index)

    @cached_property
    def exposed_recorded_waits(self) -> SpanSet:
        """These waits in typical steps, where nothing overlaps them."""
        exposed = self.partition.get(Category.COMMUNICATION, SpanSet.empty())
        return self.recorded_waits & exposed & self.steps.typical_windows

    @property
    def rank(self) -> int | None:
        """The rank in the job; None if it is unknown."""
        origin, distributed = self.trace.origin, self.trace.distributed
        return distributed.rank if distributed and distributed.rank is not None else origin.rank

    @property
    def awaited_rank(self) -> int | None:
        """The rank that most of these waits are for, as this recording alone shows; None if it is uncertain."""
        return awaited_rank(self.trace, self.exposed_recorded_waits, self.rank)

    @cached_property
    def run(self) -> RunFacts:
        """The run of this recording: its settings, steps and machine."""
        work = WeakMethod(self._least_work_ns)  # a cycle would keep the facts
        return RunFacts(self.trace, self.device_index, self.captured, lambda: found() if (found := work()) else 0.0)

    @cached_property
    def timing(self) -> RunTiming:
        """The steps of the whole run, recorded or not."""
        steps = self.run.steps
        return run_timing(steps, max(self.run.worker_count or 1, 1), self._least_work_ns() if steps else 0.0)

    @property
    def samples_per_s(self) -> float | None:
        """Training speed of this rank over the undisturbed steps; None where the batch size is not known."""
        batch_size, step_ns, fetches = self.run.batch_size, self.timing.pace_ns, self.timing.fetches_per_step
        return batch_size * fetches / step_ns * 1e9 if batch_size and fetches and step_ns else None

    @property
    def joules_per_sample(self) -> float | None:
        """Energy that this process's devices draw for a sample; None where their power or the rate is not known."""
        watts = self.run.mean_power_watts
        return watts / self.samples_per_s if watts is not None and self.samples_per_s else None

    def _least_work_ns(self) -> float:
        """Least time of a typical recorded step with the device's own work; 0 without a device."""
        rows = [row.breakdown for row in self.step_rows if row.step.typical] if self.observation.has_device else []
        return float(min((sum(row.parts_ns.get(kind) or 0 for kind in _OWN_WORK) for row in rows), default=0))

    @property
    def settings(self) -> RunSettings:
        """The run's settings; all unknown without a capture."""
        return self.run.settings

    @cached_property
    def device(self) -> Device | None:
        """The device that ran the kernels; None for a recording without device activity.

        If it is not described, the names of its kernels tell its least compute capability.
        """
        if self.device_index is None:
            return None
        device, events = self.trace.device(self.device_index), self.trace.events
        if device.name or device.compute_capability:
            return device
        work = self.launches.work_rows
        used = distinct(np.sort(events.name_id[work[events.kind[work] == Kind.KERNEL]]))
        return replace(device, compute_capability=least_capability(self.trace.names[name] for name in used.tolist()))

    @property
    def accelerator(self) -> Accelerator | None:
        """The kind of accelerator; None without a sign of one."""
        return accelerator_named(self.trace.accelerator)

    @property
    def is_cuda(self) -> bool:
        """Whether torch calls the device ``cuda``, as far as the recording shows."""
        return self.accelerator is None or self.accelerator.is_cuda

    # -- steps and their breakdown -----------------------------------------------------------------------------

    @cached_property
    def launches(self) -> Launches:
        """The GPU operations and the calls that launched them."""
        return link_launches(self.trace.events).of_device(self.trace.events, self.device_index)

    @cached_property
    def launching_operators(self) -> SpanSet:
        """When threads that launch GPU operations were inside operators."""
        events, calls = self.trace.events, self.launches.call_rows
        launching = among(events.thread, events.thread[calls[calls != NONE]])
        return events.spans(events.is_kind(Kind.OPERATOR) & launching)

    @cached_property
    def observation(self) -> Observation:
        """The recording, limited to this device."""
        return observe(self.trace, self.launches)

    @cached_property
    def steps(self) -> StepTable:
        """The steps and their windows."""
        found = step_windows(self.trace, self.launches, self.run.not_counted)
        return with_typical(found, self.observation, self.partition)

    @property
    def of_all_steps(self) -> Facts:
        """The same facts with every kept step as typical: for rules on what happens in some steps only."""
        return self if self.steps.typical == self.steps.kept else self._of_all_steps

    @cached_property
    def _of_all_steps(self) -> Facts:
        facts = replace(self)
        vars(facts).update({name: vars(self)[name] for name in _OF_THE_RECORDING if name in vars(self)})
        vars(facts).update(steps=self.steps.with_all_typical(), timing=self.timing)
        return facts

    @cached_property
    def inference_sign(self) -> InferenceSign | None:
        """Sign that the recording is of inference; None without one."""
        return None if self.settings.optimizer else inference_sign(self.trace)

    @cached_property
    def workload(self) -> Workload | None:
        """Training or inference; None if the recording does not show which."""
        if self.inference_sign:
            return Workload.INFERENCE
        return Workload.TRAINING if self.settings.optimizer or has_training(self.trace) else None

    @cached_property
    def program(self) -> frozenset[Part]:
        """The parts of the program that the recording shows."""
        own = self.workload is Workload.TRAINING or not is_served(self.trace)
        has = {
            Part.BACKWARD: self.workload is Workload.TRAINING,
            Part.MODEL: own,
            Part.LOOP: own and Purpose.PIPELINE not in self.collectives.purposes,
            Part.LOADER: self.observation.loader is not None or self.settings.loader is not None,
        }
        return frozenset(part for part, is_there in has.items() if is_there)

    @cached_property
    def start_up(self) -> SpanSet:
        """Time of the typical steps in start-up; empty if three or more were kept: start-up then shows by itself."""
        if not self.has_few_steps:
            return SpanSet.empty()
        return start_up(self.observation) & self.steps.typical_windows

    @property
    def start_up_share(self) -> float | None:
        """Share of the typical steps in start-up; None if three or more steps were kept, or none."""
        return self.share(self.start_up) if self.step_count and self.has_few_steps else None

    @property
    def operations_per_step(self) -> float | None:
        """GPU operations that run in a typical step; None without a device or without typical steps."""
        if not self.observation.has_device or not self.step_count:
            return None
        begun = self.trace.events.start_ns[self.launches.work_rows]
        return int(self.steps.typical_windows.contains(begun).sum()) / self.step_count

    @cached_property
    def partition(self) -> Partition:
        """The category of every instant of the recording."""
        return partition_recording(self.observation, self.gaps, self.unknown)

    @cached_property
    def unknown(self) -> Unknown:
        """Time in which the recording does not show whether the device worked, by reason."""
        return find_unknown(self.observation, self.gaps)

    @cached_property
    def gaps(self) -> Gaps:
        """Gaps in which the device runs nothing."""
        return find_gaps(self.observation, recording_extent(self.trace))

    @cached_property
    def step_rows(self) -> tuple[StepRow, ...]:
        """Each step with its breakdown."""
        has_loader = self.observation.loader is not None
        parts = break_down(self.steps.steps, self.partition, has_loader=has_loader)
        return tuple(map(StepRow, self.steps.steps, parts))

    @cached_property
    def mean(self) -> MeanBreakdown | None:
        """The mean breakdown of the kept steps; None without any."""
        kept = [row.breakdown for row in self.step_rows if row.step.kept]
        return MeanBreakdown.over(kept) if kept else None

    @cached_property
    def typical(self) -> MeanBreakdown | None:
        """The mean breakdown of the typical steps; None without any."""
        typical = [row.breakdown for row in self.step_rows if row.step.typical]
        return MeanBreakdown.over(typical) if typical else None

    @cached_property
    def distortion(self) -> Distortion | None:
        """How far recorded steps lie from undisturbed ones; None without either."""
        parts = self.typical.parts_ns if self.typical and self.observation.has_device else None
        return self.timing.distortion(None if parts is None else sum(parts.get(one) or 0.0 for one in _GPU_WORK))

    @property
    def is_distorted(self) -> bool:
        """Whether shares of recorded steps do not show where training time goes."""
        return self.distortion is not None and self.distortion.is_strong

    @cached_property
    def overlaps(self) -> Mapping[Work, Overlap | None]:
        """Total and exposed time of each kind of work; None if it was not recorded."""
        return overlaps(self.observation, self.partition, self.steps)

    @cached_property
    def tree(self) -> OperatorTree:
        """The tree of nested operators."""
        return operator_tree(self.trace.events)

    @cached_property
    def stacks(self) -> Stacks:
        """The recorded Python stacks."""
        marks = ((step.host_start_ns, step.host_end_ns) for step in self.steps.steps)
        return Stacks(self.trace, self.tree, marks, self.observation.thread, lines=self.run.exact_lines)

    @cached_property
    def attribution(self) -> Attribution:
        """Owner of each instant of the recording: an operator, a module, a Python stack."""
        from traceadvisor.analysis.origins.attribution import attribute  # noqa: PLC0415  # a breakdown does not need it

        return attribute(self.observation, self.partition, self.tree, self.stacks)

    def origins(self, spans: SpanSet, most_rows: int) -> Origins:
        """Origins of some time, over the typical steps.

        Args:
            spans: such as the claims of a finding.
            most_rows: maximum rows of each table, besides the row for all others.
        """
        return self.attribution.origins(spans, self.step_count, most_rows)

    @cached_property
    def collectives(self) -> Collectives:
        """The collectives of the typical steps, with their kinds and purposes."""
        found = self.all_collectives
        return found.take(self.steps.typical_windows.contains(self.trace.events.start_ns[found.rows]))

    @cached_property
    def all_collectives(self) -> Collectives:
        """The collectives of the whole recording."""
        return collectives(self.observation, self.tree, self.rank_waits or SpanSet.empty())

    @cached_property
    def communication(self) -> tuple[CommunicationRow, ...]:
        """Figures of each kind and purpose of communication, most exposed time first."""
        exposed = self._in_typical(Category.COMMUNICATION)
        return communication_rows(self.collectives, self.trace.events, exposed, self.step_count)

    @cached_property
    def gradients(self) -> StepGradients:
        """The gradient all-reduces of the typical steps beside their backward passes."""
        reduced = self.collectives.of((Purpose.GRADIENTS,))
        return step_gradients(self.trace, self._backward_work, self._backward_passes, reduced, self.steps.typical)

    @cached_property
    def backward_passes_per_update(self) -> int:
        """Backward passes before an optimizer step: micro-batches of an update."""
        return passes_per_update(self.trace, self._backward_passes, self._backward_work)

    @cached_property
    def repeated_reductions(self) -> Collectives:
        """Reductions of gradients in typical steps that a later micro-batch of the same update repeats."""
        kinds = (CollectiveKind.ALL_REDUCE,)
        reduced = self.all_collectives.of((Purpose.GRADIENTS, Purpose.SHARDS), kinds)
        repeated = reduced.take(repeated_later(self.trace, self._backward_passes, reduced))
        return repeated.take(self.steps.typical_windows.contains(self.trace.events.start_ns[repeated.rows]))

    @cached_property
    def queued_gathers(self) -> QueuedGathers:
        """All-gathers of sharded modules that wait for a reduce-scatter of their stream."""
        return queued_gathers(self.trace.events, self.collectives.of((Purpose.SHARDS,)))

    def without_queues(self, exposed: SpanSet) -> SpanSet:
        """Exposed communication without that of all-gathers behind reduce-scatters, if they take enough of the step."""
        least_ns = LEAST_QUEUED_SHARE * self.steps.typical_windows.total_ns
        queued = self.queued_gathers
        return exposed - queued.spans if queued.reach_ns(exposed) >= least_ns else exposed

    @cached_property
    def _backward_kernels(self) -> Mask:
        return backward_kernels(self.trace, self.launches, self.tree)

    @cached_property
    def _backward_work(self) -> Launches:
        if not self.observation.has_device:
            rows = backward_rows(self.trace)
            return Launches(rows, rows)
        chosen = self._backward_kernels
        return Launches(self.launches.work_rows[chosen], self.launches.call_rows[chosen])

    @cached_property
    def _backward_passes(self) -> BackwardPasses:
        if not self.observation.has_device:
            return backward_passes_on_cpu(self.trace, self.tree)
        return backward_passes(self.trace, self.launches, self._backward_kernels, self.observation.thread)

    @cached_property
    def device_work(self) -> DeviceWork:
        """The arithmetic of the device in the typical steps, compared with its peak rates."""
        from traceadvisor.analysis.arithmetic.device_work import DeviceWork  # noqa: PLC0415  # a breakdown does not need it

        return DeviceWork(self.trace, self.launches, self.tree, self.steps.typical_windows, self.device, self.settings)

    @cached_property
    def worker_curve(self) -> WorkerCurve | None:
        """The step by number of loader workers; None if the cost of a batch is unknown."""
        return None if self.loading is None else worker_curve(self.loading)

    @cached_property
    def loading(self) -> Loading | None:
        """Figures on the loop and its loader over typical steps; None without loader events or such steps."""
        loader, marks = self.observation.loader, self.steps.typical_marks
        if loader is None or not self.step_count:
            return None
        run, timing = self.run, self.timing
        step_ns = self.per_step_ns(self.steps.typical_windows)
        loader_ns = self.per_step_ns(self.observation.loading & marks)
        exposed_share = self.per_step_ns(self.claim(Category.DATA_WAIT)) / max(loader_ns, 1.0)
        if timing.undisturbed_ns and timing.undisturbed_loader_ns is not None:
            step_ns, loader_ns = timing.undisturbed_ns, timing.undisturbed_loader_ns
        starts_ns = self.trace.events.start_ns[loader.rows]
        fetched = marks.contains(starts_ns).sum() / self.step_count
        batches = run.captured.batches if run.captured else ()
        received_ns = None
        if begin_with_fetch(self.steps.typical, starts_ns):
            prefetch = self.settings.loader.prefetch_factor if self.settings.loader else None
            received_ns = handover_ns(run.steps, batches, prefetch or DEFAULT_PREFETCH)
        exposed_ns = min(exposed_share, 1.0) * loader_ns
        wait_ns = exposed_ns if received_ns is None else min(exposed_ns, max(loader_ns - received_ns, 0.0))
        return Loading(
            step_ns,
            wait_ns,
            loader_ns,
            step_ns - loader_ns if timing.least_rest_ns is None else timing.least_rest_ns,
            float(timing.fetches_per_step or fetched),
            0 if loader.in_training_process else run.worker_count,
            self.device is not None,
            self.settings,
            run.telemetry,
            batches,
            run.undisturbed,
            run.host_cores,
            None if received_ns is None else exposed_ns - wait_ns,
            timing.rest_spread,
            operator_share(self.trace, self.observation.loading & marks),
            self.loader_time,
            threads_share(self.trace, self.observation.loading & marks, self.settings),
        )

    @cached_property
    def loader_time(self) -> LoaderTime | None:
        """The time of the training loader by cause; None without a capture or an undisturbed step."""
        if self.captured is None:
            return None
        marks = self.observation.loading & self.steps.typical_marks
        return loader_time(self.captured, operator_share=threads_share(self.trace, marks, self.settings))

    # -- figures for rules -------------------------------------------------------------------------------------

    @property
    def step_count(self) -> int:
        """Number of typical steps, over which means are taken."""
        return len(self.steps.typical)

    @property
    def has_few_steps(self) -> bool:
        """Whether fewer than three steps were kept, so that nothing shows whether they are typical of the run."""
        return len(self.steps.kept) < FEWEST_STEPS

    def claim(self, *categories: Category) -> SpanSet:
        """The time of some categories within the typical steps, without start-up and without waits for other ranks."""
        if categories not in self._claims:
            waits = self.rank_waits if Category.COMMUNICATION in categories else None
            claimed = self._in_typical(*categories)
            self._claims[categories] = claimed - waits if waits else claimed
        return self._claims[categories]

    @cached_property
    def _claims(self) -> dict[tuple[Category, ...], SpanSet]:
        return {}

    def _in_typical(self, *categories: Category) -> SpanSet:
        found = [self.partition[category] for category in categories if category in self.partition]
        return (
            (found[0] if len(found) == 1 else SpanSet.union_all(found)) & self.steps.typical_windows
        ) - self.start_up

    def exposed(self, rows: Int64, *categories: Category) -> SpanSet:
        """The time of some categories within the typical steps while given events run, and no other GPU operation.

        Args:
            rows: rows of the event table, in any order, shape ``(n,)``.
            categories: the categories to include.
        """
        if not rows.size:
            return SpanSet.empty()
        return (self.trace.events.spans(rows) & self.claim(*categories)) - self.shared_time.beside(rows)

    def operators(self, matches: Callable[[str], object]) -> Int64:
        """The operators that start in typical steps and whose name matches, ascending, shape ``(n,)``."""
        rows = rows_named(self.trace, Kind.OPERATOR, matches)
        return self.trace.events.within(self.steps.typical_windows, rows)

    def launched_by(self, rows: Int64) -> Int64:
        """The GPU operations in typical steps that were launched during some operators or ranges, shape ``(n,)``."""
        return work_within(self.trace.events, self.launches, rows, self.steps.typical_windows).work_rows

    def time_of(self, rows: Int64, *own: Category, launched: tuple[Category, ...] = (Category.KERNEL,)) -> SpanSet:
        """The exposed time of operators that start in typical steps: of what they launched with a GPU, else their own.

        Args:
            rows: rows of the event table, in any order, shape ``(n,)``.
            own: categories of the time of the operators themselves.
            launched: categories of the time of GPU operations.
        """
        rows = self.trace.events.within(self.steps.typical_windows, rows)
        if self.observation.has_device:
            return self.exposed(self.launched_by(rows), *launched)
        return self.exposed(rows, *own)

    @cached_property
    def shared_time(self) -> SharedTime:
        """Time in which several GPU operations run."""
        return SharedTime.of(self.observation)

    def exposed_alone(self, mine: Collectives) -> SpanSet:
        """The exposed time in which only these collectives run, which a fix of these can save at most."""
        return exposed_alone(self.collectives, mine, self.trace.events, self.claim(Category.COMMUNICATION))

    def per_step_ns(self, spans: SpanSet) -> float:
        """Mean nanoseconds per typical step."""
        return spans.total_ns / max(self.step_count, 1)

    def share(self, spans: SpanSet) -> float:
        """Share of the typical windows."""
        return spans.total_ns / max(self.steps.typical_windows.total_ns, 1)

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
        """Mean time per typical step, as evidence."""
        return Evidence(label, self.per_step_ns(spans), Unit.NS_PER_STEP)

    def times_at(self, places: Iterable[CallSite | Place], most: int = 5) -> tuple[Evidence, ...]:
        """The time at the first of some places in code, as evidence."""
        return tuple(self.time_per_step(place.label, place.spans) for place in islice(places, most))

    def count_per_step(self, label: str, count: float) -> Evidence:
        """A count over all typical steps, as evidence per step."""
        return Evidence(label, count / self.step_count, Unit.PER_STEP)

    def locations(self, rows: Int64, most: int = 1) -> tuple[Location, ...]:
        """The first distinct lines of the user's code that caused some events; empty without recorded stacks.

        Args:
            rows: rows of the event table, shape ``(n,)``; searched in this order.
            most: maximum number of lines.
        """
        found = (location for location in self.stacks.locations(rows) if location)
        return tuple(dict.fromkeys(found))[:most]

    @property
    def loader_locations(self) -> tuple[Location, ...]:
        """The line of the loop over the training loader, from the capture or from stacks; empty if unknown."""
        loader = self.settings.loader
        if loader and loader.location:
            return (loader.location,)
        return self.locations(self.observation.loader.rows) if self.observation.loader else ()

    @property
    def loading_locations(self) -> tuple[Location, ...]:
        """The line that takes most of the time of a batch, if samples show it, and the loop over the loader."""
        line = self.run.loader_line
        at_call = line is not None and line.callee is None
        return (*(line.places(at_call=at_call) if line else ()), *self.loader_locations)

    @property
    def why_not_judged(self) -> str:
        """Why kernels could not be judged, as a clause without its stop."""
        unknown = "operators and kernel names tell too little about the other kernels"
        return unknown if Option.SHAPES in self.recorded_with else f"{unknown}; record with {Option.SHAPES.value}"

    @property
    def step_ns(self) -> float | None:
        """The step time that savings refer to: the median undisturbed step, else the mean typical one."""
        return self.timing.undisturbed_ns or (self.typical.duration_ns if self.typical else None)

    @cached_property
    def replay(self) -> Replay | None:
        """The simulation of the steps; None without typical steps, and for other frameworks' ways to launch work."""
        if self.trace.framework:
            return None
        from traceadvisor.replay.replay import replay  # noqa: PLC0415  # a breakdown does not need it

        return replay(self.observation, self.steps, self.timing, self.run.worker_count, self.unknown.spans)

    @cached_property
    def missing_parts(self) -> tuple[HealthNote, ...]:
        """Notes on what the recording lacks."""
        return tuple(missing_parts(self.observation, self.steps, self.unknown))

    def missing(self, needs: frozenset[Input]) -> str | None:
        """The missing input of a rule with these needs, and how to get it; None if nothing is missing."""
        if needs.isdisjoint(self._all_missing):
            return None
        return next(reason for need, reason in self._missing_inputs.items() if need in needs)

    @cached_property
    def _all_missing(self) -> frozenset[Input]:
        return frozenset(self._missing_inputs)

    @cached_property
    def _missing_inputs(self) -> Mapping[Input, str]:
        device, run = self.device, self.run
        present = {
            Input.STEPS: bool(self.steps.typical),
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
            Input.SEVERAL_STEPS: not self.has_few_steps,
        }
        present |= {Input.REAL_STEP: self._has_real_step}
        return {need: self.how_to_get(need) for need in Input if not present[need]}

    def how_to_get(self, missing: Input) -> str:
        """Why an input is missing in this recording, and how to record it."""
        how = dict(HOW_TO_GET) | (NOT_FOR_INFERENCE if self.workload is Workload.INFERENCE else {})
        if self.trace.is_truncated and not self.observation.has_device:
            how |= CUT_BEFORE_DEVICE
        return how[missing].sentence(self.recorded_with)

    def unknown_without(self, reason: str, *options: Option) -> str:
        """Why something is unknown, and which of the options records it; see :class:`Hint`."""
        return Hint(reason, options).sentence(self.recorded_with)

    def to_see(self, what: str, option: Option) -> tuple[str, ...]:
        """A caveat on how to record more; none if it was recorded so."""
        return () if option in self.recorded_with else (f"Record with {option.value} to see {what}.",)

    @cached_property
    def recorded_with(self) -> frozenset[Option]:
        """The options of the recording, from what it says of itself and from what it holds."""
        trace = self.trace
        shown = {
            Option.CPU: bool(trace.events.rows(Kind.OPERATOR).size),
            Option.CUDA: self.observation.has_device,
            Option.STACKS: trace.with_stacks,
            Option.SHAPES: trace.with_shapes,
            Option.CAPTURE: self.run.captured is not None,
        }
        return trace.options | {option for option, is_shown in shown.items() if is_shown}

    @property
    def _has_real_step(self) -> bool:
        """Whether a typical step is marked and does more than a few operations, of which one may be a whole graph."""
        if self.steps.source is StepSource.WINDOW or not self.step_count:
            return False
        operations = self.operations_per_step
        return not self.has_few_steps or operations is None or operations >= LEAST_OPERATIONS

    @cached_property
    def memory(self) -> DeviceMemory | None:
        """GPU memory that the run holds; None if it was not measured."""
        if self.device_index is None:
            return None
        return device_memory(self.trace, self.device_index, self.steps.kept_windows, self.run.device_telemetry)

    @cached_property
    def allocations(self) -> SnapshotFacts | None:
        """The allocations of the device, from the trace's ``[memory]`` events; None if they were not recorded."""
        return None if self.device_index is None else trace_memory(self.trace, self.tree, self.device_index)

    @cached_property
    def memory_figures(self) -> SnapshotFigures | None:
        """The device's memory over time and at its peak, as a report shows it; None if it was not recorded."""
        if self.allocations is None:
            return None
        figures = snapshot_figures(self.allocations.snapshot, [self.allocations])
        return figures.on(self.device) if self.device else figures

    @property
    def peak_parts(self) -> PeakParts | None:
        """The parts of the peak of GPU memory; None where no activations are known."""
        return peak_parts(self.memory_figures.devices[0]) if self.memory_figures else None

    # -- figures for the report --------------------------------------------------------------------------------

    @cached_property
    def notes(self) -> tuple[HealthNote, ...]:
        """Notes on problems of the file, the capture, the recording and its steps."""
        clocks = tuple(clock_notes(self.captured)) if self.captured else ()
        threads = None if self.observation.has_device else self.settings.torch_threads
        of_machine = tuple(machine_notes(self.run.telemetry, self.run.host_cores, threads))
        of_capture = (note for note in self.run_notes if not (clocks and note.code in _ONE_CLOCK_NOTE))
        return (
            *self.trace.health.notes,
            *of_capture,
            *clocks,
            *recording_notes(self.observation, self.steps, self.unknown),
            *timing_notes(self.timing, is_busy=bool(of_machine)),
            *of_machine,
            *start_up_notes(self.start_up_share, self.steps),
        )

    @property
    def recorded_wall_ns(self) -> tuple[int, int] | None:
        """Wall-clock start and end of the recording, in nanoseconds; None without a recorded wall clock."""
        start = self.trace.wall_clock_start_ns
        return None if start is None else (start, start + recording_extent(self.trace)[1])
