"""The operators that multiply matrices, and the formulas for their work.

Operators that only call them (``aten::linear``, ``aten::conv2d``, ``aten::scaled_dot_product_attention``) are excluded:
under autocast they receive float32 and cast it before the work is launched.

Matrix products, from the shapes of their factors:

A product of ``(m, k)`` and ``(k, n)`` takes ``m n k`` multiplications and as many additions: ``2 m n k`` operations, as
``torch.utils.flop_counter`` counts them. It reads both factors and writes the product; what is added to the product is
left out of both.

Scaled dot-product attention, from the shapes of query, key and value:

With ``s_q`` queries and ``s_k`` keys of ``d`` numbers each and values of ``e`` numbers, each head of each sample takes
two products forward (scores, output: ``2 s_q s_k (d + e)`` operations) and five backward (the scores again, then the
gradients of value, scores, query and key: ``2 s_q s_k (3 d + 2 e)``), as ``torch.utils.flop_counter`` counts them. A
causal mask can spare up to half, and whether there was one is not always recorded: so half of the operations is
what no implementation can avoid.

Query, key, value, output and their gradients are read or written once; the scores never leave the chip.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from traceadvisor.analysis.arithmetic.convolutions import CONVOLUTION_FORMULAS
from traceadvisor.analysis.arithmetic.work import Formula, Kind, Work
from traceadvisor.analysis.operators.inputs import Inputs, Shape
from traceadvisor.frozen import frozen


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
"""By operator; in the second group a summand precedes the factors."""


@frozen
class Attention:
    """Position of an operator's query, and the order of its dimensions."""

    query: int
    """Position of the query; key and value follow."""

    heads_first: bool
    """Whether shapes are (batch, heads, length, size) or (batch, length, heads, size)."""

    backward: bool

    def work(self, inputs: Inputs) -> Work | None:
        """Return the work of one call; None for packed sequences, whose lengths are not recorded."""
        shapes = [inputs.shape(self.query + offset) for offset in range(3)]
        if any(len(shape) != 4 for shape in shapes):
            return None
        (batch, heads, queries, size), (_, key_heads, keys, _), (_, _, _, value_size) = map(self._ordered, shapes)
        products = 3 * size + 2 * value_size if self.backward else size + value_size
        flops = 2 * batch * heads * queries * keys * products
        query, key, value = batch * heads * queries * size, key_heads * size, key_heads * value_size
        output = batch * heads * queries * value_size
        elements = query + output + batch * keys * (key + value)
        return Work(flops, flops // 2, 2 * elements if self.backward else elements)

    def _ordered(self, shape: Shape) -> Shape:
        batch, one, other, size = shape
        return (batch, one, other, size) if self.heads_first else (batch, other, one, size)


ATTENTION = {
    "aten::_scaled_dot_product_flash_attention": Attention(0, heads_first=True, backward=False),
    "aten::_scaled_dot_product_flash_attention_for_cpu": Attention(0, heads_first=True, backward=False),
    "aten::_scaled_dot_product_efficient_attention": Attention(0, heads_first=True, backward=False),
    "aten::_scaled_dot_product_cudnn_attention": Attention(0, heads_first=True, backward=False),
    "aten::_scaled_dot_product_fused_attention_overrideable": Attention(0, heads_first=True, backward=False),
    "aten::_flash_attention_forward": Attention(0, heads_first=False, backward=False),
    "aten::_efficient_attention_forward": Attention(0, heads_first=False, backward=False),
    "flash_attn::_flash_attn_forward": Attention(0, heads_first=False, backward=False),
    "aten::_scaled_dot_product_flash_attention_backward": Attention(1, heads_first=True, backward=True),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": Attention(1, heads_first=True, backward=True),
    "aten::_scaled_dot_product_efficient_attention_backward": Attention(1, heads_first=True, backward=True),
    "aten::_scaled_dot_product_cudnn_attention_backward": Attention(1, heads_first=True, backward=True),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": Attention(1, heads_first=True, backward=True),
    "aten::_flash_attention_backward": Attention(1, heads_first=False, backward=True),
    "aten::_efficient_attention_backward": Attention(1, heads_first=False, backward=True),
    "flash_attn::_flash_attn_backward": Attention(1, heads_first=False, backward=True),
}
"""Fused attention, by operator. Attention composed of products counts as products."""

ATTENTION_FORMULAS = {
    name: Formula(Kind.ATTENTION, operator.work, (operator.query, operator.query + 1, operator.query + 2))
    for name, operator in ATTENTION.items()
}


def _not_counted(_: Inputs) -> None:
    """No formula: the shapes do not determine the work, or the operator is too rare."""


FORMULAS: Mapping[str, Formula] = {
    **MATMUL_FORMULAS,
    **CONVOLUTION_FORMULAS,
    **ATTENTION_FORMULAS,
    "aten::addbmm": Formula(Kind.MATMUL, _not_counted, (1, 2)),
    "aten::_cudnn_rnn": Formula(Kind.RECURRENT, _not_counted, (0,)),
    "aten::_cudnn_rnn_backward": Formula(Kind.RECURRENT, _not_counted, (0,)),
    "aten::miopen_rnn": Formula(Kind.RECURRENT, _not_counted, (0,)),
    "aten::miopen_rnn_backward": Formula(Kind.RECURRENT, _not_counted, (0,)),
}
"""By operator, as recordings name them."""
