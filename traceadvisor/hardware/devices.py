"""Published figures of devices (``devices.toml``), the row of a recorded device, its links, and its tensor cores."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from enum import Enum
from functools import cache, lru_cache
from importlib import resources

import msgspec

from traceadvisor.frozen import frozen
from traceadvisor.model.telemetry_window import DeviceWindow
from traceadvisor.model.trace import Device


class Precision(Enum):
    """Number type of a matrix product's factors while they are multiplied."""

    __hash__ = object.__hash__  # a member equals only itself; by its name, as enums do, takes five times as long

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    """Stored as float32, multiplied with a mantissa of 10 bits."""

    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"

    @property
    def byte_count(self) -> int:
        """Bytes that an element takes in memory."""
        return _BYTES[self]


_BYTES = {
    Precision.FP64: 8,
    Precision.FP32: 4,
    Precision.TF32: 4,
    Precision.FP16: 2,
    Precision.BF16: 2,
    Precision.FP8: 1,
    Precision.INT8: 1,
}


_VENDOR_WORDS = frozenset({"nvidia", "amd", "tesla", "geforce", "instinct"})

_LEAST_VISIBLE, _MOST_VISIBLE = 0.85, 1.05
"""Memory that a driver shows, relative to the size sold (in GiB): it reserves some, and error correction takes up to a
sixteenth. A slice of a device (MIG) shows far less."""


@frozen
class Source:
    """A document that figures come from."""

    title: str
    url: str
    said: str
    """The figures that it states, as used in the rows."""

    quoted: bool = False
    """Whether only quotations of it were read."""


@frozen
class Pcie:
    """A link to the host over PCI Express."""

    generation: int
    lanes: int


@frozen
class DeviceRow:
    """A device as its vendor describes it; None if a figure was not found."""

    name: str
    names: tuple[str, ...]
    """As in recordings, without vendor words."""

    memory_gb: tuple[int, ...]
    """The sizes it is sold with."""

    tflops: Mapping[Precision, float]
    """Peak rates of matrix products, dense, 10^12 operations per second, of the types that the device multiplies.
    TF32 and INT8 are missing if only a headline was published."""

    bandwidth_gb_per_s: float
    sources: tuple[str, ...]
    """Keys of :func:`sources`."""

    capability: tuple[int, int] | None = None
    multiprocessors: int | None = None
    pcie: Pcie | None = None
    """None where the host is reached over another link."""

    peer_gb_per_s: float | None = None
    """Rate of the board's links between devices, both directions together; None without such links, or if their rate
    was not found."""

    peers_over_pcie: bool = True
    """Whether, without ``peer_gb_per_s``, other devices are reached over PCIe; False if the board has other links."""

    tensor_cores: bool = True
    """Whether it has units for matrix products, by whatever name."""

    def flops_per_s(self, precision: Precision) -> float | None:
        """Return the peak rate of matrix products of one type."""
        rate = self.tflops.get(precision)
        return None if rate is None else rate * 1e12

    @property
    def bytes_per_s(self) -> float:
        """The peak memory bandwidth."""
        return self.bandwidth_gb_per_s * 1e9


@frozen
class _Table:
    sources: Mapping[str, Source]
    device: tuple[DeviceRow, ...]


@lru_cache
def device_row(device: Device) -> DeviceRow | None:
    """Return the row of a recorded device; None unless exactly one row fits."""
    fitting = [row for row in device_rows() if _fits(row, device)]
    return fitting[0] if len(fitting) == 1 else None


def device_rows() -> tuple[DeviceRow, ...]:
    """Return every device in the table."""
    return _table().device


def sources() -> Mapping[str, Source]:
    """Return the documents that the rows come from."""
    return _table().sources


@cache
def _table() -> _Table:
    text = resources.files(__package__).joinpath("devices.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _Table)


def _fits(row: DeviceRow, device: Device) -> bool:
    return (
        device.name is not None
        and model_words(device.name) in map(model_words, row.names)
        and _agree(row.capability, device.compute_capability)
        and _agree(row.multiprocessors, device.multiprocessors)
        and _memory_fits(row, device.memory_bytes)
    )


def _agree(published: object, recorded: object) -> bool:
    """Whether two figures are equal, or one is unknown."""
    return published is None or recorded is None or published == recorded


def _memory_fits(row: DeviceRow, memory_bytes: int | None) -> bool:
    return memory_bytes is None or any(
        _LEAST_VISIBLE <= memory_bytes / (size << 30) <= _MOST_VISIBLE for size in row.memory_gb
    )


def model_words(name: str) -> str:
    """Return a device's name without vendor words, which vary by driver."""
    return " ".join(word for word in name.lower().replace("[instinct ", "[").split() if word not in _VENDOR_WORDS)


_LANE_BYTES_PER_S = {
    1: 2.5e9 / 8 * 8 / 10,
    2: 5e9 / 8 * 8 / 10,
    3: 8e9 / 8 * 128 / 130,
    4: 16e9 / 8 * 128 / 130,
    5: 32e9 / 8 * 128 / 130,
    6: 64e9 / 8 * 242 / 256,
}
"""One way: transfers per second of one bit each, times the encoding's data share (PCI Express Base
Specifications: 8b/10b for generations 1 and 2, 128b/130b for 3 to 5, 242 of the 256 bytes of a flit for 6)."""


def link_bytes_per_s(generation: int, width: int) -> float | None:
    """Return the rate one way; copies reach about 80% of it. None for an unknown generation."""
    lane = _LANE_BYTES_PER_S.get(generation)
    return None if lane is None else lane * width


def host_link(device: Device | None, sampled: DeviceWindow | None) -> tuple[int, int] | None:
    """Return PCIe generation and lanes: as sampled, else as published; None if both are unknown or it is not PCIe."""
    if sampled and sampled.best_link:
        return sampled.best_link
    row = device_row(device) if device else None
    return (row.pcie.generation, row.pcie.lanes) if row and row.pcie else None


def peer_bytes_per_s(row: DeviceRow) -> float | None:
    """Return the rate to another device one way: over the board's own links, else over PCIe; None if unknown."""
    if row.peer_gb_per_s is not None:
        return row.peer_gb_per_s * 1e9 / 2
    if row.pcie is None or not row.peers_over_pcie:
        return None
    return _LANE_BYTES_PER_S[row.pcie.generation] * row.pcie.lanes


_FIRST_CAPABILITY = (7, 0)
"""Volta. Source: developer.nvidia.com/cuda-gpus and the Volta architecture's description."""

_FIRST_BFLOAT16_CAPABILITY = FIRST_TF32_CAPABILITY = (8, 0)
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
    return device.compute_capability >= _FIRST_CAPABILITY


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
    if takes_bfloat16 or (capability is not None and capability >= _FIRST_BFLOAT16_CAPABILITY):
        return Precision.BF16
    return Precision.FP16


def most_speedup(device: Device) -> float | None:
    """Return the largest speed-up of its 16-bit type over float32; None if the rates are unknown."""
    row = device_row(device)
    narrow = row.flops_per_s(narrow_type(device)) if row else None
    single = row.flops_per_s(Precision.FP32) if row else None
    return narrow / single if narrow and single else None
