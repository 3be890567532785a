"""What NVML says of the devices. A figure that a device does not support is None and ends nothing.

Which devices this process may use, and by which number: ``CUDA_VISIBLE_DEVICES``, read as CUDA reads it.

https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from traceadvisor.recording.telemetry.records import DeviceHeader, DeviceSample

_NOT_AVAILABLE = 0xFFFFFFFF
"""NVML's 32 bits for "no value"."""

_BYTES_PER_PCIE_UNIT = 1000
"""NVML counts PCIe traffic in KB/s."""


class Device:
    """One device; asks again for nothing that it does not support."""

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

    def header(self, *, visible: bool | None, cuda_index: int | None) -> DeviceHeader:
        """What does not change about it."""
        nvml, memory = self._nvml, self._ask("nvmlDeviceGetMemoryInfo")
        return DeviceHeader(
            uuid=self.uuid,
            index=self.index,
            name=self.name,
            memory_bytes=memory and int(memory.total),
            power_limit_watts=self._power_limit_watts(),
            default_power_limit_watts=_watts(self._number("nvmlDeviceGetPowerManagementDefaultLimit")),
            max_power_limit_watts=self._max_power_limit_watts(),
            max_link_generation=self._number("nvmlDeviceGetMaxPcieLinkGeneration"),
            max_link_width=self._number("nvmlDeviceGetMaxPcieLinkWidth"),
            max_sm_clock_mhz=self._number("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
            max_memory_clock_mhz=self._number("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM),
            slowdown_celsius=self._number(
                "nvmlDeviceGetTemperatureThreshold", nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
            ),
            visible=visible,
            cuda_index=cuda_index,
        )

    @property
    def name(self) -> str | None:
        """The product's name."""
        name = self._ask("nvmlDeviceGetName")
        return None if name is None else _text(name)

    def sample(self, own_pids: Collection[int], *, seldom: bool) -> DeviceSample:
        """The device now; ``seldom`` adds what changes slowly. All None while the device is lost."""
        self._lost = False  # it may be back
        nvml = self._nvml
        busy, memory = self._ask("nvmlDeviceGetUtilizationRates"), self._ask("nvmlDeviceGetMemoryInfo")
        reasons = self._number("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:  # drivers and bindings before 535
            reasons = self._number("nvmlDeviceGetCurrentClocksThrottleReasons")
        figures: dict[str, float | None] = {
            "utilization_percent": busy and int(busy.gpu),
            "memory_utilization_percent": busy and int(busy.memory),
            "memory_used_bytes": memory and int(memory.used),
            "power_watts": _watts(self._number("nvmlDeviceGetPowerUsage")),
            "temperature_celsius": self._temperature_celsius(),
            "sm_clock_mhz": self._number("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": self._number("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            "clock_event_reasons": reasons,
        }
        if seldom:
            figures["power_limit_watts"] = self._power_limit_watts()
            figures["link_generation"] = self._number("nvmlDeviceGetCurrPcieLinkGeneration")
            figures["link_width"] = self._number("nvmlDeviceGetCurrPcieLinkWidth")
            figures |= self._processes(own_pids)
        return DeviceSample(**figures)

    def pcie_bytes_per_s(self, *, sent: bool) -> float | None:
        """What goes over the bus, in one direction: takes NVML 20 ms."""
        counter = self._nvml.NVML_PCIE_UTIL_TX_BYTES if sent else self._nvml.NVML_PCIE_UTIL_RX_BYTES
        count = self._number("nvmlDeviceGetPcieThroughput", counter)
        return None if count is None else count * _BYTES_PER_PCIE_UNIT

    def _processes(self, own_pids: Collection[int]) -> dict[str, float | None]:
        running = self._ask("nvmlDeviceGetComputeRunningProcesses_v3")
        if running is None:  # drivers before 510
            running = self._ask("nvmlDeviceGetComputeRunningProcesses_v2")
        if running is None:
            return {"process_count": None, "own_memory_bytes": None, "foreign_memory_bytes": None}
        own = [process.usedGpuMemory for process in running if process.pid in own_pids]
        foreign = [process.usedGpuMemory for process in running if process.pid not in own_pids]
        known = bool(own) and None not in own + foreign  # in a container the driver's ids may be none of ours
        return {
            "process_count": len(running),
            "own_memory_bytes": sum(own) if known else None,
            "foreign_memory_bytes": sum(foreign) if known else None,
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
        """What a function of NVML returns for this device; None where it fails."""
        if self._lost or (function, arguments) in self._unsupported:
            return None
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except AttributeError:  # bindings that do not know it
            self._unsupported.add((function, arguments))
        except self._nvml.NVMLError as error:
            self._lost = error.value in self._gone
            if error.value in self._never:
                self._unsupported.add((function, arguments))
        return None


class Nvml:
    """NVML in use, or why it cannot be: what it says of driver and devices."""

    def __init__(
        self, nvml: ModuleType | None, devices: Sequence[Device] = (), *, unavailable: str | None = None
    ) -> None:
        self._nvml = nvml
        self.devices = devices
        self.unavailable = unavailable
        """Why there are no devices; None where there are."""

    def headers(self) -> tuple[DeviceHeader, ...]:
        """One for each device, with what ``CUDA_VISIBLE_DEVICES`` says of it."""
        seen = visibilities([device.uuid for device in self.devices], [d.name for d in self.devices], os.environ)
        return tuple(
            device.header(visible=each.visible, cuda_index=each.cuda_index)
            for device, each in zip(self.devices, seen, strict=True)
        )

    def version(self, function: str) -> str | None:
        """What a function that names a version returns."""
        if self._nvml is None:
            return None
        try:
            return _text(getattr(self._nvml, function)())
        except self._nvml.NVMLError:
            return None

    def close(self) -> None:
        """Give NVML back; whoever else uses it in this process keeps it."""
        if self._nvml is not None:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()


def open_nvml() -> Nvml:
    """Every device that NVML shows and that answers, in the driver's order."""
    try:
        nvml = import_module("pynvml")
    except ImportError as error:
        return Nvml(None, unavailable=f"the package nvidia-ml-py cannot be imported: {error}")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Nvml(None, unavailable=f"no NVIDIA driver answers: {error}")
    devices, failure = _devices(nvml)
    if devices:
        return Nvml(nvml, devices)
    return Nvml(nvml, unavailable=f"no device answers: {failure}" if failure else "the NVIDIA driver shows no device")


def _devices(nvml: ModuleType) -> tuple[list[Device], str | None]:
    """The devices that answer, and what the last of the others said."""
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


@dataclass(frozen=True, slots=True)
class Visibility:
    """What can be told of one device; None where it cannot."""

    visible: bool | None
    cuda_index: int | None


_UNKNOWN = Visibility(visible=None, cuda_index=None)
_HIDDEN = Visibility(visible=False, cuda_index=None)


def visibilities(uuids: Sequence[str], names: Sequence[str | None], environment: Mapping[str, str]) -> list[Visibility]:
    """One :class:`Visibility` for each device, in the driver's order (that of the PCI bus).

    CUDA numbers the fastest device first unless ``CUDA_DEVICE_ORDER`` is ``PCI_BUS_ID``: where the devices are not all
    of one kind, numbers cannot be told from here.
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
    """The devices listed, in that order, up to the first entry that names none or one again."""
    chosen: list[int] = []
    for entry in entries:
        index = _device(entry, uuids)
        if index is None or index in chosen:
            break
        chosen.append(index)
    return chosen


def _device(entry: str, uuids: Sequence[str]) -> int | None:
    """The device that an entry names: a number, or a UUID or the beginning of just one."""
    if entry.isdecimal():
        return int(entry) if int(entry) < len(uuids) else None
    alike = [index for index, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
    return alike[0] if len(alike) == 1 else None
