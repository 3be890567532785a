"""Notes on what was dropped, repaired or missing in the input."""

from __future__ import annotations

from enum import Enum

from traceadvisor.frozen import frozen

STOPPED_EARLY = "stopped-early"
"""Code of the note on a profiler whose buffers for GPU activity were full."""

RECORD_LESS = (
    "Record fewer steps, or give the profiler more memory: set KINETO_CONFIG to a file with the line "
    "ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB=1024."
)
"""Remedy for a recording that lost GPU events."""


class HealthStatus(Enum):
    """How far the input can be trusted."""

    OK = "ok"
    DEGRADED = "degraded"
    UNUSABLE = "unusable"


@frozen
class HealthNote:
    """Something to know before using the figures."""

    code: str
    """Stable name for scripts: ``events-dropped``, ``no-loader`` ..."""

    message: str
    """One sentence for people."""

    degrades: bool = True
    """False where the note only informs and all figures are valid."""


@frozen
class Health:
    """State of one input, or of several together."""

    events_read: int = 0
    events_dropped: int = 0
    events_repaired: int = 0
    notes: tuple[HealthNote, ...] = ()
    unusable: bool = False

    @property
    def status(self) -> HealthStatus:
        """Worst state that a note or count implies."""
        if self.unusable:
            return HealthStatus.UNUSABLE
        if self.events_dropped or self.events_repaired or any(note.degrades for note in self.notes):
            return HealthStatus.DEGRADED
        return HealthStatus.OK
