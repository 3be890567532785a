"""The result of an analysis: what every output format is drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from traceadvisor.model.breakdown import MeanBreakdown, StepBreakdown
from traceadvisor.model.cost import Price, RunCost, Worth
from traceadvisor.model.findings import Evidence, Finding, Fix, Method, RuleMeta, RuleOutcome, Severity
from traceadvisor.model.health import Health, HealthNote
from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.run import Run
from traceadvisor.model.step_memory import MemoryFigures, MemoryOverTime
from traceadvisor.model.steps import Step, StepSource
from traceadvisor.model.telemetry_window import TelemetryWindow
from traceadvisor.model.timeline import Timeline
from traceadvisor.model.trace import Device, Distributed


class SourceKind(Enum):
    """What was given to be read."""

    CAPTURE = "capture"
    TENSORBOARD = "tensorboard"
    TRACE = "trace"


@dataclass(frozen=True, slots=True)
class Source:
    """What the report was made from."""

    paths: tuple[Path, ...]
    kind: SourceKind


class Work(Enum):
    """Kinds of work of which the total and the exposed part are told apart."""

    DATA_LOADING = "data_loading"
    KERNEL = "kernel"
    COMMUNICATION = "communication"
    H2D_COPY = "h2d_copy"
    D2H_COPY = "d2h_copy"
    D2D_COPY = "d2d_copy"
    MEMSET = "memset"


@dataclass(frozen=True, slots=True)
class Overlap:
    """Mean nanoseconds per step; overlapped time is not lost time."""

    total_ns: float
    exposed_ns: float
    """The part not hidden behind something more useful."""


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """How the device was used; shares are 0..1, None where the trace lacks what they need."""

    busy_share: float | None
    """Union of all kernels, collectives included, over the kept windows."""

    sm_efficiency_share: float | None
    achieved_occupancy_share: float | None
    flops_per_s: float | None = None
    """Operations of matrix products, convolutions and attention over the kept windows, as torch counts them."""

    peak_rate_share: float | None = None
    """Of the rate at which the device can do them: model FLOPs utilisation, where nothing is computed twice."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """All launches of one kernel in the kept steps."""

    name: str
    calls_per_step: float
    total_ns_per_step: float
    share_of_kernel_time: float
    blocks_per_sm: float | None
    occupancy_share: float | None


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """All calls of one operator in the kept steps."""

    name: str
    calls_per_step: float
    host_self_ns_per_step: float
    """Host time in the operator itself, its children's apart."""

    device_ns_per_step: float | None
    """Summed durations of the device work launched from it, its children's apart."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step and where its time went."""

    step: Step
    breakdown: StepBreakdown


@dataclass(frozen=True, slots=True)
class Umbrella:
    """A verdict on the step as a whole, which points at causes that findings name. It is not ranked among them."""

    rule: RuleMeta
    fix: Fix
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """One worker, one span, one device."""

    id: str
    run: str
    worker: str
    span: str
    cycle: int
    path: Path
    distributed: Distributed | None
    device: Device | None
    step_source: StepSource
    steps: tuple[StepRow, ...]
    dropped_steps: tuple[tuple[int, str], ...]
    mean_step_ns: float | None
    median_step_ns: float | None
    undisturbed_median_step_ns: float | None
    samples_per_s: float | None
    mean_breakdown: MeanBreakdown | None
    overlaps: Mapping[Work, Overlap | None]
    """None where that work could not be measured."""

    figures: DeviceFigures
    timeline: Timeline | None
    kernels: tuple[KernelRow, ...]
    """By total time, longest first; the leading ones."""

    operators: tuple[OperatorRow, ...]
    loader_kinds: tuple[str, ...]
    """Names of the loader iterators seen, without prefix."""

    captured: Run | None = None
    """What a capture knows beside the recording; None for a recording made otherwise."""

    recorded_wall_ns: tuple[int, int] | None = None
    """When the recording began and ended, wall clock; None where it does not say."""

    telemetry: TelemetryWindow | None = None
    """The machine while the run's undisturbed steps went on; None without samples."""

    rank_count: int = 1
    """Processes that train together."""

    gpu_count: int | None = None
    """Of all ranks together; None where no device was recorded."""

    joules_per_sample: float | None = None
    """Energy that the rank's devices draw for a sample."""

    cost: RunCost | None = None
    """None where no price is set."""

    replay: ReplayFigures | None = None
    """None where there was nothing to replay."""

    memory: MemoryFigures | None = None
    """None where the allocator was not recorded, or too few steps."""

    memory_over_time: MemoryOverTime | None = None
    """None where the allocator was not recorded."""

    umbrellas: tuple[Umbrella, ...] = ()


@dataclass(frozen=True, slots=True)
class PredictedStep:
    """How long a step would take."""

    low_ns: float
    expected_ns: float
    high_ns: float


@dataclass(frozen=True, slots=True, eq=False)
class RankedFinding:
    """A finding with its place in the report."""

    finding: Finding
    recording_ids: tuple[str, ...]
    severity: Severity
    saving_share: float
    """Expected saving over the step that it is of, 0..1."""

    also: tuple[str, ...] = ()
    """Ids of rules whose findings claim the same time and were folded into this one."""

    worth: Worth | None = None
    """The saving in money; None where no price is set."""

    step_ns: float | None = None
    """The step that the saving is of: the undisturbed one where it is known, else the median recorded one, the first
    and the last apart where there are others. None where the length of a step is not known."""

    predicted: PredictedStep | None = None
    """The step with the fix made, where it differs from the step less the saving: in a report that was read back these
    are rounded. None: the difference."""

    @property
    def predicted_step(self) -> PredictedStep | None:
        """The step with the fix made; None where nothing is saved or the fix was not replayed."""
        if self.predicted is not None:
            return self.predicted
        saving, step_ns = self.finding.saving, self.step_ns
        if saving.method is not Method.REPLAY or not saving.high_ns or step_ns is None:
            return None
        low, expected, high = (
            max(step_ns - saved_ns, 0.0) for saved_ns in (saving.high_ns, saving.expected_ns, saving.low_ns)
        )
        return PredictedStep(low, expected, high)


@dataclass(frozen=True, slots=True)
class FoundFigures:
    """The rule found something, in a report that was read back: JSON has the whole finding only where it is ranked."""

    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeRow:
    """What came of one rule on one recording, or on several ranks side by side."""

    rule: RuleMeta
    recording_ids: tuple[str, ...]
    outcome: RuleOutcome | FoundFigures


@dataclass(frozen=True, slots=True)
class NotWorthDoing:
    """A popular fix that would gain next to nothing here."""

    what: str
    saving_share: float
    """The most it could gain, over the mean step."""

    reason: str
    recording_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordingNote:
    """A health note and the recording it is about; None where it is about the input as a whole."""

    note: HealthNote
    recording_id: str | None


@dataclass(frozen=True, slots=True)
class UsedSettings:
    """What a user set, as far as it bears on the report."""

    file: Path | None = None
    """Where it was read from; None where nothing was, or where it was given in code."""

    select: tuple[str, ...] = ()
    """Rules asked for; empty for all."""

    ignore: tuple[str, ...] = ()
    thresholds: Mapping[str, Mapping[str, bool | int | float | str]] = field(default_factory=dict)
    """By rule, those that were set."""

    providers: Mapping[str, str] = field(default_factory=dict)
    """Rules that other distributions brought: id, then name and version of the distribution."""

    price: Price | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Everything that is known, in the order people ask for it."""

    tool_version: str
    source: Source
    health: Health
    health_notes: tuple[RecordingNote, ...]
    recordings: tuple[Recording, ...]
    findings: tuple[RankedFinding, ...]
    """Ranked: expected saving, then confidence, then ease."""

    not_worth_doing: tuple[NotWorthDoing, ...]
    outcomes: tuple[OutcomeRow, ...]
    settings: UsedSettings = UsedSettings()
