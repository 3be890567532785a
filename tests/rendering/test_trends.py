import itertools
import re

import numpy as np
import pytest

from tests.rendering.samples import START_NS, S
from tests.rendering.test_charts import VISION, lab, luminance
from traceadvisor.model.arrays import Float64, Int64
from traceadvisor.rendering.charts.clock import RunClock
from traceadvisor.rendering.charts.drawing import Chart, LegendEntry, points_path
from traceadvisor.rendering.charts.palette import (
    DEVICE_PAINTS,
    HOST_PAINT,
    PROCESSES_PAINT,
    RECORDED_WINDOW,
    STEP_PAINTS,
    WAITING_PAINT,
    Paint,
)
from traceadvisor.rendering.charts.trend import BOTTOM, MOST_POINTS, TOP, Limit, Subject, Trend, thinned, trend_chart
from traceadvisor.rendering.units import watts


def seconds(count: int) -> Int64:
    return START_NS + np.arange(count, dtype=np.int64) * S


def rows(
    values: list[float] | Float64, broken_off: tuple[int, ...] = (), time_ns: Int64 | None = None
) -> list[list[int]]:
    """The rows that are drawn for samples one second apart, in uninterrupted sequences."""
    figures = np.asarray(values, dtype=np.float64)
    broken = np.isin(np.arange(figures.size), broken_off)
    return [stretch.tolist() for stretch in thinned(seconds(figures.size), figures, broken)]


def chart(values: list[float], limit: Limit | None = None, recorded: tuple[tuple[int, int], ...] = ()) -> Chart:
    """A chart of samples one second apart over ten seconds."""
    figures = np.asarray(values, dtype=np.float64)
    trend = Trend(
        LegendEntry(HOST_PAINT, "GPU 0", ""), seconds(figures.size), figures, np.zeros(figures.size, dtype=np.bool_)
    )
    clock = RunClock(START_NS, START_NS + 10 * S, recorded)
    drawn = trend_chart(Subject("Power", watts, limit), [trend], clock, "x")
    assert drawn is not None
    return drawn


NAN = float("nan")


def test_a_short_series_keeps_all_samples() -> None:
    assert rows([5, 6, 5, 7]) == [[0, 1, 2, 3]]


def test_no_line_crosses_a_gap_in_the_sampling() -> None:
    assert rows([5, 6, NAN, 7, 8], broken_off=(2,)) == [[0, 1], [3, 4]]


def test_a_figure_sampled_less_often_has_no_gaps() -> None:
    assert rows([5, NAN, NAN, 6, NAN, NAN, 7]) == [[0, 3, 6]]


def test_a_long_time_without_samples_is_a_gap() -> None:
    assert rows([5, 6, 7, NAN, NAN, NAN, NAN, 8, 9]) == [[0, 1, 2], [7, 8]]


def test_a_figure_without_samples_is_not_drawn() -> None:
    assert rows([NAN, NAN]) == []


def test_a_single_sample_is_drawn_alone() -> None:
    assert rows([NAN, 5, NAN]) == [[1]]


def test_a_long_series_is_thinned_but_keeps_its_peaks() -> None:
    values = np.random.default_rng(0).uniform(40, 60, 50_000)
    values[31_416], values[27_182] = 99.0, 0.0
    (drawn,) = rows(values)
    assert len(drawn) <= MOST_POINTS + 2
    assert {0, 27_182, 31_416, 49_999} <= set(drawn)


def test_a_rise_between_long_levels_stays_steep() -> None:
    (drawn,) = rows(np.concatenate((np.zeros(5_000), np.ones(5_000))))
    assert {4_999, 5_000} <= set(drawn)


def test_a_gap_narrower_than_a_pixel_breaks_the_line() -> None:
    values = np.full(50_000, 5.0)
    values[25_000] = NAN
    assert len(rows(values, broken_off=(25_000,))) == 2


def test_a_series_with_many_gaps_is_thinned() -> None:
    values = np.full(50_000, 5.0)
    values[::2] = NAN
    drawn = rows(values, broken_off=tuple(range(0, 50_000, 2)))
    assert sum(map(len, drawn)) <= MOST_POINTS + 2


def test_points_are_written_as_steps_from_one_to_the_next() -> None:
    assert points_path([(1, 2), (3, 5.25), (4, 5)]) == "M1 2l2 3.2l1 -0.2"


def test_a_single_point_is_a_dot() -> None:
    assert points_path([(1, 2)]) == "M1 2h0"


def test_the_limit_is_the_plot_s_upper_end_and_is_named() -> None:
    drawn = chart([350, 175], Limit(700, "limit 700 W"))
    assert drawn.curves[0].path == f"M0 {TOP + 46}l100 23"
    assert "- - limit 700 W" in [label.text for label in drawn.labels]


def test_a_sample_above_the_limit_is_not_cut_off() -> None:
    drawn = chart([700, 1400], Limit(700, "limit 700 W"))
    assert drawn.labels[0].text == "up to 1,470 W"
    assert all(line.y1 != str(TOP) for line in drawn.lines if line.dashed)


def test_samples_of_zero_are_drawn_at_the_bottom() -> None:
    assert chart([0, 0]).curves[0].path == f"M0 {BOTTOM}l100 0"


def test_the_recorded_window_is_shaded_and_labelled() -> None:
    drawn = chart([1, 2], recorded=((START_NS + 2 * S, START_NS + 4 * S),))
    (window,) = drawn.shapes
    assert window.paint is RECORDED_WINDOW
    assert window.path.startswith(f"M200 {TOP}h200")
    assert [(label.x, label.text) for label in drawn.labels if "recorded" in label.text] == [("20%", "recorded")]


def test_a_recording_at_another_time_is_not_shaded() -> None:
    assert chart([1, 2], recorded=((START_NS + 20 * S, START_NS + 22 * S),)).shapes == ()


def test_a_short_recording_of_a_long_run_stays_visible() -> None:
    drawn = chart([1, 2], recorded=((START_NS + 10 * S - 5, START_NS + 10 * S - 1),))
    assert drawn.shapes[0].path.startswith(f"M997 {TOP}h3")


def test_the_table_names_missing_samples() -> None:
    drawn = chart([1, 2])
    assert [cell.text for cell in drawn.data.rows[0]] == ["0", "1 W", "1 W"]
    assert [cell.text for cell in drawn.data.rows[-1]][1:] == ["not measured", "not measured"]


def test_without_samples_there_is_no_chart() -> None:
    nothing = Trend(LegendEntry(HOST_PAINT, "x", ""), seconds(1), np.array([NAN]), np.array([True]))
    assert trend_chart(Subject("Power", watts), [nothing], RunClock(0, 1), "x") is None


def test_coordinates_of_lines_are_plain_numbers() -> None:
    assert all(re.fullmatch(r"[Mlh0-9. -]+", curve.path) for curve in chart([1, 5, 3]).curves)


PICTURES = {
    "devices": (*DEVICE_PAINTS, HOST_PAINT, PROCESSES_PAINT),
    "host": (HOST_PAINT, PROCESSES_PAINT, WAITING_PAINT),
    "steps": tuple(STEP_PAINTS.values()),
}


@pytest.mark.parametrize("vision", list(VISION))
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("picture", list(PICTURES))
def test_colours_of_one_chart_differ_for_every_colour_vision(vision: str, scheme: str, picture: str) -> None:
    seen = {paint.name: lab(getattr(paint, scheme), vision) for paint in PICTURES[picture]}
    for one, other in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 10, (one, other)


@pytest.mark.parametrize("paint", [paint for paints in PICTURES.values() for paint in paints])
def test_a_line_is_visible_on_the_page(paint: Paint) -> None:
    for page, colour in (("#ffffff", paint.light), ("#12151b", paint.dark)):
        light, dark = sorted((luminance(page), luminance(colour)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) > 2.2, (paint, page)
