"""One recording in the terms of the JSON report."""

from __future__ import annotations

from traceadvisor.model.breakdown import Category, MeanBreakdown, StepBreakdown, Totals
from traceadvisor.model.cost import RunCost
from traceadvisor.model.findings import Finding
from traceadvisor.model.replay import ReplayFigures, ReplayStatus
from traceadvisor.model.report import KernelRow, OperatorRow, Overlap, Recording, StepRow, Work
from traceadvisor.model.trace import Device, Distributed
from traceadvisor.results.memory_json import memory_document, memory_over_time_document
from traceadvisor.results.recording_document import (
    CostDocument,
    DeviceDocument,
    DistributedDocument,
    DroppedStepDocument,
    KernelDocument,
    OperatorDocument,
    OverlapDocument,
    OverlapsDocument,
    RecordingDocument,
    ReplayDocument,
    StepDocument,
    TotalsDocument,
    UmbrellaDocument,
)
from traceadvisor.results.run_json import run_document, telemetry_document, wall_clock_range

_NS_PER_US = 1000

_NO_REPLAY = ReplayDocument(
    status=ReplayStatus.NOT_RUN,
    judged_steps=None,
    baseline_step_us=None,
    baseline_error_share=None,
    null_model_error_share=None,
    paced_error_share=None,
    unexplained_share=None,
    joint_step_us=None,
    reason=None,
    device_reason=None,
)


def in_us(ns: float) -> float:
    """Microseconds, to the nanosecond."""
    return round(ns / _NS_PER_US, 3)


def in_us_or_null(ns: float | None) -> float | None:
    """As :func:`in_us`, for a time that may not be known."""
    return None if ns is None else in_us(ns)


def recording_document(recording: Recording) -> RecordingDocument:
    """The recording with its times in microseconds."""
    figures = recording.figures
    return RecordingDocument(
        id=recording.id,
        run=recording.run,
        worker=recording.worker,
        span=recording.span,
        cycle=recording.cycle,
        rank=recording.distributed.rank if recording.distributed else None,
        path=str(recording.path),
        distributed=_distributed(recording.distributed),
        device=_device(recording.device),
        step_source=recording.step_source,
        steps=[_step(row) for row in recording.steps],
        dropped_steps=[DroppedStepDocument(index=index, reason=reason) for index, reason in recording.dropped_steps],
        mean_step_us=in_us_or_null(recording.mean_step_ns),
        median_step_us=in_us_or_null(recording.median_step_ns),
        undisturbed_median_step_us=in_us_or_null(recording.undisturbed_median_step_ns),
        samples_per_s=recording.samples_per_s,
        mean_breakdown_us=_time_per_category(recording.mean_breakdown),
        totals_us=_totals(recording.mean_breakdown),
        overlap_us=OverlapsDocument(**{work.value: _overlap(recording.overlaps.get(work)) for work in Work}),
        gpu_busy_share=figures.busy_share,
        sm_efficiency_share=figures.sm_efficiency_share,
        achieved_occupancy_share=figures.achieved_occupancy_share,
        flops_per_s=figures.flops_per_s,
        peak_rate_share=figures.peak_rate_share,
        replay=_replay(recording.replay),
        umbrellas=[_umbrella(finding) for finding in recording.umbrellas],
        kernels=[_kernel(row) for row in recording.kernels],
        operators=[_operator(row) for row in recording.operators],
        loader_kinds=list(recording.loader_kinds),
        captured_run=run_document(recording.captured),
        recorded_unix_us=wall_clock_range(recording.recorded_wall_ns),
        telemetry=telemetry_document(recording),
        gpu_count=recording.gpu_count,
        joules_per_sample=recording.joules_per_sample,
        cost=_cost(recording.cost),
        memory=memory_document(recording.memory),
        memory_over_time=memory_over_time_document(recording.memory_over_time),
    )


def _cost(cost: RunCost | None) -> CostDocument | None:
    if cost is None:
        return None
    return CostDocument(
        currency=cost.price.currency, per_hour=cost.per_hour, per_million_samples=cost.per_million_samples
    )


def _replay(figures: ReplayFigures | None) -> ReplayDocument:
    if figures is None:
        return _NO_REPLAY
    return ReplayDocument(
        status=figures.status,
        judged_steps=figures.judged_steps,
        baseline_step_us=in_us(figures.baseline_step_ns),
        baseline_error_share=figures.baseline_error_share,
        null_model_error_share=figures.null_model_error_share,
        paced_error_share=figures.paced_error_share,
        unexplained_share=figures.unexplained_share,
        joint_step_us=in_us_or_null(figures.joint_step_ns),
        reason=figures.doubt,
        device_reason=figures.device_doubt,
    )


def _umbrella(finding: Finding) -> UmbrellaDocument:
    rule = finding.rule
    return UmbrellaDocument(rule_id=rule.id, rule=rule.name, title=rule.title, summary=finding.fix.summary)


def _distributed(distributed: Distributed | None) -> DistributedDocument | None:
    if distributed is None:
        return None
    return DistributedDocument(rank=distributed.rank, world_size=distributed.world_size, backend=distributed.backend)


def _device(device: Device | None) -> DeviceDocument | None:
    if device is None:
        return None
    capability = device.compute_capability
    return DeviceDocument(
        id=device.index,
        name=device.name,
        memory_bytes=device.memory_bytes,
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        multiprocessors=device.multiprocessors,
    )


def _step(row: StepRow) -> StepDocument:
    step = row.step
    return StepDocument(
        index=step.index,
        start_us=in_us(step.start_ns),
        duration_us=in_us(step.duration_ns),
        host_start_us=in_us(step.host_start_ns),
        host_end_us=in_us(step.host_end_ns),
        kept=step.kept,
        left_out=step.left_out,
        breakdown_us=_time_per_category(row.breakdown),
    )


def _time_per_category(breakdown: StepBreakdown | MeanBreakdown | None) -> dict[Category, float | None]:
    if breakdown is None:
        return {}
    return {category: in_us_or_null(part) for category, part in breakdown.parts_ns.items()}


def _totals(breakdown: MeanBreakdown | None) -> TotalsDocument:
    totals = breakdown.totals if breakdown else Totals(None, None, None, None, None, None)
    return TotalsDocument(
        data_wait=in_us_or_null(totals.data_wait_ns),
        h2d_copy=in_us_or_null(totals.h2d_copy_ns),
        kernel=in_us_or_null(totals.kernel_ns),
        communication=in_us_or_null(totals.communication_ns),
        other_copy=in_us_or_null(totals.other_copy_ns),
        idle=in_us_or_null(totals.idle_ns),
    )


def _overlap(overlap: Overlap | None) -> OverlapDocument | None:
    if overlap is None:
        return None
    return OverlapDocument(total=in_us(overlap.total_ns), exposed=in_us(overlap.exposed_ns))


def _kernel(row: KernelRow) -> KernelDocument:
    return KernelDocument(
        name=row.name,
        calls_per_step=row.calls_per_step,
        total_us_per_step=in_us(row.total_ns_per_step),
        kernel_time_share=row.share_of_kernel_time,
        blocks_per_sm=row.blocks_per_sm,
        occupancy_share=row.occupancy_share,
    )


def _operator(row: OperatorRow) -> OperatorDocument:
    return OperatorDocument(
        name=row.name,
        calls_per_step=row.calls_per_step,
        host_self_us_per_step=in_us(row.host_self_ns_per_step),
        device_us_per_step=in_us_or_null(row.device_ns_per_step),
    )
