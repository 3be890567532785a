"""Settings of the training step that are switched between two steps, and put back."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from traceadvisor.experiments.inside.evidence import Witness
from traceadvisor.experiments.inside.loop import Found
from traceadvisor.experiments.settings import VARIABLE, Settings, Value


class Switch(Protocol):
    """One setting."""

    def unavailable(self) -> str | None:
        """Why it cannot be switched here; None if it can."""

    def switch(self, value: Value | None) -> None:
        """Have this value from the next step on; None for the script's own."""

    def void(self, value: Value, witness: Witness | None) -> str | None:
        """Why the value cannot count as in force; None where there is evidence that it is."""


class Flags:
    """Global flags of torch, by reading and writing functions."""

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], None], on: Any, off: Any) -> None:
        self._read, self._write, self._values = read, write, {True: on, False: off}
        self._own = read()

    def unavailable(self) -> str | None:
        """On a GPU always available."""
        return None

    def switch(self, value: Value | None) -> None:
        """Write the flags."""
        self._write(self._own if value is None else self._values[bool(value)])

    def void(self, value: Value, witness: Witness | None) -> str | None:  # noqa: ARG002  # the protocol's
        """The script may have written them again."""
        return None if self._read() == self._values[bool(value)] else "the script set it back"


class Autocast:
    """Autocast around the forward of each outermost module; results of the model are float32 again."""

    def __init__(self, found: Found, device: str) -> None:
        self._found, self._device = found, device
        self._on: list[nn.Module] = []

    def unavailable(self) -> str | None:
        """The script must not use autocast itself."""
        if self._found.autocast:
            return "the script uses autocast already"
        return None if any(_weights(one) for one in self._found.modules.values()) else "no module was called"

    def switch(self, value: Value | None) -> None:
        """Wrap the forward of the modules, or unwrap it."""
        for module in self._on:
            module.__dict__.pop("forward", None)
        self._on.clear()
        if value is None:
            return
        dtype = torch.float16 if value == "float16" else torch.bfloat16
        for module in self._found.modules.values():
            if "forward" not in module.__dict__:
                module.forward = _autocast(module.forward, self._device, dtype, back=bool(_weights(module)))
                self._on.append(module)

    def void(self, value: Value, witness: Witness | None) -> str | None:
        """The first matmul must have the dtype."""
        if value == "float16" and not self._found.scaled:
            return "float16 needs a gradient scaler, which the script does not use"
        if witness is None or witness.matmul is None:
            return "no matrix product was seen"
        wanted = torch.float16 if value == "float16" else torch.bfloat16
        return None if witness.matmul is wanted else f"the first matmul ran in {witness.matmul}".replace("torch.", "")


class OptimizerFlag:
    """``fused`` or ``foreach`` of the optimizers' parameter groups."""

    def __init__(self, name: str, found: Found) -> None:
        self._name, self._optimizers = name, list(found.optimizers.values())
        self._own = [[dict(group) for group in optimizer.param_groups] for optimizer in self._optimizers]

    def unavailable(self) -> str | None:
        """The optimizer must know the flag."""
        lacking = [type(one).__name__ for one in self._optimizers if self._name not in one.defaults]
        if lacking or not self._optimizers:
            return f"{', '.join(sorted(set(lacking))) or 'the optimizer'} has no {self._name}"
        return None

    def switch(self, value: Value | None) -> None:
        """Set the flags; state that counts steps moves to where this implementation wants it."""
        other = "foreach" if self._name == "fused" else "fused"
        for optimizer, owns in zip(self._optimizers, self._own, strict=True):
            for group, own in zip(optimizer.param_groups, owns, strict=True):
                group[self._name] = own[self._name] if value is None else bool(value)
                if other in group:
                    group[other] = False if value else own[other]
                _move_counters(optimizer, group)

    def void(self, value: Value, witness: Witness | None) -> str | None:
        """Kernels of that kind must have run."""
        seen = witness is not None and (witness.fused if self._name == "fused" else witness.foreach)
        return None if seen == bool(value) else f"the optimizer ran {'' if seen else 'no '}{self._name} kernels"


class SetToNone:
    """``zero_grad`` of the optimizers."""

    def __init__(self, found: Found) -> None:
        self._optimizers = list(found.optimizers.values())
        self._calls = 0

    def unavailable(self) -> str | None:
        """Any optimizer has it."""
        return None

    def switch(self, value: Value | None) -> None:
        """Replace the method of the optimizers, or take the replacement away."""
        for optimizer in self._optimizers:
            optimizer.__dict__.pop("zero_grad", None)
            if value is not None:
                optimizer.zero_grad = self._replaced(optimizer, bool(value))  # type: ignore[method-assign]  # taken away again

    def void(self, value: Value, witness: Witness | None) -> str | None:  # noqa: ARG002  # the protocol's
        """The script must have called it."""
        calls, self._calls = self._calls, 0
        return None if calls else "the script does not call optimizer.zero_grad"

    def _replaced(self, optimizer: Optimizer, value: bool) -> Callable[..., None]:  # noqa: FBT001  # as in torch
        def zero_grad(set_to_none: bool = True) -> None:  # noqa: ARG001, FBT001, FBT002  # as in torch
            self._calls += 1
            type(optimizer).zero_grad(optimizer, set_to_none=value)

        return zero_grad


class ChannelsLast:
    """Memory format of weights, optimizer state and images."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._hooks: list[Any] = []

    def unavailable(self) -> str | None:
        """There must be a convolution over images."""
        kinds = [one for top in self._found.modules.values() for one in top.modules() if isinstance(one, nn.Conv2d)]
        if any(not one.weight.is_contiguous() for one in kinds):
            return "the script uses another memory format already"
        return None if kinds else "the model has no two-dimensional convolution"

    def switch(self, value: Value | None) -> None:
        """Convert weights and state; convert images as they enter the model."""
        if bool(value) == bool(self._hooks):
            return
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        layout = torch.channels_last if value else torch.contiguous_format
        for module in self._found.modules.values():
            module.to(memory_format=layout)  # type: ignore[call-overload]  # missing in its stubs
            if value:
                self._hooks.append(module.register_forward_pre_hook(_images_last))
        for optimizer in self._found.optimizers.values():
            for parameter, state in optimizer.state.items():
                for name, one in state.items():
                    if isinstance(one, torch.Tensor) and one.dim() == 4 and one.shape == parameter.shape:
                        state[name] = one.contiguous(memory_format=layout)

    def void(self, value: Value, witness: Witness | None) -> str | None:
        """The first convolution must have got such an image."""
        if witness is None or witness.layout_last is None:
            return "no convolution was seen"
        return None if witness.layout_last == bool(value) else "the first convolution got another memory format"


class Compile:
    """``torch.compile`` of the outermost modules, in place."""

    def __init__(self, found: Found) -> None:
        self._modules = [one for one in found.modules.values() if _weights(one)]
        self._compiled: dict[int, Any] = {}

    def unavailable(self) -> str | None:
        """The script must not compile the model itself."""
        if any(type(one).__name__ == "OptimizedModule" or one._compiled_call_impl for one in self._modules):
            return "the script compiles the model already"
        return None if self._modules else "no module was called"

    def switch(self, value: Value | None) -> None:
        """Use the compiled call, or not. A module is compiled once."""
        for module in self._modules:
            if value and id(module) not in self._compiled:
                module.compile()
                self._compiled[id(module)] = module._compiled_call_impl
            module._compiled_call_impl = self._compiled[id(module)] if value else None

    def void(self, value: Value, witness: Witness | None) -> str | None:  # noqa: ARG002  # the protocol's
        """The compiler must have made something."""
        counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
        made = bool(counters.get("stats", {}).get("unique_graphs"))
        return None if made or not value else "torch.compile made no graph"


class Variable:
    """A variable of a module of the script."""

    def __init__(self, name: str) -> None:
        self._module, _, self._name = name.removeprefix(VARIABLE).rpartition(".")
        self._own = getattr(sys.modules.get(self._module), self._name, None)

    def unavailable(self) -> str | None:
        """There must be one."""
        module = sys.modules.get(self._module)
        if module is None:
            return f"no module {self._module} was imported"
        return None if hasattr(module, self._name) else f"{self._module} has no variable {self._name}"

    def switch(self, value: Value | None) -> None:
        """Assign to it."""
        setattr(sys.modules[self._module], self._name, self._own if value is None else value)

    def void(self, value: Value, witness: Witness | None) -> str | None:  # noqa: ARG002  # the protocol's
        """The script may assign to it, too."""
        kept = getattr(sys.modules[self._module], self._name)
        return None if kept == value else f"the script set {self._name} to {kept!r}"


class Switches:
    """All settings of the step."""

    def __init__(self, found: Found, device: str, variables: Sequence[str]) -> None:
        self._device = device
        self._switches: dict[str, Switch] = {
            "amp": Autocast(found, device),
            "fused": OptimizerFlag("fused", found),
            "foreach": OptimizerFlag("foreach", found),
            "set_to_none": SetToNone(found),
            "compile": Compile(found),
            **{name: Variable(name) for name in variables},
        }
        if device == "cuda":
            cudnn = torch.backends.cudnn
            self._switches |= {
                "tf32": Flags(_precision, _set_precision, ("high", True), ("highest", False)),
                "cudnn_benchmark": Flags(
                    lambda: cudnn.benchmark, lambda on: setattr(cudnn, "benchmark", on), on=True, off=False
                ),
                "channels_last": ChannelsLast(found),
            }

        self._available = [name for name, one in self._switches.items() if one.unavailable() is None]

    def unavailable(self) -> dict[str, str]:
        """Settings that cannot be switched in this script, with reasons."""
        found = {name: reason for name, one in self._switches.items() if (reason := one.unavailable())}
        if self._device != "cuda":
            needs = dict.fromkeys(("tf32", "cudnn_benchmark", "channels_last", "pin_memory"), "the script uses no GPU")
            found |= needs
        return found

    def switch(self, settings: Settings) -> None:
        """Have these settings from the next step on, and the script's own for all others."""
        for name in self._available:
            if settings[name] is None:
                self._switches[name].switch(None)
        for name in self._available:
            if (value := settings[name]) is not None:
                self._switches[name].switch(value)

    def void(self, settings: Settings, witness: Witness | None) -> str | None:
        """Why the settings cannot count as in force."""
        for name, value in settings.values:
            if name in self._switches and (reason := self._switches[name].void(value, witness)):
                return f"{name}: {reason}"
        return None


def _precision() -> tuple[str, bool]:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


def _set_precision(value: tuple[str, bool]) -> None:
    torch.set_float32_matmul_precision(value[0])
    torch.backends.cudnn.allow_tf32 = value[1]


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
    if isinstance(result, dict):
        for name, part in result.items():
            result[name] = _floats(part)
    return result


def _images_last(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        one.contiguous(memory_format=torch.channels_last) if isinstance(one, torch.Tensor) and one.dim() == 4 else one
        for one in args
    )


def _move_counters(optimizer: Optimizer, group: dict[str, Any]) -> None:
    """A fused implementation counts steps on the device of the parameters; the others do so on the CPU."""
    on_device = bool(group.get("fused") or group.get("capturable"))
    for parameter in group["params"]:
        step = optimizer.state.get(parameter, {}).get("step")
        if isinstance(step, torch.Tensor):
            optimizer.state[parameter]["step"] = step.to(parameter.device if on_device else "cpu")
