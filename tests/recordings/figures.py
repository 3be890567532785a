"""The figures of one recording that are worth writing down, in whole nanoseconds, from either reading of it."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.plain_reading import PlainReading
from traceadvisor.facts import Facts
from traceadvisor.judging.recording import recording_of
from traceadvisor.model.events import Kind
from traceadvisor.model.trace import Trace

TABLE = Path(__file__).with_name("table.json")

Figures = dict[str, Any]

_KINDS = {
    "operators": (Kind.OPERATOR,),
    "annotations": (Kind.ANNOTATION,),
    "runtime_calls": (Kind.RUNTIME,),
    "kernels": (Kind.KERNEL,),
    "collectives": (Kind.COLLECTIVE,),
    "copies_to_device": (Kind.COPY_H2D,),
    "other_copies": (Kind.COPY_D2H, Kind.COPY_OTHER),
    "memsets": (Kind.MEMSET,),
}

_TOTALS = ("data_wait", "h2d_copy", "kernel", "communication", "other_copy", "idle", "unknown")


def table() -> dict[str, Figures]:
    """The written figures by recording, relative to the folder of public recordings."""
    written: dict[str, Figures] = json.loads(TABLE.read_text(encoding="utf-8"))
    return written


def of_production(facts: Facts) -> Figures:
    recording = recording_of(facts)
    totals = recording.mean_breakdown.totals if recording.mean_breakdown else None
    return {
        "step_source": recording.step_source.value,
        "steps": [row.step.index for row in recording.steps],
        "left_out": [row.step.index for row in recording.steps if not row.step.kept],
        "dropped": [index for index, _ in recording.dropped_steps],
        "mean_step_ns": _whole(recording.mean_step_ns),
        "median_step_ns": _whole(recording.median_step_ns),
        "totals_ns": {name: _whole(getattr(totals, f"{name}_ns")) for name in _TOTALS}
        if recording.device is not None
        else None,
        "events": _counts(facts.trace),
        "durations_ns": _durations(facts.trace),
    }


def of_plain_reading(reading: PlainReading) -> Figures:
    return {
        "step_source": reading.step_source,
        "steps": [step.index for step in reading.steps],
        "left_out": [step.index for step in reading.steps if not step.kept],
        "dropped": list(reading.dropped),
        "mean_step_ns": _whole(reading.mean_step_ns),
        "median_step_ns": _whole(reading.median_step_ns),
        "totals_ns": {name: _whole(reading.totals_ns[name]) for name in _TOTALS} if reading.totals_ns else None,
        "events": reading.events,
        "durations_ns": reading.durations_ns,
    }


def _counts(trace: Trace) -> dict[str, int]:
    counts = {name: int(trace.events.rows(*kinds).size) for name, kinds in _KINDS.items()}
    return {**counts, "python_calls": int(trace.python_calls.start_ns.size)}


def _durations(trace: Trace) -> dict[str, int]:
    """Summed, however events overlap."""
    events = trace.events
    return {name: int(events.duration_ns[events.rows(*kinds)].sum()) for name, kinds in _KINDS.items()}


def _whole(figure: float | Fraction | None) -> int | None:
    return None if figure is None else round(figure)
