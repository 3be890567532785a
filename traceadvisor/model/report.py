"""The result of an analysis, from which every output format is rendered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import ClassVar, Self

from traceadvisor.frozen import frozen
from traceadvisor.model.breakdown import Category, MeanBreakdown, StepBreakdown
from traceadvisor.model.communication import CommunicationRow
from traceadvisor.model.cost import Price, RunCost, Worth
from traceadvisor.model.distortion import Distortion
from traceadvisor.model.experiment import ExperimentResult, MeasuredFix
from traceadvisor.model.findings import (
    Clear,
    Estimate,
    Evidence,
    Failed,
    Finding,
    Fix,
    Method,
    RuleMeta,
    Severity,
    Silenced,
    Skipped,
)
from traceadvisor.model.health import Health, HealthNote
from traceadvisor.model.job import Job
from traceadvisor.model.json_hints import NOT_IN_JSON, MaybeNan
from traceadvisor.model.loader_time import LoaderTime
from traceadvisor.model.location import Location
from traceadvisor.model.memory_figures import OperatorMemory, SnapshotFigures
from traceadvisor.model.origins import Origins
from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.run import Run
from traceadvisor.model.run_time import CostliestLine, RunGrowth, RunLines, RunTime
from traceadvisor.model.saving import Reason
from traceadvisor.model.step_contents import StepContents
from traceadvisor.model.steps import Step, StepSource
from traceadvisor.model.telemetry_window import TelemetryWindow
from traceadvisor.model.timeline import Timeline
from traceadvisor.model.trace import Device, Distributed
from traceadvisor.model.workload import Framework, InferenceSign, Workload
from traceadvisor.text.cleaning import clean, clipped, one_line

SCHEMA = "traceadvisor.report/2"
"""Identifies a report in every format, and the version of its JSON: the ``schema`` of it, a meta tag, or a comment."""


@frozen
class RuleSection:
    """A paragraph of the explanation of a rule."""

    title: str
    """``What it finds``, ``When it may be wrong``."""

    text: str


@frozen
class RuleText:
    """The documentation of a rule. ``traceadvisor rules explain ID`` shows all of it."""

    id: str
    name: str
    title: str
    summary: str
    sections: tuple[RuleSection, ...] = ()
    """The whole explanation, of rules with a finding; empty for others."""


class SourceKind(Enum):
    """Kind of the input."""

    CAPTURE = "capture"
    TENSORBOARD = "tensorboard"
    TRACE = "trace"
    SNAPSHOT = "memory_snapshot"
    """Memory snapshots and nothing else."""


@frozen
class Source:
    """The input of the report."""

    paths: tuple[Path, ...]
    """As given by the user."""

    kind: SourceKind


class Work(Enum):
    """Kinds of work that are split into an overlapped and an exposed part."""

    DATA_LOADING = "data_loading"
    KERNEL = "kernel"
    COMMUNICATION = "communication"
    H2D_COPY = "h2d_copy"
    D2H_COPY = "d2h_copy"
    D2D_COPY = "d2d_copy"
    MEMSET = "memset"


@frozen
class Overlap:
    """Mean time per step of one kind of work. Overlapped time is not lost."""

    total_ns: float
    exposed_ns: float
    """The part that is not overlapped by more useful work."""


@frozen
class DeviceFigures:
    """Use of the device. Shares are 0..1; None where the trace lacks their input."""

    busy_share: float | None
    """Time with a kernel running, collectives included, as a share of the kept steps. Unknown time counts as idle."""

    sm_efficiency_share: float | None
    achieved_occupancy_share: float | None
    flops_per_s: float | None = None
    """Operations of matrix products, convolutions and attention per second of the typical steps. None where under 90%
    of kernel time is explained, or the device's peak rates are unknown."""

    peak_rate_share: float | None = None
    """Share of the device's peak rate: model FLOPs utilisation, if nothing is recomputed."""

    busy_share_high: float | None = None
    """The busy share if the device worked in all unknown time; None without unknown time."""


@frozen
class KernelRow:
    """All launches of one kernel in the typical steps."""

    name: str
    calls_per_step: float
    total_ns_per_step: float
    share_of_kernel_time: MaybeNan
    blocks_per_sm: float | None
    occupancy_share: float | None
    shortest_ns: int | None = None
    """The shortest launch; None in a report that does not hold it."""

    longest_ns: int | None = None
    tensor_cores: bool | None = None
    """Whether it uses tensor cores or matrix cores, as far as its name tells; None for an unknown name."""

    @property
    def mean_ns(self) -> float | None:
        """Mean time of a launch; None without calls."""
        return self.total_ns_per_step / self.calls_per_step if self.calls_per_step else None


@frozen
class ShapeRow:
    """The calls of an operator with certain input shapes, in the typical steps."""

    shapes: str
    """``[32, 3, 224, 224], [64, 3, 7, 7]``."""

    calls_per_step: float
    host_self_ns_per_step: float
    device_ns_per_step: float | None


@frozen
class PlaceRow:
    """The calls of an operator from one place in the code, in the typical steps."""

    location: Location
    calls_per_step: float


@frozen
class OperatorRow:
    """All calls of one operator in the typical steps."""

    name: str
    calls_per_step: float
    host_self_ns_per_step: float
    """CPU time in the operator itself, without the operators it calls."""

    device_ns_per_step: float | None
    """Sum of the GPU operations it launched, without those of the operators it calls."""

    host_total_ns_per_step: float | None = None
    """CPU time with the operators it calls; None in a report that does not hold it."""

    device_total_ns_per_step: float | None = None
    """The same of the GPU operations; None also without a GPU."""

    shapes: tuple[ShapeRow, ...] = ()
    """By input shapes, most time first; empty where they were not recorded."""

    places: tuple[PlaceRow, ...] = ()
    """Places that call it, most calls first; empty without Python stacks."""


@frozen
class ModuleRow:
    """All calls of one module at one place in the tree of modules, in the typical steps."""

    name: str
    """``Conv2d_3``: its class, and its number among the modules of this class."""

    depth: int
    """Modules around it. A row follows the row of the module around it, before modules of a smaller depth."""

    calls_per_step: float
    host_ns_per_step: float
    """CPU time of the forward pass, with the modules inside it."""

    device_ns_per_step: float | None
    """GPU operations launched in the forward pass, with those of the modules inside; None without a GPU."""


@frozen
class StepRow:
    """One training step and where its time went."""

    step: Step
    breakdown: StepBreakdown


@frozen
class Umbrella:
    """A verdict on the step as a whole. It is not ranked; findings name the causes."""

    rule: RuleMeta
    fix: Fix
    evidence: tuple[Evidence, ...]


@frozen(eq=False)
class Recording:
    """One worker, one span, one device."""

    id: str
    run: str
    worker: str
    span: str
    cycle: int
    """Position among the worker's recordings in this run, from 0."""

    path: Path
    distributed: Distributed | None
    device: Device | None
    step_source: StepSource
    """How the steps were detected."""

    steps: tuple[StepRow, ...]
    dropped_steps: tuple[tuple[int, str], ...]
    mean_step_ns: float | None
    median_step_ns: float | None
    undisturbed_median_step_ns: float | None
    """Median over the steps of the run that were not profiled."""

    samples_per_s: float | None
    """At that median."""

    mean_breakdown: MeanBreakdown | None
    """Mean over the kept steps; empty where there are none."""

    overlaps: Mapping[Work, Overlap | None]
    """Total and exposed time of each kind of work; None where it could not be measured."""

    figures: DeviceFigures
    timeline: Timeline | None
    kernels: tuple[KernelRow, ...]
    """The kernels with the most total time, longest first."""

    operators: tuple[OperatorRow, ...]
    """The operators with the most CPU or GPU time, longest first."""

    loader_kinds: tuple[str, ...]
    """Class names of the data loader iterators."""

    has_operators: bool = field(default=False, metadata=NOT_IN_JSON)
    """Whether operators were recorded in typical steps, where their table may be left out."""

    modules: tuple[ModuleRow, ...] = ()
    """The tree of modules with the most CPU time; empty where calls of modules were not recorded."""

    undisturbed_mean_step_ns: float | None = None
    """Mean over the same steps, epoch starts included."""

    captured: Run | None = None
    """The captured run; None where the recording was not made by a capture."""

    recorded_wall_ns: tuple[int, int] | None = None
    """Start and end of the recording, wall clock since the epoch; None where not recorded."""

    telemetry: TelemetryWindow | None = None
    """Telemetry during the run's undisturbed steps; None without samples."""

    rank_count: int = 1
    """Number of processes that train together."""

    gpu_count: int | None = None
    """GPUs of all ranks; None where no device was recorded."""

    joules_per_sample: float | None = None
    """Energy per sample of the rank's GPUs; None where power or sample rate is unknown."""

    cost: RunCost | None = None
    """Cost of the run; None where no price is set."""

    replay: ReplayFigures | None = None
    """How well the simulation reproduces the recording; None where there was nothing to simulate."""

    device_memory: SnapshotFigures | None = None
    """Device memory over time and at its peak; None where the allocator was not recorded."""

    memory_by_operator: tuple[OperatorMemory, ...] = ()
    """Operators by the device memory that they allocate, most first; the last row has all others. Empty where the
    allocator was not recorded."""

    umbrellas: tuple[Umbrella, ...] = ()
    """Verdicts on the step as a whole."""

    origins: Mapping[Category, Origins] = field(default_factory=dict)
    """Origins of the time of each category, over the typical steps; categories without time are left out."""

    communication: tuple[CommunicationRow, ...] = ()
    """Collectives by kind and purpose, most exposed time first."""

    workload: Workload | None = None
    """Training or inference; None where the recording does not show which."""

    inference_sign: InferenceSign | None = None
    """Sign that the recording is of inference; None for any other."""

    loader_time: LoaderTime | None = None
    """The time of the training loader by cause; None where no capture timed it."""

    typical_step_ns: float | None = None
    """Mean of the typical steps: the kept ones without start-up, teardown and outliers."""

    typical_breakdown: MeanBreakdown | None = None
    """Mean over the typical steps, to which the headline and all findings refer; empty where there are none."""

    typical_figures: DeviceFigures | None = None
    """Use of the device over the typical steps; the figures beside it are those of the kept steps."""

    operations_per_step: float | None = None
    """GPU operations in a typical step; None without a device or without typical steps."""

    run_lines: RunLines | None = None
    """Lines in which the training thread spends its time over the whole run; None if its stack was not sampled."""

    costliest_line: CostliestLine | None = None
    """The line that holds most of the training loop; None if samples do not show one."""

    start_up_share: float | None = None
    """Share of the typical steps in start-up: first calls, compilation, memory allocation. None with three or more
    typical steps, which hold none."""

    distortion: Distortion | None = None
    """How far recorded steps lie from undisturbed ones of the same run; None where either was not timed."""

    run_time: RunTime | None = None
    """Parts of the time of this rank's whole run; None without a capture."""

    loop_samples_per_s: float | None = None
    """All samples of the training steps over the time of the whole training loop, validation and checkpoints included;
    None where the batch size or the run is not known."""

    tokens_per_sample: float | None = None
    """Positions of a sample in the first batches of sequences; None where the loader returned none."""

    run_growth: RunGrowth | None = None
    """Growth of the undisturbed steps over the run; None if they do not grow, or without a capture."""

    step_error_share: float | None = None
    """Half the width of the 95% interval of the step time within this run, as a share of it: of the undisturbed median,
    else of the typical step. None with too few steps. Another run of the same script may differ by more."""

    accelerator: str | None = None
    """The kind of accelerator, such as CUDA, ROCm or Ascend; None without a sign of one."""

    device_word: str = "GPU"
    """Word for a device among users of this accelerator."""

    framework: Framework | None = None
    """None for PyTorch, as torch's own profiler records it."""

    contents: StepContents | None = None
    """Counts of all that a typical step runs; None without typical steps."""

    is_cut_short: bool = False
    """Whether a capture ended the recording before it had all requested steps. Whole recordings come first."""

    @property
    def typical_steps(self) -> tuple[Step, ...]:
        """The steps that the headline and findings refer to."""
        return tuple(row.step for row in self.steps if row.step.typical)

    @property
    def breakdown(self) -> MeanBreakdown | None:
        """The breakdown to show: of the typical steps; of the kept steps in a report that does not hold the former."""
        return self.typical_breakdown or self.mean_breakdown

    @property
    def step_ns(self) -> float | None:
        """The recorded step time to show: the mean typical step; the median kept one in a report without the former."""
        return self.median_step_ns if self.typical_step_ns is None else self.typical_step_ns

    @property
    def step_now_ns(self) -> float | None:
        """The step that savings are of: the undisturbed median, else the recorded step time to show."""
        return self.undisturbed_median_step_ns or self.step_ns

    @property
    def shown_figures(self) -> DeviceFigures:
        """The use of the device to show: over the typical steps, else over the kept ones."""
        return self.figures if self.typical_figures is None else self.typical_figures


@frozen
class PredictedStep:
    """Predicted step time."""

    low_ns: float
    expected_ns: float
    high_ns: float


class FoldedBecause(Enum):
    """Why a finding is part of another one, and has no row of its own."""

    SAME_TIME = "same_time"
    """Both explain the same time."""

    LOAD_DECIDES = "load_decides"
    """Both explain the same time. Which one saves more depends on how busy the machine is."""

    ALTERNATIVE = "alternative"
    """Only one of both fixes can be made, or the second one adds nothing by its nature."""

    WITHIN_LIMIT = "within_limit"
    """The upper limit above leaves no room: nothing tells what this one adds to it."""

    INDIRECT = "indirect"
    """No change is known to save time at its place, and the other fix may save that time, too."""

    ADDS_LITTLE = "adds_little"
    """After the other fix, this one saves less than 1% of the step."""


@frozen
class FoldedFinding:
    """A finding that is part of another one."""

    rule: RuleMeta
    because: FoldedBecause
    fix: Fix
    saving: Estimate
    """The saving of its fix alone."""

    locations: tuple[Location, ...] = ()
    """Its places in the user's code."""

    @classmethod
    def of(cls, finding: Finding, because: FoldedBecause) -> Self:
        """A finding as a part of another one."""
        return cls(finding.rule, because, finding.fix, finding.saving, finding.locations)


@frozen(eq=False)
class RecordedFinding:
    """A cost, its cause and its fix, in one recording."""

    finding: Finding
    recording_ids: tuple[str, ...]
    """The recordings it is about; several only where a rule compares ranks."""

    severity: Severity
    saving_share: MaybeNan
    """Expected saving of the fix alone, as a share of the step, 0..1."""

    also: tuple[str, ...] = ()
    """Rules whose findings were merged into this one."""

    worth: Worth | None = None
    """The saving in money; None where no price is set or nothing is saved."""

    step_ns: float | None = None
    """The step time that the saving refers to: the undisturbed median, else the mean of the typical steps. For a share
    of more than the steps, the time of the run per step. None where no step time is known."""

    further_saving: Estimate | None = None
    """Saving of the fix after the fixes of the findings above it in the same recording. For the first finding this is
    the saving itself. None where it is unknown."""

    folded: tuple[FoldedFinding, ...] = ()
    """The findings that were merged into this one."""

    measured: MeasuredFix | None = None
    """Measurement of the fix by `try` or `sweep`; None if neither measured it."""

    is_refuted: bool = False
    """Whether that shows, on the recorded code and machine, that the fix saves less than expected: the step is slower,
    or no different. It then comes after all other findings."""

    of_window: bool = False
    """Whether the saving is one of the whole recording, because no steps were found in it."""

    of_inference: bool = False
    """Whether nothing in the recording shows training: a share of the run is no training time."""

    of_mean_step: bool = False
    """Whether ``step_ns`` is the mean of the undisturbed steps, and far from their median: few steps are long."""

    def __post_init__(self) -> None:
        if not self.recording_ids:
            raise ValueError("a finding of no recording")

    @property
    def has_settings(self) -> bool:
        """Whether its fix, or that of a finding that was merged into it, is a setting, which `try` can measure."""
        return any(fix.settings for fix in (self.finding.fix, *(one.fix for one in self.folded)))

    @property
    def predicted_step(self) -> PredictedStep | None:
        """The step with the fix made; None where nothing is saved, or no replay predicts it."""
        saving, step_ns = self.finding.saving, self.step_ns
        if saving.method is not Method.REPLAY or saving.is_limit or not saving.high_ns or step_ns is None:
            return None
        low, expected, high = (
            max(step_ns - saved_ns, 0.0) for saved_ns in (saving.high_ns, saving.expected_ns, saving.low_ns)
        )
        return PredictedStep(low, expected, high)


@frozen(eq=False)
class RankedFinding(RecordedFinding):
    """A row of the ranking: a finding of one or several recordings. Its figures are those of a typical recording.

    The ids of all its recordings begin with those of the typical one.
    """

    by_recording: tuple[RecordedFinding, ...] = ()
    """The finding in each recording, in the order of the report; empty if the row is about one recording only."""


@frozen
class FoundFigures:
    """A check with a finding, which is among those of the report; its figures."""

    evidence: tuple[Evidence, ...]


@frozen
class OutcomeRow:
    """Outcome of one rule, on one recording or on all that have the same outcome."""

    rule_id: str
    recording_ids: tuple[str, ...]
    """Empty for all recordings."""

    outcome: FoundFigures | Clear | Skipped | Failed


class SmallBecause(Enum):
    """Why a popular fix saves little."""

    SMALL_SHARE = "small_share"
    """The removed time is a small share of the step."""

    SIMULATED_LITTLE = "simulated_little"
    """The simulated step becomes shorter by less than 2%."""

    SIMULATED_NOTHING = "simulated_nothing"
    TAKEN_OVER = "taken_over"
    """In the simulation, other work takes the place of what the fix removes."""


@frozen
class SmallSaving:
    """Why a popular fix saves little in some recordings."""

    because: SmallBecause
    label: str | None = None
    """The measured figure, as a noun phrase, for a small share; None for simulations."""

    doubt: Reason | None = None
    """Why the fix was not simulated; None if it was."""

    has_findings: bool = False
    """Whether other fixes of the recording may change this."""


@frozen
class NotWorthDoing:
    """A popular fix that would save less than 2% here."""

    what: str
    saving_share: MaybeNan
    """Upper limit of its saving, as a share of the mean step."""

    reason: SmallSaving
    recording_ids: tuple[str, ...] = ()
    """The recordings it is about; empty for all."""


@frozen
class RecordingNote:
    """A health note and its recording."""

    note: HealthNote
    recording_id: str | None
    """None where the note is about the whole input."""


@frozen
class UsedSettings:
    """The user's settings that affect the report."""

    file: Path | None = None
    """File the settings were read from; None for defaults or settings given in code."""

    select: tuple[str, ...] = ()
    """Selected rules; empty for all."""

    ignore: tuple[str, ...] = ()
    thresholds: Mapping[str, Mapping[str, bool | int | float | str]] = field(default_factory=dict)
    """Thresholds that were set, by rule."""

    providers: Mapping[str, str] = field(default_factory=dict)
    """Rules from other distributions: rule id to the distribution's name and version."""

    price: Price | None = None


@frozen(eq=False)
class Report:
    """A report: where training time goes, and what to change first. A notebook shows it as the HTML page."""

    tool_version: str
    source: Source
    health: Health
    health_notes: tuple[RecordingNote, ...]
    recordings: tuple[Recording, ...]
    findings: tuple[RankedFinding, ...]
    """Each ranked by what it saves after those above it. The savings of the fixes alone do not add up."""

    not_worth_doing: tuple[NotWorthDoing, ...]
    outcomes: tuple[OutcomeRow, ...]
    settings: UsedSettings = field(default_factory=UsedSettings)
    rules: tuple[RuleText, ...] = ()
    """The rules that were run; empty in a report that does not hold them."""

    experiments: tuple[ExperimentResult, ...] = ()
    """Measurements of this run by `try` and `sweep`."""

    silenced: tuple[Silenced, ...] = ()
    """Parts of findings that laws took away."""

    memory: tuple[SnapshotFigures, ...] = ()
    """Memory snapshots among the input."""

    jobs: tuple[Job, ...] = ()
    """Ranks that were recorded at the same time; a job of many ranks has three of them among the recordings."""

    @property
    def has_figures(self) -> bool:
        """Whether a step of a recording is known, or GPU memory was recorded."""
        return bool(self.memory) or any(one.steps or one.step_now_ns for one in self.recordings)

    def __repr__(self) -> str:
        """One line: how much it holds, and its first finding that was not refuted."""
        parts = [_counted(len(self.recordings), "recording"), _counted(len(self.findings), "finding")]
        if self.memory:
            parts.insert(0, _counted(len(self.memory), "memory snapshot"))
        if first := next((one for one in self.findings if not one.is_refuted), None):
            parts.append(f"first: {first.finding.rule.id} {first.finding.rule.title} ({first.saving_share:.1%})")
        return f"<Report: {clipped(one_line(clean(', '.join(parts))), LONGEST_REPR)}>"

    notebook_view: ClassVar[Callable[[Report], str] | None] = None
    """Draws the HTML that a notebook shows; a higher layer sets it."""

    def _repr_html_(self) -> str | None:
        """HTML for a notebook; None, which shows the plain text, without a view."""
        view = type(self).notebook_view
        return view(self) if view else None


LONGEST_REPR = 200
"""Characters of a report's ``repr``."""


def _counted(things: int, one: str) -> str:
    return f"{things} {one}" if things == 1 else f"{things} {one}s"
