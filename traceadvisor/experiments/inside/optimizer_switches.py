"""Switches of the optimizers: fused and foreach kernels, and ``set_to_none`` of ``zero_grad``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from traceadvisor.experiments.inside.evidence import Switch, Witness
from traceadvisor.experiments.inside.loop import Found
from traceadvisor.experiments.settings import Value

_SCALES = "_step_supports_amp_scaling"
"""Attribute that torch sets on fused optimizers: a gradient scaler leaves scaling to their kernels. Without it, the
scaler waits for the GPU before each step; with it, other kernels fail."""


class OptimizerFlag(Switch):
    """``fused`` or ``foreach`` of the optimizers' parameter groups."""

    def __init__(self, name: str, found: Found) -> None:
        self._name, self._optimizers = name, list(found.optimizers.values())
        self._own = [[dict(group) for group in _groups(optimizer)] for optimizer in self._optimizers]
        self._own_scales = [getattr(optimizer, _SCALES, None) for optimizer in self._optimizers]

    def unavailable(self) -> str | None:
        """The optimizer must know the flag."""
        lacking = [type(one).__name__ for one in self._optimizers if self._name not in one.defaults]
        if lacking or not self._optimizers:
            return f"{', '.join(sorted(set(lacking))) or 'the optimizer'} has no {self._name}"
        return None

    def switch(self, value: Value | None) -> None:
        """Set the flags; state that counts steps moves to where this implementation wants it."""
        other = "foreach" if self._name == "fused" else "fused"
        for optimizer, owns, scales in zip(self._optimizers, self._own, self._own_scales, strict=True):
            for group, own in zip(_groups(optimizer), owns, strict=True):
                group[self._name] = own[self._name] if value is None else bool(value)
                if other in group:
                    group[other] = False if value else own[other]
                _move_counters(optimizer, group)
            is_fused = any(group.get("fused") for group in optimizer.param_groups)
            _set_or_delete(optimizer, _SCALES, scales if value is None else is_fused or None)

    def void(self, value: Value, witness: Witness) -> str | None:
        """Kernels of that kind must have run."""
        seen = witness.fused if self._name == "fused" else witness.foreach
        return None if seen == bool(value) else f"the optimizer ran {'' if seen else 'no '}{self._name} kernels"

    def idle(self, value: Value, witness: Witness, own: Witness) -> str | None:  # noqa: ARG002  # the base's
        """The script as it is may run the same kernels: torch chooses foreach on GPUs by itself."""
        is_same = (witness.fused, witness.foreach) == (own.fused, own.foreach)
        return "the optimizer ran the same kernels already" if is_same else None


class SetToNone(Switch):
    """``zero_grad`` of the optimizers."""

    def __init__(self, found: Found) -> None:
        self._optimizers = list(found.optimizers.values())
        self._asked: list[bool] = []
        """The script's own settings."""

    def switch(self, value: Value | None) -> None:
        """Replace the method of the optimizers, or take the replacement away."""
        self._asked.clear()
        for optimizer in self._optimizers:
            optimizer.__dict__.pop("zero_grad", None)
            if value is not None:
                optimizer.zero_grad = self._replaced(optimizer, bool(value))  # type: ignore[method-assign]  # taken away again

    def void(self, value: Value, witness: Witness) -> str | None:  # noqa: ARG002  # the base's
        """The script must have called it."""
        return None if self._asked else "the script does not call optimizer.zero_grad"

    def idle(self, value: Value, witness: Witness, own: Witness) -> str | None:  # noqa: ARG002  # the base's
        """The script may ask for it itself."""
        return "the script does so already" if set(self._asked) == {bool(value)} else None

    def _replaced(self, optimizer: Optimizer, value: bool) -> Callable[..., None]:  # noqa: FBT001  # as in torch
        def zero_grad(set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002  # as in torch
            self._asked.append(set_to_none)
            type(optimizer).zero_grad(optimizer, set_to_none=value)

        return zero_grad


def _groups(optimizer: Optimizer) -> list[dict[str, Any]]:
    """The groups, and the defaults, by which ``zero_grad`` decides."""
    return [*optimizer.param_groups, optimizer.defaults]


def _set_or_delete(owner: object, name: str, value: Any) -> None:
    if value is not None:
        setattr(owner, name, value)
    elif name in vars(owner):
        delattr(owner, name)


def _move_counters(optimizer: Optimizer, group: dict[str, Any]) -> None:
    """A fused implementation counts steps on the device of the parameters; the others do so on the CPU."""
    on_device = bool(group.get("fused") or group.get("capturable"))
    for parameter in group.get("params", ()):
        step = optimizer.state.get(parameter, {}).get("step")
        if isinstance(step, torch.Tensor):
            optimizer.state[parameter]["step"] = step.to(parameter.device if on_device else "cpu")
