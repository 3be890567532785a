"""Figures of the plugin beside those of the report, with the cause of each difference."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.model.beside_plugin import BesideFigure, BesidePlugin, BesideRecording, Cause, Quantity
from traceadvisor.model.findings import Unit
from traceadvisor.rendering.document.blocks import Block, Document, Prose, Section
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Layout, Table, titled
from traceadvisor.rendering.units import count, duration, number_of, percent
from traceadvisor.text.cleaning import clean, one_line

_LABELS = {
    Quantity.STEPS: "Steps",
    Quantity.STEP: "Mean step",
    Quantity.KERNELS: "Kernels, per step",
    Quantity.COPIES: "Exposed copies, per step",
    Quantity.MEMSETS: "Exposed memsets, per step",
    Quantity.COMMUNICATION: "Exposed communication, per step",
    Quantity.DATA_LOADING: "Exposed data loading, per step",
    Quantity.BUSY: "GPU busy",
    Quantity.SM_EFFICIENCY: "SM efficiency",
    Quantity.OCCUPANCY: "Achieved occupancy",
    Quantity.TENSOR_CORES: "Kernel time using tensor cores",
}
_CAUSES = {
    Cause.NO_MARKS: "The recording has no step marks: the plugin takes all of it as one step.",
    Cause.MIRRORED_MARKS: "The plugin counts marks that are mirrored to the GPU as steps of their own.",
    Cause.LEFT_OUT_STEPS: "This report leaves out steps that are cut or empty, and says which.",
    Cause.LATE_DEVICE: "The GPU works on after the mark ends. Here the step ends when it has finished.",
    Cause.LONG_MARK: "A mark is longer than what was recorded in it. Here the step is what was recorded.",
    Cause.OTHER_STEPS: "The steps are not the same.",
    Cause.COLLECTIVES: "The plugin counts collectives on the GPU as kernels.",
    Cause.OLD_CATEGORIES: "The plugin looks for names of categories from before torch 1.12.",
    Cause.OLD_KERNEL_NAMES: "The plugin knows kernels by names from 2021, and counts the whole file.",
    Cause.STEPS_NOT_COUNTED: "The means here leave out steps such as one in which the profiler had just started.",
    Cause.HOST_COLLECTIVES: "The plugin counts all time of collectives. Here the training thread does nothing else.",
    Cause.BETWEEN_STEPS: "The plugin takes the share of the time from first to last step, also between steps.",
    Cause.UNKNOWN: "The cause is not known. Please report it.",
}


def beside_plugin_document(beside: BesidePlugin) -> Document:
    """The document on both."""
    read = [figure for one in beside.recordings for figure in one.figures]
    different = sum(figure.cause is not None for figure in read)
    failed = sum(one.failure is not None for one in beside.recordings)
    plugin = f"torch-tb-profiler {beside.version}"
    headline = f"{different} of {number_of(len(read), 'figure')} differ from those of {plugin}"
    return Document(
        noun="comparison with the plugin",
        title=plugin,
        window_title="Beside torch-tb-profiler · TraceAdvisor",
        marker="traceadvisor.beside-plugin/1",
        headline=f"{headline}; it could not read {number_of(failed, 'recording')}." if failed else f"{headline}.",
        top=(
            Prose(
                "Means of the plugin are over all steps, those here over kept ones. Findings are about typical steps."
            ),
        ),
        sections=tuple(
            Section(one_line(clean(one.id)), tuple(_blocks(one)), f"recording-{number}")
            for number, one in enumerate(beside.recordings, 1)
        ),
        footer=(),
        tool_version=beside.tool_version,
    )


def _blocks(one: BesideRecording) -> Iterator[Block]:
    if one.failure is not None:
        yield Prose(f"The plugin ended with {one_line(clean(one.failure))[:200]}.")
        return
    columns = titled("Figure", "The plugin says", "This report says", "Why", words=("Why",))
    rows = tuple(map(_row, one.figures))
    yield Table("The plugin, and this report", columns, rows, layout=Layout.WIDE, detail=Detail.SUMMARY)


def _row(figure: BesideFigure) -> tuple[Cell, ...]:
    values = (_shown(figure.quantity.unit, value) for value in (figure.plugin, figure.ours))
    return (Cell(_LABELS[figure.quantity]), *map(Cell, values), Cell(_CAUSES[figure.cause] if figure.cause else "same"))


def _shown(unit: Unit, value: float | None) -> str:
    return percent(value) if unit is Unit.SHARE else duration(value) if unit is Unit.NS else count(value)
