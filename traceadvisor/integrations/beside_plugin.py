"""Sets the figures of torch-tb-profiler beside those of a report, and finds out why they differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import compress
from math import isclose
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from traceadvisor.errors import UsageError
from traceadvisor.model.beside_plugin import SAME_SHARE, BesideFigure, BesidePlugin, BesideRecording, Cause, Quantity
from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import Recording, Report, Work
from traceadvisor.model.steps import StepSource

if TYPE_CHECKING:
    from traceadvisor.integrations.old_plugin import PluginCosts, PluginReading

_OF_ALL_STEPS = {Quantity.BUSY, Quantity.SM_EFFICIENCY, Quantity.OCCUPANCY}
"""Figures that the plugin has for the time of all steps only."""

_COPIES = (Work.H2D_COPY, Work.D2H_COPY, Work.D2D_COPY)


def beside_plugin(report: Report) -> BesidePlugin:
    """Have the plugin read each recording of a report again.

    Raises:
        UsageError: it is not installed.
    """
    try:
        installed = version("torch-tb-profiler")
    except PackageNotFoundError as error:
        raise UsageError(
            "--beside-plugin needs torch-tb-profiler. Install it: pip install 'traceadvisor[old-plugin]'."
        ) from error
    from traceadvisor.integrations.old_plugin import read_with_plugin  # noqa: PLC0415  # needs the plugin

    @cache
    def read(path: Path) -> PluginReading | str:
        try:
            return read_with_plugin(path)
        except Exception as error:  # noqa: BLE001  # its parser checks nothing
            return f"{type(error).__name__}: {error}"

    recorded = (one for one in report.recordings if one.steps or one.dropped_steps)  # a captured rank may lack a trace
    recordings = tuple(_beside(one, read(one.path)) for one in recorded)
    return BesidePlugin(installed, report.tool_version, recordings)


def _beside(ours: Recording, plugin: PluginReading | str) -> BesideRecording:
    if isinstance(plugin, str):
        return BesideRecording(ours.id, (), plugin)
    same_steps = _of_our_steps(ours, plugin)
    pairs = zip(_figures(ours, plugin), _figures(ours, same_steps), strict=True)
    of_steps = _why_other_steps(ours, plugin)
    figures = [
        BesideFigure(quantity, theirs, value, _why(quantity, (theirs, of_same, value), of_steps, ours, same_steps))
        for (quantity, theirs, value), (_, of_same, _) in pairs
        if theirs is not None and value is not None
    ]
    return BesideRecording(ours.id, tuple(figures))


def _of_our_steps(ours: Recording, plugin: PluginReading) -> PluginReading:
    """The same reading, with means over the steps that count in ours."""
    kept = [row.step.kept for row in ours.steps]
    if ours.step_source is not StepSource.MARKS or len(kept) != len(plugin.steps) or all(kept) or not any(kept):
        return plugin
    costs = [step.costs for step in compress(plugin.steps, kept)]
    means = {field.name: fmean(getattr(one, field.name) for one in costs) for field in fields(plugin.mean)}
    return replace(plugin, mean=replace(plugin.mean, **means))


def _is_same(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=SAME_SHARE, abs_tol=1e-4)


def _figures(ours: Recording, plugin: PluginReading) -> Iterator[tuple[Quantity, float | None, float | None]]:
    """Each figure, theirs and ours. Both are means over the same kind of steps: the kept ones, not the typical ones."""
    mean, device = plugin.mean, plugin.devices.get(ours.device.index) if ours.device else None
    yield Quantity.STEPS, len(plugin.steps), len(ours.steps)
    yield Quantity.STEP, mean.total_us * 1e3, ours.mean_step_ns
    yield Quantity.KERNELS, mean.kernel_us * 1e3, _exposed(ours, Work.KERNEL)
    yield Quantity.COPIES, mean.memcpy_us * 1e3, _exposed(ours, *_COPIES)
    yield Quantity.MEMSETS, mean.memset_us * 1e3, _exposed(ours, Work.MEMSET)
    yield Quantity.COMMUNICATION, mean.communication_us * 1e3, _communication(ours)
    yield Quantity.DATA_LOADING, mean.data_loader_us * 1e3, _exposed(ours, Work.DATA_LOADING)
    if device:
        yield Quantity.BUSY, device.busy_share, ours.figures.busy_share
        yield Quantity.SM_EFFICIENCY, device.sm_efficiency_share, ours.figures.sm_efficiency_share
        yield Quantity.OCCUPANCY, device.achieved_occupancy_share, ours.figures.achieved_occupancy_share
    all_ns = sum(one.total_ns_per_step for one in ours.kernels)
    tensor_core_ns = sum(one.total_ns_per_step for one in ours.kernels if one.tensor_cores)
    yield Quantity.TENSOR_CORES, plugin.tensor_core_share, tensor_core_ns / all_ns if all_ns else None


def _exposed(ours: Recording, *works: Work) -> float | None:
    overlaps = [overlap for work in works if (overlap := ours.overlaps.get(work))]
    return sum(one.exposed_ns for one in overlaps) if len(overlaps) == len(works) else None


def _communication(ours: Recording) -> float | None:
    on_host = ours.mean_breakdown.parts_ns.get(Category.COMMUNICATION) if ours.mean_breakdown else None
    return on_host if ours.device is None else _exposed(ours, Work.COMMUNICATION)


def _why(
    quantity: Quantity,
    values: tuple[float | None, ...],
    of_steps: Cause | None,
    ours: Recording,
    same_steps: PluginReading,
) -> Cause | None:
    """Why two values of a figure are not the same; None where they are.

    ``values``: the plugin's, the plugin's over our steps, and ours.
    """
    theirs, of_same, value = values
    if theirs is None or of_same is None or value is None or _is_same(theirs, value):
        return None
    if _is_same(of_same, value):
        return Cause.STEPS_NOT_COUNTED
    if quantity in _OF_ALL_STEPS and _is_same(theirs, value * _share_in_steps(ours)):
        return Cause.BETWEEN_STEPS
    return _cause(quantity, of_steps, ours, same_steps)


def _share_in_steps(ours: Recording) -> float:
    """Share of the time from the first step's start to the last one's end that lies in steps."""
    steps = [row.step for row in ours.steps]
    all_ns = steps[-1].end_ns - steps[0].start_ns if steps else 0
    return sum(step.duration_ns for step in steps) / all_ns if all_ns else 1.0


def _cause(quantity: Quantity, of_steps: Cause | None, ours: Recording, plugin: PluginReading) -> Cause:
    """Why two values of a figure are not the same, with means over the same steps."""
    match quantity:
        case Quantity.STEPS | Quantity.STEP:
            return Cause.UNKNOWN if of_steps in {None, Cause.STEPS_NOT_COUNTED} else of_steps
        case Quantity.TENSOR_CORES:
            return Cause.OLD_KERNEL_NAMES
        case Quantity.DATA_LOADING if plugin.mean.data_loader_us == 0:
            return Cause.OLD_CATEGORIES
        case Quantity.COMMUNICATION | Quantity.KERNELS if cause := _of_collectives(quantity, ours, plugin.mean):
            return cause
    return _following(quantity, of_steps)


def _of_collectives(quantity: Quantity, ours: Recording, mean: PluginCosts) -> Cause | None:
    """The cause if it is how collectives are counted."""
    theirs_ns, exposed_ns = mean.communication_us * 1e3, _exposed(ours, Work.COMMUNICATION) or 0
    if quantity is Quantity.KERNELS:
        both_ns = exposed_ns + (_exposed(ours, Work.KERNEL) or 0)
        return Cause.COLLECTIVES if exposed_ns and _is_same(mean.kernel_us * 1e3, both_ns) else None
    if ours.device:
        return Cause.COLLECTIVES if theirs_ns < exposed_ns else None
    all_ns = sum(row.total_ns_per_step for row in ours.communication)
    return Cause.HOST_COLLECTIVES if (_communication(ours) or 0) < theirs_ns <= all_ns * (1 + SAME_SHARE) else None


def _following(quantity: Quantity, of_steps: Cause | None) -> Cause:
    """The cause of a difference that has none of its own but other steps."""
    match of_steps:
        case Cause.NO_MARKS:
            return of_steps
        case Cause.STEPS_NOT_COUNTED if quantity in _OF_ALL_STEPS:
            return of_steps
        case None | Cause.STEPS_NOT_COUNTED:
            return Cause.UNKNOWN
    return Cause.OTHER_STEPS


def _why_other_steps(ours: Recording, plugin: PluginReading) -> Cause | None:
    """Why the steps, or their lengths, are not the same; None where they are."""
    if ours.step_source is not StepSource.MARKS:
        return Cause.NO_MARKS
    if len(plugin.steps) > len(ours.steps) + len(ours.dropped_steps):
        return Cause.MIRRORED_MARKS
    if len(plugin.steps) != len(ours.steps):
        return Cause.LEFT_OUT_STEPS
    marks_ns = [row.step.host_end_ns - row.step.host_start_ns for row in ours.steps]
    theirs_ns = [step.costs.total_us * 1e3 for step in plugin.steps]
    lengths_ns = [row.step.duration_ns for row in ours.steps]
    if all(map(_is_same, theirs_ns, lengths_ns)):
        return None if all(row.step.kept for row in ours.steps) else Cause.STEPS_NOT_COUNTED
    return Cause.LATE_DEVICE if all(map(_is_same, theirs_ns, marks_ns)) else Cause.LONG_MARK
