"""What the makers of devices publish of them: ``devices.toml``, row by row, and the row of a device in a recording.

The number types that devices multiply matrices in.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import resources

import msgspec

from traceadvisor.model.trace import Device


class Precision(Enum):
    """How the factors of a matrix product are represented while they are multiplied."""

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
"""Memory that a driver shows over the size that the device is sold with (in GiB): it keeps some to itself, and error
correction takes up to a sixteenth. A slice of a device (MIG) shows far less."""


@dataclass(frozen=True, slots=True)
class Source:
    """A document that was read."""

    title: str
    url: str
    said: str
    """What it says that rows rest on, in its words as far as they are figures."""

    quoted: bool = False
    """Whether it is known from quotations only."""


@dataclass(frozen=True, slots=True)
class Pcie:
    """The link to the host."""

    generation: int
    lanes: int


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device as its maker describes it; None where the figure was not read."""

    name: str
    names: tuple[str, ...]
    """As recordings give them, without the words that makers put before a model's name."""

    memory_gb: tuple[int, ...]
    """The sizes it is sold with."""

    tflops: Mapping[Precision, float]
    """Peak rates of matrix products, dense, 10^12 operations per second; a type that is missing was not read."""

    sources: tuple[str, ...]
    """Keys of :func:`sources`."""

    capability: tuple[int, int] | None = None
    multiprocessors: int | None = None
    bandwidth_gb_per_s: float | None = None
    tdp_watts: int | None = None
    pcie: Pcie | None = None
    peer_gb_per_s: float | None = None
    """To other devices, both directions together."""

    tensor_cores: bool = True
    """Whether it has units for matrix products, whatever its maker calls them."""

    def flops_per_s(self, precision: Precision) -> float | None:
        """The peak rate of matrix products of one type."""
        rate = self.tflops.get(precision)
        return None if rate is None else rate * 1e12

    @property
    def bytes_per_s(self) -> float | None:
        """The peak rate of device memory."""
        return None if self.bandwidth_gb_per_s is None else self.bandwidth_gb_per_s * 1e9


@dataclass(frozen=True, slots=True)
class _Table:
    sources: Mapping[str, Source]
    device: tuple[DeviceRow, ...]


def device_row(device: Device) -> DeviceRow | None:
    """The row of a device in a recording; None where no row, or more than one, fits all that is known of it."""
    fitting = [row for row in device_rows() if _fits(row, device)]
    return fitting[0] if len(fitting) == 1 else None


def device_rows() -> tuple[DeviceRow, ...]:
    """Every device whose figures were read."""
    return _table().device


def sources() -> Mapping[str, Source]:
    """The documents that the rows rest on."""
    return _table().sources


@cache
def _table() -> _Table:
    text = resources.files(__package__).joinpath("devices.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _Table)


def _fits(row: DeviceRow, device: Device) -> bool:
    return (
        device.name is not None
        and _model(device.name) in map(_model, row.names)
        and _agree(row.capability, device.compute_capability)
        and _agree(row.multiprocessors, device.multiprocessors)
        and _memory_fits(row, device.memory_bytes)
    )


def _agree(published: object, recorded: object) -> bool:
    """Whether two figures are the same as far as both are known."""
    return published is None or recorded is None or published == recorded


def _memory_fits(row: DeviceRow, memory_bytes: int | None) -> bool:
    return memory_bytes is None or any(
        _LEAST_VISIBLE <= memory_bytes / (size << 30) <= _MOST_VISIBLE for size in row.memory_gb
    )


def _model(name: str) -> str:
    """A device's name without the words that come and go with driver and year."""
    return " ".join(word for word in name.lower().replace("[instinct ", "[").split() if word not in _VENDOR_WORDS)
