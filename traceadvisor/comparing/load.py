"""CPU cores that other programs keep busy during the captures of a side."""

from __future__ import annotations

from collections.abc import Iterable

from traceadvisor.comparing.pairing import Capture, PairedRun
from traceadvisor.frozen import frozen

BUSY_SHARE = 0.2
"""Share of a machine's cores from which other programs may change the step."""


@frozen
class OtherLoad:
    """Cores that other programs keep busy, on average over undisturbed steps."""

    cores: float
    of_cores: int

    @property
    def share(self) -> float:
        """Share of all cores, 0..1."""
        return self.cores / self.of_cores


def load_caution(run: PairedRun) -> str | None:
    """A sentence that names the side with a busy machine; None if neither machine was, or neither was sampled."""
    loads = [other_load(side) for side in (run.base, run.head)]
    if not any(load and load.share >= BUSY_SHARE for load in loads):
        return None
    base, head = (f"{load.cores:.1f} of {load.of_cores} cores" if load else "unknown" for load in loads)
    return f"Other programs used the CPU: {base} in BASE, {head} in HEAD. Repeat on an idle machine."


def load_differs(run: PairedRun) -> bool:
    """Whether other programs took more cores from one side: that alone may change the step."""
    loads = [load.share for side in (run.base, run.head) if (load := other_load(side))]
    return len(loads) == 2 and abs(loads[0] - loads[1]) >= BUSY_SHARE


def other_load(captures: Iterable[Capture]) -> OtherLoad | None:
    """That of the busiest capture; None if no capture sampled it."""
    loads = []
    for recording in (one for capture in captures for one in capture.recordings):
        run, window = recording.captured, recording.telemetry
        of_cores = run.telemetry.cpu_count if run and run.telemetry else None
        cores = window.others_cores(of_cores) if window else None
        if cores is not None and of_cores:
            loads.append(OtherLoad(cores, of_cores))
    return max(loads, key=lambda load: load.share, default=None)
