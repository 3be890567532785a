"""How much an operator has to do, whatever the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from traceadvisor.analysis.operators.inputs import Inputs


class Kind(Enum):
    """What tensor cores can be used for."""

    MATMUL = "matrix products"
    CONVOLUTION = "convolutions"
    ATTENTION = "attention"
    RECURRENT = "recurrent layers"


@dataclass(frozen=True, slots=True)
class Work:
    """One call's work."""

    flops: int
    """Additions and multiplications as ``torch.utils.flop_counter`` counts them."""

    least_flops: int
    """Those that no implementation can spare."""

    least_elements: int
    """Elements that any implementation must read from memory or write to it: each input and output once."""

    sizes: tuple[int, ...] = ()
    """Rows, columns and inner size of a matrix product; empty for other work."""


@dataclass(frozen=True, slots=True)
class Formula:
    """How an operator's work follows from its inputs."""

    kind: Kind
    work: Callable[[Inputs], Work | None]
    """None where the shapes do not tell."""

    factors: tuple[int, ...]
    """Positions of the inputs that are multiplied: their type decides which units can do it."""
