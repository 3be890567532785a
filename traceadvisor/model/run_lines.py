"""Where the training thread's time goes over a whole run, by line."""

from __future__ import annotations

from traceadvisor.frozen import frozen
from traceadvisor.model.location import CodePlace


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
