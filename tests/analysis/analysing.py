"""From a built trace to its figures, in microseconds, with what is zero left out."""

from pathlib import Path

from tests.build import TraceBuilder
from traceadvisor.analysis.operators.by_thread import ThreadSpans
from traceadvisor.facts import Facts
from traceadvisor.model.events import DEVICE_WORK
from traceadvisor.model.spans import SpanSet


def facts_of(builder: TraceBuilder, folder: Path, *, device: int = 0) -> Facts:
    """What is known of a built trace, of one device where it has device work."""
    trace = builder.trace(folder)
    return Facts(trace, device if trace.events.rows(*DEVICE_WORK).size else None, "recording")


def windows_us(facts: Facts) -> list[tuple[float, float]]:
    """The window of each step, since the trace's first event."""
    return [(step.start_ns / 1000, step.end_ns / 1000) for step in facts.steps.steps]


def breakdown_us(builder: TraceBuilder, folder: Path, step: int = 0) -> dict[str, float | None]:
    """Where a step's time goes."""
    parts = facts_of(builder, folder).step_rows[step].breakdown.parts_ns
    return {category.value: part and part / 1000 for category, part in parts.items() if part != 0}


def spans_us(spans: SpanSet) -> list[tuple[float, float]]:
    return [(start / 1000, end / 1000) for start, end in spans]


def of_thread(spans: ThreadSpans, thread: int) -> SpanSet:
    """The spans of one thread."""
    mine = spans.thread == thread
    return SpanSet.union_of(spans.start_ns[mine], spans.end_ns[mine])
