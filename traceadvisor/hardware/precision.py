"""The number types that devices multiply matrices in."""

from __future__ import annotations

from enum import Enum


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
