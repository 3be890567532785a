"""The JSON document of a report: where it differs from the model.

Keys, units and order follow from the fields of the model's dataclasses (see ``forms.py``): a new field is in the
document without a line here. Within version 1 keys are added, never renamed or removed. Every time is in microseconds
(``_us``) and rounded to the nanosecond, every share is 0..1, and unknown values are null. Times of a recording
count from its first event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from math import nan
from typing import Any, assert_never

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.breakdown import Category, MeanBreakdown, Totals
from traceadvisor.model.cost import RunCost
from traceadvisor.model.distortion import Distortion
from traceadvisor.model.experiment import SCHEMA as EXPERIMENT_SCHEMA
from traceadvisor.model.experiment import ExperimentResult
from traceadvisor.model.findings import (
    Clear,
    Estimate,
    Evidence,
    Failed,
    Finding,
    Fix,
    Found,
    RuleMeta,
    RuleOutcome,
    Skipped,
    Unit,
)
from traceadvisor.model.health import Health, HealthStatus
from traceadvisor.model.replay import ReplayFigures, ReplayStatus, WhatIf
from traceadvisor.model.report import (
    FoldedFinding,
    FoundFigures,
    KernelRow,
    NotWorthDoing,
    OutcomeRow,
    Overlap,
    PredictedStep,
    RankedFinding,
    RecordedFinding,
    Recording,
    RecordingNote,
    Report,
    StepRow,
    Umbrella,
    UsedSettings,
    Work,
)
from traceadvisor.model.run import (
    LoaderSettings,
    Run,
    RunSettings,
    RunSummary,
    StateSteps,
    StepState,
    steps_by_state,
)
from traceadvisor.model.run_time import RunTime
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.step_memory import MemoryFigures, MemoryOverTime, MemoryRelief, OperatorMemory, StepMemory
from traceadvisor.model.telemetry import DeviceTelemetry, Series, Telemetry
from traceadvisor.model.telemetry_window import (
    DeviceWindow,
    NodeWindow,
    ProcessWindow,
    TelemetryWindow,
    WorkerWindow,
)
from traceadvisor.model.timeline import Timeline
from traceadvisor.model.trace import Device
from traceadvisor.results.forms import (
    ROUNDED,
    Arguments,
    Form,
    Forms,
    Record,
    blank_for_none,
    in_ns,
    in_us,
    listed,
    object_of,
    optional,
    source_of,
    whole_ns,
)

SCHEMA = "traceadvisor.report/1"

LONGEST_RANGES = 20
"""Most time ranges of one finding: enough to find it in the trace, and a small document."""

Written = Mapping[str, Any]
"""An object of the document."""


class OutcomeStatus(Enum):
    """Outcome of a rule."""

    FOUND = "found"
    CLEAR = "clear"
    SKIPPED = "skipped"
    FAILED = "failed"


# Objects of the document that join or split values of the model


@frozen
class _InputHealth:
    health: Health
    health_notes: tuple[RecordingNote, ...]


@frozen
class _Threshold:
    value: float
    unit: Unit
    at_least: bool = False
    """Whether the check passes from the limit on; otherwise it passes up to the limit."""


@frozen
class _TimeRange:
    recording: str
    start_ns: int
    end_ns: int


@frozen
class _Outcome:
    rule_id: str
    recordings: tuple[str, ...]
    status: OutcomeStatus
    reason: str | None = None
    """Why the rule was skipped or failed; for a clear one, what else to know."""

    evidence: tuple[Evidence, ...] = ()
    threshold: _Threshold | None = None
    judged_share: float | None = None
    """Of a clear rule that judges kernels: share of kernel time that it could judge."""


@frozen
class _SampledDevice:
    device: DeviceTelemetry
    window: DeviceWindow


@frozen
class _SampledHost:
    telemetry: Telemetry
    window: NodeWindow


@frozen
class _Sampled:
    devices: tuple[_SampledDevice, ...]
    devices_missing: str | None
    """Why no device was sampled; None where some were, or the reason is unknown."""

    host: _SampledHost
    processes: ProcessWindow


# Figures with a unit of their own


def _unit_name(unit: Unit) -> str:
    return unit.value.replace("ns", "us")


_DocumentUnit: Any = Enum("DocumentUnit", {unit.name: _unit_name(unit) for unit in Unit})  # type: ignore[misc]
_DocumentUnit.__doc__ = "Units of evidence and thresholds."

UNIT_FORM = Form(_DocumentUnit, _unit_name, {_unit_name(unit): unit for unit in Unit}.__getitem__)
_TIMES = (Unit.NS, Unit.NS_PER_STEP)


def _figure_value(row: Evidence | _Threshold) -> float | int | str:
    return row.value if isinstance(row.value, str) or row.unit not in _TIMES else in_us(row.value)


def _evidence_value(forms: Forms) -> Form:
    return Form(float | int | str | None, _figure_value, forms.of(float | int | str | None).read)


def _limit_value(forms: Forms) -> Form:
    return Form(float | None, _figure_value, forms.of(float | int | None).read)


def _finish_figure(arguments: Arguments, _: Written) -> None:
    value = arguments["value"]
    if value is None:
        arguments["value"] = nan
    elif arguments["unit"] in _TIMES and not isinstance(value, str):
        arguments["value"] = in_ns(value)


# Recordings


def _capability(_: Forms) -> Form:
    """A pair of numbers, written with a dot between them."""

    def read(text: str) -> tuple[int, int]:
        major, minor = map(int, text.split("."))
        return major, minor

    return optional(Form(str, lambda pair: f"{pair[0]}.{pair[1]}", read))


def _finish_step(arguments: Arguments, written: Written) -> None:
    duration_ns = whole_ns(written["duration_us"])
    arguments["step.end_ns"] = arguments["step.start_ns"] + duration_ns
    arguments["breakdown.duration_ns"] = duration_ns


def _finish_cost(arguments: Arguments, written: Written) -> None:
    arguments["gpu_count"] = 1  # until the recording says how many
    arguments["price.per_gpu_hour"] = written["per_hour"]


def _finish_memory(arguments: Arguments, _: Written) -> None:
    lengths = {len(one) for one in arguments.values() if one is not None}
    if len(lengths) > 1 or min(lengths) < 2:
        raise ValueError("lists of different lengths, or of fewer than two values")


def _finish_state(arguments: Arguments, written: Written) -> None:
    arguments["state"] = StepState(written["state"])


def _steps_by_state(forms: Forms) -> Form:
    """Written from a run; read into rows."""
    rows = forms.of(Mapping[StepState, StateSteps])
    return Form(
        rows.kind,
        lambda run: rows.write({row.state: row for row in steps_by_state(run)}),
        lambda states: tuple(rows.read({key: row | {"state": key} for key, row in states.items()}).values()),
    )


def _finish_run(arguments: Arguments, written: Written) -> None:
    arguments["known_summary"] = RunSummary(written["step_count"], arguments["steps"])
    arguments["steps"] = ()


def _mean_parts(forms: Forms) -> Form:
    """Of a mean breakdown; an empty object where there is none."""
    parts = forms.of(Mapping[Category, float | None], ROUNDED)
    return Form(parts.kind, lambda mean: {} if mean is None else parts.write(mean.parts_ns), parts.read)


def _overlaps(forms: Forms) -> Form:
    doc = "Kinds of work, each with its total and its exposed part; null where not measured."
    overlaps = object_of("OverlapsDocument", doc, {work.value: forms.of(Overlap | None) for work in Work})
    return Form(
        overlaps.kind,
        lambda by_work: overlaps.write([by_work.get(work) for work in Work]),
        lambda written: dict(zip(Work, overlaps.read(written), strict=True)),
    )


def _dropped_steps(forms: Forms) -> Form:
    keys = {"index": forms.of(int), "reason": forms.of(str)}
    return listed(object_of("DroppedStepDocument", "A recorded step that is not shown at all.", keys))


def _wall_clock_range(forms: Forms) -> Form:
    keys = dict.fromkeys(("start", "end"), forms.of(int, ROUNDED))
    return optional(object_of("WallClockRangeDocument", "Microseconds since the epoch.", keys))


def _telemetry(forms: Forms) -> Form:
    """Written from a recording: telemetry figures joined with the machine's properties."""

    def joined(recording: Recording) -> _Sampled | None:
        telemetry, window = recording.captured.telemetry if recording.captured else None, recording.telemetry
        if telemetry is None or window is None:
            return None
        devices = map(_SampledDevice, telemetry.devices, window.devices)
        return _Sampled(
            tuple(devices), telemetry.devices_missing, _SampledHost(telemetry, window.node), window.processes
        )

    sampled = forms.of(_Sampled | None)
    return Form(sampled.kind, lambda recording: sampled.write(joined(recording)), sampled.read)


_NO_SAMPLES = Series(np.empty(0, np.int64), {})


def _finish_device(arguments: Arguments, _: Written) -> None:
    arguments["device.series"] = _NO_SAMPLES
    arguments["window.uuid"] = arguments["device.uuid"]


def _finish_host(arguments: Arguments, _: Written) -> None:
    arguments["telemetry.node"] = arguments["telemetry.processes"] = _NO_SAMPLES


def _finish_recording(arguments: Arguments, written: Written) -> None:
    group, run, sampled, cost = (arguments[name] for name in ("distributed", "captured", "telemetry", "cost"))
    arguments["rank_count"] = group.world_size if group and group.world_size else 1
    for kind, totals in (("mean", "totals_us"), ("typical", "typical_totals_us")):
        idle_us = (written.get(totals) or {}).get("idle")
        arguments[f"{kind}_breakdown"] = _mean_breakdown(arguments, kind, idle_us)
    if cost:
        count = arguments["gpu_count"] or 1
        per_gpu_hour = source_of(cost.per_hour, cost.per_hour / count, lambda price: price * count)
        arguments["cost"] = replace(cost, gpu_count=count, price=replace(cost.price, per_gpu_hour=per_gpu_hour))
    if sampled:
        if not run:
            raise ValueError("telemetry without a captured run")
        cores = run.settings.cpu_quota  # the smaller of affinity and quota; only a quota throttles
        is_quota = sampled.processes.mean_throttled_share is not None
        telemetry = replace(
            sampled.host.telemetry,
            devices=tuple(one.device for one in sampled.devices),
            devices_missing=sampled.devices_missing,
            cpu_quota=cores if is_quota else None,
            cpu_affinity=None if is_quota or cores is None else round(cores),
        )
        arguments["captured"] = replace(run, telemetry=telemetry)
        windows = tuple(one.window for one in sampled.devices)
        arguments["telemetry"] = TelemetryWindow(windows, sampled.host.window, sampled.processes)


def _mean_breakdown(arguments: Arguments, kind: str, idle_us: float | None) -> MeanBreakdown | None:
    parts_ns, duration_ns = arguments[f"{kind}_breakdown"], arguments[f"{kind}_step_ns"]
    if not parts_ns:
        return None
    if duration_ns is None:
        raise ValueError(f"a {kind} breakdown without a {kind} step")
    return MeanBreakdown(duration_ns, parts_ns, None if idle_us is None else in_ns(idle_us))


# Findings and outcomes


def _time_ranges(forms: Forms) -> Form:
    """Written from a ranked finding; read into a set of spans."""
    ranges = forms.of(tuple[_TimeRange, ...])

    def longest(ranked: RecordedFinding) -> list[_TimeRange]:
        claims = ranked.finding.claims
        chosen = np.sort(np.argsort(claims.starts_ns - claims.ends_ns, kind="stable")[:LONGEST_RANGES])
        spans = zip(claims.starts_ns[chosen].tolist(), claims.ends_ns[chosen].tolist(), strict=True)
        return [_TimeRange(ranked.recording_ids[0], start_ns, end_ns) for start_ns, end_ns in spans]

    return Form(
        ranges.kind,
        lambda ranked: ranges.write(longest(ranked)),
        lambda spans: SpanSet.of(*((span.start_ns, span.end_ns) for span in ranges.read(spans))),
    )


def _predicted_step(forms: Forms) -> Form:
    """Written from a ranked finding."""
    step = forms.of(PredictedStep | None)
    return Form(step.kind, lambda ranked: step.write(ranked.predicted_step), step.read)


def _finish_finding(arguments: Arguments, _: Written) -> None:
    if not arguments["recording_ids"]:
        raise ValueError("a finding of no recording")


def _outcomes(forms: Forms) -> Form:
    """Written from rows; read into outcomes, from which a report makes rows."""
    outcomes = forms.of(tuple[_Outcome, ...])
    return Form(outcomes.kind, lambda rows: outcomes.write(map(_outcome, rows)), outcomes.read)


def _outcome(row: OutcomeRow) -> _Outcome:
    rule_id, ids = row.rule.id, row.recording_ids
    match row.outcome:
        case Found(finding):
            return _Outcome(rule_id, ids, OutcomeStatus.FOUND, evidence=finding.evidence)
        case FoundFigures(evidence):
            return _Outcome(rule_id, ids, OutcomeStatus.FOUND, evidence=evidence)
        case Clear(label, value, limit, unit, remark, judged_share=judged_share):
            evidence = (Evidence(label, value, unit),)
            threshold = _Threshold(limit, unit, row.outcome.at_least)
            return _Outcome(rule_id, ids, OutcomeStatus.CLEAR, remark, evidence, threshold, judged_share)
        case Skipped(missing):
            return _Outcome(rule_id, ids, OutcomeStatus.SKIPPED, missing)
        case Failed(error):
            return _Outcome(rule_id, ids, OutcomeStatus.FAILED, error)
        case _:
            assert_never(row.outcome)


def _row(outcome: _Outcome, rule: RuleMeta, finding: Finding | None) -> OutcomeRow:
    """The outcome of a rule, with its finding where a ranked one has the same figures."""
    result: RuleOutcome | FoundFigures
    match outcome:
        case _Outcome(status=OutcomeStatus.FOUND, evidence=evidence):
            result = Found(finding) if finding and finding.evidence == evidence else FoundFigures(evidence)
        case _Outcome(
            status=OutcomeStatus.CLEAR,
            evidence=(Evidence(label, int() | float() as value, unit),),
            threshold=_Threshold(limit, limit_unit, at_least),
            reason=remark,
        ) if unit is limit_unit:
            judged_share = outcome.judged_share
            result = Clear(label, value, limit, unit, remark, judged_share=judged_share, at_least=at_least)
        case _Outcome(status=OutcomeStatus.SKIPPED, reason=str(reason)):
            result = Skipped(reason)
        case _Outcome(status=OutcomeStatus.FAILED, reason=str(reason)):
            result = Failed(reason)
        case _:
            raise ValueError(f"the outcome of {outcome.rule_id} lacks a figure, a threshold or a reason")
    return OutcomeRow(rule, outcome.recordings, result)


# The report


def _finish_health(arguments: Arguments, written: Written) -> None:
    status = HealthStatus(written["status"])
    notes = tuple(dict.fromkeys(row.note for row in arguments["health_notes"]))
    arguments["health.notes"] = () if status is HealthStatus.OK else notes
    arguments["health.unusable"] = status is HealthStatus.UNUSABLE


def _finish_report(arguments: Arguments, _: Written) -> None:
    """Join values that the document has in two places."""
    health: _InputHealth = arguments["health"]
    arguments |= {"health": health.health, "health_notes": health.health_notes}
    recordings: tuple[Recording, ...] = arguments["recordings"]
    findings: tuple[RankedFinding, ...] = arguments["findings"]
    outcomes: tuple[_Outcome, ...] = arguments["outcomes"]
    cases = [case for row in findings for case in (*row.by_recording, row)]
    by_place = {(row.finding.rule.id, row.recording_ids): row.finding for row in cases}
    evidence = {(one.rule_id, one.recordings): one.evidence for one in outcomes}
    rules = {row.finding.rule.id: row.finding.rule for row in findings}
    rules |= {one.rule.id: one.rule for row in cases for one in row.folded}
    rules |= {one.rule.id: one.rule for recording in recordings for one in recording.umbrellas}
    rules |= {one.id: RuleMeta(one.id, one.name, one.title) for one in arguments["rules"]}
    arguments["outcomes"] = tuple(
        _row(
            one,
            rules.get(one.rule_id, RuleMeta(one.rule_id, name="", title="")),
            by_place.get((one.rule_id, one.recordings)),
        )
        for one in outcomes
    )
    arguments["recordings"] = tuple(
        replace(
            recording,
            umbrellas=tuple(
                replace(one, evidence=evidence.get((one.rule.id, (recording.id,)), ())) for one in recording.umbrellas
            ),
        )
        for recording in recordings
    )


def _finding_record(owner: type[RecordedFinding], title: str) -> Record:
    """A finding, in one recording or in several."""
    return Record(
        owner,
        title,
        spread="finding finding.rule",
        renamed={
            "finding.rule.id": "rule_id",
            "finding.rule.name": "rule",
            "recording_ids": "recordings",
            "finding.saving": "saving_us_per_step",
            "finding.claims": "time_ranges_us",
            "further_saving": "further_saving_us_per_step",
            "predicted": "predicted_step_us",
        },
        whole={"finding.claims": _time_ranges, "predicted": _predicted_step},
        nullable="saving_share",
        docs={
            "finding.claims": "The longest spans of time that the finding explains, at most 20, in order of time.",
            "predicted": "The step with the fix made; null where nothing is saved or the fix was not simulated.",
        },
        order=(
            "rule_id rule title recordings severity confidence effort saving_us_per_step saving_share "
            "further_saving_us_per_step step_us predicted_step_us evidence locations time_ranges_us fix caveats also "
            "folded worth",
        ),
        finish=_finish_finding,
    )


EXPERIMENT = Record(ExperimentResult, constant={"schema": EXPERIMENT_SCHEMA})

RECORDS = (
    EXPERIMENT,
    Record(
        Report,
        constant={"schema": SCHEMA},
        left_out="health_notes",
        whole={"health": lambda forms: forms.of(_InputHealth)},
        forms={"outcomes": _outcomes},
        finish=_finish_report,
    ),
    Record(
        _InputHealth,
        "HealthDocument",
        doc="The state of the input.",
        spread="health",
        left_out="health.notes health.unusable",
        derived="health.status",
        renamed={"health_notes": "notes"},
        order=("status events_read events_dropped events_repaired notes",),
        finish=_finish_health,
    ),
    Record(
        RecordingNote,
        "NoteDocument",
        spread="note",
        renamed={"recording_id": "recording"},
        order=("message recording degrades",),
    ),
    Record(
        Recording,
        spread="figures",
        left_out="timeline rank_count",
        derived="distributed.rank mean_breakdown.totals typical_breakdown.totals",
        renamed={
            "mean_breakdown": "mean_breakdown_us",
            "mean_breakdown.totals": "totals_us",
            "typical_breakdown": "typical_breakdown_us",
            "typical_breakdown.totals": "typical_totals_us",
            "overlaps": "overlap_us",
            "figures.busy_share": "gpu_busy_share",
            "figures.busy_share_high": "gpu_busy_share_high",
            "operations_per_step": "gpu_operations_per_step",
            "captured": "captured_run",
            "recorded_wall_ns": "recorded_unix_us",
        },
        forms={
            "dropped_steps": _dropped_steps,
            "mean_breakdown": _mean_parts,
            "mean_breakdown.totals": lambda forms: blank_for_none(forms.of(Totals)),
            "typical_breakdown": _mean_parts,
            "typical_breakdown.totals": lambda forms: blank_for_none(forms.of(Totals)),
            "overlaps": _overlaps,
            "recorded_wall_ns": _wall_clock_range,
            "replay": lambda forms: blank_for_none(forms.of(ReplayFigures), status=ReplayStatus.NOT_RUN.value),
        },
        whole={"telemetry": _telemetry},
        order=(
            "cycle rank path",
            "mean_breakdown_us totals_us",
            "typical_breakdown_us typical_totals_us",
            "peak_rate_share replay umbrellas",
        ),
        finish=_finish_recording,
    ),
    Record(
        Device,
        renamed={"index": "id"},
        forms={"compute_capability": _capability},
        docs={"compute_capability": "CUDA devices only, for example ``8.0``."},
    ),
    Record(
        StepRow,
        spread="step breakdown",
        left_out="step.end_ns breakdown.duration_ns",
        derived="step.duration_ns step.kept step.typical",
        renamed={"breakdown.parts_ns": "breakdown_us"},
        order=("start_us duration_us host_start_us host_end_us kept left_out typical atypical breakdown_us",),
        finish=_finish_step,
    ),
    Record(Totals, bare=True),
    Record(Overlap, bare=True),
    Record(
        ReplayFigures,
        "ReplayDocument",
        derived="status",
        renamed={"doubt": "reason", "device_doubt": "device_reason"},
        nullable="judged_steps baseline_step_ns baseline_error_share null_model_error_share unexplained_share",
        order=(
            "status judged_steps baseline_step_us baseline_error_share null_model_error_share paced_error_share "
            "unexplained_share joint_step_us reason device_reason",
        ),
    ),
    Record(
        Umbrella,
        spread="rule fix",
        left_out="fix.change fix.not_replayed fix.needs fix.otherwise evidence",
        renamed={"rule.id": "rule_id", "rule.name": "rule"},
    ),
    Record(KernelRow, renamed={"share_of_kernel_time": "kernel_time_share"}, nullable="share_of_kernel_time"),
    Record(
        Run,
        left_out="telemetry world_size batches stacks loader_stacks known_summary started ended checkpoint_after_ns",
        derived="step_count",
        renamed={"steps": "steps_by_state"},
        docs={"steps": "Times of the run's steps by profiler activity."},
        whole={"steps": _steps_by_state},
        order=("ending step_count steps_by_state",),
        finish=_finish_run,
    ),
    Record(
        Distortion,
        "DistortionDocument",
        derived="ratio added_ns added_in_loader_ns added_elsewhere_ns is_strong",
    ),
    Record(
        RunTime,
        "RunTimeDocument",
        derived="loop_ns training_share_of_loop",
        docs={"parts_ns": "By part; sums to the total. A part that was not measured is absent."},
    ),
    Record(StateSteps, "RunStepsDocument", left_out="state", rounded=False, finish=_finish_state),
    Record(
        RunSettings,
        "SettingsDocument",
        left_out="optimizer_fused optimizer_foreach ranks_on_host own_code devices",
        renamed={"cpu_quota": "cpu_quota_cores"},
    ),
    Record(
        LoaderSettings,
        spread="location",
        left_out="location.function location.kind location.is_backward location.owner",
        renamed={"worker_count": "num_workers"},
        docs={"location.file": "File of the loop over the loader.", "location.line": "Line of that loop."},
        order=("sampler file line",),
    ),
    Record(_Sampled, "TelemetryDocument", doc="The machine during the run's undisturbed steps."),
    Record(
        _SampledDevice,
        "DeviceTelemetryDocument",
        doc="One device of the machine, its figures over the undisturbed steps; null where no sample holds them.",
        spread="device window",
        left_out="device.index device.max_link device.series device.pci_bus_id window.uuid window.best_link",
        order=(
            "name cuda_index split memory_bytes power_limit_watts default_power_limit_watts max_power_limit_watts "
            "slowdown_celsius max_sm_clock_mhz",
        ),
        finish=_finish_device,
    ),
    Record(
        _SampledHost,
        "HostTelemetryDocument",
        doc="The whole host over the undisturbed steps; null where no sample holds a figure.",
        spread="telemetry window",
        left_out="telemetry.devices telemetry.node telemetry.processes telemetry.cpu_quota telemetry.cpu_affinity "
        "telemetry.workers telemetry.devices_missing telemetry.group_memory_limit_bytes",
        renamed={"telemetry.host": "name"},
        finish=_finish_host,
    ),
    Record(ProcessWindow, "ProcessTelemetryDocument"),
    Record(WorkerWindow, "WorkerTelemetryDocument"),
    Record(
        RunCost,
        "CostDocument",
        spread="price",
        left_out="price.per_gpu_hour gpu_count",
        derived="per_hour",
        order=("currency per_hour per_million_samples",),
        finish=_finish_cost,
    ),
    Record(MemoryFigures, "MemoryDocument", renamed={"relief": "freed_bytes"}),
    Record(MemoryRelief, bare=True),
    Record(StepMemory, derived="peak_bytes"),
    Record(MemoryOverTime, finish=_finish_memory),
    Record(OperatorMemory),
    _finding_record(RecordedFinding, "RecordedFindingDocument"),
    _finding_record(RankedFinding, "FindingDocument"),
    Record(
        FoldedFinding,
        spread="rule",
        renamed={"rule.id": "rule_id", "rule.name": "rule", "saving": "saving_us_per_step"},
        order=("rule_id rule title because",),
    ),
    Record(Fix, left_out="not_replayed needs otherwise"),
    Record(
        Estimate,
        "SavingDocument",
        doc="Time saved per step.",
        bare=True,
        docs={"method": "How it was estimated."},
    ),
    Record(PredictedStep, bare=True),
    Record(Evidence, whole={"value": _evidence_value}, finish=_finish_figure),
    Record(
        _Threshold,
        "ThresholdDocument",
        doc="The limit that a figure was compared with.",
        whole={"value": _limit_value},
        finish=_finish_figure,
    ),
    Record(_TimeRange, "TimeRangeDocument", doc="A span of time in a recording.", bare=True),
    Record(_Outcome, "OutcomeDocument", doc="Outcome of one rule on one recording."),
    Record(NotWorthDoing, renamed={"recording_ids": "recordings"}, nullable="saving_share"),
    Record(UsedSettings, spread="price", renamed={"providers": "plugins", "price.per_gpu_hour": "gpu_price_per_hour"}),
)

FORMS = Forms(RECORDS, {Unit: UNIT_FORM}, unwritten=(WhatIf, Timeline))
REPORT = FORMS.of(Report)
