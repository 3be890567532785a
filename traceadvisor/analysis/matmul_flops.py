"""What a matrix product has to do, from the shapes of its factors.

A product of ``(m, k)`` and ``(k, n)`` takes ``m n k`` multiplications and as many additions: ``2 m n k`` operations, as
``torch.utils.flop_counter`` counts them. It reads both factors and writes the product; what is added to the product is
left out of both.
"""

from __future__ import annotations

from math import prod

from traceadvisor.analysis.operator_inputs import Inputs
from traceadvisor.analysis.work import Formula, Kind, Work


def _product(inputs: Inputs, first: int) -> Work | None:
    left, right = inputs.shape(first), inputs.shape(first + 1)
    if len(right) == 1:
        right = (*right, 1)
    if len(left) not in {2, 3} or len(right) != len(left) or left[:-2] != right[:-2] or left[-1] != right[-2]:
        return None
    *batch, m, k = left
    n, count = right[-1], prod(batch)
    return Work(
        flops=2 * count * m * n * k,
        least_flops=2 * count * m * n * k,
        least_elements=count * (m * k + k * n + m * n),
        sizes=(m, n, k),
    )


def _formula(first: int) -> Formula:
    return Formula(Kind.MATMUL, lambda inputs: _product(inputs, first), (first, first + 1))


MATMUL_FORMULAS = {
    "aten::mm": _formula(0),
    "aten::bmm": _formula(0),
    "aten::mv": _formula(0),
    "aten::_int_mm": _formula(0),
    "aten::_scaled_mm": _formula(0),
    "aten::addmm": _formula(1),
    "aten::addmm_": _formula(1),
    "aten::addmv": _formula(1),
    "aten::addmv_": _formula(1),
    "aten::baddbmm": _formula(1),
    "aten::baddbmm_": _formula(1),
    "aten::_addmm_activation": _formula(1),
}
"""By operator; in the second group a summand comes before the factors."""
