from pathlib import Path

import pytest

from tests.analysis.analysing import facts_of
from tests.build import TraceBuilder
from traceadvisor.analysis.operators.tables import device_figures
from traceadvisor.model.report import DeviceFigures


def figures_of(builder: TraceBuilder, folder: Path) -> DeviceFigures:
    facts = facts_of(builder, folder)
    return device_figures(facts.trace, facts.launches, facts.steps.kept_windows, facts.unknown.spans)


def test_the_worked_example(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100)
    builder.launch(0, 1, kernel=(0, 50), blocks_per_sm=0.4, occupancy_percent=20)
    builder.launch(1, 2, kernel=(25, 75), blocks_per_sm=0.8, occupancy_percent=40, stream=8)
    figures = figures_of(builder, tmp_path)
    assert figures.busy_share == pytest.approx(0.75)
    assert figures.sm_efficiency_share == pytest.approx(0.25 * 0.4 + 0.25 * 1 + 0.25 * 0.8)
    assert figures.achieved_occupancy_share == pytest.approx((0.2 * 50 + 0.4 * 50) / 100)


def test_collectives_keep_the_device_busy_and_copies_do_not(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).collective(0, 1, kernel=(0, 30)).copy(1, 2, on_device=(30, 80))
    assert figures_of(builder, tmp_path).busy_share == pytest.approx(0.3)


def test_only_time_inside_the_windows_counts(tmp_path: Path) -> None:
    builder = TraceBuilder().launch(0, 5, kernel=(6, 8), blocks_per_sm=1).step(0, 10, 1010)
    builder.launch(10, 11, kernel=(510, 1010), blocks_per_sm=1)
    assert figures_of(builder, tmp_path) == DeviceFigures(0.5, 0.5, None)


def test_more_blocks_than_fit_count_as_one(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(0, 50), blocks_per_sm=6.5)
    assert figures_of(builder, tmp_path).sm_efficiency_share == pytest.approx(0.5)


def test_occupancy_without_an_estimate_is_not_measured(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(0, 50))
    assert figures_of(builder, tmp_path) == DeviceFigures(0.5, None, None)


def test_an_occupancy_of_zero_is_an_estimate(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(0, 50), occupancy_percent=0)
    builder.launch(1, 2, kernel=(50, 100), occupancy_percent=50)
    assert figures_of(builder, tmp_path).achieved_occupancy_share == pytest.approx(0.25)


def test_a_kernel_of_no_length_weighs_nothing(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(50, 50), blocks_per_sm=1, occupancy_percent=50)
    assert figures_of(builder, tmp_path) == DeviceFigures(0.0, 0.0, None)


def test_without_a_device_there_are_no_figures(tmp_path: Path) -> None:
    assert figures_of(TraceBuilder().step(0, 0, 100).op("a", 0, 9), tmp_path) == DeviceFigures(None, None, None)


def test_without_a_kept_step_there_are_no_figures(tmp_path: Path) -> None:
    builder = TraceBuilder().launch(0, 5, kernel=(5, 200)).step(0, 10, 100).op("aten::mm", 10, 100)
    assert figures_of(builder, tmp_path) == DeviceFigures(None, None, None)


def test_unknown_time_makes_the_busy_share_a_range(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 10_000).launch(0, 10, kernel=(4_010, 6_010))
    figures = figures_of(builder, tmp_path)
    assert (figures.busy_share, figures.busy_share_high) == (0.2, 0.6)
