"""The time of a whole run: training steps, and everything outside them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from traceadvisor.frozen import frozen
from traceadvisor.model.location import CodePlace


class RunPart(Enum):
    """Parts of a run, in the order of the report."""

    START_UP = "start_up"
    """Before the first step, and the time of the first step beyond a usual one."""

    TRAINING = "training_steps"
    EPOCH_STARTS = "epoch_starts"
    """Starting a loop over the training loader, and the extra wait for its first batch."""

    VALIDATION = "validation"
    """Loops over a loader without an optimizer step."""

    CHECKPOINTS = "checkpoints"
    """Saving with ``torch.save``, safetensors or ``torch.distributed.checkpoint``, in the training thread."""

    RECORDING = "recording"
    """The profiler: starting, exporting, and the time by which it made steps longer."""

    PAUSED = "paused"
    """The processes did not run: a paused container, for example."""

    OTHER = "other"
    """Between steps, without a batch."""

    AFTER = "after_last_step"


@frozen
class RunTime:
    """The time of one rank's run by part, on a clock that never jumps."""

    total_ns: int
    parts_ns: Mapping[RunPart, int]
    """Sums exactly to the total. A part that was not measured is absent, and its time is in the others."""

    training_steps: int
    is_whole: bool
    """Whether it covers the script from start to end; otherwise it covers the first step to the last."""

    @property
    def loop_ns(self) -> int:
        """The training loop: the run without start-up, pauses, the profiler and what follows the last step."""
        beside = (RunPart.START_UP, RunPart.PAUSED, RunPart.RECORDING, RunPart.AFTER)
        return self.total_ns - sum(self.parts_ns.get(part, 0) for part in beside)

    @property
    def training_share_of_loop(self) -> float | None:
        """Share of the loop in training steps, 0..1; None for an empty loop."""
        return self.parts_ns.get(RunPart.TRAINING, 0) / self.loop_ns if self.loop_ns > 0 else None

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
