"""What scaled dot-product attention has to do, from the shapes of query, key and value.

With ``s_q`` queries and ``s_k`` keys of ``d`` numbers each and values of ``e`` numbers, each head of each sample takes
two products forward (scores, output: ``2 s_q s_k (d + e)`` operations) and five backward (the scores again, then the
gradients of value, scores, query and key: ``2 s_q s_k (3 d + 2 e)``), as ``torch.utils.flop_counter`` counts them. A
causal mask can spare up to half, and whether there was one is not always recorded: half of the operations is what no
implementation can spare.

Query, key, value, output and their gradients are read or written once; the scores never leave the chip.
"""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.analysis.operator_inputs import Inputs, Shape
from traceadvisor.analysis.work import Formula, Kind, Work


@dataclass(frozen=True, slots=True)
class Attention:
    """Where an operator has its query, and in which order its dimensions are."""

    query: int
    """Position; key and value follow."""

    heads_first: bool
    """Whether shapes are (batch, heads, length, size) or (batch, length, heads, size)."""

    backward: bool

    def work(self, inputs: Inputs) -> Work | None:
        """The work of one call; None for sequences of different lengths packed into one, whose lengths are values."""
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
"""By operator: those that compute attention in one go. Attention put together from products is counted as products."""

ATTENTION_FORMULAS = {
    name: Formula(Kind.ATTENTION, operator.work, (operator.query, operator.query + 1, operator.query + 2))
    for name, operator in ATTENTION.items()
}
