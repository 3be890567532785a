"""Switches of the model: autocast, memory format, and ``torch.compile``."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._dynamo.backends.registry import lookup_backend
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from traceadvisor.experiments.inside.evidence import Switch, Witness
from traceadvisor.experiments.inside.loop import Found
from traceadvisor.experiments.settings import Value


class Autocast(Switch):
    """Autocast around the forward of each outermost module; results of the model are float32 again."""

    def __init__(self, found: Found, device: torch.device) -> None:
        self._found, self._device = found, device
        self._own: dict[nn.Module, Any] = {}
        """Own ``forward`` of wrapped modules, in place of their class's."""

        self._scaling = _Scaling(found, device)

    def unavailable(self) -> str | None:
        """The script must not use autocast itself."""
        if self._found.autocast:
            return "the script uses autocast already"
        return None if any(_weights(one) for one in self._found.modules.values()) else "no module was called"

    def refused(self, value: Value) -> str | None:
        """Without a scaler, float16 may make weights NaN; some GPUs only emulate bfloat16."""
        if value == "float16":
            return None if self._found.scalers else self._scaling.unavailable()
        if computes_in(self._device) == "float16":
            return "this GPU emulates bfloat16, which is slow. Try amp=float16"
        return None

    def switch(self, value: Value | None) -> None:
        """Wrap the forward of the modules, or unwrap it."""
        for module, own in self._own.items():
            module.__dict__.pop("forward")
            if own is not None:  # Accelerate and others have replaced it, too
                module.__dict__["forward"] = own
        self._own.clear()
        self._scaling.end()
        if value is None:
            return
        if value == "float16" and not self._found.scalers:
            self._scaling.begin()
        for module in self._found.modules.values():
            self._own[module] = module.__dict__.get("forward")
            module.forward = _autocast(module.forward, self._device.type, _dtype(value), back=bool(_weights(module)))

    def void(self, value: Value, witness: Witness) -> str | None:
        """Most matrix products must have the dtype."""
        if witness.matmul is None:
            return "no matrix product was seen"
        if value == "float16" and not self._found.scalers and not self._scaling.steps:
            return "no loss could be scaled"
        ran = str(witness.matmul).removeprefix("torch.")
        return None if witness.matmul is _dtype(value) else f"most matrix products ran in {ran}"

    def idle(self, value: Value, witness: Witness, own: Witness) -> str | None:  # noqa: ARG002  # the base's
        """Accelerate and Fabric, and some models, use autocast inside of a module; others have weights in 16 bits."""
        return f"the script computes in {value} already" if own.matmul is _dtype(value) else None


def computes_in(device: torch.device) -> str:
    """The 16-bit type in which a device computes without emulation."""
    is_old = device.type == "cuda" and not torch.version.hip and torch.cuda.get_device_capability(device) < (8, 0)
    return "float16" if is_old else "bfloat16"


class ChannelsLast(Switch):
    """Memory format of weights, optimizer state and images."""

    def __init__(self, found: Found) -> None:
        self._found, self._is_on = found, False
        self._hooks: list[Any] = []

    def unavailable(self) -> str | None:
        """There must be a convolution over images."""
        kinds = [one for top in self._found.modules.values() for one in top.modules() if isinstance(one, nn.Conv2d)]
        if any(not one.weight.is_contiguous() for one in kinds):
            return "the script uses another memory format already"
        return None if kinds else "the model has no two-dimensional convolution"

    def switch(self, value: Value | None) -> None:
        """Convert weights and state; convert images as they enter the model."""
        if bool(value) == self._is_on:
            return
        self._is_on = bool(value)  # before the first conversion: torch may refuse the next one
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        layout = torch.channels_last if value else torch.contiguous_format
        for module in self._found.modules.values():
            module.to(memory_format=layout)  # type: ignore[call-overload]  # missing in its stubs
            if value:
                self._hooks.append(module.register_forward_pre_hook(_images_last, with_kwargs=True))
        for optimizer in self._found.optimizers.values():
            for parameter, state in optimizer.state.items():
                for name, one in state.items():
                    if isinstance(one, torch.Tensor) and one.dim() == 4 and one.shape == parameter.shape:
                        state[name] = one.contiguous(memory_format=layout)

    def void(self, value: Value, witness: Witness) -> str | None:
        """The first convolution must have got such an image."""
        if witness.layout_last is None:
            return "no convolution was seen"
        return None if witness.layout_last == bool(value) else "the first convolution got another memory format"


class Compile(Switch):
    """``torch.compile`` of the outermost modules, in place."""

    def __init__(self, found: Found) -> None:
        self._modules = [one for one in found.modules.values() if _weights(one)]
        self._compiled: dict[int, Any] = {}
        self._graphs: Counter[int] = Counter()
        """By module."""

    def unavailable(self) -> str | None:
        """The script must not compile the model itself."""
        if any(type(one).__name__ == "OptimizedModule" or one._compiled_call_impl for one in self._modules):
            return "the script compiles the model already"
        return None if self._modules else "no module was called"

    def switch(self, value: Value | None) -> None:
        """Use the compiled call, or not. A module is compiled once."""
        for module in self._modules:
            if value and id(module) not in self._compiled:
                self._compiled[id(module)] = self._made(module, len(self._compiled))
            module._compiled_call_impl = self._compiled[id(module)] if value else None

    def void(self, value: Value, witness: Witness) -> str | None:  # noqa: ARG002  # the base's
        """The compiler must have made something of each module."""
        missing = sum(not self._graphs[id(module)] for module in self._modules)
        if not value or not missing:
            return None
        return f"torch.compile made no graph of {missing} of {len(self._modules)} outermost modules"

    def _made(self, module: nn.Module, number: int) -> Callable[..., Any]:
        """The compiled call of a module. A function around it is compiled: torch skips frames of its own modules.

        The code of that function is the module's own. torch counts compilations by code, and runs it uncompiled after
        eight of them.
        """

        def backend(*args: Any, **kwargs: Any) -> Any:
            self._graphs[id(module)] += 1
            return lookup_backend("inductor")(*args, **kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            return module._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]  # torch has no types for it

        call.__code__ = call.__code__.replace(co_name=f"call_{number}")
        return torch.compile(call, backend=backend)


def _dtype(value: Value) -> torch.dtype:
    return torch.float16 if value == "float16" else torch.bfloat16


def _weights(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _autocast(forward: Callable[..., Any], device: str, dtype: torch.dtype, *, back: bool) -> Callable[..., Any]:
    @functools.wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, dtype=dtype):
            result = forward(*args, **kwargs)
        return _floats(result) if back else result

    return run


def _floats(result: Any) -> Any:
    """Results in 16 bits as float32; other results as they are."""
    if isinstance(result, torch.Tensor):
        return result.float() if result.dtype in (torch.float16, torch.bfloat16) else result
    if type(result) in (tuple, list):
        return type(result)(_floats(part) for part in result)
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*map(_floats, result))
    if isinstance(result, dict):
        for name, part in result.items():
            result[name] = _floats(part)
    return result


def _images_last(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(map(_image_last, args)), {name: _image_last(one) for name, one in kwargs.items()}


def _image_last(value: Any) -> Any:
    is_images = isinstance(value, torch.Tensor) and value.dim() == 4
    return value.contiguous(memory_format=torch.channels_last) if is_images else value


class _Scaling:
    """Does what the lines of a gradient scaler do: scales losses, checks and unscales gradients, updates the scale.

    Gradients that the script clips itself are still scaled then, as in a script that does not unscale them before.
    """

    def __init__(self, found: Found, device: torch.device) -> None:
        self._found, self._device = found, device
        self._scaler: GradScaler | None = None
        self._own_steps: list[tuple[Optimizer, Any]] = []
        self._stepped: set[int] = set()
        """Optimizers that stepped since the last update of the scale."""

        self._is_scaled = self._is_stepping = False
        self.steps = 0
        """Optimizer steps through the scaler."""

    def unavailable(self) -> str | None:
        """Why the script's losses and gradients cannot be scaled."""
        if not self._found.backwards:
            return "float16 needs a gradient scaler, and the script does not call backward of a loss"
        groups = (group for optimizer in self._found.optimizers.values() for group in optimizer.param_groups)
        if any(one.dtype is torch.float16 for group in groups for one in group["params"]):
            return "the weights are in float16 already"
        return None

    def begin(self) -> None:
        """Scale from the next loss on."""
        self._scaler = self._scaler or GradScaler(self._device.type)
        self._is_scaled, self.steps = False, 0
        self._found.scale = self._scaled
        for optimizer in self._found.optimizers.values():
            self._own_steps.append((optimizer, optimizer.__dict__.get("step")))
            optimizer.step = self._stepping(optimizer, optimizer.step)  # type: ignore[method-assign]  # taken away again

    def end(self) -> None:
        """Scale no more."""
        self._found.scale = lambda loss: loss
        for optimizer, own in self._own_steps:
            optimizer.__dict__.pop("step", None)
            if own is not None:  # a schedule counts the calls
                optimizer.__dict__["step"] = own
        self._own_steps.clear()

    def _scaled(self, loss: torch.Tensor) -> torch.Tensor:
        assert self._scaler is not None  # noqa: S101  # begun
        self._update()
        self._is_scaled = True
        return self._scaler.scale(loss)

    def _update(self) -> None:
        if self._scaler and self._stepped:
            self._scaler.update()
            self._stepped.clear()

    def _stepping(self, optimizer: Optimizer, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(closure: Callable[[], Any] | None = None) -> Any:
            if self._is_stepping:  # called by the scaler
                return original()
            with torch.enable_grad():
                loss = closure() if closure else None
            self._is_stepping = True
            try:
                self._step(optimizer)
            finally:
                self._is_stepping = False
            return loss

        return step

    def _step(self, optimizer: Optimizer) -> None:
        assert self._scaler is not None  # noqa: S101  # begun
        has_gradient = any(one.grad is not None for group in optimizer.param_groups for one in group["params"])
        if self._is_scaled and has_gradient:
            if id(optimizer) in self._stepped:
                self._update()
            self._scaler.step(optimizer)
            self._stepped.add(id(optimizer))
            self.steps += 1
        else:
            optimizer.step()
