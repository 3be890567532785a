"""Health notes about what was lost while a trace file was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from traceadvisor.model.health import RECORD_LESS, STOPPED_EARLY, Health, HealthNote
from traceadvisor.model.limits import Limits
from traceadvisor.parsing.columns.events import Columns
from traceadvisor.parsing.exceeded_limits import ExceededLimit, excess_notes
from traceadvisor.parsing.input_bytes import ByteStream
from traceadvisor.parsing.json.chunks import ReadSummary
from traceadvisor.parsing.recognise import WRITE_AGAIN, stopped_early

MOST_LISTED = 10


def reading_health(stream: ByteStream, summary: ReadSummary, columns: Columns, limits: Limits, *, read: int) -> Health:
    """Return the health of a file of which ``read`` events were kept."""
    dropped = columns.dropped + summary.dropped
    notes = (
        *_endings(stream, summary),
        *excess_notes(excesses(stream, summary) + Counter({ExceededLimit.TEXT: columns.cut_texts}), limits),
        *_losses(dropped, columns.unknown_categories),
        *_not_read(columns.counters),
    )
    return Health(read, dropped, summary.repaired, notes)


def _not_read(counters: Set[str]) -> Iterator[HealthNote]:
    if counters:
        listed = ", ".join(sorted(counters)[:MOST_LISTED])
        message = f"Samples of hardware counters were not read ({listed}). Look at them in Perfetto."
        yield HealthNote("counters-not-read", message, degrades=False)


def excesses(stream: ByteStream, summary: ReadSummary) -> Counter[ExceededLimit]:
    """Count how often each limit was exceeded."""
    return summary.excesses + Counter([stream.excess] if stream.excess else [])


def _endings(stream: ByteStream, summary: ReadSummary) -> Iterator[HealthNote]:
    """How the file, the connection to it and the recording in it ended."""
    if stream.is_growing:
        yield HealthNote(
            "still-written",
            "The file changed size while it was read, so it is still being written. "
            "The report covers what was there; run it again once the file is complete.",
        )
    elif stream.damaged and not summary.truncated:
        yield HealthNote(
            "packing-damaged",
            "The file was read as far as possible, but it is damaged: the checksum is wrong, the end is missing, or "
            "other data follows. Events may be corrupted or missing; steps that may lack some are left out. "
            "Copy the file again.",
        )
    elif summary.truncated and not stream.excess:
        yield HealthNote(
            "truncated",
            "The file is cut off in the middle of the recording. Everything before the cut was read; "
            f"steps that may lack events are left out. {WRITE_AGAIN}",
        )
    if count := stream.failed_attempts:
        message = f"The connection failed {count} times while the file was read. It was made again: nothing is missing."
        yield HealthNote("connection-failed", message, degrades=False)
    if stopped_early(summary.members):
        yield HealthNote(
            STOPPED_EARLY,
            "The profiler ran out of buffer memory for GPU activity and stopped early: later GPU activity was not "
            f"recorded. {RECORD_LESS}",
        )


def _losses(dropped: int, unknown_categories: frozenset[str]) -> Iterator[HealthNote]:
    if dropped:
        yield HealthNote("events-dropped", f"{dropped} events could not be read and were left out.")
    if unknown_categories:
        listed = ", ".join(category or "no category" for category in sorted(unknown_categories)[:MOST_LISTED])
        yield HealthNote("unknown-categories", f"Events of unknown categories were ignored: {listed}.", degrades=False)
