"""What a trace does not hold: how torch, the optimizer and the machine are set up."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import TypeVar

import torch
from torch.optim import Optimizer

from traceadvisor.bundle.layout import TOLD_VARIABLES, LoaderSettings, OptimizerSettings, Settings
from traceadvisor.recording.script.own_code import own_code
from traceadvisor.system.cores import cpu_affinity, cpu_quota

_Value = TypeVar("_Value")


class SettingsSeen:
    """Gathers settings as they come by; complete when the run has ended."""

    def __init__(self) -> None:
        self._optimizer: OptimizerSettings | None = None
        self._autocast_dtype: torch.dtype | None = None
        self._grad_scaler = False
        self._has_stepped = False
        self._detect_anomaly = torch.is_anomaly_enabled()
        self._optimizer_steps = 0
        self._profiled_steps = 0
        self.loader: LoaderSettings | None = None

    def scaler_used(self) -> None:
        """A gradient scaler that is enabled stepped."""
        self._grad_scaler = True

    def autocast_entered(self, dtype: torch.dtype) -> None:
        """Autocast became active."""
        self._autocast_dtype = dtype

    def anomaly_detection_enabled(self) -> None:
        """Autograd began to look for its own errors."""
        self._detect_anomaly = True

    def stepped(self, optimizer: Optimizer, *, own_profiler: bool) -> None:
        """An optimizer stepped, perhaps while the script's own profiler was at work; the first one is described."""
        self._optimizer_steps += 1
        self._profiled_steps += own_profiler
        if not self._has_stepped:
            self._has_stepped = True
            self._optimizer = _optimizer(optimizer)

    def settings(self) -> Settings:
        """All that is known now."""
        return Settings(
            torch_version=str(torch.__version__),
            cuda_version=torch.version.cuda,
            python_version=platform.python_version(),
            device_name=torch.cuda.get_device_name() if torch.cuda.is_initialized() else None,  # type: ignore[no-untyped-call]
            loader=self.loader,
            optimizer=self._optimizer,
            autocast_dtype=str(self._autocast_dtype).removeprefix("torch.") if self._autocast_dtype else None,
            grad_scaler=self._grad_scaler if self._has_stepped else None,
            matmul_tf32=_tf32(
                lambda: bool(torch.backends.cuda.matmul.allow_tf32),
                lambda: str(torch.backends.cuda.matmul.fp32_precision),
            ),
            cudnn_tf32=_tf32(
                lambda: bool(torch.backends.cudnn.allow_tf32),
                lambda: str(torch.backends.cudnn.conv.fp32_precision),  # type: ignore[attr-defined]
            ),
            cudnn_benchmark=_guarded(lambda: bool(torch.backends.cudnn.benchmark)),
            cpu_count=os.cpu_count(),
            cpu_affinity=cpu_affinity(),
            cpu_quota=cpu_quota(),
            torch_threads=torch.get_num_threads(),
            detect_anomaly=self._detect_anomaly,
            cuda_sync_debug_mode=_sync_debug_mode(),
            own_profiler_share=self._profiled_steps / self._optimizer_steps if self._optimizer_steps else None,
            own_code=own_code(),
            environment={name: os.environ[name] for name in TOLD_VARIABLES if name in os.environ},
        )


def _sync_debug_mode() -> int | None:
    """None where CUDA was not used: asking would begin to use it."""
    return _guarded(torch.cuda.get_sync_debug_mode) if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]


def _optimizer(optimizer: Optimizer) -> OptimizerSettings:
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    parameters = [parameter for one in optimizer.param_groups for parameter in one["params"]]
    return OptimizerSettings(
        name=type(optimizer).__name__,
        fused=_flag(group.get("fused")),
        foreach=_flag(group.get("foreach")),
        parameter_count=sum(parameter.numel() for parameter in parameters),
        parameter_bytes=sum(parameter.numel() * parameter.element_size() for parameter in parameters),
    )


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _tf32(old: Callable[[], bool], new: Callable[[], str]) -> bool | None:
    """The old getter raises where a script has used the new one for part of the settings."""
    value = _guarded(old)
    if value is not None:
        return value
    precision = _guarded(new)
    return precision == "tf32" if precision and precision != "none" else None


def _guarded(get: Callable[[], _Value]) -> _Value | None:
    """What a getter gives; None where this torch lacks it or refuses to tell."""
    try:
        return get()
    except (RuntimeError, AttributeError):
        return None
