"""Figures over a stretch of time; sample number n is taken at n seconds."""

import numpy as np
import pytest

from traceadvisor.analysis.telemetry_figures import device_window, telemetry_window
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.telemetry import ClockEventReason, DeviceTelemetry, Series, Telemetry, WorkerTelemetry
from traceadvisor.model.telemetry_window import DeviceWindow, TelemetryWindow

S = 10**9
NAN = float("nan")


def series(**figures: list[float]) -> Series:
    count = max((len(values) for values in figures.values()), default=0)
    columns = {name: np.array(values, dtype=np.float64) for name, values in figures.items()}
    return Series(np.arange(count, dtype=np.int64) * S, columns)


def device(**figures: list[float]) -> DeviceTelemetry:
    return DeviceTelemetry(
        "GPU-1", "H100", 0, 1000, 400.0, (5, 16), series(**figures), max_sm_clock_mhz=2000, slowdown_celsius=87
    )


def over(start_s: float, end_s: float, **figures: list[float]) -> DeviceWindow:
    return device_window(device(**figures), SpanSet.of((round(start_s * S), round(end_s * S))))


def host(node: Series, processes: Series | None = None, *workers: WorkerTelemetry) -> TelemetryWindow:
    telemetry = Telemetry("node7", (device(),), node, processes or series(), 8, 2.0, 4, 1000, workers)
    return telemetry_window(telemetry, SpanSet.of((0, 100 * S)))


def test_a_stretch_holds_its_start_and_not_its_end() -> None:
    assert over(1, 3, utilization_percent=[0, 10, 30, 100]).mean_utilization_share == pytest.approx(0.2)


def test_the_peak_is_the_largest_in_the_stretch() -> None:
    assert over(0, 3, utilization_percent=[0, 70, 30, 100]).peak_utilization_share == 0.7


def test_samples_without_the_figure_do_not_count() -> None:
    window = over(0, 3, utilization_percent=[40, NAN, 60])
    assert (window.mean_utilization_share, window.sample_count) == (0.5, 2)


def test_a_span_without_samples_has_no_figures() -> None:
    window = over(7, 9, utilization_percent=[40, 60], clock_event_reasons=[0, 0], power_watts=[1, 1])
    assert window.sample_count == 0
    assert window.mean_utilization_share is None
    assert window.thermal_share is None
    assert window.clock_event_shares is None
    assert window.mean_power_share is None


def test_a_figure_that_was_never_sampled_is_none() -> None:
    window = over(0, 3, utilization_percent=[40, 50, 60])
    assert window.mean_power_watts is None
    assert window.peak_temperature_celsius is None
    assert window.best_link is None


def test_a_stretch_that_ends_before_it_starts_is_empty() -> None:
    assert over(3, 1, utilization_percent=[40, 50, 60, 70]).sample_count == 0


def test_the_memory_peak_is_also_a_share_of_the_capacity() -> None:
    window = over(0, 3, memory_used_bytes=[100, 900, 300])
    assert (window.peak_memory_bytes, window.peak_memory_share) == (900, 0.9)


def test_power_is_a_share_of_the_initial_limit() -> None:
    assert over(0, 2, power_watts=[100, 300]).mean_power_share == 0.5


def test_a_power_limit_read_later_holds_from_then_on() -> None:
    window = over(0, 3, power_watts=[100, 100, 100], power_limit_watts=[NAN, 200, NAN])
    assert window.mean_power_share == pytest.approx((0.25 + 0.5 + 0.5) / 3)


def test_a_power_limit_read_before_the_stretch_holds_in_it() -> None:
    assert over(2, 3, power_watts=[100, 100, 100], power_limit_watts=[NAN, 200, NAN]).mean_power_share == 0.5


def test_a_power_limit_of_zero_gives_no_share() -> None:
    assert over(0, 1, power_watts=[100], power_limit_watts=[0]).mean_power_share is None


def test_temperature_has_a_mean_and_a_peak() -> None:
    window = over(0, 2, temperature_celsius=[60, 80])
    assert (window.mean_temperature_celsius, window.peak_temperature_celsius) == (70, 80)


def test_the_clock_is_also_a_share_of_the_highest() -> None:
    window = over(0, 2, sm_clock_mhz=[1500, 500])
    assert (window.mean_sm_clock_mhz, window.mean_sm_clock_share) == (1000, 0.5)


def test_each_clock_event_reason_has_its_share_of_the_samples() -> None:
    reasons = [ClockEventReason.SW_THERMAL | ClockEventReason.HW_SLOWDOWN, ClockEventReason.SW_THERMAL, 0, 0]
    window = over(0, 4, clock_event_reasons=[float(reason) for reason in reasons])
    assert window.clock_event_shares == {ClockEventReason.SW_THERMAL: 0.5, ClockEventReason.HW_SLOWDOWN: 0.25}


def test_both_thermal_reasons_together_count_once() -> None:
    assert over(0, 2, clock_event_reasons=[0x20 | 0x40, 0]).thermal_share == 0.5


def test_a_power_cap_is_no_heat() -> None:
    window = over(0, 2, clock_event_reasons=[0x4, 0x1])
    assert (window.thermal_share, window.power_share) == (0.0, 0.5)


def test_samples_without_clock_event_reasons_do_not_count() -> None:
    assert over(0, 3, clock_event_reasons=[0x40, NAN, NAN]).thermal_share == 1.0


def test_the_best_link_is_that_of_the_busiest_moment() -> None:
    assert over(0, 3, link_generation=[1, 4, 1], link_width=[8, 8, 8]).best_link == (4, 8)


def test_shares_of_the_hosts_cpus_are_between_0_and_1() -> None:
    window = host(series(cpu_percent=[20, 60], iowait_percent=[0, 50])).node
    assert (window.mean_cpu_share, window.peak_cpu_share, window.mean_iowait_share) == (0.4, 0.6, 0.25)


def test_the_least_available_memory_counts() -> None:
    window = host(series(memory_available_bytes=[500, 100, NAN])).node
    assert (window.least_available_memory_bytes, window.least_available_memory_share) == (100, 0.1)


def test_cpu_time_of_the_training_is_in_cores_and_a_share_of_those_granted() -> None:
    window = host(series(), series(cpu_percent=[100, 200])).processes
    assert (window.mean_cpu_cores, window.granted_cpu_share) == (1.5, 0.75)


def test_swap_that_was_there_before_the_run_does_not_count() -> None:
    assert host(series(swap_used_bytes=[300, 900, 700])).node.swap_growth_bytes == 600


def test_being_held_back_by_the_quota_is_a_share() -> None:
    assert host(series(), series(throttled_percent=[0, 50])).processes.mean_throttled_share == 0.25


def test_memory_of_the_control_group_is_a_share_of_its_limit() -> None:
    samples = series(group_memory_bytes=[100, 400])
    telemetry = Telemetry("node7", (), series(), samples, 8, None, group_memory_limit_bytes=500)
    window = telemetry_window(telemetry, SpanSet.of((0, 100 * S))).processes
    assert (window.peak_group_memory_bytes, window.peak_group_memory_share) == (400, 0.8)


def test_workers_stand_with_the_busiest_first() -> None:
    lazy = WorkerTelemetry(7, "pt_data_worker", series(cpu_percent=[10]))
    busy = WorkerTelemetry(8, "pt_data_worker", series(cpu_percent=[90]))
    gone = WorkerTelemetry(9, "pt_data_worker", series(cpu_percent=[NAN]))
    window = host(series(), None, lazy, busy, gone).processes
    assert [(worker.pid, worker.mean_cpu_cores) for worker in window.workers] == [(8, 0.9), (7, 0.1)]


def test_a_host_without_readings_has_no_figures() -> None:
    window = host(series())
    assert window.node.mean_cpu_share is None
    assert window.processes.mean_cpu_cores is None
    assert window.devices[0].sample_count == 0
