from dataclasses import replace

import pytest

from tests.build_report import MS
from tests.rendering.captures import captured, run
from tests.rendering.formatted import sentences
from tests.rendering.samples import START_NS
from traceadvisor.model.run import Run, RunSettings, StepState, TimedStep, steps_by_state, undisturbed_count
from traceadvisor.rendering.charts.clock import RunClock
from traceadvisor.rendering.charts.drawing import Chart
from traceadvisor.rendering.charts.palette import STEP_PAINTS
from traceadvisor.rendering.charts.run_steps import run_steps_chart
from traceadvisor.rendering.content.report.run import by_run, run_blocks
from traceadvisor.rendering.headline import step_time


def steps(*lengths_ms: float, state: StepState = StepState.PLAIN, first: int = 1) -> list[TimedStep]:
    """Steps one after the other, half of each in the loader."""
    timed: list[TimedStep] = []
    at = START_NS
    for place, length in enumerate(lengths_ms):
        duration = round(length * MS)
        timed.append(TimedStep(first + place, at, duration, duration // 2, 1, state))
        at += duration
    return timed


def drawn(timed: list[TimedStep]) -> Chart:
    last = timed[-1]
    chart = run_steps_chart(timed, 10 * MS, RunClock(timed[0].start_ns, last.start_ns + last.duration_ns), "x")
    assert chart is not None
    return chart


def dots(chart: Chart, state: StepState) -> int:
    return sum(curve.path.count("h0") for curve in chart.curves if curve.paint is STEP_PAINTS[state])


def of(timed: list[TimedStep]) -> Run:
    return Run((), "ran to its end", tuple(timed), RunSettings(), None)


def test_the_first_step_is_left_out_of_all_figures() -> None:
    (plain,) = steps_by_state(of(steps(900, 10, 12, first=0)))
    assert (plain.count, plain.median_ns, plain.longest_ns, plain.mean_loader_ns) == (2, 11 * MS, 12 * MS, 5.5 * MS)


def test_only_plain_steps_are_undisturbed() -> None:
    assert undisturbed_count(of(steps(9, 10, 11, first=0) + steps(10, state=StepState.RECORDED, first=3))) == 2


def test_each_step_of_a_short_run_is_a_dot() -> None:
    assert dots(drawn(steps(10, 11, 12)), StepState.PLAIN) == 3


def test_a_long_run_has_few_dots_on_lines_from_shortest_to_longest() -> None:
    chart = drawn(steps(*([10, 12] * 5_000)))
    assert dots(chart, StepState.PLAIN) <= 201
    assert sum(len(curve.path) for curve in chart.curves) < 20_000


def test_the_first_step_is_not_grouped_with_others() -> None:
    chart = drawn(steps(2_000, *([10] * 999), first=0))
    assert not any("l0" in curve.path for curve in chart.curves)


def test_a_run_that_validates_after_every_step_stays_small() -> None:
    alternating = [
        replace(step, state=StepState.OTHER if step.index % 2 else StepState.PLAIN) for step in steps(*([10] * 4_000))
    ]
    assert dots(drawn(alternating), StepState.OTHER) <= 201


def test_very_long_steps_are_drawn_at_the_top_and_mentioned() -> None:
    chart = drawn(steps(*([10] * 99), 500))
    assert chart.labels[0].text == "up to 20.0 ms"
    assert "1 step longer than 20.0 ms, drawn at the top: the longest took 500.0 ms." in chart.description


def test_the_median_of_undisturbed_steps_is_named() -> None:
    assert "- - undisturbed median 10.0 ms" in [label.text for label in drawn(steps(10, 12)).labels]


def test_the_table_lists_the_run_in_order() -> None:
    chart = drawn(steps(10, 12) + steps(20, state=StepState.RECORDED, first=3))
    assert [[cell.text for cell in row] for row in chart.data.rows] == [
        ["1 to 2", "Undisturbed", "11.0 ms", "12.0 ms", "5.50 ms"],
        ["3", "Recorded", "20.0 ms", "20.0 ms", "10.0 ms"],
    ]


def test_without_steps_there_is_no_chart() -> None:
    assert run_steps_chart([], None, RunClock(0, 1), "x") is None


@pytest.mark.parametrize(
    ("undisturbed", "ran", "kind", "beside"),
    [
        (None, None, "median", "mean 177.6 ms"),
        (168.0 * MS, None, "undisturbed median", None),
        (168.0 * MS, run(None), "median of 270 undisturbed steps, without the profiler", None),
    ],
)
def test_the_headline_is_the_undisturbed_median_if_known(
    undisturbed: float | None, ran: Run | None, kind: str, beside: str | None
) -> None:
    recording = replace(captured().recordings[0], undisturbed_median_step_ns=undisturbed, captured=ran)
    time = step_time(recording)
    assert (time.kind, time.beside) == (kind, beside)


def test_a_remark_explains_bursts_of_batches() -> None:
    (shared,) = by_run(captured().recordings)
    assert "the mean of 4 successive steps" in sentences(run_blocks(shared, 1, several=False))[0]
