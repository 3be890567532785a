"""The words for everything that is a closed choice in the model."""

from __future__ import annotations

from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Confidence, Effort, Method, Severity
from traceadvisor.model.report import SourceKind, Work
from traceadvisor.model.run import StepState
from traceadvisor.model.steps import StepSource
from traceadvisor.model.telemetry import ClockEventReason
from traceadvisor.model.timeline import Activity

CATEGORY = {
    Category.KERNEL: "Kernels",
    Category.COMMUNICATION: "Communication",
    Category.H2D_COPY: "Host-to-device copy",
    Category.OTHER_COPY: "Other copies",
    Category.DATA_WAIT: "Data wait",
    Category.IDLE_DEVICE: "Idle: launch latency",
    Category.IDLE_PROFILER: "Idle: profiler",
    Category.IDLE_ALLOCATOR: "Idle: memory allocation",
    Category.IDLE_SYNC: "Idle: after a synchronisation",
    Category.IDLE_LAUNCH: "Idle: launching work",
    Category.IDLE_HOST: "Idle: other host work",
    Category.OPTIMIZER: "Optimizer",
    Category.BACKWARD: "Backward",
    Category.FORWARD: "Forward",
    Category.OTHER_HOST: "Other host work",
}

DEFINITION = {
    Category.KERNEL: "A compute kernel runs on the device, on any stream.",
    Category.COMMUNICATION: "A collective (all-reduce and the like) runs and no compute kernel does: "
    "communication that is not hidden behind computing.",
    Category.H2D_COPY: "Data is copied from host to device while neither a kernel nor a collective runs.",
    Category.OTHER_COPY: "The device copies to the host, within itself or to a peer, or sets memory, "
    "and does none of the above.",
    Category.DATA_WAIT: "The device has nothing to do and the training thread waits inside the data loader.",
    Category.IDLE_DEVICE: "The device is idle although the next operation was already launched: "
    "the time it takes to start one.",
    Category.IDLE_PROFILER: "The device is idle while the profiler does its own work. "
    "An unprofiled run does not have this cost.",
    Category.IDLE_ALLOCATOR: "The device is idle while the launching thread allocates or frees memory of the device, "
    "or pinned memory of the host.",
    Category.IDLE_SYNC: "The host had waited for the device, which ran dry, "
    "and the host is now refilling its queue of work.",
    Category.IDLE_LAUNCH: "The device is idle while the launching thread runs operators or runtime calls: "
    "it launches more slowly than the device works.",
    Category.IDLE_HOST: "The device is idle and the host is in none of the above: Python code, logging, checkpointing.",
    Category.OPTIMIZER: "The training thread is inside the optimizer's step.",
    Category.BACKWARD: "A thread runs the backward pass.",
    Category.FORWARD: "The training thread runs any other operator: forward pass, loss, metrics.",
    Category.OTHER_HOST: "The training thread is in none of the above: Python code, logging, checkpointing.",
}

DEFINITION_ON_HOST = {
    Category.DATA_WAIT: "The training thread waits inside the data loader.",
    Category.COMMUNICATION: "A collective runs on any thread and nothing else in this list does.",
}
"""Where a recording without a device defines a category differently."""

ACTIVITY = {
    Activity.OPERATOR: "Operators",
    Activity.RUNTIME_CALL: "Runtime calls",
    Activity.BLOCKED: "Blocked on the device",
    Activity.LOADING: "In the data loader",
    Activity.OPTIMIZER: "In the optimizer",
}

WORK = {
    Work.DATA_LOADING: "Data loading",
    Work.KERNEL: "Kernels",
    Work.COMMUNICATION: "Communication",
    Work.H2D_COPY: "Host-to-device copies",
    Work.D2H_COPY: "Device-to-host copies",
    Work.D2D_COPY: "Device-to-device copies",
    Work.MEMSET: "Memory sets",
}

SEVERITY = {
    Severity.HIGH: "High",
    Severity.MEDIUM: "Medium",
    Severity.LOW: "Low",
}

CONFIDENCE = {
    Confidence.HIGH: "high",
    Confidence.MEDIUM: "medium",
    Confidence.LOW: "low",
}

EFFORT = {
    Effort.SETTING: "a setting",
    Effort.LINE: "a line of code",
    Effort.REFACTOR: "a refactoring",
}

METHOD = {
    Method.REPLAY: "Simulated: the recorded step was replayed without this cost.",
    Method.BOUND: "A bound, not a prediction: what was hidden behind this time is not known.",
    Method.MODEL: "Calculated from a documented formula.",
}

STEP_SOURCE = {
    StepSource.MARKS: "the profiler's own step marks",
    StepSource.OPTIMIZER: "optimizer steps, as the recording has no step marks",
    StepSource.WINDOW: "none: the whole recording is taken as one step, as nothing in it marks steps",
}

SOURCE_KIND = {
    SourceKind.CAPTURE: "capture",
    SourceKind.TENSORBOARD: "TensorBoard profiler log",
    SourceKind.TRACE: "profiler trace",
}

STEP_STATE = {
    StepState.PLAIN: "Undisturbed",
    StepState.WARMUP: "Profiler warming up",
    StepState.SETTLING: "Recorded too soon after a stall",
    StepState.RECORDED: "Recorded",
    StepState.STALLED: "Profiler starting or exporting",
    StepState.OTHER: "Not a training step",
}

CLOCKS_HELD_BACK = {
    ClockEventReason.APPLICATION_CLOCKS: "whoever set them",
    ClockEventReason.SW_POWER_CAP: "the power limit",
    ClockEventReason.HW_SLOWDOWN: "a slowdown by the hardware",
    ClockEventReason.SYNC_BOOST: "another device of the group",
    ClockEventReason.SW_THERMAL: "heat, seen by the driver",
    ClockEventReason.HW_THERMAL: "heat, seen by the hardware",
    ClockEventReason.HW_POWER_BRAKE: "the power supply",
    ClockEventReason.DISPLAY_CLOCKS: "the display",
}
"""In words that follow `Clocks held back by`; that an idle device lowers them is nobody's concern."""
