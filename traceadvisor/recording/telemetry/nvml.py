"""Samples the devices through NVML. A figure that a device does not support is None; the others are still read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

from traceadvisor.bundle.layout import Figure
from traceadvisor.model.telemetry import DeviceColumn
from traceadvisor.recording.after_import import own_imports

_NOT_AVAILABLE = 0xFFFFFFFF
"""NVML's 32 bits for "no value"."""

_BYTES_PER_PCIE_UNIT = 1000
"""NVML counts PCIe traffic in KB/s."""


def pci_bus_id(domain: int, bus: int, device: int) -> str:
    """Return a place on the PCI bus, written in one way for NVML and torch."""
    return f"{domain:08x}:{bus:02x}:{device:02x}"


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

    def header(self) -> dict[str, object]:
        """Its constant properties, named as in a telemetry file's header."""
        nvml, memory = self._nvml, self._memory()
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
            "pci_bus_id": self._pci_bus_id(),
            "split": self.is_split,
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
        busy, memory = self._ask("nvmlDeviceGetUtilizationRates"), self._memory()
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

    def energy_joules(self) -> float | None:
        """Energy that the device has used since its driver was loaded; None before Volta."""
        self._lost = False  # as above
        millijoules = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else int(millijoules) / 1000

    def pcie_sample(self, *, sent: bool) -> dict[DeviceColumn, Figure]:
        """Sample the traffic over the bus in one direction, which takes NVML 20 ms."""
        counter = self._nvml.NVML_PCIE_UTIL_TX_BYTES if sent else self._nvml.NVML_PCIE_UTIL_RX_BYTES
        count = self._number("nvmlDeviceGetPcieThroughput", counter)
        column = DeviceColumn.PCIE_TX_BYTES_PER_S if sent else DeviceColumn.PCIE_RX_BYTES_PER_S
        return {column: None if count is None else count * _BYTES_PER_PCIE_UNIT}

    def _memory(self) -> Any | None:
        """Version 2 sets apart what the driver reserves for itself, as ``nvidia-smi`` does; version 1 calls it used."""
        version = getattr(self._nvml, "nvmlMemory_v2", 0)  # bindings before 11.510 know only the first
        memory = self._ask("nvmlDeviceGetMemoryInfo", version) if version else None
        return self._ask("nvmlDeviceGetMemoryInfo") if memory is None else memory

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

    def _pci_bus_id(self) -> str | None:
        place = self._ask("nvmlDeviceGetPciInfo")
        return None if place is None else pci_bus_id(place.domain, place.bus, place.device)

    @property
    def is_split(self) -> bool | None:
        """Whether MIG is on; None for devices without it."""
        modes = self._ask("nvmlDeviceGetMigMode")
        return None if modes is None else bool(modes[0] == self._nvml.NVML_DEVICE_MIG_ENABLE)

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
        with own_imports():
            nvml = import_module("pynvml")
    except ImportError as error:
        return Nvml(None, unavailable=f"the package nvidia-ml-py cannot be imported: {error}")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Nvml(None, unavailable=_why_closed(nvml, error))
    devices, failure = _devices(nvml)
    if devices:
        return Nvml(nvml, devices)
    return Nvml(nvml, unavailable=f"no device answers: {failure}" if failure else "the NVIDIA driver shows no device")


def _why_closed(nvml: ModuleType, error: Exception) -> str:
    """Why NVML did not open, in its own words; only two of its errors mean that there is no driver."""
    code = getattr(error, "value", None)
    if code in {nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED}:
        return f"the NVIDIA driver was not found ({error})"
    if code == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return f"the NVIDIA driver does not match its library ({str(error).rstrip('.')})"
    return f"NVML cannot be opened ({error})"


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
