"""The time of a whole run: training steps, and everything outside them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from traceadvisor.frozen import frozen
from traceadvisor.model.location import CodePlace, Location

SMALL_SHARE = 0.1
"""Share of the run in training steps, below which no fix in a step changes much of the run."""


class RunPart(Enum):
    """Parts of a run, in the order of the report."""

    START_UP = "start_up"
    """Before the first step, and the time of the first step beyond a usual one."""

    TRAINING = "training_steps"
    """With loops of one batch before each, which bring it data."""

    SLOW = "slow_steps"
    """The time of training steps beyond that of usual ones around them, if it has a cause or is half as much again."""

    EPOCH_STARTS = "epoch_starts"
    """Starting a loop over the training loader, and the extra wait for its first batch."""

    VALIDATION = "validation"
    """Loops over a loader without an optimizer step, but for those of :attr:`TRAINING`."""

    CHECKPOINTS = "checkpoints"
    """Saving with ``torch.save``, safetensors or ``torch.distributed.checkpoint``, in the training thread."""

    RECORDING = "recording"
    """The profiler: starting, exporting, and the time by which it made steps longer."""

    PAUSED = "paused"
    """The processes did not run: a paused container, for example."""

    OTHER = "other"
    """Between steps, without a batch."""

    AFTER = "after_last_step"


class RunCause(Enum):
    """Causes of time in start-up, in slow steps or after the last step, in the order of the report."""

    IMPORTS = "imports"
    DOWNLOADS = "downloads"
    """Reading from a network."""

    SET_UP = "set_up"
    """Other code before the first step."""

    FIRST_STEP = "first_step"
    """Other code in the first step, which takes longer than usual: caches are empty, and memory is new."""

    DEVICE_START = "device_start"
    WORKER_START = "worker_start"
    """Starting loops over data loaders, and the processes of their workers."""

    LOADER = "loader"
    """Getting a batch, beyond the usual time."""

    COMPILATION = "compilation"
    """``torch.compile``."""

    COLLECTION = "collection"
    """Python's garbage collections of 10 ms or longer."""

    SYNCHRONISATION = "synchronisation"
    """Waiting for a device, or for other ranks at a barrier, where the script asks for it."""

    SAVING = "saving"
    """Saving checkpoints."""

    LOGGING = "logging"
    EVALUATION = "evaluation"
    """Functions of the script without gradients."""

    OTHER = "other"


@frozen
class CauseTime:
    """Time of one cause in one part of the run."""

    part: RunPart
    cause: RunCause
    total_ns: int
    count: int = 0
    """Steps with it; 0 outside of steps."""

    line: Location | None = None
    """The line of the script with most of it, from samples; None if they do not show it."""

    changed: str | None = None
    """The most frequent change before a compilation, as torch says it."""


@frozen
class RunStretch:
    """A stretch of the run, by the same clock."""

    start_ns: int
    """Since the start of the run."""

    end_ns: int
    parts_ns: Mapping[RunPart, int]
    steps: int
    """Training steps that begin in it."""

    median_step_ns: float | None = None
    """Median of its undisturbed steps; None without any."""

    memory_bytes: float | None = None
    """Mean memory of the training processes; None if it was not sampled."""


@frozen
class RunGrowth:
    """Undisturbed steps that take longer and longer. Only what a test of their trend showed beyond chance."""

    step_count: int
    """Undisturbed steps between the first and the last."""

    first_ns: float
    """Typical step at the beginning."""

    last_ns: float
    """Typical step at the end."""

    ns_per_step: float
    """Median slope over all pairs of stretches."""

    low_ns_per_step: float
    """Lower end of the 99% interval of the slope."""

    high_ns_per_step: float
    excess_share: float
    """Share of the undisturbed steps' time beyond steps as at the beginning."""

    is_level: bool = False
    """Whether steps stopped growing before the end of the run."""

    of_cpu: bool = False
    """Whether these are CPU times of the training thread, rather than step times."""

    line: Location | None = None
    """The line of the script that grows most; None if samples do not show it."""

    line_share: float | None = None
    """Its share of the growth."""

    is_alike: bool = False
    """Whether samples show that all lines grow alike: each step does more of the same work."""

    subnormal_share: float | None = None
    """Share of subnormal numbers in parameters or gradients; None if none were found."""

    cpu_excess_share: float | None = None
    """Share of the training thread's CPU time beyond steps as at the beginning; None if step times were compared."""

    @property
    def doubles_in(self) -> int | None:
        """Steps in which the step time grows by that of the beginning; None if it stopped growing."""
        return None if self.is_level else round(self.first_ns / self.ns_per_step)


@frozen
class RunTime:
    """The time of one rank's run by part, on a clock that never jumps."""

    total_ns: int
    parts_ns: Mapping[RunPart, int]
    """Sums exactly to the total. A part that was not measured is absent, and its time is in the others."""

    training_steps: int
    is_whole: bool
    """Whether it covers the script from start to end; otherwise it covers the first step to the last."""

    causes: tuple[CauseTime, ...] = ()
    """Parts by cause; those of a part sum exactly to it. Without samples, start-up has none."""

    stretches: tuple[RunStretch, ...] = ()
    """Successive stretches of equal length, at most 64."""

    @property
    def loop_ns(self) -> int:
        """The training loop: the run without start-up, pauses, the profiler and what follows the last step."""
        beside = (RunPart.START_UP, RunPart.PAUSED, RunPart.RECORDING, RunPart.AFTER)
        return self.total_ns - sum(self.parts_ns.get(part, 0) for part in beside)

    @property
    def training_share_of_loop(self) -> float | None:
        """Share of the loop in training steps, 0..1; None for an empty loop."""
        trained_ns = self.parts_ns.get(RunPart.TRAINING, 0) + self.parts_ns.get(RunPart.SLOW, 0)
        return trained_ns / self.loop_ns if self.loop_ns > 0 else None

    @property
    def steps_share(self) -> float:
        """Share of the run in training steps, 0..1."""
        return self.share(RunPart.TRAINING) + self.share(RunPart.SLOW)

    @property
    def before_steps(self) -> CauseTime | None:
        """The code of the script before the first step, where that is most of a run with few steps."""
        for one in self.causes:
            is_most = one.line and one.total_ns > self.total_ns / 2
            if one.cause is RunCause.SET_UP and is_most and self.is_whole and self.steps_share < SMALL_SHARE:
                return one
        return None

    def share(self, part: RunPart) -> float:
        """Share of the run, 0..1."""
        return self.parts_ns.get(part, 0) / self.total_ns if self.total_ns else 0.0


@frozen
class LineTime:
    """Time of the training thread in some lines, estimated from samples."""

    total_ns: int
    step_ns: int
    """The part in training steps, recorded or not."""

    fetch_ns: int
    """The part in which the thread gets a batch from its loader, in steps or outside of them."""

    sample_count: int


@frozen
class LineRow(CodePlace):
    """Time of one place in the code over the run."""

    time: LineTime
    share: float
    """Share of the run."""

    share_low: float
    """Lower end of the 95% interval of that share."""

    share_high: float


@frozen
class LineShare:
    """A line of the user's code and the share of the training loop in it and in what it calls, from samples."""

    place: Location
    share: float
    share_low: float
    """Lower end of the 95% interval of that share."""

    share_high: float


@frozen
class CostliestLine:
    """The line that holds most of the training loop beside the backward pass and the optimizer."""

    line: LineShare
    """The innermost line with nearly all of the time of the costliest one."""

    inside: LineShare | None = None
    """The innermost line that it calls with much of that time, or else with some; None if all are small."""

    caller: Location | None = None
    """The line from which most of the time of ``line`` is called; None if there are several, or it holds the loop."""

    function: Location | None = None
    """A line in the function with the time: that which the innermost of these lines calls, or the one around it."""

    calls_per_step: float | None = None
    """Calls of this function in a recorded step; None if it runs outside of these, or calls were not recorded."""

    operators_per_step: float | None = None
    """Operators that these calls start."""

    of_run: bool = False
    """Whether no step was found, so that shares are of the whole run without its imports."""

    @property
    def innermost(self) -> LineShare:
        """The line inside if there is one."""
        return self.inside or self.line


@frozen
class RunLines:
    """The lines in which the training thread of one rank spends the run.

    Raises:
        ValueError: the rows do not sum to the whole.
    """

    whole: LineTime
    rows: tuple[LineRow, ...]
    """The lines with the most time, largest first."""

    other: LineTime
    """All lines without a row."""

    interval_ns: int
    """Mean time between samples."""

    late_share: float
    """Share of the time whose samples had to wait for running Python code. They may name a later line."""

    late_by_ns: int
    """Mean delay of these samples."""

    sampler_share: float
    """CPU time of the sampling thread as a share of the run."""

    def __post_init__(self) -> None:
        if sum(row.time.total_ns for row in self.rows) + self.other.total_ns != self.whole.total_ns:
            raise ValueError(f"the rows do not sum to {self.whole.total_ns} ns")
