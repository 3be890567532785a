"""Words for every enum value that a report shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from traceadvisor.model.breakdown import Category
from traceadvisor.model.communication import CollectiveKind, Purpose
from traceadvisor.model.findings import Certainty, ClearedBecause, Confidence, Effort, Method, NotCounted, Severity
from traceadvisor.model.job import LateCause
from traceadvisor.model.report import FoldedBecause, SmallBecause, SmallSaving, SourceKind, Work
from traceadvisor.model.run import StepState
from traceadvisor.model.saving import Doubt, Reason
from traceadvisor.model.steps import StepSource
from traceadvisor.model.telemetry import ClockEventReason
from traceadvisor.model.timeline import Activity
from traceadvisor.model.verdict import VerdictCertainty
from traceadvisor.model.workload import InferenceSign
from traceadvisor.text.ranges import around

CATEGORY = {
    Category.KERNEL: "Kernels",
    Category.COMMUNICATION: "Communication",
    Category.H2D_COPY: "CPU-to-GPU copy",
    Category.OTHER_COPY: "Other copies",
    Category.IDLE_UNKNOWN: "Unknown",
    Category.DATA_WAIT: "Data wait",
    Category.IDLE_DEVICE: "Idle: kernel-launch latency",
    Category.IDLE_PROFILER: "Idle: profiler overhead",
    Category.IDLE_ALLOCATOR: "Idle: memory allocation",
    Category.IDLE_SYNC: "Idle: after a synchronisation",
    Category.IDLE_LAUNCH: "Idle: CPU launching kernels",
    Category.IDLE_HOST: "Idle: other CPU work",
    Category.OPTIMIZER: "Optimizer",
    Category.BACKWARD: "Backward",
    Category.FORWARD: "Forward",
    Category.OTHER_HOST: "Other CPU work",
}

DEFINITION = {
    Category.KERNEL: "A compute kernel runs on the GPU, on any stream.",
    Category.COMMUNICATION: "A collective, such as an all-reduce, runs and no compute kernel runs: "
    "communication that does not overlap with compute.",
    Category.H2D_COPY: "The GPU receives a copy from CPU memory (host to device), and no kernel or collective runs.",
    Category.OTHER_COPY: "The GPU copies data to the CPU, to another GPU or within its own memory, or sets memory, "
    "and does none of the above.",
    Category.IDLE_UNKNOWN: "The recording does not show whether the GPU worked. This is no cause of lost time, and it "
    "makes the GPU's busy share a range.",
    Category.DATA_WAIT: "The GPU is idle and the training thread waits inside the data loader.",
    Category.IDLE_DEVICE: "The GPU is idle although the CPU has already launched the next operation.",
    Category.IDLE_PROFILER: "The GPU is idle while the profiler works. A run without the profiler avoids this.",
    Category.IDLE_ALLOCATOR: "The GPU is idle while the launching thread allocates or frees GPU or pinned CPU memory.",
    Category.IDLE_SYNC: "The CPU waited for the GPU until the GPU had no work left. "
    "The GPU is now idle until the CPU launches the next kernel.",
    Category.IDLE_LAUNCH: "The GPU is idle while the launching thread runs operators or runtime calls: "
    "the CPU launches kernels more slowly than the GPU runs them.",
    Category.IDLE_HOST: "The GPU is idle for another reason, such as Python code, logging or checkpointing.",
    Category.OPTIMIZER: "The training thread runs the optimizer step.",
    Category.BACKWARD: "A thread runs the backward pass.",
    Category.FORWARD: "The training thread runs any other operator: forward pass, loss, metrics.",
    Category.OTHER_HOST: "The training thread does something else, such as Python code, logging or checkpointing.",
}

DEFINITION_ON_HOST = {
    Category.DATA_WAIT: "The training thread waits inside the data loader.",
    Category.COMMUNICATION: "A collective runs on any thread, and nothing else in this list happens.",
}
"""Definitions that differ in a recording without a GPU."""

ACTIVITY = {
    Activity.OPERATOR: "Operators",
    Activity.RUNTIME_CALL: "Runtime calls",
    Activity.BLOCKED: "Waiting for the GPU",
    Activity.LOADING: "In the data loader",
    Activity.OPTIMIZER: "In the optimizer",
}

WORK = {
    Work.DATA_LOADING: "Data loading",
    Work.KERNEL: "Kernels",
    Work.COMMUNICATION: "Communication",
    Work.H2D_COPY: "CPU-to-GPU copies",
    Work.D2H_COPY: "GPU-to-CPU copies",
    Work.D2D_COPY: "GPU-to-GPU copies",
    Work.MEMSET: "Memsets",
}

COLLECTIVE = {one: one.value.replace("_", "-").capitalize() for one in CollectiveKind}
COLLECTIVE[CollectiveKind.SEND_RECEIVE] = "Send and receive"

LATE_CAUSE = {
    LateCause.DATA: "data wait",
    LateCause.COMPUTE: "compute",
    LateCause.HOST: "CPU work",
    LateCause.COPIES: "copies",
    LateCause.LINK: "communication with some of the ranks",
    LateCause.CLOCK: "compute on a GPU with a lower clock",
    LateCause.START: "a later start of the recorded step, for a reason that was not recorded",
    LateCause.UNKNOWN: "unknown",
}

PURPOSE = {
    Purpose.GRADIENTS: "Gradients",
    Purpose.SHARDS: "Sharded modules (FSDP, ZeRO)",
    Purpose.EXCHANGE: "Embeddings or experts",
    Purpose.TENSOR_PARALLEL: "Tensor parallelism",
    Purpose.PIPELINE: "Pipeline stages",
    Purpose.BATCH_NORM: "Synchronised batch norm",
    Purpose.BUFFERS: "Buffers",
    Purpose.OPTIMIZER: "Optimizer",
    Purpose.BOOKKEEPING: "Losses, metrics, norms",
    Purpose.BARRIER: "Synchronisation",
    Purpose.UNKNOWN: "Unknown",
}

SEVERITY = {one: one.value.capitalize() for one in Severity}
CONFIDENCE = {one: one.value for one in Confidence}

EFFORT = {Effort.SETTING: "change a setting", Effort.LINE: "a small change", Effort.REFACTOR: "a larger change"}

CERTAINTY = {
    Certainty.SIMULATED: "simulated",
    Certainty.UNSURE: "simulated, uncertain",
    Certainty.CALCULATED: "calculated",
    Certainty.LIMIT: "not simulated",
    Certainty.NONE: "no speed-up",
}

FOLDED = {
    FoldedBecause.SAME_TIME: "same cause",
    FoldedBecause.LOAD_DECIDES: "same cause; it needs free CPU cores, and may save more on an idle machine",
    FoldedBecause.ALTERNATIVE: "an alternative to this fix",
    FoldedBecause.WITHIN_LIMIT: "within the upper limit of this fix",
    FoldedBecause.INDIRECT: "may have the same cause; measure again after this fix",
    FoldedBecause.ADDS_LITTLE: "saves less than 1% of the step after this fix",
}

LOAD_DECIDES = "Worker processes need free CPU cores: on an idle machine, they may save more than this."
"""Behind the second of two fixes, of which only one needs free cores."""

VERDICT_CERTAINTY = {one: one.value.replace("_", " ") for one in VerdictCertainty}

METHOD = {
    Method.REPLAY: "Simulated: the recorded step without this cost.",
    Method.BOUND: "At most: other work may take its place.",
    Method.MODEL: "Calculated with a documented formula.",
}

DOUBT = {
    Doubt.NO_STEP: "no complete step was recorded",
    Doubt.NOT_TOGETHER: "the fix was not simulated with those above",
    Doubt.ONE_STEP: "one step was recorded, and other steps may differ",
    Doubt.TWO_STEPS: "two steps were recorded, and other steps may differ",
    Doubt.DISTORTED: "recorded steps took {factor:.1f} times as long as undisturbed ones, and which parts grew is "
    "unknown",
    Doubt.UNKNOWN_TIME: "for {whole} of the step the recording does not show whether the GPU worked",
    Doubt.OTHER_DEVICE: "this process also keeps another GPU busy during {whole} of the step, and the recording does "
    "not show which GPU the CPU works and waits for",
    Doubt.ERROR: "the unchanged simulation differs from the recorded step by {signed}",
    Doubt.UNEXPLAINED_WAITS: "for {whole} of the step the CPU waits for something the recording does not show",
    Doubt.PACE_ERROR: "with batches at the workers' average pace, the simulation differs from the recorded step by "
    "{signed}",
    Doubt.UNEVEN_BATCHES: "the loader workers' batches vary too much for one pace: with it, a simulated step is off by "
    "{whole}",
    Doubt.LATE_BATCHES: "the loop waits for batches in only some steps ({whole} of the time), and how fast the loader "
    "workers could be is unknown",
    Doubt.CPU_EXPLAINS_STEP: "the CPU alone explains the step within {share:.1%}, so how long the GPU alone would take "
    "is uncertain",
    Doubt.WAITS_FOR_DEVICE: "after this fix the step waits for the GPU, and how long that takes is uncertain",
    Doubt.MEASURE_AGAIN: "the fixes above may save this time, too",
    Doubt.CONDITIONS: "the recording does not show which of these changes gives the same results",
}


def reason_words(reason: Reason) -> str:
    """Why a saving is only a limit or less certain, as a clause without its stop."""
    if reason.doubt is Doubt.OF_THE_FIX:
        return reason.words or "it cannot be simulated"
    figure = reason.figure or 0.0
    return DOUBT[reason.doubt].format(factor=figure, whole=f"{abs(figure):.0%}", signed=f"{figure:+.1%}", share=figure)


WORTH_DOING_SHARE = "2%"
"""Share of the step below which reports call a fix not worth doing."""


def small_saving_words(small: SmallSaving) -> str:
    """Why a popular fix saves little, in sentences."""
    match small.because:
        case SmallBecause.SMALL_SHARE:
            why_not = f" Not simulated: {reason_words(small.doubt)}." if small.doubt else ""
            return f"The fix removes at most this share of the step: {small.label}.{why_not}"
        case SmallBecause.SIMULATED_LITTLE:
            return f"In the simulation, this fix shortens the step by less than {WORTH_DOING_SHARE}."
        case SmallBecause.SIMULATED_NOTHING:
            return "In the simulation, this fix does not shorten the step."
        case SmallBecause.TAKEN_OVER:
            later = " Check it again after fixing the findings." if small.has_findings else ""
            return f"In the simulation, other work takes the place of the removed time.{later}"
        case _:
            assert_never(small.because)


CLEARED = {
    ClearedBecause.TAKEN_OVER: "other work takes the place of the removed time",
    ClearedBecause.SAVES_LITTLE: "the fix is expected to save less than 0.1% of the step",
}

NOT_COUNTED = {NotCounted.START_UP: "start-up", NotCounted.RANK_WAITS: "waits for other ranks"}

STEP_SOURCE = {
    StepSource.MARKS: "the profiler marked each step in the recording",
    StepSource.SERVING: "each iteration of the serving engine, or each call of generate(), is one step",
    StepSource.OPTIMIZER: "the recording marks no steps; each ends when the optimizer has updated the parameters",
    StepSource.COMPILED: "the recording marks no steps; each begins with a call of the compiled step function",
    StepSource.WINDOW: "the recording marks no steps and shows no optimizer; all of it counts as one step",
}

INFERENCE_SIGN = {
    InferenceSign.SERVING: "marks of a serving engine",
    InferenceSign.GENERATE: "calls of generate()",
    InferenceSign.NO_GRADIENTS: "a forward pass with gradients disabled in every operator",
}

SOURCE_KIND = {
    SourceKind.CAPTURE: "capture by TraceAdvisor",
    SourceKind.TENSORBOARD: "TensorBoard profiler log",
    SourceKind.TRACE: "profiler trace",
    SourceKind.SNAPSHOT: "CUDA memory snapshot",
}

STEP_STATE = {
    StepState.PLAIN: "Undisturbed",
    StepState.WARMUP: "Profiler warming up",
    StepState.SETTLING: "Just after a profiler pause",
    StepState.RECORDED: "Recorded",
    StepState.STALLED: "Held up by the capture",
    StepState.OTHER: "Not a training step",
}

CLOCKS_HELD_BACK = {
    ClockEventReason.APPLICATION_CLOCKS: "application clocks",
    ClockEventReason.SW_POWER_CAP: "software power cap",
    ClockEventReason.HW_SLOWDOWN: "hardware slowdown",
    ClockEventReason.SYNC_BOOST: "sync boost",
    ClockEventReason.SW_THERMAL: "software thermal slowdown",
    ClockEventReason.HW_THERMAL: "hardware thermal slowdown",
    ClockEventReason.HW_POWER_BRAKE: "hardware power brake",
    ClockEventReason.DISPLAY_CLOCKS: "display clock setting",
}
"""NVML's names, shown after `Clocks limited by`. An idle GPU also lowers its clocks; that is no limit."""

GROUPS = {
    "DATA": "Data loading",
    "H2D": "CPU-to-GPU copies",
    "IDLE": "GPU idle time",
    "GPU": "Slow kernels",
    "MEM": "Memory",
    "DIST": "Several GPUs",
    "HW": "Hardware",
}
"""Topics of the package's own rules, by the letters of their ids."""

MOST_NAMES = 4
"""Names in a sentence; a reader skips more."""


def cpu_time_words(unit: str, ratio: float, low: float | None, high: float | None, *, is_clear: bool) -> str:
    """The training's CPU time as a change: ``CPU time per step fell 31% (28% to 34%)``."""
    what = f"CPU time per {unit}"
    ends = (ratio if low is None else low, ratio if high is None else high)
    if not is_clear:
        return f"{what} is {around(*map('{:.0%}'.format, (ratio, *ends)))} of before, perhaps by chance"
    shares = (abs(1 - ratio), *sorted(abs(1 - one) for one in ends))
    return f"{what} {'fell' if ratio < 1 else 'rose'} {around(*map('{:.0%}'.format, shares))}"


CANNOT_TELL, MISLEADS = "cannot tell on this busy machine", "may mislead on this busy machine"
CPU_TIME_IS = (
    "CPU time is that of the training's processes. It leaves out waits, and programs on the same caches and cores "
    "raise it a little."
)


def listed(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """The first of the names, and how many more there are: ``a, b and 7 more``."""
    more = len(names) - most
    shown = ", ".join(names[:most])
    return f"{shown} and {more:,} more" if more > 0 else shown
