"""Published figures of devices (``devices.toml``), the row of a recorded device, and number types."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from enum import Enum
from functools import cache
from importlib import resources

import msgspec

from traceadvisor.frozen import frozen
from traceadvisor.model.trace import Device


class Precision(Enum):
    """Number type of a matrix product's factors while they are multiplied."""

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
    tdp_watts: int | None = None
    pcie: Pcie | None = None
    """None where the host is reached over another link."""

    peer_gb_per_s: float | None = None
    """Of links between devices that are part of the board, both directions together; None without such links, or if
    their rate was not found."""

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
        and _model(device.name) in map(_model, row.names)
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


def _model(name: str) -> str:
    """Return a device's name without vendor words, which vary by driver."""
    return " ".join(word for word in name.lower().replace("[instinct ", "[").split() if word not in _VENDOR_WORDS)
