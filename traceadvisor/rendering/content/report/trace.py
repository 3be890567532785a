"""The trace of a step on the page: its events in a short text that the page's script draws."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np

from traceadvisor.model.arrays import Mask
from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import RankedFinding, Recording
from traceadvisor.model.timeline import Activity, StepTrace, Timeline, TraceLane
from traceadvisor.rendering.charts.palette import PAINTS
from traceadvisor.rendering.charts.timeline import words_for
from traceadvisor.rendering.document.blocks import Events, EventsKind, EventsLink
from traceadvisor.rendering.units import count, duration
from traceadvisor.text.cleaning import clipped, clipped_inside

LONGEST_NAME = 90
"""Characters of an event's name. A page may hold a thousand different ones of each trace."""

LONGEST_TITLE = 48

MOST_EVENTS = 3_500
"""Events of the trace of a single recording."""

MOST_EVENTS_EACH = 1_000
"""Events of each trace on a page with several."""

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def events_of(timeline: Timeline | None, most_events: int) -> Events | None:
    """The events of a recording's representative step; None without any.

    Its data are JSON for the page's script: length of the step in nanoseconds, names, and lanes. Each event of a lane
    is ``gap,duration,name,kind,depth`` in base 36, where the gap is the time since the start of the event before.
    """
    if timeline is None or timeline.trace is None or timeline.end_ns <= timeline.start_ns:
        return None
    trace = timeline.trace
    shown = _longest(trace, most_events)
    lanes = [_encoded(lane, chosen) for lane, chosen in zip(trace.lanes, shown, strict=True) if chosen.any()]
    kinds = (lane.kind[chosen] for lane, chosen in zip(trace.lanes, shown, strict=True))
    used = sorted({kind for one in kinds for kind in one.tolist()})
    kept = sum(int(chosen.sum()) for chosen in shown)
    left_out = trace.left_out + sum(lane.name.size for lane in trace.lanes) - kept
    more = f" {count(left_out)} shorter events are left out." if left_out else ""
    return Events(
        caption=f"The {count(kept)} longest events of a step of {duration(timeline.end_ns - timeline.start_ns)}.{more}",
        kinds=tuple(_kind(trace.kinds[each]) for each in used),
        data=json.dumps(
            {
                "ns": timeline.end_ns - timeline.start_ns,
                "names": [clipped_inside(name, LONGEST_NAME) for name in trace.names],
                "kinds": {str(number): place for place, number in enumerate(used)},
                "lanes": lanes,
            },
            ensure_ascii=False,
            separators=(",", ":"),
        ),
    )


def _kind(kind: Category | Activity) -> EventsKind:
    return EventsKind(PAINTS[kind], words_for(kind))


def _longest(trace: StepTrace, most: int) -> list[Mask]:
    """Which events of each lane are among the longest of all lanes."""
    sizes = [lane.name.size for lane in trace.lanes]
    lengths = np.concatenate([np.empty(0, np.int64), *(lane.duration_ns for lane in trace.lanes)])
    shown = np.zeros(lengths.size, dtype=np.bool_)
    shown[np.argsort(-lengths, kind="stable")[:most]] = True
    return np.split(shown, np.cumsum(sizes)[:-1]) if sizes else []


def _encoded(lane: TraceLane, shown: Mask) -> dict[str, object]:
    columns = (lane.start_ns, lane.duration_ns, lane.name, lane.kind, lane.depth)
    rows = zip(*(column[shown].tolist() for column in columns), strict=True)
    return {"t": clipped(lane.title, LONGEST_TITLE), "d": int(lane.depth[shown].max()) + 1, "e": ";".join(_rows(rows))}


def _rows(rows: Iterator[tuple[int, ...]]) -> Iterator[str]:
    at = 0
    for start, *others in rows:
        yield ",".join(map(base36, (start - at, *others)))
        at = start


def base36(number: int) -> str:
    """A number, not negative, as JavaScript's ``parseInt(text, 36)`` reads it."""
    digits = ""
    while number >= 36:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return _DIGITS[number] + digits


def trace_link(row: RankedFinding, recordings: Sequence[Recording]) -> EventsLink | None:
    """The longest range that a finding explains in the trace of its recording; None if its trace is not shown.

    Args:
        row: the finding.
        recordings: those with a trace on the page, in order.
    """
    for place, recording in enumerate(recordings, start=1):
        timeline = recording.timeline
        if recording.id == row.recording_ids[0] and timeline is not None and timeline.trace is not None:
            claims = row.finding.claims.clip(timeline.start_ns, timeline.end_ns)
            longest = max(claims, key=lambda span: span[1] - span[0], default=None)
            if longest is None:
                return None
            start_ns, end_ns = (instant - timeline.start_ns for instant in longest)
            words = f"step {timeline.step_index}, {duration(start_ns) if start_ns else '0'} to {duration(end_ns)}"
            return EventsLink("Show it in the trace", words, f"recording-{place}-trace", start_ns, end_ns)
    return None
