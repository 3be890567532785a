"""The link between a device and its host."""

from __future__ import annotations

from traceadvisor.hardware.devices import device_row
from traceadvisor.model.telemetry_window import DeviceWindow
from traceadvisor.model.trace import Device


def host_link(device: Device | None, sampled: DeviceWindow | None) -> tuple[int, int] | None:
    """PCIe generation and lanes: as sampled, else as the device is made; None where neither is known."""
    if sampled and sampled.best_link:
        return sampled.best_link
    row = device_row(device) if device else None
    return (row.pcie.generation, row.pcie.lanes) if row and row.pcie else None
