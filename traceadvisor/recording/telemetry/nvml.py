"""Samples the devices through NVML. A figure that a device does not support is None; the others are still read.

``CUDA_VISIBLE_DEVICES`` decides which devices this process may use, and by which number; it is read as CUDA reads it:
https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

from traceadvisor.bundle.layout import Figure
from traceadvisor.frozen import frozen
from traceadvisor.model.telemetry import DeviceColumn

_NOT_AVAILABLE = 0xFFFFFFFF
"""NVML's 32 bits for "no value"."""

_BYTES_PER_PCIE_UNIT = 1000
"""NVML counts PCIe traffic in KB/s."""


class Device:
    """One device. Figures that it does not support are asked for once."""

    def __init__(self, nvml: ModuleType, index: int) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self._never = {
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_INVALID_ARGUMENT,
            nvml.NVML_ERROR_NO_PERMISSION,
        }
        self._gone = {nvml.NVML_ERROR_GPU_IS_LOST, getattr(nvml, "NVML_ERROR_RESET_REQUIRED", None)}
        self._unsupported: set[tuple[str, tuple[int, ...]]] = set()
        self._lost = False
        self.index = index
        self.uuid = _text(nvml.nvmlDeviceGetUUID(self._handle))

    def header(self, *, visible: bool | None, cuda_index: int | None) -> dict[str, object]:
        """What does not change about it, named as in a telemetry file's header."""
        nvml, memory = self._nvml, self._ask("nvmlDeviceGetMemoryInfo")
        slowdown = nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        return {
            "uuid": self.uuid,
            "index": self.index,
            "name": self.name,
            "memory_bytes": memory and int(memory.total),
            "power_limit_watts": self._power_limit_watts(),
            "default_power_limit_watts": _watts(self._number("nvmlDeviceGetPowerManagementDefaultLimit")),
            "max_power_limit_watts": self._max_power_limit_watts(),
            "max_link_generation": self._number("nvmlDeviceGetMaxPcieLinkGeneration"),
            "max_link_width": self._number("nvmlDeviceGetMaxPcieLinkWidth"),
            "max_sm_clock_mhz": self._number("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
            "max_memory_clock_mhz": self._number("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM),
            "slowdown_celsius": self._number("nvmlDeviceGetTemperatureThreshold", slowdown),
            "visible": visible,
            "cuda_index": cuda_index,
        }

    @property
    def name(self) -> str | None:
        """The product name."""
        name = self._ask("nvmlDeviceGetName")
        return None if name is None else _text(name)

    def sample(self, own_pids: Collection[int], *, expensive: bool) -> dict[DeviceColumn, Figure]:
        """Sample the device; ``expensive`` adds what changes slowly. Figures of a lost device are None."""
        self._lost = False  # it may be back
        nvml = self._nvml
        busy, memory = self._ask("nvmlDeviceGetUtilizationRates"), self._ask("nvmlDeviceGetMemoryInfo")
        reasons = self._number("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:  # drivers and bindings before 535
            reasons = self._number("nvmlDeviceGetCurrentClocksThrottleReasons")
        figures: dict[DeviceColumn, Figure] = {
            DeviceColumn.UTILIZATION_PERCENT: busy and int(busy.gpu),
            DeviceColumn.MEMORY_UTILIZATION_PERCENT: busy and int(busy.memory),
            DeviceColumn.MEMORY_USED_BYTES: memory and int(memory.used),
            DeviceColumn.POWER_WATTS: _watts(self._number("nvmlDeviceGetPowerUsage")),
            DeviceColumn.TEMPERATURE_CELSIUS: self._temperature_celsius(),
            DeviceColumn.SM_CLOCK_MHZ: self._number("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            DeviceColumn.MEMORY_CLOCK_MHZ: self._number("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            DeviceColumn.CLOCK_EVENT_REASONS: reasons,
        }
        if expensive:
            figures[DeviceColumn.POWER_LIMIT_WATTS] = self._power_limit_watts()
            figures[DeviceColumn.LINK_GENERATION] = self._number("nvmlDeviceGetCurrPcieLinkGeneration")
            figures[DeviceColumn.LINK_WIDTH] = self._number("nvmlDeviceGetCurrPcieLinkWidth")
            figures |= self._processes(own_pids)
        return figures

    def pcie_sample(self, *, sent: bool) -> dict[DeviceColumn, Figure]:
        """Sample the traffic over the bus in one direction, which takes NVML 20 ms."""
        counter = self._nvml.NVML_PCIE_UTIL_TX_BYTES if sent else self._nvml.NVML_PCIE_UTIL_RX_BYTES
        count = self._number("nvmlDeviceGetPcieThroughput", counter)
        column = DeviceColumn.PCIE_TX_BYTES_PER_S if sent else DeviceColumn.PCIE_RX_BYTES_PER_S
        return {column: None if count is None else count * _BYTES_PER_PCIE_UNIT}

    def _processes(self, own_pids: Collection[int]) -> dict[DeviceColumn, Figure]:
        running = self._ask("nvmlDeviceGetComputeRunningProcesses_v3")
        if running is None:  # drivers before 510
            running = self._ask("nvmlDeviceGetComputeRunningProcesses_v2")
        own = [process.usedGpuMemory for process in running or () if process.pid in own_pids]
        foreign = [process.usedGpuMemory for process in running or () if process.pid not in own_pids]
        known = bool(own) and None not in own + foreign  # in a container the driver's ids may differ from ours
        return {
            DeviceColumn.PROCESS_COUNT: None if running is None else len(running),
            DeviceColumn.OWN_MEMORY_BYTES: sum(own) if known else None,
            DeviceColumn.FOREIGN_MEMORY_BYTES: sum(foreign) if known else None,
        }

    def _temperature_celsius(self) -> int | None:
        sensor = self._nvml.NVML_TEMPERATURE_GPU
        celsius = self._number("nvmlDeviceGetTemperature", sensor)
        return self._number("nvmlDeviceGetTemperatureV", sensor) if celsius is None else celsius  # its successor

    def _power_limit_watts(self) -> float | None:
        return _watts(self._number("nvmlDeviceGetEnforcedPowerLimit"))

    def _max_power_limit_watts(self) -> float | None:
        limits = self._ask("nvmlDeviceGetPowerManagementLimitConstraints")
        return None if limits is None else _watts(int(limits[1]))

    def _number(self, function: str, *arguments: int) -> int | None:
        value = self._ask(function, *arguments)
        return None if value is None or value == _NOT_AVAILABLE else int(value)

    def _ask(self, function: str, *arguments: int) -> Any | None:
        """The result of an NVML function for this device; None if it fails."""
        if self._lost or (function, arguments) in self._unsupported:
            return None
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except AttributeError:  # old bindings
            self._unsupported.add((function, arguments))
        except self._nvml.NVMLError as error:
            self._lost = error.value in self._gone
            if error.value in self._never:
                self._unsupported.add((function, arguments))
        return None


class Nvml:
    """NVML with its devices, or why it is unavailable."""

    def __init__(
        self, nvml: ModuleType | None, devices: Sequence[Device] = (), *, unavailable: str | None = None
    ) -> None:
        self._nvml = nvml
        self.devices = devices
        self.unavailable = unavailable
        """Why there are no devices; None if there are some."""

    def headers(self) -> tuple[dict[str, object], ...]:
        """A header for each device, with its visibility by ``CUDA_VISIBLE_DEVICES``."""
        seen = visibilities([device.uuid for device in self.devices], [d.name for d in self.devices], os.environ)
        return tuple(
            device.header(visible=each.visible, cuda_index=each.cuda_index)
            for device, each in zip(self.devices, seen, strict=True)
        )

    def version(self, function: str) -> str | None:
        """The version that a function of NVML returns; None if it fails."""
        if self._nvml is None:
            return None
        try:
            return _text(getattr(self._nvml, function)())
        except self._nvml.NVMLError:
            return None

    def close(self) -> None:
        """Release NVML; other users in this process keep it."""
        if self._nvml is not None:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()


def open_nvml() -> Nvml:
    """Open NVML with every device that answers, in the driver's order."""
    try:
        nvml = import_module("pynvml")
    except ImportError as error:
        return Nvml(None, unavailable=f"the package nvidia-ml-py cannot be imported: {error}")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Nvml(None, unavailable=f"the NVIDIA driver was not found ({error})")
    devices, failure = _devices(nvml)
    if devices:
        return Nvml(nvml, devices)
    return Nvml(nvml, unavailable=f"no device answers: {failure}" if failure else "the NVIDIA driver shows no device")


def _devices(nvml: ModuleType) -> tuple[list[Device], str | None]:
    """The devices that answer, and the last error of the others."""
    devices: list[Device] = []
    failure: str | None = None
    try:
        count = int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        return [], str(error)
    for index in range(count):
        try:
            devices.append(Device(nvml, index))
        except nvml.NVMLError as error:
            failure = str(error)
    return devices, failure


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")  # bytes in bindings before 11.5


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


@frozen
class Visibility:
    """Whether and as which number CUDA sees a device; None if unknown."""

    visible: bool | None
    cuda_index: int | None


_UNKNOWN = Visibility(visible=None, cuda_index=None)
_HIDDEN = Visibility(visible=False, cuda_index=None)


def visibilities(uuids: Sequence[str], names: Sequence[str | None], environment: Mapping[str, str]) -> list[Visibility]:
    """The visibility of each device, in the driver's order (that of the PCI bus).

    CUDA numbers the fastest device first unless ``CUDA_DEVICE_ORDER`` is ``PCI_BUS_ID``. If the devices differ, their
    numbers are unknown here.
    """
    same_order = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len(set(names)) <= 1
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return [Visibility(visible=True, cuda_index=index if same_order else None) for index in range(len(uuids))]
    entries = [entry.strip() for entry in listed.split(",")]
    by_number = any(entry.isdecimal() for entry in entries)
    if any(entry.startswith("MIG-") for entry in entries) or (by_number and not same_order):
        return [_UNKNOWN] * len(uuids)
    chosen = _chosen(entries, uuids)
    return [
        Visibility(visible=True, cuda_index=chosen.index(index)) if index in chosen else _HIDDEN
        for index in range(len(uuids))
    ]


def _chosen(entries: Sequence[str], uuids: Sequence[str]) -> list[int]:
    """The listed devices in that order, up to the first entry that names no device or a repeated one."""
    chosen: list[int] = []
    for entry in entries:
        index = _device(entry, uuids)
        if index is None or index in chosen:
            break
        chosen.append(index)
    return chosen


def _device(entry: str, uuids: Sequence[str]) -> int | None:
    """The device of an entry: its number, its UUID, or the start of its UUID if no other starts so."""
    if entry.isdecimal():
        return int(entry) if int(entry) < len(uuids) else None
    alike = [index for index, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
    return alike[0] if len(alike) == 1 else None
