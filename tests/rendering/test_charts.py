import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.build_report import on_the_cpu, one_recording, three_recordings
from traceadvisor.model.arrays import Float64
from traceadvisor.model.breakdown import DEVICE_CATEGORIES, HOST_CATEGORIES, Category, MeanBreakdown
from traceadvisor.model.report import Recording
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.timeline import Activity, Lane, Timeline
from traceadvisor.rendering.charts.drawing import WIDTH, Chart, runs_path
from traceadvisor.rendering.charts.palette import PAINTS
from traceadvisor.rendering.charts.per_step import MOST_POINTED_AT, per_step
from traceadvisor.rendering.charts.step_bar import comparison_bars, step_bar, told_apart
from traceadvisor.rendering.charts.timeline import _diffused, runs_by_layer, timeline


def recording() -> Recording:
    return one_recording().recordings[0]


def inked(runs: tuple[tuple[int, int], ...]) -> int:
    return sum(end - start for start, end in runs)


def test_spans_that_fill_slots_keep_their_position() -> None:
    (runs,) = runs_by_layer((SpanSet.of((10, 20), (50, 90)),), 0, 100, slots=10)

    assert runs == ((1, 2), (5, 9))


def test_later_layers_cover_earlier_ones() -> None:
    below, above = runs_by_layer((SpanSet.of((0, 100)), SpanSet.of((30, 50))), 0, 100, slots=10)

    assert below == ((0, 3), (5, 10))
    assert above == ((3, 5),)


def test_spans_far_smaller_than_a_slot_are_inked_by_their_share() -> None:
    tiny = SpanSet.of(*((at, at + 3) for at in range(0, 10_000, 10)))

    (runs,) = runs_by_layer((tiny,), 0, 10_000, slots=100)

    assert inked(runs) == pytest.approx(30, abs=1)


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 5_000)), max_size=40))
def test_ink_and_time_agree_to_within_a_slot(pairs: list[tuple[int, int]]) -> None:
    spans = SpanSet.of(*pairs)

    (runs,) = runs_by_layer((spans,), 1_000, 4_000, slots=100)

    assert inked(runs) == pytest.approx(spans.clip(1_000, 4_000).total_ns / 30, abs=1.01)


@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from(range(4))), max_size=60))
def test_layers_that_share_out_the_time_share_out_the_slots(cuts: list[tuple[int, int]]) -> None:
    edges = [0, *sorted(at for at, _ in cuts), 1_000]
    owners = [0, *(owner for _, owner in sorted(cuts))]
    layers = tuple(
        SpanSet.of(*(edge for edge, owner in zip(itertools.pairwise(edges), owners, strict=True) if owner == layer))
        for layer in range(4)
    )

    assert sum(map(inked, runs_by_layer(layers, 0, 1_000, slots=50))) == 50


@given(st.lists(st.lists(st.sampled_from((0.0, 0.2, 0.5, 1.0)), min_size=3, max_size=3), min_size=1, max_size=40))
def test_each_slot_goes_to_the_layer_that_is_owed_the_most(slots: list[list[float]]) -> None:
    shares = [[share / max(sum(slot), 1.0) for share in slot] for slot in slots]
    owed, expected = [0.0] * 4, []
    for slot in shares:
        with_rest = [*slot, max(0.0, 1.0 - sum(slot))]
        owed = [before + share for before, share in zip(owed, with_rest, strict=True)]
        seen = [layer for layer, share in enumerate(with_rest) if share > 0]
        expected.append(max(seen, key=lambda layer: owed[layer]))
        owed[expected[-1]] -= 1.0

    assert _diffused(np.array(shares).T).tolist() == expected


def test_a_path_of_runs_goes_from_one_to_the_next() -> None:
    assert runs_path([(2, 5), (9, 10)], y=8) == "M2 8h3m4 0h1"


def test_the_bar_s_parts_fill_its_width_in_the_breakdown_s_order() -> None:
    chart = step_bar(recording(), "x")

    assert chart is not None
    starts = [float(shape.path[1:].split(" ")[0]) for shape in chart.shapes]
    assert starts == sorted(starts)
    assert chart.shapes[0].tip == "Kernels: 98.6 ms, 55.5%"


def test_an_unmeasured_category_is_only_in_the_legend() -> None:
    chart = step_bar(three_recordings().recordings[2], "x")

    assert chart is not None
    assert [entry.figure for entry in chart.legend if entry.label == "Data wait"] == ["not measured"]
    assert not [shape for shape in chart.shapes if shape.paint is PAINTS[Category.DATA_WAIT]]


def test_a_single_recording_is_not_compared() -> None:
    assert comparison_bars((recording(),), "x") is None


def test_short_names_keep_the_parts_that_differ() -> None:
    assert told_apart(["workers_0/w/161", "workers_4/w/162"]) == ["workers_0/161", "workers_4/162"]
    assert told_apart(["a/w", "a"]) == ["a/w", "a"]
    assert told_apart(["a", "a"]) == ["a", "a"]


def test_a_step_left_out_is_drawn_faint_and_numbered_in_brackets() -> None:
    chart = per_step(recording(), "x")

    assert chart is not None
    assert {shape.faint for shape in chart.shapes if (shape.tip or "").startswith("Step 0,")} == {True}
    assert "(0)" in [label.text for label in chart.labels]


def test_a_single_step_has_no_column_chart() -> None:
    assert per_step(replace(recording(), steps=recording().steps[:1]), "x") is None


def test_many_steps_are_drawn_with_few_shapes() -> None:
    many = replace(recording(), steps=recording().steps * 10)

    chart = per_step(many, "x")

    assert chart is not None
    assert len(many.steps) > MOST_POINTED_AT
    assert len(chart.shapes) <= 2 * len(DEVICE_CATEGORIES)


def test_a_recording_without_steps_has_no_charts() -> None:
    empty = replace(recording(), steps=(), mean_breakdown=None, timeline=None)

    assert [step_bar(empty, "x"), per_step(empty, "x"), timeline(empty.timeline, "x")] == [None, None, None]


def test_the_timeline_of_a_million_spans_stays_small() -> None:
    starts = np.arange(0, 10_000_000, 10, dtype=np.int64)
    lane = Lane("stream 7", {Category.KERNEL: SpanSet(starts, starts + 4)})
    chart = timeline(Timeline(1, 0, 10_000_000, (), (lane,), Lane("", {})), "x")

    assert chart is not None
    assert sum(len(strip.path) for strip in chart.strips) < 8 * WIDTH


def test_the_timeline_leaves_out_nearly_empty_lanes() -> None:
    empty = Lane("idle thread", {Activity.OPERATOR: SpanSet.of((0, 1))})
    drawn = recording().timeline
    assert drawn is not None

    chart = timeline(replace(drawn, host=(*drawn.host, empty)), "x")

    assert chart is not None
    assert "idle thread" not in [label.text for label in chart.labels]
    assert "Not drawn: 1 less busy lane." in chart.description


def test_the_timeline_names_the_mean_of_the_typical_steps_beside_its_own() -> None:
    one = recording().timeline
    for mean_ns, words in (
        (250e6, "A step of 177.6 ms; typical steps take 250.0 ms on average. "),
        (None, "A step of 177.6 ms. "),
    ):
        chart = timeline(one, "x", mean_ns=mean_ns)
        assert chart is not None
        assert (chart.caption or "").startswith(words)


def test_a_timeline_without_streams_does_not_mention_them() -> None:
    chart = timeline(on_the_cpu().recordings[0].timeline, "x")

    assert chart is not None
    assert "stream" not in chart.description


# Linear RGB as seen with each kind of colour blindness: Machado, Oliveira and Fernandes 2009, severity 1.0.
VISION = {
    "full": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(colour: str, vision: str) -> Float64:
    """CIE L*a*b* of a colour as seen."""
    encoded = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(VISION[vision] @ linear, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", list(VISION))
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("categories", [DEVICE_CATEGORIES, HOST_CATEGORIES])
def test_the_colours_of_a_breakdown_differ_for_every_colour_vision(
    vision: str, scheme: str, categories: tuple[Category, ...]
) -> None:
    seen = {category: lab(getattr(PAINTS[category], scheme), vision) for category in categories}

    for one, other in itertools.combinations(categories, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 10, (one, other)


def luminance(colour: str) -> float:
    return float(((lab(colour, "full")[0] + 16) / 116) ** 3)


@pytest.mark.parametrize("kind", list(PAINTS))
def test_figures_can_be_read_on_their_colour(kind: Category | Activity) -> None:
    paint = PAINTS[kind]

    for ground, ink in ((paint.light, paint.ink_light), (paint.dark, paint.ink_dark)):
        light, dark = sorted((luminance(ground), luminance(ink)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) > 3, (ground, ink)


def test_coordinates_are_plain_numbers() -> None:
    chart = step_bar(recording(), "x")

    assert chart is not None
    assert all(re.fullmatch(r"[MhvzHVm0-9. -]+", shape.path) for shape in chart.shapes)


def _beside(times: int) -> Chart:
    """The recording compared with one whose steps are this many times longer."""
    one = recording()
    mean = one.mean_breakdown
    assert mean is not None
    parts = {category: ns and ns * times for category, ns in mean.parts_ns.items()}
    other = replace(one, id="b", mean_breakdown=MeanBreakdown(mean.duration_ns * times, parts))
    chart = comparison_bars((one, other), "x")
    assert chart is not None
    return chart


def test_similar_step_times_share_one_scale() -> None:
    chart = _beside(2)
    assert chart.caption is None
    assert [label.text for label in chart.labels][-1].endswith("ms")


def test_very_different_step_times_each_fill_the_width() -> None:
    chart = _beside(50)
    assert "differ too much for one scale" in (chart.caption or "")
    assert [label.text for label in chart.labels][-5:] == ["0%", "25%", "50%", "75%", "100%"]
