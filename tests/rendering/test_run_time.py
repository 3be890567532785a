import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.build_report import MS, one_recording
from tests.rendering.formatted import summary
from traceadvisor.model.distortion import Distortion
from traceadvisor.model.location import Location
from traceadvisor.model.report import Report
from traceadvisor.model.run import Run, RunSettings
from traceadvisor.model.run_time import CauseTime, RunCause, RunGrowth, RunPart, RunStretch, RunTime
from traceadvisor.model.workload import Framework, Workload
from traceadvisor.rendering.content.report.run import unknown_blocks
from traceadvisor.rendering.content.report.run_time import (
    distortion_remark,
    distortion_table,
    exact_percents,
    growth_sentence,
    run_chart,
    run_time_sentence,
    run_time_table,
)
from traceadvisor.rendering.document.blocks import Prose
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.results.report_json import read

S = 1_000_000_000
RUN = RunTime(
    10 * S,
    {
        RunPart.START_UP: 2 * S,
        RunPart.TRAINING: 2 * S,
        RunPart.VALIDATION: 5 * S,
        RunPart.CHECKPOINTS: 0,
        RunPart.AFTER: 1 * S,
    },
    200,
    is_whole=True,
)


def _distortion(ratio: float, **changes: float) -> Distortion:
    found = Distortion(10.0 * MS, ratio * 10 * MS, 2.0 * MS, 3.0 * MS, ratio / 1.1, ratio * 1.1)
    return replace(found, **changes)


def _report() -> Report:
    report = one_recording()
    timed = replace(report.recordings[0], run_time=RUN, distortion=_distortion(1.3, gpu_work_ns=4.0 * MS))
    return replace(report, recordings=(timed,))


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=len(RunPart)))
def test_shown_percentages_sum_to_100_exactly(times: list[int]) -> None:
    parts = dict(zip(RunPart, times, strict=False))
    shown = exact_percents(parts, sum(times))
    if sum(times):
        assert sum(round(float(text.rstrip("%")) * 10) for text in shown.values()) == 1000


def test_the_sentence_names_training_steps_and_the_largest_other_parts() -> None:
    assert run_time_sentence(RUN) == (
        "71% of the training time passes outside of steps. The whole run takes 10.0 s, of which "
        "50.0% loops without training, 20.0% start-up and 10.0% after the last step."
    )
    part = run_time_sentence(replace(RUN, is_whole=False))
    assert part is not None
    assert "The run from the first step to the last takes 10.0 s" in part


def test_the_recording_is_no_part_of_the_loop() -> None:
    parts = {RunPart.TRAINING: 6, RunPart.RECORDING: 28, RunPart.PAUSED: 10, RunPart.VALIDATION: 2}
    assert (run_time_sentence(RunTime(46, parts, 9, is_whole=False)) or "").startswith(
        "25% of the training time passes outside of steps."
    )


def test_an_empty_run_has_no_sentence_and_no_chart() -> None:
    empty = RunTime(0, {RunPart.TRAINING: 0}, 0, is_whole=True)
    assert run_time_sentence(empty) is None
    assert run_chart(empty, "x") is None


def test_the_table_has_a_row_for_each_part_with_time_and_a_total() -> None:
    rows = [[cell.text for cell in row] for row in run_time_table(RUN).rows]
    assert [row[:3] for row in rows] == [
        ["Start-up", "2.00 s", "20.0%"],
        ["Training steps", "2.00 s", "20.0%"],
        ["Loops without training", "5.00 s", "50.0%"],
        ["After the last step", "1.00 s", "10.0%"],
        ["Whole run", "10.0 s", "100.0%"],
    ]


def test_each_column_of_the_chart_is_as_high_as_the_others() -> None:
    half = {RunPart.TRAINING: S, RunPart.VALIDATION: 4 * S}
    stretches = (
        RunStretch(0, 5 * S, {RunPart.START_UP: 2 * S, RunPart.TRAINING: S, RunPart.VALIDATION: 2 * S}, 90),
        RunStretch(5 * S, 10 * S, half, 110),
    )
    chart = run_chart(replace(RUN, stretches=stretches), "run")
    assert chart is not None
    assert "Loops without training 50.0%" in chart.description
    drawn: dict[float, float] = {}
    for shape in chart.shapes:
        for left, height in re.findall(r"M([\d.]+) [\d.]+h500v([\d.]+)", shape.path):
            drawn[float(left)] = drawn.get(float(left), 0.0) + float(height)
    assert drawn == pytest.approx({0.0: 84, 500.0: 84})


def test_a_run_without_stretches_is_one_column() -> None:
    chart = run_chart(RUN, "run")
    assert chart is not None
    assert all("h1000v" in shape.path for shape in chart.shapes)


CAUSES = (
    CauseTime(RunPart.START_UP, RunCause.IMPORTS, round(1.5 * S), line=Location("train.py", 2, None)),
    CauseTime(RunPart.START_UP, RunCause.SET_UP, S // 2),
    CauseTime(RunPart.SLOW, RunCause.COMPILATION, 3 * S, 25, Location("train.py", 17, "main"), "size 4, was 3"),
)


def test_the_table_and_the_sentence_name_causes() -> None:
    parts = {RunPart.START_UP: 2 * S, RunPart.TRAINING: 5 * S, RunPart.SLOW: 3 * S}
    found = RunTime(10 * S, parts, 200, is_whole=True, causes=CAUSES)
    rows = [[cell.text for cell in row] for row in run_time_table(found).rows]
    assert ["… torch.compile", "3.00 s", "30.0%"] in [row[:3] for row in rows]
    about = next(row[3] for row in rows if "compile" in row[0])
    assert about == "25 steps; mostly at train.py:17; changed: size 4, was 3"
    assert run_time_sentence(found) == (
        "The whole run takes 10.0 s, of which 30.0% slow steps (torch.compile 3.00 s at train.py:17) and "
        "20.0% start-up (imports 1.50 s, other set-up 500.0 ms)."
    )


def test_growth_says_how_soon_a_step_takes_as_much_again() -> None:
    found = RunGrowth(
        190, 2.0 * MS, 6.0 * MS, 20_000.0, 1.0, 2.0, 0.4, of_cpu=True, line=Location("train.py", 14, "main")
    )
    assert growth_sentence(found) == (
        "The CPU time of a step grows from 2.00 ms to 6.00 ms over 190 steps. It grows by the first value again every "
        "100 steps. Line that grows most: train.py:14."
    )
    level = growth_sentence(replace(found, is_level=True, of_cpu=False, line=None))
    assert level == "The step grows from 2.00 ms to 6.00 ms over 190 steps. It stopped growing before the end."


@pytest.mark.parametrize("name", ["md", "json"])
def test_formats_hold_the_time_of_the_run(name: str) -> None:
    text = FORMATS[name].render(_report()).decode()
    assert ("50.0% loops without training" if name == "md" else '"validation"') in text


def test_the_terminal_holds_the_time_of_the_run_if_it_was_captured() -> None:
    assert [line for line in summary(_report()) if "71% of the loop" in line.text]
    assert not [line for line in summary(one_recording()) if "training loop" in line.text]


def test_a_report_that_is_read_back_holds_the_same(tmp_path: Path) -> None:
    written = FORMATS["json"].render(_report())
    (tmp_path / "report.json").write_bytes(written)
    again = read(tmp_path / "report.json")
    assert again.recordings[0].run_time == RUN
    assert again.recordings[0].distortion == _report().recordings[0].distortion
    assert FORMATS["json"].render(again) == written


def test_recorded_steps_stand_beside_undisturbed_ones() -> None:
    rows = [[cell.text for cell in row] for row in distortion_table(_distortion(1.3, gpu_work_ns=4.0 * MS)).rows]
    assert rows == [
        ["Step", "10.0 ms", "13.0 ms", "1.30"],
        ["In the data loader", "2.00 ms", "3.00 ms", "1.50"],
        ["Rest of the step", "8.00 ms", "10.0 ms", "1.25"],
        ["GPU operations", "about the same", "4.00 ms", "about 1"],
    ]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (_distortion(1.05), "hardly changed"),
        (_distortion(0.7), "differ from one another"),
        (_distortion(1.3, ratio_low=0.9, ratio_high=1.9), "differ from one another"),
        (
            _distortion(1.3),
            "forward pass, backward pass, optimizer and Python code. How much each of them grew is unknown",
        ),
        (_distortion(1.3, gpu_work_ns=1.0), "GPU operations take about as long as without recording"),
    ],
)
def test_the_remark_says_which_parts_grew(found: Distortion, words: str) -> None:
    assert words in distortion_remark(found)
    assert "With 95% confidence, the ratio is" in distortion_remark(found)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (None, "Only the recorded steps are known"),
        (Run(("train.py",), "", (), RunSettings(), None, was_stopped=True), "capture without --stop-after-window"),
        (Run(("train.py",), "", (), RunSettings(), None), None),
    ],
)
def test_a_report_says_what_its_recordings_cannot_show(run: Run | None, words: str | None) -> None:
    recording = replace(one_recording().recordings[0], captured=run)
    said = [str(one.words) for one in unknown_blocks([recording]) if isinstance(one, Prose)]
    assert [words in one for one in said if words] == ([True] if words else [])
    assert bool(said) == bool(words)


def test_a_recording_of_another_framework_is_not_sent_to_a_capture_of_pytorch() -> None:
    recording = replace(one_recording().recordings[0], captured=None, framework=Framework.JAX)
    assert not list(unknown_blocks([recording]))


def test_the_run_of_an_inference_has_steps_and_no_training() -> None:
    report = _report()
    served = replace(report.recordings[0], workload=Workload.INFERENCE)
    lines = " ".join(line.text for line in summary(replace(report, recordings=(served,))))
    assert "71% of the loop passes outside of steps." in lines
    rows = run_time_table(RUN, of_inference=True).rows
    assert [cell.text for cell in rows[1]] == [
        "Steps",
        "2.00 s",
        "20.0%",
        "Steps of the inference, without the parts below.",
    ]
    chart = run_chart(RUN, "run", of_inference=True)
    assert chart is not None
    assert "Training" not in f"{chart.description} {chart.legend} {chart.data}"


def test_time_that_recording_adds_to_an_inference_is_in_no_backward_pass() -> None:
    added = distortion_remark(_distortion(1.3), of_inference=True)
    assert "outside the data loader is in operators and Python code." in added
