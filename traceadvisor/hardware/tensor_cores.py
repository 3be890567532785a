"""Which devices have tensor cores and TF32, and their 16-bit type."""

from __future__ import annotations

import re

from traceadvisor.hardware.devices import Precision, device_row
from traceadvisor.model.trace import Device

FIRST_CAPABILITY = (7, 0)
"""Volta. Source: developer.nvidia.com/cuda-gpus and the Volta architecture's description."""

FIRST_BFLOAT16_CAPABILITY = FIRST_TF32_CAPABILITY = (8, 0)
"""Ampere."""

_TURING = (7, 5)
"""Built with and without tensor cores; only the device name shows which."""

_TURING_WITH = re.compile(r"\b(RTX|T4|T4G)\b")
_TURING_WITHOUT = re.compile(r"\b(GTX|T400|T500|T550|T600|T1000|T1200|T2000|MX450|MX550)\b")
"""The chips TU116 and TU117. Sources: CubeCL, cubecl-cpp/src/cuda/arch.rs (both report 7.5, also as T400 to
T1000); sysrqmts.com/gpus (T500, Quadro T1000 and GTX 16: these chips, no tensor cores listed)."""


def has_tensor_cores(device: Device) -> bool | None:
    """Whether the device has tensor cores, by whatever name; None if unknown."""
    row = device_row(device)
    if row is not None:
        return row.tensor_cores
    if device.compute_capability is None:
        return None
    if device.compute_capability == _TURING:
        return True if _is_named(device, _TURING_WITH) else False if _is_named(device, _TURING_WITHOUT) else None
    return device.compute_capability >= FIRST_CAPABILITY


def has_tf32(device: Device | None) -> bool:
    """Whether a device is known to have TF32: NVIDIA from Ampere on; PyTorch does not use it on AMD."""
    capability = _capability(device) if device else None
    return capability is not None and capability >= FIRST_TF32_CAPABILITY


def _capability(device: Device) -> tuple[int, int] | None:
    row = device_row(device)
    return device.compute_capability or (row.capability if row else None)


def _is_named(device: Device, names: re.Pattern[str]) -> bool:
    return names.search(device.name or "") is not None


def narrow_type(device: Device) -> Precision:
    """Return the 16-bit type to train in: bfloat16, which needs no loss scaling, if tensor cores support it."""
    row, capability = device_row(device), device.compute_capability
    takes_bfloat16 = Precision.BF16 in row.tflops if row else False
    if takes_bfloat16 or (capability is not None and capability >= FIRST_BFLOAT16_CAPABILITY):
        return Precision.BF16
    return Precision.FP16


def most_speedup(device: Device) -> float | None:
    """Return the largest speed-up of its 16-bit type over float32; None if the rates are unknown."""
    row = device_row(device)
    narrow = row.flops_per_s(narrow_type(device)) if row else None
    single = row.flops_per_s(Precision.FP32) if row else None
    return narrow / single if narrow and single else None
