from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, twice
from traceadvisor.rules.idle.idle003_kernel_gaps import KernelGaps


def _queued(gap_us: float, kernel_us: float = 8) -> TraceBuilder:
    """Ten kernels, all launched within the first 10 us of the step, each a gap behind the one before."""
    builder = TraceBuilder().step(0, 0, 12 + 10 * kernel_us + 9 * gap_us).op("aten::add", 0, 10)
    for number in range(10):
        start = 12 + number * (kernel_us + gap_us)
        builder.launch(number, number + 0.5, kernel=(start, start + kernel_us))
    return builder


def test_short_gaps_between_queued_kernels_are_found(tmp_path: Path) -> None:
    found = finding(KernelGaps(), _queued(gap_us=2), tmp_path)
    assert found.claims.total_ns == 18_000
    assert evidence(found, "short gaps") == 9
    assert evidence(found, "median gap") == 2_000
    assert evidence(found, "kernels") == 10
    assert evidence(found, "median kernel") == 8_000


def test_without_a_simulation_the_saving_is_at_most_the_gaps(tmp_path: Path) -> None:
    saving = finding(KernelGaps(), _queued(gap_us=2), tmp_path).saving
    assert [saving.low_ns, saving.high_ns] == pytest.approx([0, 18_000])


def test_gaps_beside_long_kernels_are_clear(tmp_path: Path) -> None:
    outcome = clear(KernelGaps(), _queued(gap_us=1, kernel_us=100), tmp_path)
    assert outcome.value == pytest.approx(9 / 1021)


def test_a_long_gap_is_a_wait_for_something(tmp_path: Path) -> None:
    assert clear(KernelGaps(), _queued(gap_us=30), tmp_path).value == 0


def test_waiting_for_a_launch_does_not_count(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100)
    for start in range(0, 100, 10):
        builder.op("aten::add", start, start + 10).launch(start + 2, start + 7, kernel=(start + 8, start + 10))
    assert clear(KernelGaps(), builder, tmp_path).value == 0


@pytest.mark.parametrize(("kernel_us", "found"), [(169.9, False), (169.8, True)])
def test_gaps_count_from_five_percent_of_the_step(kernel_us: float, tmp_path: Path, *, found: bool) -> None:
    # Nine gaps of 10 us in a step of 1,800 us, and of one more.
    assert is_found(KernelGaps(), _queued(gap_us=10, kernel_us=kernel_us), tmp_path) is found


@pytest.mark.parametrize(("gap_us", "found"), [(20, False), (19.9, True)])
def test_a_gap_is_short_below_20_microseconds(gap_us: float, tmp_path: Path, *, found: bool) -> None:
    assert is_found(KernelGaps(), _queued(gap_us=gap_us), tmp_path) is found


def test_figures_are_means_per_step(tmp_path: Path) -> None:
    found = finding(KernelGaps(), twice(_queued(gap_us=2), 110), tmp_path)
    assert (evidence(found, "short gaps"), evidence(found, "kernels")) == (9, 10)
