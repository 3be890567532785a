from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, facts_of, finding, is_found, skipped
from traceadvisor.judging.engine import judge
from traceadvisor.model.findings import Evidence, Unit
from traceadvisor.rules.idle.idle009_low_gpu_busy import FETCHING, PREPARING, UNKNOWN, WAITING, LowGpuBusy


def _steps(*, kernel_us: float, loading_us: float = 0, count: int = 3) -> TraceBuilder:
    """Steps of 100 us that end with a kernel."""
    builder = TraceBuilder()
    for number in range(count):
        at, end = 100 * number, 100 * number + 100
        builder.step(number, at, end).loader(at, at + loading_us)
        builder.op("aten::mm", end - kernel_us - 5, end - kernel_us).launch(
            end - kernel_us - 4, end - kernel_us - 1, kernel=(end - kernel_us, end)
        )
    return builder


def test_less_than_half_of_the_step_is_low(tmp_path: Path) -> None:
    found = finding(LowGpuBusy(), _steps(kernel_us=40), tmp_path)
    assert found.evidence == (
        Evidence("GPU busy, recorded", 0.4, Unit.SHARE),
        Evidence("time without a kernel or collective", 60_000, Unit.NS_PER_STEP),
    )
    assert found.claims.total_ns == 3 * 60_000
    assert found.fix.summary == UNKNOWN


def _steps_with_lost_kernels(lost_us: int) -> TraceBuilder:
    """Steps of 100 us, 40 of them with a kernel; a kernel without a record may have run for so long before it."""
    builder = _steps(kernel_us=40, count=4)
    for number in range(4):
        at = 100 * number
        builder.launch(at + 59 - lost_us, at + 60 - lost_us)
    return builder


def test_a_share_that_may_be_high_is_not_judged(tmp_path: Path) -> None:
    reason = skipped(LowGpuBusy(), _steps_with_lost_kernels(11), tmp_path)
    assert reason == "The GPU is busy for 40% to 51% of the step: the recording is incomplete."


def test_a_share_that_is_low_in_any_case_is_shown_as_a_range(tmp_path: Path) -> None:
    found = finding(LowGpuBusy(), _steps_with_lost_kernels(9), tmp_path)
    assert [row.value for row in found.evidence] == [pytest.approx(0.4), pytest.approx(0.49), 51_000]
    assert found.claims.total_ns == 4 * (100 - 49) * 1000


def test_collectives_keep_the_device_busy(tmp_path: Path) -> None:
    builder = _steps(kernel_us=40)
    for at in (0, 100, 200):
        builder.collective(at + 10, at + 12, kernel=(at + 20, at + 40))
    assert clear(LowGpuBusy(), builder, tmp_path).value == pytest.approx(0.6)


def test_sampled_and_recorded_utilisation_are_shown(tmp_path: Path) -> None:
    captured = Captured(_steps(kernel_us=40), tmp_path).sampled(cpu=0.2).with_device(mean_utilization_share=0.7)
    assert captured.finding(LowGpuBusy()).evidence[2:] == (
        Evidence("GPU utilisation, sampled", 0.7, Unit.SHARE),
        Evidence("CPU core utilisation", 0.2, Unit.SHARE),
    )


def test_it_is_shown_with_the_headline_and_not_ranked(tmp_path: Path) -> None:
    judgement = judge(facts_of(_steps(kernel_us=40), tmp_path), (LowGpuBusy(),))
    assert judgement.findings == ()
    (umbrella,) = judgement.recording.umbrellas
    assert umbrella.rule.id == "IDLE009"


@pytest.mark.parametrize(("kernel_us", "found"), [(50, False), (49.9, True)])
def test_busy_is_low_below_half_of_the_step(kernel_us: float, tmp_path: Path, *, found: bool) -> None:
    assert is_found(LowGpuBusy(), _steps(kernel_us=kernel_us), tmp_path) is found


@pytest.mark.parametrize(
    ("loading_us", "cores", "pointer"),
    [
        *((30, 0.95, PREPARING), (30, 0.1, FETCHING), (0, 0.1, WAITING), (0, 0.95, UNKNOWN), (30, 0.6, UNKNOWN)),
        *((30, 0.79, UNKNOWN), (30, 0.8, PREPARING)),
        *((30, 0.49, FETCHING), (30, 0.5, UNKNOWN), (0, 0.49, WAITING), (0, 0.5, UNKNOWN)),
        *((4.9, 0.95, UNKNOWN), (5, 0.95, PREPARING), (4.9, 0.1, WAITING), (5, 0.1, FETCHING)),
    ],
)
def test_cpu_utilisation_shows_what_to_check_busy_from_80_percent_idle_below_50_and_waiting_from_5(
    loading_us: float, cores: float, pointer: str, tmp_path: Path
) -> None:
    captured = Captured(_steps(kernel_us=40, loading_us=loading_us), tmp_path).sampled(granted=cores)
    assert captured.finding(LowGpuBusy()).fix.summary == pointer
