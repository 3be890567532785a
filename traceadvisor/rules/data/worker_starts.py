"""Worker processes that start and stop with each loop over a data loader, of the training or of validation."""

from __future__ import annotations

from traceadvisor.frozen import frozen
from traceadvisor.model.run import LoaderLoops
from traceadvisor.rules.base import Facts


@frozen
class LoopsShare:
    """The loops over one loader, and what their processes cost."""

    loops: LoaderLoops
    share: float
    """Time that kept workers save, as a share of the training loop."""

    @property
    def name(self) -> str:
        """The loader in words: that of the training, or the line of its loop."""
        if self.loops.trains:
            return "training loader"
        place = self.loops.location
        return f"loader of {place.file}:{place.line}" if place else "another loader"


def worker_starts(facts: Facts) -> tuple[LoopsShare, ...] | None:
    """Return each loader's loops that start workers anew, the costliest first; None if loops were not timed."""
    run = facts.run.time
    if not facts.settings.loops or run is None or run.loop_ns <= 0:
        return None
    anew = (loops for loops in facts.settings.loops if not loops.keeps_workers)
    shares = (LoopsShare(loops, min(loops.workers_ns / run.loop_ns, 1.0)) for loops in anew)
    return tuple(sorted(shares, key=lambda one: -one.share))
