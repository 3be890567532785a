"""The part of the JSON report that describes one recording; see ``report_document.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from traceadvisor.model.breakdown import Category
from traceadvisor.model.replay import ReplayStatus
from traceadvisor.model.steps import StepSource
from traceadvisor.results.memory_document import MemoryDocument, MemoryOverTimeDocument
from traceadvisor.results.run_document import RunDocument, TelemetryDocument, WallClockRangeDocument

TimePerCategory = Annotated[
    dict[Category, float | None],
    Meta(extra_json_schema={"propertyNames": {"enum": [category.value for category in Category]}}),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDocument:
    """A device as the recording describes it."""

    id: int
    """Its number in the recording."""

    name: str | None
    memory_bytes: int | None
    compute_capability: str | None
    """CUDA devices only, for example ``8.0``."""

    multiprocessors: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedDocument:
    """The process group that the worker belonged to."""

    rank: int | None
    world_size: int | None
    backend: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDocument:
    """One training iteration."""

    index: int
    start_us: float
    duration_us: float
    host_start_us: float
    """Start of the host's own mark of the step."""

    host_end_us: float
    kept: bool
    """Whether the step counts in means and medians."""

    left_out: str | None
    """Why it does not, where it does not."""

    breakdown_us: TimePerCategory
    """Sums to ``duration_us``; null where a category could not be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedStepDocument:
    """A recorded step that is not shown at all."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsDocument:
    """Mean time per step; the six sum to the step, and those of a device are null where none was recorded."""

    data_wait: float | None
    h2d_copy: float | None
    kernel: float | None
    communication: float | None
    other_copy: float | None
    idle: float | None
    """Everything idle but data wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapDocument:
    """Mean time per step of one kind of work; what is overlapped is not lost."""

    total: float
    exposed: float
    """The part not hidden behind something more useful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapsDocument:
    """Kinds of work, each with its total and its exposed part; null where not measured."""

    data_loading: OverlapDocument | None
    kernel: OverlapDocument | None
    communication: OverlapDocument | None
    h2d_copy: OverlapDocument | None
    d2h_copy: OverlapDocument | None
    d2d_copy: OverlapDocument | None
    memset: OverlapDocument | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayDocument:
    """How well a simulation of the step reproduces it, and the step with all applicable fixes made."""

    status: ReplayStatus
    judged_steps: int | None
    """Steps that were held against the recording: all that were replayed but the first and the last."""

    baseline_step_us: float | None
    baseline_error_share: float | None
    null_model_error_share: float | None
    paced_error_share: float | None
    """Error, with batches at the mean pace of the loader's workers, of the step or turn of workers that differs most;
    nothing puts that pace to the test. Null where they do not set the pace."""

    unexplained_share: float | None
    """Share of the step in waits for the device that the simulation does not explain."""

    joint_step_us: float | None
    reason: str | None
    """Why no saving is taken from it, where none is."""

    device_reason: str | None
    """Why no saving by a change to the device's work is taken from it, where none is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDocument:
    """All launches of one kernel in the kept steps."""

    name: str
    calls_per_step: float
    total_us_per_step: float
    kernel_time_share: float | None
    blocks_per_sm: float | None
    occupancy_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDocument:
    """All calls of one operator in the kept steps."""

    name: str
    calls_per_step: float
    host_self_us_per_step: float
    """Host time in the operator itself, without the operators it calls."""

    device_us_per_step: float | None
    """Summed durations of the device work launched from it, without the operators it calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostDocument:
    """What the run costs, at the price that was set."""

    currency: str
    per_hour: float
    """Of all GPUs of the run."""

    per_million_samples: float | None
    """Null where the rate of samples is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UmbrellaDocument:
    """A verdict on the step as a whole, which is not ranked among the findings; its figures stand with its outcome."""

    rule_id: str
    rule: str
    title: str
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingDocument:
    """One worker, one span, one device."""

    id: str
    run: str
    worker: str
    span: str
    cycle: int
    """Position among the worker's recordings in this run, from 0."""

    rank: int | None
    path: str
    distributed: DistributedDocument | None
    device: DeviceDocument | None
    step_source: StepSource
    """What told one step from the next."""

    steps: list[StepDocument]
    dropped_steps: list[DroppedStepDocument]
    mean_step_us: float | None
    median_step_us: float | None
    undisturbed_median_step_us: float | None
    """Median over the steps of the run that were not profiled."""

    samples_per_s: float | None
    mean_breakdown_us: TimePerCategory
    """Mean over the kept steps; empty where there are none."""

    totals_us: TotalsDocument
    overlap_us: OverlapsDocument
    gpu_busy_share: float | None
    """Union of all kernels, collectives included, over the kept steps."""

    sm_efficiency_share: float | None
    achieved_occupancy_share: float | None
    flops_per_s: float | None
    """Operations of matrix products, convolutions and attention over the kept steps; null where the recording does not
    tell what it does in at least nine tenths of kernel time, or where the device's rates are not known."""

    peak_rate_share: float | None
    """Of the rate at which the device can do them: model FLOPs utilisation, where nothing is computed twice."""

    replay: ReplayDocument
    umbrellas: list[UmbrellaDocument]
    kernels: list[KernelDocument]
    """Longest total first; the leading ones."""

    operators: list[OperatorDocument]
    loader_kinds: list[str]
    """Names of the data loader iterators seen."""

    captured_run: RunDocument | None
    """What a capture knows beside the recording; null for a recording made otherwise."""

    recorded_unix_us: WallClockRangeDocument | None
    """When the recording began and ended, since the epoch; null where it does not say."""

    telemetry: TelemetryDocument | None
    """The machine while the run's undisturbed steps went on; null without samples."""

    gpu_count: int | None
    """Of all ranks of the run; null where no device was recorded."""

    joules_per_sample: float | None
    """Energy that the rank's GPUs draw for a sample; null where their power or the rate is not known."""

    cost: CostDocument | None
    """Null where no price is set."""

    memory: MemoryDocument | None
    """Null where the allocator was not recorded over two steps or more."""

    memory_over_time: MemoryOverTimeDocument | None
    """Null where the allocator was not recorded."""
