"""The operators that multiply matrices, and the formulas of what they have to do.

Those that merely call them (``aten::linear``, ``aten::conv2d``, ``aten::scaled_dot_product_attention``) are not among
them: under autocast they are given float32 and cast before the work is launched.
"""

from __future__ import annotations

from collections.abc import Mapping

from traceadvisor.analysis.attention_flops import ATTENTION_FORMULAS
from traceadvisor.analysis.convolution_flops import CONVOLUTION_FORMULAS
from traceadvisor.analysis.matmul_flops import MATMUL_FORMULAS
from traceadvisor.analysis.operator_inputs import Inputs
from traceadvisor.analysis.work import Formula, Kind


def _not_counted(_: Inputs) -> None:
    """Work whose extent its inputs' shapes do not tell, or that is too rare to be worth a formula."""


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
