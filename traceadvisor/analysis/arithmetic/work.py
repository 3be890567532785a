"""The work of an operator call, independent of the device."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from traceadvisor.analysis.operators.inputs import Inputs
from traceadvisor.frozen import frozen


class Kind(Enum):
    """Kinds of work that tensor cores can do."""

    MATMUL = "matrix products"
    CONVOLUTION = "convolutions"
    ATTENTION = "attention"
    RECURRENT = "recurrent layers"


@frozen
class Work:
    """One call's work."""

    flops: int
    """Additions and multiplications as ``torch.utils.flop_counter`` counts them."""

    least_flops: int
    """Operations that no implementation can avoid."""

    least_elements: int
    """Elements that any implementation must read from memory or write to it: each input and output once."""

    sizes: tuple[int, ...] = ()
    """Rows, columns and inner size of a matrix product; empty for other work."""


@frozen
class Formula:
    """Computes an operator's work from its inputs."""

    kind: Kind
    work: Callable[[Inputs], Work | None]
    """Returns None if the shapes do not determine the work."""

    factors: tuple[int, ...]
    """Positions of the inputs that are multiplied: their type decides which units can be used."""
