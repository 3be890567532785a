"""Which NVIDIA devices have tensor cores, and how much faster than float32 their 16-bit rate is at most."""

from __future__ import annotations

from traceadvisor.model.trace import Device

FIRST_CAPABILITY = (7, 0)
"""Volta. Source: developer.nvidia.com/cuda-gpus and the Volta architecture's description."""

FIRST_BFLOAT16_CAPABILITY = (8, 0)
"""Ampere."""

_WITHOUT = ("GTX 16",)
"""Turing parts of capability 7.5 that were built without tensor cores."""

_SPEEDUP = {
    (7, 0): 125 / 15.7,
    (8, 0): 312 / 19.5,
    (9, 0): 989.5 / 67,
}
"""Peak 16-bit tensor rate over peak float32 rate, dense, in TFLOP/s, by compute capability.

V100: 125 and 15.7. A100: 312 and 19.5, from its datasheet. H100 SXM: 1,979 with sparsity, half of it without, and 67.
A capability is listed only where the figures were read.
"""


def has_tensor_cores(device: Device) -> bool | None:
    """Whether the device has tensor cores; None where its compute capability is not known."""
    if device.compute_capability is None:
        return None
    return device.compute_capability >= FIRST_CAPABILITY and not any(part in (device.name or "") for part in _WITHOUT)


def most_speedup(device: Device) -> float | None:
    """The most that 16-bit tensor rates can gain over float32; None where the peak rates were not read."""
    return _SPEEDUP.get(device.compute_capability) if device.compute_capability else None


def has_bfloat16(device: Device) -> bool:
    """Whether the tensor cores take bfloat16, which needs no loss scaling."""
    return device.compute_capability is not None and device.compute_capability >= FIRST_BFLOAT16_CAPABILITY
