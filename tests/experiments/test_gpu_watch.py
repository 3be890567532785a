from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.waiting import wait_until
from traceadvisor.experiments.inside import gpu_watch
from traceadvisor.experiments.inside.gpu_watch import NOT_SAMPLED, GpuUse, GpuWatch
from traceadvisor.model.telemetry import DeviceColumn


class _Gpu:
    """Busy for 40% and 60% of the time; uses 300 joules between two questions."""

    uuid = "GPU-12"
    is_split = False

    def __init__(self) -> None:
        self.samples = 0
        self.joules: float | None = 5000.0

    def energy_joules(self) -> float | None:
        self.joules = None if self.joules is None else self.joules + 300.0
        return self.joules

    def sample(self, own_pids: object, *, expensive: bool) -> dict[DeviceColumn, float | None]:
        self.samples += 1
        first = self.samples % 2
        return {DeviceColumn.UTILIZATION_PERCENT: 40 if first else 60, DeviceColumn.POWER_WATTS: 1.0}


TRAINS_ON = torch.device("cuda", 1)


def _watch(monkeypatch: pytest.MonkeyPatch, *devices: _Gpu, uuid: str = "12") -> GpuWatch:
    monkeypatch.setattr(gpu_watch, "INTERVAL_S", 0.0)
    monkeypatch.setattr(gpu_watch, "LOOKS_BACK_S", 0.0)
    uuids = {TRAINS_ON: uuid, torch.device("cuda", 0): "99"}
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda device: SimpleNamespace(uuid=uuids[device]))
    opened: Any = SimpleNamespace(devices=devices, close=lambda: None)
    times_s = iter([10.0, 10.6])
    return GpuWatch(TRAINS_ON, lambda: opened, lambda: next(times_s))


def test_use_and_power_are_means_over_the_time_between_start_and_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = _Gpu()
    watch = _watch(monkeypatch, gpu)
    watch.start()
    wait_until(lambda: gpu.samples >= 2)
    found = watch.stop()
    assert 0.4 <= (found.busy_share or 0) <= 0.6
    assert found.power_watts == pytest.approx(500)  # 300 J in 0.6 s
    samples = gpu.samples
    assert watch.stop() == NOT_SAMPLED
    assert gpu.samples == samples


def test_with_several_gpus_the_one_of_the_training_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    other, own = _Gpu(), _Gpu()
    other.uuid = "GPU-99"
    watch = _watch(monkeypatch, other, own)
    watch.start()
    wait_until(lambda: own.samples >= 1)
    watch.stop()
    assert not other.samples


def test_a_gpu_that_cannot_be_told_from_others_is_not_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = _watch(monkeypatch, _Gpu(), _Gpu(), uuid="")
    watch.start()
    assert watch.stop() == NOT_SAMPLED


@pytest.mark.parametrize("uuid", ["of the slice", "12"])
def test_a_gpu_does_not_stand_for_a_slice_of_it(monkeypatch: pytest.MonkeyPatch, uuid: str) -> None:
    gpu = _Gpu()
    gpu.is_split = True
    watch = _watch(monkeypatch, gpu, uuid=uuid)
    watch.start()
    assert watch.stop() == NOT_SAMPLED


def test_a_gpu_that_fails_costs_only_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = _Gpu()
    monkeypatch.setattr(gpu, "sample", lambda *_, **__: 1 / 0)
    monkeypatch.setattr(gpu, "energy_joules", lambda: 1 / 0)
    watch = _watch(monkeypatch, gpu)
    watch.start()
    assert watch.stop() == GpuUse(None, None)
    watch.close()


def test_on_the_cpu_nothing_is_opened() -> None:
    watch = GpuWatch(torch.device("cpu"), lambda: pytest.fail("opened"))
    watch.start()
    assert watch.stop() == NOT_SAMPLED


def test_a_block_too_short_for_nvml_has_power_but_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = _Gpu()
    watch = _watch(monkeypatch, gpu)
    monkeypatch.setattr(gpu_watch, "LOOKS_BACK_S", 60.0)
    watch.start()
    found = watch.stop()
    assert found.busy_share is None
    assert found.power_watts == pytest.approx(500)
    assert not gpu.samples


def test_without_a_counter_of_energy_power_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = _Gpu()
    gpu.joules = None
    watch = _watch(monkeypatch, gpu)
    watch.start()
    assert watch.stop().power_watts is None
