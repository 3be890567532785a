"""Advice that lowers the peak of a device's memory, in a line and as a table with evidence; and sizes that would fit.

Those are the predicted peak at twice the batch or length, and the largest that common devices hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from operator import sub

from traceadvisor.model.findings import Clear, Skipped
from traceadvisor.model.memory_advice import DeviceAdvice, MemoryAdvice, MemoryCheck
from traceadvisor.model.memory_figures import (
    DeviceMemoryFigures,
    MemoryForecast,
    MemoryGrowth,
    OutOfMemory,
    SnapshotFigures,
)
from traceadvisor.rendering.content.memory.words import CLASS, PASS
from traceadvisor.rendering.document.blocks import Block, Code, Fact, Facts, FactsLook, Group, Items, Prose, Tone
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Column, Layout, Table, titled
from traceadvisor.rendering.origins import location_words
from traceadvisor.rendering.units import evidence_value, percent, size
from traceadvisor.text.ranges import around, spread

CHEAPEST = 3

_HOW = (
    "Each saving is simulated: the recorded allocations are replayed with the change. Fixes that cost nothing come "
    "first, then those that save the most beside the fixes above them."
)


def out_of_memory_headline(ran_out: OutOfMemory, device: DeviceMemoryFigures, filled: str) -> str:
    """The memory that was asked for, and the memory that was free."""
    there = "" if ran_out.free_bytes is None else f", {size(ran_out.free_bytes)} of the device were free"
    held = f"tensors held {size(ran_out.requested_bytes)} of {size(ran_out.reserved_bytes)} reserved"
    what = f" At the peak: {filled}." if filled else ""
    return f"GPU {device.device} ran out of memory: {size(ran_out.asked_bytes)} were asked for{there}, {held}.{what}"


def first_blocks(advice: DeviceAdvice, ran_out: OutOfMemory | None) -> Iterator[Block]:
    """The first fix; where memory ran out, the cheapest ones, and which of them are enough."""
    if ran_out:
        if cheapest := advice.cheapest(CHEAPEST):
            yield Prose("The cheapest ways to fit:", Tone.ACTION, Detail.SUMMARY)
            yield Items(tuple(_way(one, ran_out.missing_bytes) for one in cheapest), Detail.SUMMARY)
        return
    if advice.advice and advice.advice[0].saved_bytes:
        first, largest = advice.advice[0], max(advice.advice, key=lambda one: one.saved_bytes)
        yield Prose(f"First fix: {_named(first, advice)}.", Tone.ACTION, Detail.SUMMARY)
        if largest is not first:
            price = f" {largest.price}" if largest.price else ""
            yield Prose(f"Largest saving: {_named(largest, advice)}.{price}", Tone.ACTION, Detail.SUMMARY)


def ran_out_blocks(snapshots: Sequence[SnapshotFigures]) -> Iterator[Block]:
    """The beginning of a report about a run whose memory ran out: what was asked for, and the cheapest ways to fit."""
    for snapshot in snapshots:
        for device in snapshot.devices:
            if device.out_of_memory:
                headline = out_of_memory_headline(device.out_of_memory, device, "")
                yield Prose(headline, Tone.ACTION, Detail.SUMMARY)
                if advice := snapshot.advice_on(device.device):
                    yield from first_blocks(advice, device.out_of_memory)
                return


def advice_blocks(advice: DeviceAdvice) -> Iterator[Block]:
    """All fixes in a table, and each with its evidence and change; then what was checked."""
    if not advice.advice:
        yield Prose("No check found a way to lower the peak.")
    else:
        yield Prose(_HOW, Tone.QUIET, Detail.COMMENT)
        yield _table(advice)
        if len(advice.advice) > 1:
            ends = spread(size(advice.peak_bytes), size(advice.peak_bytes - advice.together_bytes))
            falls = f": the peak falls from {ends}" if ends else ""
            saved = f"All {len(advice.advice)} together save {size(advice.together_bytes)}{falls}."
            yield Prose(saved, Tone.STRONG, Detail.SUMMARY)
        yield from (_details(number, one) for number, one in enumerate(advice.advice, 1))
    if clear := [check for check in advice.checks if isinstance(check.outcome, Clear) and check.outcome.remark]:
        yield Items(tuple(f"{one.rule.id} {one.rule.title}: no. {_remark(one.outcome)}" for one in clear))
    if rest := [one for one in advice.checks if one not in clear]:
        passed = ", ".join(_check(one) for one in rest if isinstance(one.outcome, Clear))
        if passed:
            yield Prose(f"Checked without a finding: {passed}.", Tone.QUIET)
        unknown: dict[str, list[str]] = {}
        for one in rest:
            if not isinstance(one.outcome, Clear):
                why = one.outcome.reason if isinstance(one.outcome, Skipped) else one.outcome.error
                unknown.setdefault(why, []).append(_check(one))
        for why, names in unknown.items():
            yield Prose(f"Could not check {', '.join(names)}: {why}", Tone.QUIET)


def _check(check: MemoryCheck) -> str:
    return f"{check.rule.name.replace('-', ' ')} ({check.rule.id})"


def _remark(outcome: object) -> str:
    text = getattr(outcome, "remark", None) or ""
    return f"{text[:1].upper()}{text[1:]}."


def _way(one: MemoryAdvice, missing: int) -> str:
    freed = one.saved_bytes + one.reserved_bytes
    enough = "enough for this request" if freed >= missing else "not enough alone"
    most = "up to " if one.reserved_bytes else ""
    return f"{one.fix.summary}: {most}{size(freed)}, {enough}"


def _named(one: MemoryAdvice, advice: DeviceAdvice) -> str:
    place = f", {location_words(one.locations[0])}" if one.locations else ""
    return f"{one.fix.summary}{place} ({size(one.saved_bytes)}, {_share(one, advice)})"


def _share(one: MemoryAdvice, advice: DeviceAdvice) -> str:
    return f"{percent(one.saved_bytes / max(advice.peak_bytes, 1))} of the peak"


def _table(advice: DeviceAdvice) -> Table:
    columns = titled("Fix", "Saves alone", "Adds to the fixes above", "Peak then", "Price", words=("Price",))
    peaks = accumulate((one.further_bytes for one in advice.advice), sub, initial=advice.peak_bytes)
    rows = (
        (
            Cell(one.fix.summary, remark=_places(one) or None),
            Cell(size(one.saved_bytes), remark=_share(one, advice)) if one.saved_bytes else _reserve(one),
            Cell(size(one.further_bytes) if one.saved_bytes else "not of the peak"),
            Cell(size(peak), remark=one.peak_pass and f"in the {PASS[one.peak_pass]}"),
            Cell(one.price or "none", remark=" ".join(one.caveats) or None),
        )
        for one, peak in zip(advice.advice, islice(peaks, 1, None), strict=True)
    )
    return Table("Fixes", columns, tuple(rows), layout=Layout.STACKED, detail=Detail.SUMMARY)


def _places(one: MemoryAdvice) -> str:
    return ", ".join(map(location_words, one.locations))


def _reserve(one: MemoryAdvice) -> Cell:
    return Cell(size(one.reserved_bytes), remark="of the reserve, at most") if one.reserved_bytes else Cell("no memory")


def _details(number: int, one: MemoryAdvice) -> Group:
    comment = Detail.COMMENT
    blocks: list[Block] = [Prose(_places(one), Tone.PLACE, comment)] if one.locations else []
    if one.fix.change:
        blocks.append(Code(one.fix.change, comment))
    evidence = tuple(Fact(each.label, evidence_value(each)) for each in one.evidence)
    blocks += [Facts(evidence, FactsLook.EVIDENCE, comment)]
    return Group(f"{number}. {one.fix.summary} ({one.rule.id})", tuple(blocks), detail=comment)


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
