"""Figures by torch-tb-profiler's own code for one trace file, in this process and without TensorBoard's server.

None of its code is copied or replaced. What it gets wrong is kept wrong, and where it cannot read a file its own
exception comes through (`TypeError` for a trace that is an array, `IndexError` for a device numbered above 63).
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from torch_tb_profiler.profiler.data import RunProfileData
from torch_tb_profiler.profiler.overall_parser import OverallParser, ProfileRole


@dataclass(frozen=True, slots=True)
class PluginCosts:
    """One bar of its overview. Each category is what the ones before it left over, in the order of the fields."""

    kernel_us: float
    memcpy_us: float
    memset_us: float
    communication_us: float
    runtime_us: float
    data_loader_us: float
    cpu_exec_us: float
    other_us: float
    total_us: float
    """Duration of the step; measured by itself, so the categories need not add up to it."""


@dataclass(frozen=True, slots=True)
class PluginStep:
    """One step of its overview."""

    name: str
    """The text after `#` in the mark, or `0` where the trace has no marks."""

    costs: PluginCosts


@dataclass(frozen=True, slots=True)
class PluginDevice:
    """Its figures for one device, over the time from the first step's start to the last step's end."""

    busy_share: float
    sm_efficiency_share: float | None
    achieved_occupancy_share: float | None


@dataclass(frozen=True, slots=True)
class PluginKernel:
    """One row of its kernel table: every kernel of that name in the file, in a step or not."""

    count: int
    total_us: float


@dataclass(frozen=True, slots=True)
class PluginReading:
    """All that the parity tests compare."""

    steps: tuple[PluginStep, ...]
    mean: PluginCosts
    devices: dict[int, PluginDevice]
    """By device number; empty without kernels."""

    kernels: dict[str, PluginKernel]
    """By kernel name, longest total first; empty without kernels."""

    tensor_core_share: float | None
    """Share of kernel time in kernels whose names it takes for tensor core ones; None without kernels."""

    advice: tuple[str, ...]
    """Its recommendations, as HTML."""


def read_with_plugin(path: Path) -> PluginReading:
    """Have torch-tb-profiler read the trace at `path` (plain, or gzip if the name ends in `.gz`)."""
    with TemporaryDirectory() as cache, _plugin_warnings_ignored():
        profile = RunProfileData.parse("worker", None, str(path), cache)
    steps = zip(profile.steps_names, profile.steps_costs, strict=True)
    return PluginReading(
        steps=tuple(PluginStep(name, _costs(costs)) for name, costs in steps),
        mean=_costs(profile.avg_costs),
        devices={number: _device(profile, number) for number in sorted(profile.gpu_metrics_parser.gpu_ids)},
        kernels=_kernels(profile),
        tensor_core_share=None if profile.tc_used_ratio is None else float(profile.tc_used_ratio),
        advice=tuple(profile.recommendations),
    )


@contextmanager
def _plugin_warnings_ignored() -> Iterator[None]:
    """It was last released in 2023: pandas warns of its `astype(copy=False)`, and here warnings are errors."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="torch_tb_profiler")
        yield


def _costs(costs: OverallParser.Costs) -> PluginCosts:
    by_role = costs.costs
    return PluginCosts(
        kernel_us=float(by_role[ProfileRole.Kernel]),
        memcpy_us=float(by_role[ProfileRole.Memcpy]),
        memset_us=float(by_role[ProfileRole.Memset]),
        communication_us=float(by_role[ProfileRole.Communication]),
        runtime_us=float(by_role[ProfileRole.Runtime]),
        data_loader_us=float(by_role[ProfileRole.DataLoader]),
        cpu_exec_us=float(by_role[ProfileRole.CpuOp]),
        other_us=float(by_role[ProfileRole.Other]),
        total_us=float(by_role[ProfileRole.Total]),
    )


def _device(profile: RunProfileData, number: int) -> PluginDevice:
    metrics = profile.gpu_metrics_parser
    efficiency = metrics.avg_approximated_sm_efficiency_per_device[number]
    occupancy_percent = metrics.avg_occupancy_per_device[number]
    return PluginDevice(
        busy_share=float(metrics.gpu_utilization[number]),
        sm_efficiency_share=None if efficiency is None else float(efficiency),
        achieved_occupancy_share=None if occupancy_percent is None else float(occupancy_percent) / 100,
    )


def _kernels(profile: RunProfileData) -> dict[str, PluginKernel]:
    if profile.kernel_stat is None:
        return {}
    table = profile.kernel_stat
    rows = zip(table.index, table["count"], table["sum"], strict=True)
    return {str(name): PluginKernel(int(count), float(total_us)) for name, count, total_us in rows}
