"""Settings of the training step that are switched between two steps, and put back."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from traceadvisor.errors import named
from traceadvisor.experiments.inside.edited import Edited
from traceadvisor.experiments.inside.evidence import Switch, Witness
from traceadvisor.experiments.inside.global_flags import CudnnBenchmark, Tf32
from traceadvisor.experiments.inside.loop import Found
from traceadvisor.experiments.inside.model_switches import Autocast, ChannelsLast, Compile
from traceadvisor.experiments.inside.sources import NO_LOADER
from traceadvisor.experiments.settings import OF_LOADER, PATCH, VARIABLE, Settings, Value
from traceadvisor.recording.script.own_code import unseen
from traceadvisor.text.cleaning import clipped

LONGEST_REASON = 200

_SCALES = "_step_supports_amp_scaling"
"""Attribute that torch sets on fused optimizers: a gradient scaler leaves scaling to their kernels. Without it, the
scaler waits for the GPU before each step; with it, other kernels fail."""


class Variable(Switch):
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

    def void(self, value: Value, witness: Witness) -> str | None:  # noqa: ARG002  # the base's
        """The script may assign to it, too."""
        kept = getattr(sys.modules[self._module], self._name)
        return None if kept == value else clipped(f"the script set {self._name} = {kept!r}", LONGEST_REASON)

    def idle(self, value: Value, witness: Witness, own: Witness) -> str | None:  # noqa: ARG002  # the base's
        """It may have the value already."""
        return "the script has this value already" if self._own == value else None


class Switches:
    """All settings of the step. One that fails becomes unavailable, with the reason; the others go on."""

    def __init__(  # noqa: PLR0913  # what it needs to know of the plan
        self,
        found: Found,
        device: str | torch.device,
        variables: Sequence[str],
        real: Callable[[Settings], Settings] = lambda shown: shown,
        *,
        is_alone: bool = False,
        edited: Edited | None = None,
    ) -> None:
        """``real``: the settings to put in force for those that files may show.

        ``is_alone``: no other arm is measured in this process. ``edited``: changed functions.
        """
        device, self._real = torch.device(device), real
        made: dict[str, Callable[[], Switch]] = {
            "amp": lambda: Autocast(found, device),
            "fused": lambda: OptimizerFlag("fused", found),
            "foreach": lambda: OptimizerFlag("foreach", found),
            "set_to_none": lambda: SetToNone(found),
            "compile": lambda: Compile(found),
            **{name: functools.partial(Variable, name) for name in variables},
        }
        on_gpu: dict[str, Callable[[], Switch]] = {
            "tf32": lambda: Tf32(device),
            "cudnn_benchmark": lambda: CudnnBenchmark(found, is_alone=is_alone),
            "channels_last": lambda: ChannelsLast(found),
            "non_blocking": lambda: NonBlocking(device),
        }
        self._switches: dict[str, Switch] = {}
        self._unavailable: dict[str, str] = {}
        if device.type == "cuda":
            made |= on_gpu
        else:
            self._unavailable |= dict.fromkeys((*on_gpu, "pin_memory"), "the script uses no GPU")
        if found.loader is None:
            self._unavailable |= dict.fromkeys(OF_LOADER - {PATCH}, NO_LOADER)
        self.edited = edited
        if edited:
            made[PATCH] = lambda: edited
        for name, make in made.items():
            self._add(name, make)

    def _add(self, name: str, make: Callable[[], Switch]) -> None:
        try:
            one = make()
            if reason := one.unavailable():
                self._unavailable[name] = reason
            else:
                self._switches[name] = one
        except Exception as error:  # noqa: BLE001  # whatever torch refuses, the other settings are worth measuring
            self._unavailable[name] = _words(error)

    def unavailable(self) -> dict[str, str]:
        """Settings that cannot be switched in this script, with reasons."""
        return dict(self._unavailable)

    def refused(self, settings: Settings) -> str | None:
        """Why no step may have the settings."""
        for name, value in settings.values:
            reason = self._unavailable.get(name)
            if name in self._switches:
                reason = _tried(self._switches[name].refused, value)
            if reason:
                return f"{name}: {reason}"
        return None

    def switch(self, settings: Settings) -> None:
        """Have these settings from the next step on, and the script's own for all others.

        Raises:
            Exception: what torch does about a setting. The script's own are in force then.
        """
        for name in [name for name in self._switches if settings[name] is None]:
            self._switch_back(name)
        try:
            for name, value in self._real(settings).values:
                if name in self._switches:
                    self._switches[name].switch(value)
        except Exception:
            for name in [*self._switches]:
                self._switch_back(name)
            raise

    def _switch_back(self, name: str) -> None:
        try:
            self._switches[name].switch(None)
        except Exception as error:  # noqa: BLE001  # as above
            del self._switches[name]
            self._unavailable[name] = _words(error)

    def void(self, settings: Settings, witness: Witness) -> str | None:
        """Why the settings cannot count as in force."""
        for name, value in self._real(settings).values:
            if name in self._switches and (reason := _tried(self._switches[name].void, value, witness)):
                return f"{name}: {reason}"
        return None

    def idle(self, settings: Settings, witness: Witness, own: Witness) -> str | None:
        """Why the settings change nothing; None if one of them may. ``own`` saw a step of the script as it is."""
        reasons = []
        for name, value in self._real(settings).values:
            reason = _tried(self._switches[name].idle, value, witness, own) if name in self._switches else None
            if reason is None:
                return None
            reasons.append(f"{name}: {reason}")
        return "; ".join(reasons) or None


def _tried(question: Callable[..., str | None], *arguments: Any) -> str | None:
    try:
        return question(*arguments)
    except Exception as error:  # noqa: BLE001  # without an answer, there is no evidence
        return _words(error)


def _words(error: Exception) -> str:
    return named(error)[:300]


class NonBlocking(Switch):
    """``non_blocking`` of ``Tensor.to`` and ``Tensor.cuda`` for copies from the CPU to the model's device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._own = {name: vars(torch.Tensor).get(name) for name in ("to", "cuda")}

    def switch(self, value: Value | None) -> None:
        """Replace the methods, or take the replacements away."""
        for name, own in self._own.items():
            if own is not None:
                setattr(torch.Tensor, name, own)
            elif name in vars(torch.Tensor):
                delattr(torch.Tensor, name)
            if value is not None:
                setattr(torch.Tensor, name, self._replaced(getattr(torch.Tensor, name), bool(value)))

    def void(self, value: Value, witness: Witness) -> str | None:
        """Such copies must have been seen."""
        how = "non-blocking" if value else "blocking"
        return None if witness.copies[bool(value)] else f"no {how} copy to the GPU was seen in the training thread"

    def idle(self, value: Value, witness: Witness, own: Witness) -> str | None:  # noqa: ARG002  # the base's
        """The script may copy so itself."""
        return None if own.copies[not value] else "the script copies so already"

    def _replaced(self, original: Callable[..., Any], value: bool) -> Callable[..., Any]:  # noqa: FBT001  # a value
        @functools.wraps(original)
        @unseen
        def copy(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if tensor.device.type != "cpu" or tensor.device == self._device:
                return original(tensor, *args, **kwargs)
            flags = [place for place, one in enumerate(args) if isinstance(one, bool)]
            if flags:  # by place; a flag that follows is "copy"
                return original(tensor, *args[: flags[0]], value, *args[flags[0] + 1 :], **kwargs)
            return original(tensor, *args, **(kwargs | {"non_blocking": value}))

        return copy


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
