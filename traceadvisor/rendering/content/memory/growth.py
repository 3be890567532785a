"""Sizes that would fit: the predicted peak at twice the batch or length, and the largest that common devices hold."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.model.memory_figures import MemoryForecast, MemoryGrowth
from traceadvisor.rendering.content.memory.words import CLASS, PASS
from traceadvisor.rendering.document.blocks import Block, Prose, Tone
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Column, Layout, Table, titled
from traceadvisor.rendering.units import percent, size
from traceadvisor.text.ranges import around

NOTHING = 0.01
"""A smaller share of the batch or length is none."""


def growth_blocks(growth: MemoryGrowth) -> Iterator[Block]:
    """The prediction in a sentence, the devices in a table, and what it rests on."""
    twice, name = growth.twice, growth.of[-1]
    is_law = len(growth.of) > 1
    what = "batch or length" if is_law else "batch"
    guess = f"{size(twice.peak_bytes)}, a guess from one snapshot"
    peak = around(*map(size, (twice.peak_bytes, twice.low_bytes, twice.high_bytes))) if is_law else guess
    yield Prose(f"At twice the {what} of {name}: {peak}.", Tone.ACTION, Detail.SUMMARY)
    columns = (Column("Memory of the device", numeric=False), Column(f"Largest {what}, relative to {name}"))
    rows = tuple((Cell(size(one.capacity_bytes or 0)), Cell(_factor(one, is_law=is_law))) for one in growth.fitting)
    yield Table(f"Largest {what} that fits", columns, rows, detail=Detail.SUMMARY)
    yield from _laws(growth, name)
    if not is_law:
        yield Prose("Give the snapshots of two batch sizes or lengths: their growth makes it a prediction.", Tone.QUIET)
        return
    steps = ", ".join(f"{ratio:.3g}" for ratio in growth.ratios)
    yield Prose(
        f"The allocations of {', '.join(growth.of)} were paired by line. From one to the next, the batch or length "
        f"grows {steps} times. {percent(growth.paired_share)} of the growing bytes have a partner; the rest makes the "
        "interval.",
        Tone.QUIET,
    )
    if growth.differs:
        yield Prose("Some of them run under autocast and others do not: sizes were compared as half as wide.")
    yield Prose("0.5 GiB of a device is taken off for CUDA itself, and what the allocator rounds up.", Tone.QUIET)


def _factor(one: MemoryForecast, *, is_law: bool) -> str:
    if one.factor < NOTHING:
        return "does not fit"
    if is_law:
        return around(f"{one.factor:.2f}", f"{one.low_factor:.2f}", f"{one.high_factor:.2f}")
    return f"about {one.factor:.{int(one.factor < 10)}f} times as large"


def _laws(growth: MemoryGrowth, name: str) -> Iterator[Block]:
    titles = ("Class", "Stays", "Grows in proportion", "Grows with the square")
    rows = tuple(
        (Cell(CLASS[one.kind]), *map(Cell, map(size, (one.stays_bytes, one.linear_bytes, one.square_bytes))))
        for one in growth.classes
    )
    yield Table(f"How the peak of {name} grows", titled(*titles), rows, layout=Layout.STACKED)
    if growth.passes:
        columns = titled("Part of the step", "Highest level", "At twice of it")
        rows = tuple(
            (Cell(PASS[one.name].capitalize()), Cell(size(one.peak_bytes)), Cell(size(one.twice_bytes)))
            for one in growth.passes
        )
        yield Table("Where the peak lies", columns, rows, layout=Layout.STACKED)
