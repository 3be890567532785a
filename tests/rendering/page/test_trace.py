import json
from dataclasses import replace
from typing import Any

import numpy as np

from tests.build_report import one_recording
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE
from traceadvisor.model.report import Recording
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.timeline import PARTS, Activity, Lane, StepTrace, Timeline, TraceLane
from traceadvisor.rendering.content.report.trace import base36, trace_link, traced_timeline


def timeline(*, starts: list[int], lengths: list[int], rows: list[int] | None = None) -> Timeline:
    whole = one_recording().recordings[0].timeline
    assert whole is not None
    count = len(starts)
    columns = (starts, lengths, [0] * count, [1] * count, [0] * count, rows or range(count), [NONE] * count)
    left_out = np.zeros(PARTS, dtype=np.int64)
    arrays = (*(np.array(column, dtype=np.int64) for column in columns), left_out)
    lane = TraceLane("training thread", *arrays)
    trace = StepTrace(("aten::mm",), (Category.KERNEL, Activity.OPERATOR), (lane,))
    categories = Lane("", {Category.KERNEL: SpanSet.of((1_000, 1_100))})
    return replace(whole, start_ns=1_000, end_ns=2_000, trace=trace, categories=categories)


def events_of(drawn: Timeline, most_events: int) -> dict[str, Any]:
    chart = traced_timeline(drawn, "x", most_events)
    assert chart is not None
    assert chart.events is not None
    data: dict[str, Any] = json.loads(chart.events)
    return data | {"legend": [entry.label for entry in chart.legend]}


def traced(claims: SpanSet) -> tuple[Recording, SpanSet]:
    recording = replace(one_recording().recordings[0], timeline=timeline(starts=[0], lengths=[10]))
    return recording, claims


def test_numbers_are_read_as_javascript_reads_them() -> None:
    assert [base36(number) for number in (0, 9, 10, 35, 36, 1_000_000_007)] == ["0", "9", "a", "z", "10", "gjdgxz"]
    assert all(int(base36(number), 36) == number for number in range(3_000))


def test_events_are_written_with_the_gap_to_the_event_before() -> None:
    data = events_of(timeline(starts=[10, 50], lengths=[36, 1]), most_events=10)
    operators = base36(data["legend"].index("Operators"))
    assert data["lanes"][1:] == [{"t": "training thread", "d": 1, "e": f"a,10,0,{operators},0;14,1,0,{operators},0"}]
    assert (data["ns"], data["names"][0]) == (1_000, "aten::mm")


def test_the_first_lane_has_the_category_of_each_instant() -> None:
    data = events_of(timeline(starts=[10], lengths=[36]), most_events=10)
    lane = data["lanes"][0]
    start, length, name, colour, depth = (int(digits, 36) for digits in lane["e"].split(","))
    assert (lane["t"], start, length, depth) == ("category", 0, 100, 0)
    assert data["names"][name] == data["legend"][colour] == "Kernels"


def test_only_the_longest_events_are_shown_and_the_rest_is_counted_where_it_is_missing() -> None:
    data = events_of(timeline(starts=[0, 20, 40], lengths=[5, 9, 7]), most_events=3)
    lane = data["lanes"][1]
    assert [event.split(",")[1] for event in lane["e"].split(";")] == ["9", "7"]
    counts = [int(digits, 36) for digits in lane["m"].split(",")]
    assert (counts[0], sum(counts), len(counts)) == (1, 1, PARTS)


def test_of_equally_long_events_the_first_ones_are_shown() -> None:
    lane = events_of(timeline(starts=[0, 20, 40], lengths=[5, 5, 5]), most_events=3)["lanes"][1]
    assert [event.split(",")[:2] for event in lane["e"].split(";")] == [["0", "5"], ["k", "5"]]


def test_a_kernel_names_the_event_that_launched_it_by_its_place() -> None:
    drawn = timeline(starts=[10, 50], lengths=[5, 5], rows=[70, 71])
    assert drawn.trace is not None
    (lane,) = drawn.trace.lanes
    stream = replace(lane, title="stream 7", row=np.array([80, 81]), launch=np.array([71, 99]))
    trace = replace(drawn.trace, lanes=(lane, stream))
    kernels = events_of(replace(drawn, trace=trace), most_events=10)["lanes"][2]["e"].split(";")
    assert [kernel.split(",")[5:] for kernel in kernels] == [["3"], []]


def test_a_report_without_named_events_has_a_timeline_only() -> None:
    whole = timeline(starts=[0], lengths=[5])
    chart = traced_timeline(replace(whole, trace=None), "x", 10)
    assert chart is not None
    assert chart.events is None
    assert traced_timeline(None, "x", 10) is None


def test_a_finding_leads_to_its_longest_range_in_the_step() -> None:
    recording, claims = traced(SpanSet.of((900, 1_100), (1_200, 1_500)))
    row = one_recording().findings[0]
    link = trace_link(replace(row, finding=replace(row.finding, claims=claims)), [recording])
    assert link is not None
    assert (link.anchor, link.from_ns, link.to_ns) == ("recording-1-trace", 200, 500)


def test_a_finding_outside_the_step_has_no_link() -> None:
    recording, claims = traced(SpanSet.of((5_000, 6_000)))
    row = one_recording().findings[0]
    assert trace_link(replace(row, finding=replace(row.finding, claims=claims)), [recording]) is None
    assert trace_link(row, []) is None
