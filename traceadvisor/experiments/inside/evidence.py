"""Evidence of what ran in a step: dtypes of matrix products, kinds of optimizer kernels, copies to the device."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from traceadvisor.experiments.settings import Value

_MATMULS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "linear", "conv2d", "_scaled_dot_product", "mkldnn_linear")
_FUSED = re.compile(r"_fused_(adam|adamw|sgd|adagrad)_$")
_FOREACH_STEP = "_multi_tensor_"
"""Beginning of the name of the functions in which optimizers of torch call foreach kernels."""


class Witness(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base has no types
    """Sees the operators of one step. It slows them, so it runs in steps that are discarded.

    Compiled code runs uncompiled meanwhile. Otherwise Dynamo would meet this mode and skip that code for good.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.matmuls: Counter[torch.dtype] = Counter()
        """Matrix products and convolutions by dtype."""

        self.convolutions_by_dtype: Counter[torch.dtype] = Counter()
        self.layout_last: bool | None = None
        """Whether the input of the first convolution of images is in channels_last."""

        self.fused = self.foreach = False
        """Kernels of the optimizer; not those that clip gradients or average weights."""

        self.copies: Counter[bool] = Counter()
        """Copies from the CPU to another device, by whether they are non-blocking."""

    def __enter__(self) -> Witness:
        """Begin to see."""
        self._stance = torch.compiler.set_stance("force_eager")
        super().__enter__()  # type: ignore[no-untyped-call]  # as above
        return self

    def __exit__(self, *error: object) -> None:
        """See no more."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]  # as above
        self._stance.__exit__(*error)

    @property
    def matmul(self) -> torch.dtype | None:
        """Dtype of most matrix products. A single one may have another, such as that of a position embedding."""
        return self.matmuls.most_common(1)[0][0] if self.matmuls else None

    @property
    def convolutions(self) -> int:
        """Number of convolutions."""
        return self.convolutions_by_dtype.total()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look at an operator and run it."""
        name = function.overloadpacket.__name__
        tensor = next((one for one in args if isinstance(one, torch.Tensor)), None)
        if tensor is not None and name.startswith(_MATMULS):
            self.matmuls[tensor.dtype] += 1
            if "conv" in name:
                self._convolution(tensor)
        self.fused |= _FUSED.match(name) is not None
        self.foreach |= name.startswith("_foreach_") and _in_foreach_step()
        if name == "_to_copy" and tensor is not None:
            self._copy(tensor, kwargs or {})
        return function(*args, **(kwargs or {}))

    def _convolution(self, images: torch.Tensor) -> None:
        self.convolutions_by_dtype[images.dtype] += 1
        if images.dim() == 4 and self.layout_last is None:
            self.layout_last = images.is_contiguous(memory_format=torch.channels_last)

    def _copy(self, source: torch.Tensor, how: dict[str, Any]) -> None:
        device = how.get("device")
        if device is not None and source.device.type == "cpu" and torch.device(device).type != "cpu":
            self.copies[bool(how.get("non_blocking"))] += 1


def _in_foreach_step() -> bool:
    frame = sys._getframe(2)
    while frame := frame.f_back:  # type: ignore[assignment]  # None ends it
        if frame.f_code.co_name.startswith(_FOREACH_STEP):
            return True
    return False


class Switch(ABC):
    """One setting."""

    def unavailable(self) -> str | None:
        """Why it cannot be switched here; None if it can."""
        return None

    def refused(self, value: Value) -> str | None:  # noqa: ARG002  # most values are fine
        """Why no step may have this value; None if it may."""
        return None

    @abstractmethod
    def switch(self, value: Value | None) -> None:
        """Have this value from the next step on; None for the script's own."""

    @abstractmethod
    def void(self, value: Value, witness: Witness) -> str | None:
        """Why the value cannot count as in force; None where there is evidence that it is."""

    def idle(self, value: Value, witness: Witness, own: Witness) -> str | None:  # noqa: ARG002  # most switches act
        """Why the value, although in force, changes nothing; ``own`` saw a step of the script as it is."""
        return None
