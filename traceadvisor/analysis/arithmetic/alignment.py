"""The sizes of a matrix product that have to be aligned in memory.

A kernel loads and stores vectors along the dimension of a matrix whose elements are neighbours in memory. Only that
size and the distance between rows (the leading dimension) decide whether 16-byte loads are possible. Source: NVIDIA,
Matrix Multiplication Background User's Guide, section "Requirements to Use Tensor Cores", and the cuBLAS documentation
of ``cublasLtMatmul``, both of which speak of leading dimensions.

In a linear layer with ``m`` samples, ``k`` inputs and ``n`` outputs, ``k`` and ``n`` are such sizes in the forward pass
and in both gradients; ``m`` never is.
"""

from __future__ import annotations

from traceadvisor.analysis.operators.inputs import Inputs, Shape
from traceadvisor.frozen import frozen


@frozen
class Contiguous:
    """Sizes in elements that each matrix of a product needs aligned; 0 where unknown, and for vectors."""

    first: tuple[int, int] = (0, 0)
    """Of the first factor: the contiguous size, and the distance between rows."""

    second: tuple[int, int] = (0, 0)
    result: tuple[int, int] = (0, 0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """All of them, shape ``(6,)``."""
        return (*self.first, *self.second, *self.result)


NOTHING = Contiguous()


def contiguous(inputs: Inputs, first: int) -> Contiguous:
    """Return the sizes of a product whose factors are inputs ``first`` and ``first + 1``; the result is row-major.

    Without recorded strides, only the result is known, and the first factor of a forward product, which is row-major in
    practice. Callers must leave out the latter in the backward pass, where factors are transposed.
    """
    left, right = inputs.shape(first), inputs.shape(first + 1)
    if len(left) < 2 or len(right) != len(left):
        return NOTHING
    columns = right[-1]
    result = (columns, columns) if left[-2] > 1 else (0, 0)
    if not inputs.stride(first) or not inputs.stride(first + 1):
        return Contiguous((left[-1], left[-1]) if left[-2] > 1 else (0, 0), (0, 0), result)
    return Contiguous(_along(left, inputs.stride(first)), _along(right, inputs.stride(first + 1)), result)


def has_strides(inputs: Inputs, first: int) -> bool:
    """Return whether the strides of both factors were recorded."""
    return bool(inputs.stride(first)) and bool(inputs.stride(first + 1))


def _along(shape: Shape, stride: Shape) -> tuple[int, int]:
    """Return the contiguous size of the last two dimensions and the distance between its rows."""
    rows, columns = shape[-2:]
    by_row, by_column = stride[-2:]
    if min(rows, columns) < 2:
        return 0, 0  # a vector
    if by_column == 1:
        return columns, by_row
    return (rows, by_column) if by_row == 1 else (0, 0)
