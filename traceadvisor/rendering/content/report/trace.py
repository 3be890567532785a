"""The trace of a step on the page: its timeline, and its events in a short text that the page's script draws."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from traceadvisor.model.arrays import Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.report import RankedFinding, Recording
from traceadvisor.model.timeline import PARTS, StepTrace, Timeline, TraceLane
from traceadvisor.rendering.charts.drawing import Chart, LegendEntry
from traceadvisor.rendering.charts.palette import PAINTS
from traceadvisor.rendering.charts.timeline import CATEGORY_LANE, timeline, words_for
from traceadvisor.rendering.document.blocks import EventsLink
from traceadvisor.rendering.units import from_to
from traceadvisor.text.cleaning import clipped, clipped_inside

LONGEST_NAME = 90
"""Characters of an event's name. A page may hold thousands of different ones of each trace."""

LONGEST_TITLE = 48

MOST_EVENTS = 10_000
"""Events of the trace of a single recording; each takes about 16 bytes of the page."""

MOST_EVENTS_EACH = 2_500
"""Events of each trace on a page with several."""

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def traced_timeline(
    drawn: Timeline | None, chart_id: str, most_events: int, mean_ns: float | None = None
) -> Chart | None:
    """The timeline of a recording's representative step, with its events; None without a step.

    Its events are JSON: the number of the step, its length in nanoseconds, names, and lanes with a title, a depth, the
    events that are left out in each of equal parts of the step, and events. Each event is
    ``gap,duration,name,colour,depth,launch`` in base 36: the gap is the time since the start of the event before, the
    colour a place in the legend, and the launch the number of the event that launched it, counted over all lanes.
    """
    chart = timeline(drawn, chart_id, mean_ns=mean_ns)
    if chart is None or drawn is None or drawn.trace is None:
        return chart
    trace = _with_categories(drawn.trace, drawn)
    used = {trace.kinds[kind] for lane in trace.lanes for kind in np.unique(lane.kind).tolist()}
    known = {entry.paint for entry in chart.legend}
    added = (kind for kind in PAINTS if kind in used and PAINTS[kind] not in known)
    legend = (*chart.legend, *(LegendEntry(PAINTS[kind], words_for(kind), "") for kind in added))
    places = {entry.paint: place for place, entry in enumerate(legend)}
    colours = [places.get(PAINTS[kind], 0) for kind in trace.kinds]
    shown = list(zip(trace.lanes, _longest(trace, most_events), strict=True))
    length_ns = drawn.end_ns - drawn.start_ns
    numbers = {
        row: number for number, row in enumerate(np.concatenate([one.row[keep] for one, keep in shown]).tolist(), 1)
    }
    numbers[NONE] = 0
    data = {
        "step": drawn.step_index,
        "ns": length_ns,
        "names": [clipped_inside(name, LONGEST_NAME) for name in trace.names],
        "lanes": [_encoded(lane, keep, numbers, colours, length_ns) for lane, keep in shown],
    }
    return replace(chart, legend=legend, events=json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def _with_categories(trace: StepTrace, drawn: Timeline) -> StepTrace:
    """The trace with a lane for the category of each instant."""
    spans = [one.clip(drawn.start_ns, drawn.end_ns) for one in drawn.categories.spans.values()]
    kind = np.repeat(np.arange(len(spans)), [one.starts_ns.size for one in spans])
    start, end = (
        np.concatenate([np.empty(0, np.int64), *one])
        for one in ([each.starts_ns for each in spans], [each.ends_ns for each in spans])
    )
    order = np.argsort(start)
    start, end, kind = start[order], end[order], kind[order]
    nothing = np.full(start.size, NONE)
    lane = TraceLane(
        CATEGORY_LANE,
        start - drawn.start_ns,
        end - start,
        kind + len(trace.names),
        kind + len(trace.kinds),
        np.zeros_like(start),
        nothing,
        nothing,
        np.zeros(PARTS, np.int64),
    )
    names = map(words_for, drawn.categories.spans)
    return StepTrace((*trace.names, *names), (*trace.kinds, *drawn.categories.spans), (lane, *trace.lanes))


def _longest(trace: StepTrace, most: int) -> list[Mask]:
    """Whether each event of each lane is among the longest of all lanes."""
    lengths = np.concatenate([lane.duration_ns for lane in trace.lanes])
    shown = np.zeros(lengths.size, dtype=np.bool_)
    shown[np.argsort(-lengths, kind="stable")[:most]] = True
    return np.split(shown, np.cumsum([lane.name.size for lane in trace.lanes])[:-1])


def _encoded(
    lane: TraceLane, shown: Mask, numbers: Mapping[int, int], colours: Sequence[int], length_ns: int
) -> dict[str, object]:
    columns = (np.diff(lane.start_ns[shown], prepend=0), *(one[shown] for one in (lane.duration_ns, lane.name)))
    kinds = (colours[kind] for kind in lane.kind[shown].tolist())
    launches = (numbers.get(row, 0) for row in lane.launch[shown].tolist())
    rows = zip(*(one.tolist() for one in columns), kinds, lane.depth[shown].tolist(), launches, strict=True)
    left_out = lane.left_out + np.bincount(lane.start_ns[~shown] * PARTS // length_ns, minlength=PARTS)
    found = {
        "t": clipped(lane.title, LONGEST_TITLE),
        "d": int(lane.depth[shown].max(initial=0)) + 1,
        "e": ";".join(",".join(map(base36, row)).removesuffix(",0") for row in rows),
    }
    return found | ({"m": ",".join(map(base36, left_out.tolist()))} if left_out.any() else {})


def base36(number: int) -> str:
    """A number, not negative, as JavaScript's ``parseInt(text, 36)`` reads it."""
    digits = ""
    while number >= 36:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return _DIGITS[number] + digits


def trace_link(row: RankedFinding, recordings: Sequence[Recording]) -> EventsLink | None:
    """The longest range that a finding explains in the trace of its recording; None if its trace is not shown.

    ``recordings``: those with a trace on the page, in order.
    """
    for place, recording in enumerate(recordings, start=1):
        timeline = recording.timeline
        if recording.id == row.recording_ids[0] and timeline is not None and timeline.trace is not None:
            claims = row.finding.claims.clip(timeline.start_ns, timeline.end_ns)
            longest = max(claims, key=lambda span: span[1] - span[0], default=None)
            if longest is None:
                return None
            start_ns, end_ns = (instant - timeline.start_ns for instant in longest)
            words = f"step {timeline.step_index}, {from_to(start_ns, end_ns).replace('->', 'to')}"
            return EventsLink("Show it in the trace", words, f"recording-{place}-trace", start_ns, end_ns)
    return None
