"""GPU use and power while a block is timed, through NVML."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from statistics import fmean

import torch

from traceadvisor.frozen import frozen
from traceadvisor.model.telemetry import DeviceColumn
from traceadvisor.recording.settings import training_device
from traceadvisor.recording.telemetry.nvml import Device, Nvml, open_nvml
from traceadvisor.system import clocks

INTERVAL_S = 0.1
LOOKS_BACK_S = 1.0
"""NVML's GPU use is a mean over up to this time before it is asked."""


@frozen
class GpuUse:
    """Means over a block; None if NVML does not tell."""

    busy_share: float | None = None
    """Share of the time in which a kernel ran; None for blocks too short for NVML."""

    power_watts: float | None = None
    """By the device's counter of energy, which GPUs before Volta lack."""


NOT_SAMPLED = GpuUse()


class GpuWatch:
    """Watches the GPU of the training between :meth:`start` and :meth:`stop`. All arms pay the same for it."""

    def __init__(
        self,
        device: torch.device,
        opened: Callable[[], Nvml] = open_nvml,
        clock_s: Callable[[], float] = clocks.perf_counter,
    ) -> None:
        self._clock_s = clock_s
        self._nvml: Nvml | None = None
        self._gpu: Device | None = None
        if device.type == "cuda":
            with suppress(Exception):  # without NVML there are no such figures
                self._nvml = opened()
                self._gpu = _own(self._nvml, device)
        self._percent: list[float] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._begin_s = 0.0
        self._joules: float | None = None

    def start(self) -> None:
        """Watch from now on."""
        if self._gpu is None:
            return
        self._percent, self._stop = [], threading.Event()
        self._thread = threading.Thread(target=self._sample, args=(self._gpu, self._stop), daemon=True)
        self._begin_s, self._joules = self._clock_s(), _joules(self._gpu)
        self._thread.start()

    def stop(self) -> GpuUse:
        """End watching; returns the means."""
        if self._thread is None or self._gpu is None:
            return NOT_SAMPLED
        joules, seconds = _joules(self._gpu), self._clock_s() - self._begin_s
        self._stop.set()
        self._thread.join()
        self._thread = None
        is_known = joules is not None and self._joules is not None and joules >= self._joules and seconds > 0
        return GpuUse(
            fmean(self._percent) / 100 if self._percent else None,
            (joules - self._joules) / seconds if is_known else None,  # type: ignore[operator]  # known
        )

    def close(self) -> None:
        """Release NVML."""
        self.stop()
        if self._nvml:
            self._nvml.close()

    def _sample(self, gpu: Device, stop: threading.Event) -> None:
        with suppress(Exception):  # the training goes on without samples
            wait_s = LOOKS_BACK_S
            while not stop.wait(wait_s):
                percent = gpu.sample((), expensive=False).get(DeviceColumn.UTILIZATION_PERCENT)
                if percent is not None:
                    self._percent.append(percent)
                wait_s = INTERVAL_S


def _joules(gpu: Device) -> float | None:
    with suppress(Exception):  # as above
        return gpu.energy_joules()
    return None


def _own(nvml: Nvml, device: torch.device) -> Device | None:
    """The GPU that this process trains on, by its UUID: a slice (MIG) has another, and no figures of its own."""
    own = training_device(torch.cuda.get_device_properties(device))
    return next((one for one in nvml.devices if one.uuid == own.uuid and not one.is_split), None)
