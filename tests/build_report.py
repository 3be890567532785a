"""Reports built by hand, for tests of what is drawn from them.

The figures are those of no real run, but they fit together: breakdowns sum to
their steps, shares to one, and the timeline agrees with its step.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TypeVar, cast

import numpy as np

from traceadvisor.model.breakdown import Category, MeanBreakdown, StepBreakdown
from traceadvisor.model.findings import (
    Clear,
    Confidence,
    Effort,
    Estimate,
    Evidence,
    Failed,
    Finding,
    Fix,
    LineEdit,
    Location,
    Method,
    RuleMeta,
    Severity,
    Skipped,
    Unit,
)
from traceadvisor.model.health import Health, HealthNote
from traceadvisor.model.location import Frame, PlaceKind
from traceadvisor.model.origins import OriginRow, Origins, OriginTable, OtherOrigins, StackRow, StackTable
from traceadvisor.model.report import (
    DeviceFigures,
    KernelRow,
    NotWorthDoing,
    OperatorRow,
    OutcomeRow,
    Overlap,
    RankedFinding,
    Recording,
    RecordingNote,
    Report,
    SmallBecause,
    SmallSaving,
    Source,
    SourceKind,
    StepRow,
    Work,
)
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step, StepSource
from traceadvisor.model.timeline import Activity, Lane, Timeline
from traceadvisor.model.trace import Device, Distributed

MS = 1_000_000
T = TypeVar("T")

CANARY = "<img src=x onerror=alert(1)>|`[x](http://e) @team #1 \x1b[31m\u202eghp_0123456789abcdefghijABCDEFGHIJ012345"
"""Everything at once that some output format would fall for."""

SHARES_NO_WORKERS = {
    Category.KERNEL: 0.555,
    Category.COMMUNICATION: 0.0,
    Category.H2D_COPY: 0.011,
    Category.OTHER_COPY: 0.001,
    Category.IDLE_UNKNOWN: 0.0,
    Category.DATA_WAIT: 0.334,
    Category.IDLE_DEVICE: 0.006,
    Category.IDLE_PROFILER: 0.0,
    Category.IDLE_ALLOCATOR: 0.0,
    Category.IDLE_SYNC: 0.002,
    Category.IDLE_LAUNCH: 0.078,
    Category.IDLE_HOST: 0.013,
}
SHARES_FOUR_WORKERS = SHARES_NO_WORKERS | {
    Category.KERNEL: 0.703,
    Category.H2D_COPY: 0.022,
    Category.DATA_WAIT: 0.008,
    Category.IDLE_DEVICE: 0.012,
    Category.IDLE_SYNC: 0.003,
    Category.IDLE_UNKNOWN: 0.043,
    Category.IDLE_LAUNCH: 0.166,
    Category.IDLE_HOST: 0.042,
}
SHARES_TWO_RANKS = SHARES_NO_WORKERS | {
    Category.KERNEL: 0.173,
    Category.COMMUNICATION: 0.059,
    Category.H2D_COPY: 0.0,
    Category.OTHER_COPY: 0.003,
    Category.DATA_WAIT: None,
    Category.IDLE_DEVICE: 0.002,
    Category.IDLE_SYNC: 0.001,
    Category.IDLE_LAUNCH: 0.649,
    Category.IDLE_HOST: 0.113,
}
SHARES_ON_HOST = {
    Category.DATA_WAIT: 0.12,
    Category.OPTIMIZER: 0.08,
    Category.BACKWARD: 0.48,
    Category.FORWARD: 0.27,
    Category.COMMUNICATION: 0.0,
    Category.OTHER_HOST: 0.05,
}


def one_recording() -> Report:
    """One complete recording, limited by its data loader."""
    recording = device_recording("resnet50/worker0", SHARES_NO_WORKERS, step_ms=177.6, device=v100())
    return Report(
        tool_version="0.1.0",
        source=Source((Path("log/resnet50"),), SourceKind.TENSORBOARD),
        health=Health(events_read=184_213),
        health_notes=(),
        recordings=(recording,),
        findings=(
            ranked(loader_finding(), recording, Severity.HIGH),
            ranked(launch_finding(), recording, Severity.MEDIUM),
            ranked(pageable_finding(), recording, Severity.LOW, also=("H2D003",)),
        ),
        not_worth_doing=(
            NotWorthDoing("Mixed precision", 0.004, SmallSaving(SmallBecause.TAKEN_OVER)),
            NotWorthDoing("A larger batch", 0.0, SmallSaving(SmallBecause.TAKEN_OVER)),
        ),
        outcomes=outcomes(recording),
    )


def three_recordings() -> Report:
    """Three recordings of different kinds, one without loader events, with notes of both sorts."""
    recordings = (
        device_recording("resnet50/worker0/1623143089861", SHARES_NO_WORKERS, step_ms=177.6, device=v100()),
        device_recording("resnet50/worker0/1623212756351", SHARES_FOUR_WORKERS, step_ms=141.1, device=v100()),
        replace(
            device_recording("gpt2-ddp/rank0", SHARES_TWO_RANKS, step_ms=222.4, device=a100()),
            distributed=Distributed(0, 2, "nccl"),
            loader_kinds=(),
            dropped_steps=((7, "the recording ends inside it"),),
        ),
    )
    first, second, third = recordings
    notes = (
        RecordingNote(
            HealthNote("kernels-missing", "12% of kernel launches have no device record in the last step."), third.id
        ),
        RecordingNote(
            HealthNote("no-loader", "No data loader events were recorded: data wait is not measured.", degrades=False),
            third.id,
        ),
    )
    return replace(
        one_recording(),
        health=Health(events_read=402_117, events_dropped=3, events_repaired=1, notes=tuple(row.note for row in notes)),
        health_notes=notes,
        recordings=recordings,
        findings=(
            ranked(launch_finding(), third, Severity.HIGH),
            ranked(loader_finding(), first, Severity.HIGH),
            ranked(launch_finding(), second, Severity.MEDIUM),
            ranked(pageable_finding(), second, Severity.LOW, also=("H2D003",)),
        ),
        outcomes=tuple(row for recording in recordings for row in outcomes(recording)),
    )


def on_the_cpu() -> Report:
    """A recording without any device."""
    recording = replace(
        device_recording("mnist/worker0", SHARES_ON_HOST, step_ms=48.2, device=v100()),
        device=None,
        figures=DeviceFigures(None, None, None),
        kernels=(),
        overlaps={work: Overlap(6.1 * MS, 5.8 * MS) if work is Work.DATA_LOADING else None for work in Work},
        timeline=host_timeline(),
    )
    saving = Estimate.bound(5.8 * MS, of_the_fix("no device was recorded"))
    needs_device = Skipped(
        "No device activity was recorded. Record with ProfilerActivity.CUDA on a machine with a GPU."
    )
    return replace(
        one_recording(),
        recordings=(recording,),
        findings=(ranked(replace(loader_finding(), saving=saving), recording, Severity.MEDIUM),),
        not_worth_doing=(),
        outcomes=(OutcomeRow("GPU001", (recording.id,), needs_device),),
    )


def nothing_readable() -> Report:
    """An input of which nothing could be used."""
    note = HealthNote("no-events", "The file holds no events.")
    return Report(
        tool_version="0.1.0",
        source=Source((Path("empty.json"),), SourceKind.TRACE),
        health=Health(notes=(note,), unusable=True),
        health_notes=(RecordingNote(note, None),),
        recordings=(),
        findings=(),
        not_worth_doing=(),
        outcomes=(),
    )


def hostile(report: Report) -> Report:
    """The same report with the canary in every string and path of it."""
    return _with_strings(report, lambda text: f"{CANARY} {text}")


def harmless(report: Report) -> Report:
    """The same report with one plain word in every string and path of it: what the hostile one is compared with."""
    return _with_strings(report, lambda text: f"word {text}")


def _with_strings(report: T, changed: Callable[[str], str]) -> T:
    return cast("T", _mapped(report, changed))


def _mapped(value: object, changed: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return changed(value)
    if isinstance(value, Path):
        return Path(changed(str(value)))
    if isinstance(value, tuple):
        return tuple(_mapped(item, changed) for item in value)
    if isinstance(value, Mapping):
        return {_mapped(key, changed): _mapped(item, changed) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _mapped(getattr(value, field.name), changed) for field in fields(value)})
    return value


def device_recording(id_: str, shares: Mapping[Category, float | None], *, step_ms: float, device: Device) -> Recording:
    """Six steps of slightly different length, the first of them left out."""
    lengths = [round(step_ms * MS * factor) for factor in (1.31, 0.99, 1.0, 1.02, 0.98, 1.01)]
    rows: list[StepRow] = []
    at = 0
    for index, length in enumerate(lengths):
        left_out = "work launched before the first mark takes 4% of it" if index == 0 else None
        rows.append(StepRow(Step(index, at, at + length, at, at + length, left_out), breakdown(shares, length)))
        at += length
    kept = [row for row in rows if row.step.kept]
    mean = MeanBreakdown.over(row.breakdown for row in kept)
    busy_share, unknown_share = mean.share(Category.KERNEL) or 0.0, mean.share(Category.IDLE_UNKNOWN) or 0.0
    return Recording(
        id=id_,
        run=id_.split("/", maxsplit=1)[0],
        worker="worker0",
        span="1623143089861",
        cycle=0,
        path=Path(f"/home/ada/log/{id_}.pt.trace.json.gz"),
        distributed=None,
        device=device,
        step_source=StepSource.MARKS,
        steps=tuple(rows),
        dropped_steps=(),
        mean_step_ns=mean.duration_ns,
        median_step_ns=float(np.median([row.step.duration_ns for row in kept])),
        undisturbed_median_step_ns=None,
        samples_per_s=None,
        mean_breakdown=mean,
        overlaps=overlaps(step_ms),
        figures=DeviceFigures(
            busy_share, 0.412, 0.387, 5.51e12, 0.351, busy_share + unknown_share if unknown_share else None
        ),
        timeline=timeline(rows[2]),
        kernels=kernels(),
        operators=operators(),
        loader_kinds=("_MultiProcessingDataLoaderIter",),
        origins={category: origins(round(ns), len(kept)) for category, ns in mean.parts_ns.items() if ns},
    )


def origins(mean_ns: int, step_count: int) -> Origins:
    """Where a time comes from: two rows of each table, one of them without a name, and the others."""
    total_ns = mean_ns * step_count
    first, second = total_ns // 2, total_ns // 3
    other = OtherOrigins(total_ns - first - second, 17 * step_count)
    line = Location("/home/ada/src/train.py", 41, "main", kind=PlaceKind.FUNCTION_START)
    inner = Location("/home/ada/src/model.py", 12, "forward", kind=PlaceKind.FUNCTION_START, is_backward=True)
    owner = Frame("conv2d", "/venv/lib/python3.12/site-packages/torch/nn/functional.py", 300)
    table = OriginTable((OriginRow("aten::conv2d", first, 53), OriginRow(None, second, 4)), other)
    return Origins(
        total_ns=total_ns,
        step_count=step_count,
        operators=table,
        modules=replace(table, rows=(OriginRow("Conv2d in Block", first, 53), OriginRow(None, second, 4))),
        stacks=StackTable(
            (StackRow(line, None, inner, owner, first, 53), StackRow(line, inner, None, Frame("sleep"), second, 4)),
            other,
        ),
    )


def breakdown(shares: Mapping[Category, float | None], length_ns: int) -> StepBreakdown:
    """A step of this length split by these shares; what rounding leaves goes to the largest."""
    parts = {category: None if share is None else int(share * length_ns) for category, share in shares.items()}
    largest = max(parts, key=lambda category: parts[category] or 0)
    rest = length_ns - sum(part or 0 for part in parts.values())
    return StepBreakdown(length_ns, parts | {largest: (parts[largest] or 0) + rest})


def timeline(row: StepRow) -> Timeline:
    """The step's categories one after the other, in a few hundred pieces, and lanes that could have led to them."""
    start, end = row.step.start_ns, row.step.end_ns
    rounds = 60
    spans: dict[Category, list[tuple[int, int]]] = {category: [] for category in row.breakdown.parts_ns}
    at = start
    wait = row.breakdown.parts_ns.get(Category.DATA_WAIT) or 0
    spans.setdefault(Category.DATA_WAIT, []).append((at, at + wait))
    at += wait
    for _ in range(rounds):
        for category, part in row.breakdown.parts_ns.items():
            if part and category is not Category.DATA_WAIT:
                spans[category].append((at, at + part // rounds))
                at += part // rounds
    categories: dict[Category | Activity, SpanSet] = {
        category: SpanSet.of(*pieces) for category, pieces in spans.items() if pieces
    }
    kernel = categories.get(Category.KERNEL, SpanSet.empty())
    copies = categories.get(Category.H2D_COPY, SpanSet.empty())
    training: dict[Category | Activity, SpanSet] = {
        Activity.OPERATOR: SpanSet.of((start + wait, start + (end - start) * 8 // 10)),
        Activity.RUNTIME_CALL: SpanSet.union_of(kernel.starts_ns - 90_000, kernel.starts_ns),
        Activity.LOADING: SpanSet.of((start, start + wait)),
        Activity.BLOCKED: SpanSet.of((end - 9 * MS, end)),
    }
    autograd: dict[Category | Activity, SpanSet] = {
        Activity.OPERATOR: SpanSet.of((start + (end - start) // 2, end - 10 * MS))
    }
    return Timeline(
        step_index=row.step.index,
        start_ns=start,
        end_ns=end,
        host=(Lane("training thread", training), Lane("Autograd thread 2417", autograd)),
        streams=(Lane("Stream 7", {Category.KERNEL: kernel}), Lane("Stream 22", {Category.H2D_COPY: copies})),
        categories=Lane("", categories),
    )


def host_timeline() -> Timeline:
    """A step on the host alone."""
    spans: dict[Category | Activity, SpanSet] = {
        Category.DATA_WAIT: SpanSet.of((0, 6 * MS)),
        Category.FORWARD: SpanSet.of((6 * MS, 18 * MS)),
        Category.BACKWARD: SpanSet.of((18 * MS, 42 * MS)),
        Category.OPTIMIZER: SpanSet.of((42 * MS, 46 * MS)),
        Category.OTHER_HOST: SpanSet.of((46 * MS, 48 * MS)),
    }
    lane = Lane("training thread", {Activity.OPERATOR: SpanSet.of((6 * MS, 45 * MS))})
    return Timeline(3, 0, 48 * MS, (lane,), (), Lane("", spans))


def overlaps(step_ms: float) -> dict[Work, Overlap | None]:
    """Some work, partly hidden; no communication, and device-to-device copies not measured."""
    return {
        Work.DATA_LOADING: Overlap(step_ms * 0.36 * MS, step_ms * 0.334 * MS),
        Work.KERNEL: Overlap(step_ms * 0.56 * MS, step_ms * 0.555 * MS),
        Work.COMMUNICATION: Overlap(0.0, 0.0),
        Work.H2D_COPY: Overlap(step_ms * 0.014 * MS, step_ms * 0.011 * MS),
        Work.D2H_COPY: Overlap(0.02 * MS, 0.02 * MS),
        Work.D2D_COPY: None,
        Work.MEMSET: Overlap(0.3 * MS, 0.1 * MS),
    }


def kernels() -> tuple[KernelRow, ...]:
    """A dozen kernels; the names are what cuDNN and PyTorch really call theirs."""
    names = (
        "volta_scudnn_128x64_relu_interior_nn_v1",
        "void cudnn::detail::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>(cudnnTensorStruct, float const*)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, "
        "at::native::AddFunctor<float> >, at::detail::Array<char*, 3> >(int, at::native::BinaryFunctor<float>)",
        "volta_sgemm_128x64_nt",
        "void cudnn::winograd::generateWinogradTilesKernel<0, float, float>()",
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>()",
        "ampere_sgemm_64x32_sliced1x4_tn",
        "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int, float const*)",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(at::native::ReduceOp<float>)",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2> >()",
        "void cask_cudnn::computeOffsetsKernel<false, false>(cask_cudnn::ComputeOffsetsParams)",
        "void splitKreduce_kernel<float, float, float, float>(cublasSplitKParams<float>, float const*)",
    )
    share = [0.31, 0.19, 0.14, 0.11, 0.08, 0.06, 0.04, 0.03, 0.02, 0.01, 0.006, 0.0002]
    return tuple(
        KernelRow(
            name, 3 + place * 7.5, part * 98 * MS, part, 12.4 / (place + 1), None if place == 3 else 0.5 / (place + 1)
        )
        for place, (name, part) in enumerate(zip(names, share, strict=True))
    )


def operators() -> tuple[OperatorRow, ...]:
    """Ten operators."""
    names = ("convolution_backward", "cudnn_convolution", "add_", "cudnn_batch_norm", "relu_", "copy_", "mul_", "sum")
    return tuple(
        OperatorRow(
            f"aten::{name}", 53 - 4 * place, (9 - place) * 0.8 * MS, None if place == 7 else (9 - place) * 5.0 * MS
        )
        for place, name in enumerate((*names, "empty", "view"))
    )


def outcomes(recording: Recording) -> tuple[OutcomeRow, ...]:
    """One of each kind but the findings."""
    ids = (recording.id,)
    fine = Clear("exposed copies, share of the step", 0.011, 0.05, Unit.SHARE)
    occupied = Clear("blocks per multiprocessor", 12.4, 1.0, Unit.RATIO, remark="weighted by kernel time")
    return (
        OutcomeRow("H2D003", ids, fine),
        OutcomeRow("GPU009", ids, occupied),
        OutcomeRow("IDLE001", ids, Skipped("No call stacks were recorded. Record with with_stack=True.")),
        OutcomeRow("GPU003", ids, Failed("ZeroDivisionError: division by zero")),
    )


def loader_finding() -> Finding:
    """A simulated saving with everything a finding can carry."""
    return Finding(
        rule=rule("DATA001", "dataloader-wait", "The device waits for the data loader"),
        claims=SpanSet.of((0, 59 * MS)),
        saving=Estimate(38.2 * MS, 51.0 * MS, 59.3 * MS, Method.REPLAY),
        confidence=Confidence.HIGH,
        effort=Effort.SETTING,
        evidence=(
            Evidence("device idle while fetching a batch", 59.3 * MS, Unit.NS_PER_STEP),
            Evidence("share of the step", 0.334, Unit.SHARE),
            Evidence("batches fetched by", "_SingleProcessDataLoaderIter", Unit.TEXT),
        ),
        fix=Fix(
            "Load batches in worker processes",
            "DataLoader(..., num_workers=4, persistent_workers=True)",
            settings={"num_workers": 4, "persistent_workers": True},
        ),
        locations=(
            Location("/home/ada/src/train.py", 41, "main", owner=Frame("zoom", "scipy/ndimage/interpolation.py", 7)),
            Location("/home/ada/src/data.py", 118),
        ),
        origins=origins(59 * MS, 5),
        caveats=("With few free CPU cores, more workers slow the training thread.",),
    )


def launch_finding() -> Finding:
    """A bound."""
    return Finding(
        rule=rule("IDLE002", "launch-bound", "Kernels are shorter than their launches"),
        claims=SpanSet.of((60 * MS, 74 * MS)),
        saving=Estimate.bound(27.8 * MS, of_the_fix("the unchanged replay misses the recorded step by +4.0%")),
        confidence=Confidence.MEDIUM,
        effort=Effort.LINE,
        evidence=(
            Evidence("kernels launched", 1184.0, Unit.PER_STEP),
            Evidence("median kernel", 6_400, Unit.NS),
            Evidence("launched memory traffic", 3.4e8, Unit.BYTES_PER_STEP),
        ),
        fix=Fix("Compile the model, so that several operators become one kernel", "model = torch.compile(model)"),
        caveats=("Compiling takes minutes at the first step.", "Changing shapes compile again."),
    )


def pageable_finding() -> Finding:
    """A small saving from a formula, of which little is sure."""
    return Finding(
        rule=rule("H2D001", "pageable-copy", "Batches are copied from pageable memory"),
        claims=SpanSet.of((80 * MS, 81 * MS)),
        saving=Estimate(0.4 * MS, 1.2 * MS, 1.9 * MS, Method.MODEL),
        confidence=Confidence.LOW,
        effort=Effort.SETTING,
        evidence=(
            Evidence("bytes copied", 19_267_584, Unit.BYTES_PER_STEP),
            Evidence("bandwidth", 4.1e9, Unit.BYTES_PER_S),
            Evidence("copies from pageable memory", 2, Unit.COUNT),
        ),
        fix=Fix(
            "Pin the loader's memory",
            "DataLoader(..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)",
            settings={"pin_memory": True, "non_blocking": True},
            edit=LineEdit(
                "DataLoader",
                Location("/home/ada/src/train.py", 30, "main", PlaceKind.CONSTRUCTED),
                {"pin_memory": True},
                before="    loader = DataLoader(data, pin_memory=options.pinned)",
                after="    loader = DataLoader(data, pin_memory=True)",
                replaced={"pin_memory": "options.pinned"},
            ),
        ),
    )


def ranked(finding: Finding, recording: Recording, severity: Severity, also: tuple[str, ...] = ()) -> RankedFinding:
    """The finding in that recording."""
    share = finding.saving.expected_ns / recording.median_step_ns if recording.median_step_ns else 0.0
    return RankedFinding(finding, (recording.id,), severity, share, also, step_ns=recording.median_step_ns)


def rule(id_: str, name: str, title: str = "A rule") -> RuleMeta:
    """What a rule says of itself."""
    return RuleMeta(id_, name, title)


def v100() -> Device:
    """A device with everything known."""
    return Device(0, "Tesla V100-SXM2-16GB", 16_945_512_448, (7, 0), 80)


def a100() -> Device:
    """A device with little known."""
    return Device(0, "NVIDIA A100-SXM4-40GB")
