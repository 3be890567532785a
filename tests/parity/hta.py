"""What HolisticTraceAnalysis says of one trace file.

It is asked for all steps, since by default it leaves out the last, and for nanoseconds, since by default it rounds the
start of each event up to a whole microsecond and its end down, which takes up to 2 us from every kernel. What it cannot
read ends in its own exception.
"""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from hta.trace_analysis import TraceAnalysis


@dataclass(frozen=True, slots=True)
class HtaReading:
    """Its figures for the one worker of a file, from the start of the first device operation to the end of the last."""

    steps: tuple[int, ...]
    device_operations: int
    total_us: float
    compute_us: float
    other_work_us: float
    """Device time without a compute kernel: communication and copies as far as they are exposed."""

    idle_us: float
    hidden_communication_share: float
    """Share of communication during which compute kernels run; NaN without communication."""


def read_with_hta(path: Path) -> HtaReading:
    with warnings.catch_warnings(), patch.dict(os.environ, HTA_DISABLE_NS_ROUNDING="1"):
        warnings.simplefilter("ignore")
        analysis = TraceAnalysis(trace_files={0: str(path)}, trace_dir="/", include_last_profiler_step=True)
        breakdown = analysis.get_temporal_breakdown(visualize=False).iloc[0]
        overlap = analysis.get_comm_comp_overlap(visualize=False).iloc[0]
    return HtaReading(
        steps=tuple(int(step) for step in analysis.t.get_iterations(0)),
        device_operations=int((analysis.t.get_trace(0)["stream"] != -1).sum()),
        total_us=float(breakdown["kernel_time(us)"]),
        compute_us=float(breakdown["compute_time(us)"]),
        other_work_us=float(breakdown["non_compute_time(us)"]),
        idle_us=float(breakdown["idle_time(us)"]),
        hidden_communication_share=float(overlap["comp_comm_overlap_pctg"]) / 100,
    )
