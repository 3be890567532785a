"""Colours for light and dark mode; each thing has the same colour in all charts.

GPU work is blue, CPU work in the step teal, lost time red to yellow,
unavoidable idle time grey, and unknown time dark violet. The
colours of one breakdown differ for every kind of colour blindness (a test
simulates them), and each chart also has its figures as text.
"""

from __future__ import annotations

from traceadvisor.frozen import frozen
from traceadvisor.model.breakdown import Category
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.model.run import StepState
from traceadvisor.model.run_time import RunPart
from traceadvisor.model.timeline import Activity


@frozen
class Paint:
    """A named colour, with a readable text colour for it."""

    name: str
    """The CSS class is ``p-`` and this name."""

    light: str
    dark: str
    ink_light: str = "#ffffff"
    """Colour of text on it in light mode."""

    ink_dark: str = "#10131a"


_DARK_INK = "#10131a"

PAINTS: dict[Category | Activity, Paint] = {
    Category.KERNEL: Paint("kernel", "#1f5fa8", "#4c8fe6"),
    Category.COMMUNICATION: Paint("communication", "#a678e2", "#c7a6f5", _DARK_INK),
    Category.H2D_COPY: Paint("h2d-copy", "#7fd4f2", "#a5e6fb", _DARK_INK),
    Category.OTHER_COPY: Paint("other-copy", "#0f8a68", "#3fc79b"),
    Category.IDLE_UNKNOWN: Paint("idle-unknown", "#35104f", "#8c1ee8", ink_dark="#ffffff"),
    Category.DATA_WAIT: Paint("data-wait", "#d2481a", "#ee6a3c"),
    Category.IDLE_DEVICE: Paint("idle-device", "#d3d7de", "#98a1af", _DARK_INK),
    Category.IDLE_PROFILER: Paint("idle-profiler", "#555c69", "#4a515d", ink_dark="#ffffff"),
    Category.IDLE_ALLOCATOR: Paint("idle-allocator", "#c9699f", "#c2528f", _DARK_INK),
    Category.IDLE_SYNC: Paint("idle-sync", "#5e2c04", "#9a5410", ink_dark="#ffffff"),
    Category.IDLE_LAUNCH: Paint("idle-launch", "#f0ae22", "#f8cb57", _DARK_INK),
    Category.IDLE_HOST: Paint("idle-host", "#b3a24e", "#c2b878", _DARK_INK),
    Category.OPTIMIZER: Paint("optimizer", "#cc7174", "#c72ffb", _DARK_INK),
    Category.BACKWARD: Paint("backward", "#0b5e75", "#2f93ad"),
    Category.FORWARD: Paint("forward", "#93d3cf", "#b8e6e2", _DARK_INK),
    Category.OTHER_HOST: Paint("other-host", "#b3a24e", "#c2b878", _DARK_INK),
    Activity.OPERATOR: Paint("operator", "#9db0c9", "#64789a", _DARK_INK, "#ffffff"),
    Activity.RUNTIME_CALL: Paint("runtime-call", "#3d5778", "#a9c1e4"),
    Activity.BLOCKED: Paint("blocked", "#5e2c04", "#9a5410", ink_dark="#ffffff"),
    Activity.LOADING: Paint("loading", "#d2481a", "#ee6a3c"),
    Activity.OPTIMIZER: Paint("in-optimizer", "#cc7174", "#c72ffb", _DARK_INK),
}
"""In CPU lanes, an activity has the colour of the idle time that it causes."""

MEMORY_PAINTS = {
    MemoryClass.PARAMETERS: PAINTS[Category.KERNEL],
    MemoryClass.OPTIMIZER_STATE: PAINTS[Category.COMMUNICATION],
    MemoryClass.GRADIENTS: PAINTS[Category.OTHER_COPY],
    MemoryClass.ACTIVATIONS: PAINTS[Category.DATA_WAIT],
    MemoryClass.INPUTS: PAINTS[Category.H2D_COPY],
    MemoryClass.TEMPORARIES: PAINTS[Category.IDLE_LAUNCH],
    MemoryClass.WORKSPACES: PAINTS[Category.IDLE_SYNC],
    MemoryClass.COMMUNICATION: PAINTS[Category.IDLE_ALLOCATOR],
    MemoryClass.UNKNOWN: PAINTS[Category.IDLE_UNKNOWN],
    MemoryClass.OVERHEAD: PAINTS[Category.IDLE_DEVICE],
}
"""The colours of a breakdown, which differ from each other, for memory: the two never stand in one chart."""

SAVING = Paint("saving", "#1b1f27", "#e6e9ee")
SAVING_RANGE = Paint("saving-range", "#9aa3b0", "#5d6675", _DARK_INK, "#ffffff")
TRACK = Paint("track", "#e9ebef", "#2a2f38", _DARK_INK, "#ffffff")

STEP_PAINTS = {
    StepState.PLAIN: Paint("step-plain", "#1f5fa8", "#4c8fe6"),
    StepState.WARMUP: Paint("step-warmup", "#a678e2", "#c7a6f5", _DARK_INK),
    StepState.SETTLING: Paint("step-settling", "#d99a0b", "#f8cb57", _DARK_INK),
    StepState.RECORDED: Paint("step-recorded", "#1b1f3a", "#94f4ee"),
    StepState.STALLED: Paint("step-stalled", "#5e2c04", "#b8691a", ink_dark="#ffffff"),
    StepState.OTHER: Paint("step-other", "#9aa3b0", "#848d9b", _DARK_INK),
}
RUN_PAINTS = {
    RunPart.START_UP: Paint("run-start-up", "#555c69", "#4a515d", ink_dark="#ffffff"),
    RunPart.TRAINING: Paint("run-training", "#1f5fa8", "#4c8fe6"),
    RunPart.SLOW: Paint("run-slow", "#c9699f", "#c2528f", _DARK_INK),
    RunPart.EPOCH_STARTS: Paint("run-epoch-starts", "#d2481a", "#ee6a3c"),
    RunPart.VALIDATION: Paint("run-validation", "#7fd4f2", "#a5e6fb", _DARK_INK),
    RunPart.CHECKPOINTS: Paint("run-checkpoints", "#f0ae22", "#f8cb57", _DARK_INK),
    RunPart.RECORDING: Paint("run-recording", "#a678e2", "#c7a6f5", _DARK_INK),
    RunPart.PAUSED: Paint("run-paused", "#35104f", "#8c1ee8", ink_dark="#ffffff"),
    RunPart.OTHER: Paint("run-other", "#b3a24e", "#c2b878", _DARK_INK),
    RunPart.AFTER: Paint("run-after", "#d3d7de", "#98a1af", _DARK_INK),
}
LOADER_TIME = Paint("loader-time", "#d2481a", "#ee6a3c")

DEVICE_PAINTS = (
    Paint("device-1", "#1f5fa8", "#4c8fe6"),
    Paint("device-2", "#a678e2", "#c7a6f5", _DARK_INK),
    Paint("device-3", "#5e2c04", "#9a5410", ink_dark="#ffffff"),
    Paint("device-4", "#59aee0", "#a5e6fb", _DARK_INK),
)
"""Lines of GPUs, in order."""

HOST_PAINT = Paint("host-line", "#7a6a00", "#cdbb4a")
PROCESSES_PAINT = Paint("processes-line", "#db5465", "#f37075", _DARK_INK)
WAITING_PAINT = Paint("waiting-line", "#c9699f", "#d67fb0", _DARK_INK)
RECORDED_WINDOW = Paint("recorded-window", "#e1eaf6", "#23324a", _DARK_INK, "#ffffff")

RANK_PAINTS = (
    Paint("rank-work", "#b9c4d4", "#46536a", _DARK_INK, "#ffffff"),
    Paint("rank-wait", "#e9e0f8", "#2e2542", _DARK_INK, "#ffffff"),
    Paint("rank-late", "#d2481a", "#ee6a3c"),
    Paint("rank-transfer", "#1f5fa8", "#4c8fe6"),
)
"""Own work of a rank, its wait for others, its work while half of the others wait, and the transfer."""

ALL_PAINTS = (
    *PAINTS.values(),
    *(SAVING, SAVING_RANGE, TRACK, LOADER_TIME, RECORDED_WINDOW),
    *STEP_PAINTS.values(),
    *RUN_PAINTS.values(),
    *RANK_PAINTS,
    *DEVICE_PAINTS,
    *(HOST_PAINT, PROCESSES_PAINT, WAITING_PAINT),
)
