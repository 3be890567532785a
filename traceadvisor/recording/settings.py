"""Gathers what a trace does not hold: the settings of torch, the optimizer, the loader and the machine."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from traceadvisor.bundle.layout import flag
from traceadvisor.bundle.settings import RECORDED_ENV, THREAD_POOLS, RecordedLoader, RecordedSettings
from traceadvisor.model.location import Constructed, Role
from traceadvisor.model.run import TrainingDevice
from traceadvisor.recording.gc_timer import GcTimer
from traceadvisor.recording.loop.compilations import Compilations
from traceadvisor.recording.loop.makers import remembered
from traceadvisor.recording.loop.own_profiles import ProfiledSteps
from traceadvisor.recording.loop.padding import PaddingSeen
from traceadvisor.recording.loop.repeated_results import ResultsSeen
from traceadvisor.recording.loop.repeated_rows import RepeatedRows
from traceadvisor.recording.loop.subnormal import SubnormalSeen
from traceadvisor.recording.loop.unused_gradients import GradientsSeen
from traceadvisor.recording.loop.unused_graphs import UnusedGraphs
from traceadvisor.recording.script.own_code import own_code
from traceadvisor.recording.script.own_lines import own_lines
from traceadvisor.recording.telemetry.nvml import pci_bus_id
from traceadvisor.system.cores import cpu_affinity, cpu_quota

_Value = TypeVar("_Value")

COUNTED_STEPS = 8
"""Steps of optimizers, in which each of them steps once: their parameters are counted."""

MOST_MAPS_BYTES = 1 << 24
"""Bytes of the list of mapped files that are read."""


class SettingsSeen:
    """Gathers settings during the run; complete at its end."""

    def __init__(
        self, has_own_profiler: Callable[[], bool] = lambda: False, is_recording: Callable[[], bool] = lambda: False
    ) -> None:
        """Prepare.

        Args:
            has_own_profiler: whether a ``torch.profiler`` of the script is running now.
            is_recording: whether a recording is being made now.
        """
        self._has_own_profiler = has_own_profiler
        self._watched = ProfiledSteps(is_recording)
        self.constructors = remembered()
        self._constructed: dict[Role, Constructed] = {}
        self._optimizers: dict[int, Constructed | None] = {}
        self._tables: tuple[Constructed, ...] = ()
        self._with_optimizer: RecordedSettings | None = None
        self._elements: dict[int, int] = {}
        """Elements of each parameter of all optimizers of the first steps."""
        self.autocast_dtype: torch.dtype | None = None
        """That of the latest autocast that became active."""
        self._grad_scaler = False
        self._detect_anomaly = torch.is_anomaly_enabled()
        self.optimizer_steps = 0
        self._profiled_steps = 0
        self._asked_for_devices = False
        self._device_name: str | None = None
        self._devices: tuple[TrainingDevice, ...] = ()
        self.gc = GcTimer(step=lambda: self.optimizer_steps)
        self.loader: RecordedLoader | None = None
        self.padding = PaddingSeen()
        self.repeated = RepeatedRows()
        self.gradients = GradientsSeen(self.constructors)
        self.results = ResultsSeen(self.constructors)
        self.graphs = UnusedGraphs()
        self.compilations = Compilations()
        self.subnormal = SubnormalSeen()

    def scaler_used(self, scaler: object) -> None:
        """An enabled gradient scaler stepped."""
        if not self._grad_scaler:
            self._grad_scaler = True
            self.constructed(self.constructors.of_scaler(scaler))

    def constructed(self, *found: Constructed | None) -> None:
        """These objects train, as far as it is known where they are constructed; the first of each role counts."""
        self._constructed = {one.role: one for one in found if one} | self._constructed

    def anomaly_detection_enabled(self, mode: object) -> None:
        """Anomaly detection was enabled, by an object of torch."""
        self._detect_anomaly = True
        if Role.ANOMALY not in self._constructed:
            self.constructed(self.constructors.of_anomaly_mode(mode))

    @property
    def is_settled(self) -> bool:
        """Whether the following batches and optimizer steps show nothing new."""
        has_new_devices = torch.cuda.is_initialized() and not self._asked_for_devices  # type: ignore[no-untyped-call]
        is_over = self.padding.is_over and self.repeated.is_over and self.gradients.is_over
        return is_over and not has_new_devices and not self._has_own_profiler() and not self._watched.is_on

    @property
    def is_profile_of_all_threads(self) -> bool:
        """Whether a profiler of the script took the calls of this tool's threads for those of the script."""
        return self._watched.name == "cProfile" and sys.version_info >= (3, 12)

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer stepped; the first is described. Of others, it is enough to count the steps once settled."""
        self.optimizer_steps += 1
        self._profiled_steps += self._has_own_profiler()
        self._watched.stepped()
        if self._with_optimizer is None:
            self._with_optimizer = _with_optimizer(optimizer)
            self.constructed(*self.constructors.of_optimizer(optimizer))
            self._tables = _guarded(lambda: tuple(self.constructors.of_tables())) or ()
        if self.optimizer_steps <= COUNTED_STEPS:
            if id(optimizer) not in self._optimizers:
                self._optimizers[id(optimizer)] = self.constructors.of_optimizer(optimizer)[0]
            self._elements |= {id(one): one.numel() for group in optimizer.param_groups for one in group["params"]}
        self.gradients.stepped(optimizer)
        self.results.stepped(optimizer)
        self.graphs.stepped(optimizer)
        self.subnormal.stepped(optimizer)
        self.ask_for_devices(optimizer)

    def look_at_numbers(self) -> None:
        """Steps are about to be recorded: look for subnormal numbers in the modules that the script made.

        Operators are no longer followed: that would make them longer.
        """
        self.results.stop()
        self.subnormal.look_at(self.constructors.known(nn.Module))

    def ask_for_devices(self, optimizer: Optimizer | None = None) -> None:
        """Ask for the GPUs in the training thread, as soon as CUDA is used: it answers nothing after a device's error.

        ``optimizer``: its parameters are on the GPU that trains; without one, that is the thread's current GPU.
        """
        if self._asked_for_devices or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return
        self._asked_for_devices = True
        self._device_name = _guarded(lambda: str(torch.cuda.get_device_properties(_training_index(optimizer)).name))
        self._devices = _guarded(_training_devices) or ()

    def _objects(self) -> Iterable[Constructed]:
        """The objects that train, each place and class once."""
        found = (*self._constructed.values(), *self._optimizers.values(), self.gradients.place, *self._tables)
        return dict.fromkeys(one for one in found if one)

    def settings(self) -> RecordedSettings:
        """All settings known now."""
        return replace(
            self._with_optimizer or RecordedSettings(),
            parameter_count=sum(self._elements.values()) if self._with_optimizer else None,
            torch_version=str(torch.__version__),
            cuda_version=torch.version.cuda,
            python_version=platform.python_version(),
            device_name=self._device_name,
            devices=self._devices,
            loader=self.loader,
            autocast_dtype=str(self.autocast_dtype).removeprefix("torch.") if self.autocast_dtype else None,
            grad_scaler=self._grad_scaler if self._with_optimizer else None,
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
            gc_share=self.gc.share,
            gc_longest_ns=self.gc.longest_ns,
            gc_long_count=None if self.gc.share is None else self.gc.long_count,
            gc_long_share=self.gc.long_share,
            gc_long_steps=self.gc.long_steps,
            own_profiler_share=self._profiled_steps / self.optimizer_steps if self.optimizer_steps else None,
            python_profiler=self._watched.name,
            python_profiler_share=self._watched.count / self.optimizer_steps if self.optimizer_steps else None,
            python_profiler_recorded=self._watched.recorded_count,
            own_code=frozenset(own_code()),
            own_lines=_guarded(own_lines) or {},
            padding=self.padding.result(),
            positions_per_sample=self.padding.positions_per_sample,
            unused_gradients=_guarded(self.gradients.result),
            repeated_results=_guarded(self.results.result),
            ignored_targets=_guarded(self.results.ignored_targets),
            constructed=(*self._objects(),),
            thread_pools=_guarded(thread_pools) or (),
            pauses=(*self.gc.pauses, *self.compilations.pauses),
            subnormal_share=self.subnormal.share,
            allocator_retries=_guarded(_allocator_retries),
            repeated_share=self.repeated.share(),
            validation_nodes=self.graphs.nodes_per_batch,
            environment={name: os.environ[name] for name in RECORDED_ENV if name in os.environ},
        )


def _training_index(optimizer: Optimizer | None) -> int:
    groups = optimizer.param_groups if optimizer else ()
    used = (one.device.index for group in groups for one in group["params"] if one.is_cuda)
    found = next(used, None)
    return torch.cuda.current_device() if found is None else found


def _training_devices() -> tuple[TrainingDevice, ...]:
    every = range(torch.cuda.device_count())
    return tuple(training_device(torch.cuda.get_device_properties(index)) for index in every)


def training_device(properties: Any) -> TrainingDevice:
    """Identity of a GPU; torch writes its UUID without NVML's prefix, and may lack it or the bus."""
    uuid = getattr(properties, "uuid", None)
    place = _guarded(lambda: (properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id))
    return TrainingDevice(
        uuid=None if uuid is None else f"GPU-{str(uuid).removeprefix('GPU-')}",
        pci_bus_id=pci_bus_id(*place) if place else None,
    )


def _allocator_retries() -> int | None:
    """Count them over all GPUs that this process sees; without CUDA, torch returns no figures, and starts nothing."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    every = range(torch.cuda.device_count())
    return sum(int(torch.cuda.memory_stats(index).get("num_alloc_retries", 0)) for index in every)


def thread_pools(maps: Path = Path("/proc/self/maps")) -> tuple[str, ...]:
    """Return the mapped native libraries that compute in threads of their own; none where the system does not tell."""
    try:
        with maps.open("rb") as file:
            lines = file.read(MOST_MAPS_BYTES).splitlines()
    except OSError:
        return ()
    files = {line.rpartition(b"/")[2].decode(errors="replace") for line in lines if b"/" in line}
    return tuple(name for name, begins in THREAD_POOLS.items() if any(file.startswith(begins) for file in files))


def _sync_debug_mode() -> int | None:
    """None if CUDA was not used: the call would initialise it."""
    return _guarded(torch.cuda.get_sync_debug_mode) if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]


def _with_optimizer(optimizer: Optimizer) -> RecordedSettings:
    """Settings with those of the optimizer alone."""
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    parameters = [parameter for one in optimizer.param_groups for parameter in one["params"]]
    return RecordedSettings(
        optimizer=type(optimizer).__name__,
        optimizer_fused=flag(group.get("fused")),
        optimizer_foreach=flag(group.get("foreach")),
        optimizer_groups=len(optimizer.param_groups),
        optimizer_tensors=len(parameters),
        parameter_bytes=sum(parameter.numel() * parameter.element_size() for parameter in parameters),
    )


def _tf32(old: Callable[[], bool], new: Callable[[], str]) -> bool | None:
    """The setting by the old getter, which raises if the script has used the new setter; then by the new getter."""
    value = _guarded(old)
    if value is not None:
        return value
    precision = _guarded(new)
    return precision == "tf32" if precision and precision != "none" else None


def _guarded(get: Callable[[], _Value]) -> _Value | None:
    """The result of a getter; None if this torch lacks it, or it raises, as most do after a device's error."""
    try:
        return get()
    except Exception:  # noqa: BLE001  # the other settings are still known
        return None
