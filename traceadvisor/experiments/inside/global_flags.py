"""Switches of flags that hold for a whole process: TF32 and the choice of cuDNN's algorithms."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from traceadvisor.experiments.inside.evidence import Switch, Witness
from traceadvisor.experiments.inside.loop import Found
from traceadvisor.experiments.settings import Value
from traceadvisor.frozen import frozen

_LEGACY = {True: ("high", True), False: ("highest", False)}
"""Precision of matrix products, and of cuDNN."""


@frozen
class _Precision:
    """The precision of operators in float32, by both interfaces of torch."""

    operators: tuple[str, ...]
    """``fp32_precision`` of matrix products, convolutions and RNNs; empty before torch 2.9."""

    legacy: tuple[str, bool] | None
    """None if the script has set the other interface so that this one cannot be read."""

    def on(self) -> tuple[bool, bool]:
        """Whether matrix products and convolutions use TF32."""
        if self.operators:
            return self.operators[0] == "tf32", self.operators[1] == "tf32"
        assert self.legacy is not None  # noqa: S101  # without the other interface, it can be read
        return self.legacy[0] != "highest", self.legacy[1]

    @classmethod
    def now(cls) -> _Precision:
        """The flags now."""
        has_new = hasattr(torch.backends.cuda.matmul, "fp32_precision")
        try:
            legacy = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        except RuntimeError:
            if not has_new:
                raise
            legacy = None
        return cls(tuple(one.fp32_precision for one in _operators()) if has_new else (), legacy)

    def write(self) -> None:
        """Make it hold. The legacy interface first, as it writes to the other one."""
        if self.legacy:
            torch.set_float32_matmul_precision(self.legacy[0])
            torch.backends.cudnn.allow_tf32 = self.legacy[1]
        for operator, precision in zip(_operators() if self.operators else (), self.operators, strict=True):
            operator.fp32_precision = precision


class Tf32(Switch):
    """TF32 in matrix products and convolutions.

    Both interfaces of torch are written where both can be read, so that the script can read either one.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._own = device, _Precision.now()

    def unavailable(self) -> str | None:
        """The GPU must have it."""
        if torch.version.hip:
            return "TF32 is measured on NVIDIA's GPUs only"
        capability = torch.cuda.get_device_capability(self._device)
        return None if capability >= (8, 0) else "this GPU has no TF32: it came with compute capability 8.0"

    def switch(self, value: Value | None) -> None:
        """Write the flags."""
        (self._own if value is None else self._wanted(value)).write()

    def void(self, value: Value, witness: Witness) -> str | None:  # noqa: ARG002  # the base's
        """The script may have written them again."""
        return None if _Precision.now().on() == self._wanted(value).on() else "the script set it back"

    def idle(self, value: Value, witness: Witness, own: Witness) -> str | None:  # noqa: ARG002  # the base's
        """Autocast leaves no float32, and torch uses TF32 in convolutions by itself."""
        convolutions = witness.convolutions_by_dtype[torch.float32]
        products = witness.matmuls[torch.float32] - convolutions
        if not products and not convolutions:
            return "no matrix product ran in float32"
        matmul_is_on, convolution_is_on = self._own.on()
        changed = (products and matmul_is_on != bool(value)) or (convolutions and convolution_is_on != bool(value))
        return None if changed else "the script has it already"

    def _wanted(self, value: Value) -> _Precision:
        precision = "tf32" if value else "ieee"
        legacy = _LEGACY[bool(value)] if self._own.legacy else None
        return _Precision((precision,) * len(self._own.operators), legacy)


class CudnnBenchmark(Switch):
    """cuDNN's search for the fastest algorithm of each shape.

    torch keeps the algorithm that it used first for a shape, whatever the flag, so the flag must be set at the start.
    """

    def __init__(self, found: Found, *, is_alone: bool) -> None:
        """``is_alone``: the process has one arm only, for which :func:`set_at_start` was called."""
        self._found, self._is_alone = found, is_alone
        self._own = torch.backends.cudnn.benchmark

    def unavailable(self) -> str | None:
        """There must be a convolution, and no other arm in the process."""
        modules = (one for top in self._found.modules.values() for one in top.modules())
        if not any(isinstance(one, nn.modules.conv._ConvNd) for one in modules):
            return "the model has no convolution"
        if self._is_alone:
            return None
        return (
            "torch keeps the algorithm that it used first for each shape, so one process cannot compare both. To "
            "measure: `traceadvisor sweep --processes --set cudnn_benchmark=true -- SCRIPT`"
        )

    def switch(self, value: Value | None) -> None:
        """Write the flag."""
        torch.backends.cudnn.benchmark = self._own if value is None else bool(value)

    def void(self, value: Value, witness: Witness) -> str | None:
        """It must have been so from the first step on."""
        if self._own != bool(value) or torch.backends.cudnn.benchmark != bool(value):
            return "the script sets it itself: change it there"
        return None if witness.convolutions else "no convolution was seen"


def set_at_start(settings: dict[str, Value]) -> None:
    """Set the flags that act only if they are set before the first step."""
    if "cudnn_benchmark" in settings:
        torch.backends.cudnn.benchmark = bool(settings["cudnn_benchmark"])


def _operators() -> tuple[Any, ...]:
    cudnn: Any = torch.backends.cudnn
    return torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn
