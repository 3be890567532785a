"""The work of convolutions, forward and backward, from shapes and settings.

Every element of the output (of a transposed convolution: of the input) meets every weight that leads to its channels:
``2 x batch x positions x numbers in the weight`` operations. A weight of shape ``(out, in / groups, ...)`` holds only
what its groups connect, so groups need no factor of their own. The gradients by input and by weight take as many
operations each: they are the same products, summed over something else. ``torch.utils.flop_counter`` counts the same,
except that it gives the weight's gradient of a grouped convolution ``groups`` times as many.

Sizes of outputs: https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv2d.html and ConvTranspose2d.html, "Shape".
Order of arguments: ``aten/src/ATen/native/native_functions.yaml`` of PyTorch 1.8 and 2.13.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from traceadvisor.analysis.arithmetic.work import Formula, Kind, Work
from traceadvisor.analysis.operators.inputs import Inputs, Shape
from traceadvisor.frozen import frozen

TransposedTest = Callable[[Inputs], bool]
"""Whether a call is a transposed convolution, from its inputs."""


def _never(_: Inputs) -> bool:
    return False


def _always(_: Inputs) -> bool:
    return True


def _flag_at(position: int) -> TransposedTest:
    return lambda inputs: inputs.value(position) is True


@frozen
class Forward:
    """Positions of an operator's settings; input and weight come first."""

    stride: int
    padding: int
    dilation: int
    is_transposed: TransposedTest

    output_padding: int = 0
    """For transposed convolutions only."""

    def work(self, inputs: Inputs) -> Work | None:
        """Return the work of one call; None if neither its settings nor its output size is known."""
        x, weight = inputs.shape(0), inputs.shape(1)
        output = self._output(inputs) if _is_convolution(x, weight) else None
        if output is None or min(output) < 1:
            return None
        transposed = self.is_transposed(inputs)
        positions = x[2:] if transposed else output
        flops = 2 * x[0] * prod(positions) * prod(weight)
        read = min(prod(x), x[0] * x[1] * prod(output) * prod(weight[2:]))
        written = x[0] * (weight[1] if transposed else weight[0]) * prod(output)
        return Work(flops, flops, read + prod(weight) + written)

    def _output(self, inputs: Inputs) -> Shape | None:
        """Return the output's sizes without batch and channels."""
        x = inputs.shape(0)[2:]
        lists = [inputs.integers(at, len(x)) for at in (self.stride, self.padding, self.dilation)]
        stride, padding, dilation = lists
        if stride is None or padding is None or dilation is None or 0 in stride:
            return inputs.output
        reach = [step * (size - 1) for step, size in zip(dilation, inputs.shape(1)[2:], strict=True)]
        axes = zip(x, stride, padding, reach, strict=True)
        if not self.is_transposed(inputs):
            return tuple((size + 2 * pad - far - 1) // step + 1 for size, step, pad, far in axes)
        extra = inputs.integers(self.output_padding, len(x)) or (0,) * len(x)
        sizes = [(size - 1) * step - 2 * pad + far + 1 for size, step, pad, far in axes]
        return tuple(size + more for size, more in zip(sizes, extra, strict=True))


@frozen
class Backward:
    """Positions of the output's gradient, the input and the mask of wanted gradients."""

    gradient: int
    x: int
    mask: int
    is_transposed: TransposedTest

    def work(self, inputs: Inputs) -> Work | None:
        """Return the work of one call, without the bias gradient, which multiplies nothing."""
        gradient, x, weight = inputs.shape(self.gradient), inputs.shape(self.x), inputs.shape(2)
        wanted = _wanted(inputs, self.mask)
        if wanted is None or not _is_convolution(x, weight) or not _is_convolution(gradient, weight):
            return None
        positions = x[2:] if self.is_transposed(inputs) else gradient[2:]
        flops = 2 * x[0] * prod(positions) * prod(weight) * sum(wanted)
        return Work(flops, flops, prod(gradient) + (prod(x) + prod(weight)) * sum(wanted))

    def forward_output(self, inputs: Inputs) -> tuple[tuple[Shape, Shape], Shape] | None:
        """Return input and weight of the forward call, and its output's sizes without batch and channels.

        Recordings of 2021 hold no settings; there, backward calls reveal the output sizes of forward calls.
        """
        gradient, x, weight = inputs.shape(self.gradient), inputs.shape(self.x), inputs.shape(2)
        if self.is_transposed(inputs) or not _is_convolution(x, weight) or not _is_convolution(gradient, weight):
            return None
        return (x, weight), gradient[2:]


def _wanted(inputs: Inputs, position: int) -> tuple[bool, bool] | None:
    """Whether the gradients by input and by weight were wanted; if not recorded, whether they were computed."""
    mask = inputs.value(position)
    if isinstance(mask, list) and len(mask) > 1:
        return bool(mask[0]), bool(mask[1])
    by_input, by_weight = (
        any(name.endswith(ending) for name in inputs.inner) for ending in ("_backward_input", "_backward_weight")
    )
    return (by_input, by_weight) if by_input or by_weight else None


def _is_convolution(x: Shape, weight: Shape) -> bool:
    return len(x) == len(weight) > 2 and 0 not in (*x, *weight)


FORWARD = {
    "aten::convolution": Forward(stride=3, padding=4, dilation=5, is_transposed=_flag_at(6), output_padding=7),
    "aten::_convolution": Forward(stride=3, padding=4, dilation=5, is_transposed=_flag_at(6), output_padding=7),
    "aten::convolution_overrideable": Forward(
        stride=3, padding=4, dilation=5, is_transposed=_flag_at(6), output_padding=7
    ),
    "aten::cudnn_convolution": Forward(stride=3, padding=2, dilation=4, is_transposed=_never),
    "aten::cudnn_convolution_transpose": Forward(
        stride=4, padding=2, dilation=5, is_transposed=_always, output_padding=3
    ),
    "aten::cudnn_convolution_relu": Forward(stride=3, padding=4, dilation=5, is_transposed=_never),
    "aten::cudnn_convolution_add_relu": Forward(stride=5, padding=6, dilation=7, is_transposed=_never),
    "aten::miopen_convolution": Forward(stride=4, padding=3, dilation=5, is_transposed=_never),
    "aten::miopen_depthwise_convolution": Forward(stride=4, padding=3, dilation=5, is_transposed=_never),
    "aten::miopen_convolution_transpose": Forward(
        stride=5, padding=3, dilation=6, is_transposed=_always, output_padding=4
    ),
}
BACKWARD = {
    "aten::convolution_backward": Backward(gradient=0, x=1, mask=10, is_transposed=_flag_at(7)),
    "aten::convolution_backward_overrideable": Backward(gradient=0, x=1, mask=9, is_transposed=_flag_at(6)),
    "aten::cudnn_convolution_backward": Backward(gradient=1, x=0, mask=10, is_transposed=_never),
    "aten::cudnn_convolution_transpose_backward": Backward(gradient=1, x=0, mask=11, is_transposed=_always),
    "aten::miopen_convolution_backward": Backward(gradient=1, x=0, mask=9, is_transposed=_never),
    "aten::miopen_convolution_transpose_backward": Backward(gradient=1, x=0, mask=10, is_transposed=_always),
    "aten::miopen_depthwise_convolution_backward": Backward(gradient=1, x=0, mask=9, is_transposed=_never),
}
CONVOLUTION_FORMULAS = {
    **{name: Formula(Kind.CONVOLUTION, forward.work, (0, 1)) for name, forward in FORWARD.items()},
    **{name: Formula(Kind.CONVOLUTION, backward.work, (0, 1, 2)) for name, backward in BACKWARD.items()},
}
