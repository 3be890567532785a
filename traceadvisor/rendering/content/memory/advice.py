"""What would lower the peak of a device's memory: in a line, and as a table with evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceadvisor.model.findings import Clear
from traceadvisor.model.memory_advice import DeviceAdvice, MemoryAdvice
from traceadvisor.model.memory_figures import DeviceMemoryFigures, OutOfMemory, SnapshotFigures
from traceadvisor.rendering.document.blocks import Block, Code, Fact, Facts, FactsLook, Group, Items, Prose, Tone
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Column, Layout, Table
from traceadvisor.rendering.origins import location_words
from traceadvisor.rendering.units import evidence_value, percent, size

CHEAPEST = 3

_HOW = (
    "Each fix is tried on the recorded allocations: they are replayed with the change, and the peaks are compared. "
    "Fixes without a price stand first."
)


def out_of_memory_headline(ran_out: OutOfMemory, device: DeviceMemoryFigures, filled: str) -> str:
    """What was asked for and what was there."""
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
        first = advice.advice[0]
        yield Prose(f"First fix: {first.fix.summary} ({_saved(first, advice)}).", Tone.ACTION, Detail.SUMMARY)


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
        yield _table(advice)
        yield Prose(_HOW, Tone.QUIET)
        yield from (_details(number, one) for number, one in enumerate(advice.advice, 1))
    if clear := [check for check in advice.checks if isinstance(check.outcome, Clear) and check.outcome.remark]:
        yield Items(tuple(f"{one.rule.id} {one.rule.title}: no. {_remark(one.outcome)}" for one in clear))
    rest = [one.rule.id for one in advice.checks if one not in clear]
    if rest:
        yield Prose(f"Checked without a finding: {', '.join(rest)}.", Tone.QUIET, Detail.COMMENT)


def _remark(outcome: object) -> str:
    text = getattr(outcome, "remark", None) or ""
    return f"{text[:1].upper()}{text[1:]}."


def _way(one: MemoryAdvice, missing: int) -> str:
    freed = one.saved_bytes + one.reserved_bytes
    enough = "enough for this request" if freed >= missing else "not enough alone"
    most = "up to " if one.reserved_bytes else ""
    return f"{one.fix.summary}: {most}{size(freed)}, {enough}"


def _saved(one: MemoryAdvice, advice: DeviceAdvice) -> str:
    return f"{size(one.saved_bytes)}, {percent(one.saved_bytes / max(advice.peak_bytes, 1))} of the peak"


def _table(advice: DeviceAdvice) -> Table:
    columns = (
        Column("Fix", numeric=False),
        Column("Saves alone"),
        Column("After those above"),
        Column("Price", numeric=False, detail=Detail.COMMENT),
    )
    rows = [
        (
            Cell(one.fix.summary, remark=", ".join(location_words(place) for place in one.locations) or None),
            Cell(_saved(one, advice) if one.saved_bytes else _reserve(one)),
            Cell(size(one.further_bytes) if one.saved_bytes else "not of the peak"),
            Cell(one.price or "none"),
        )
        for one in advice.advice
    ]
    left = size(advice.peak_bytes - advice.together_bytes)
    total = (Cell("All of them"), Cell(size(advice.together_bytes)), Cell(f"{left} left"), Cell(""))
    return Table("Fixes", columns, (*rows, total), layout=Layout.WIDE, detail=Detail.SUMMARY)


def _reserve(one: MemoryAdvice) -> str:
    return f"up to {size(one.reserved_bytes)} of the reserve" if one.reserved_bytes else "no memory"


def _details(number: int, one: MemoryAdvice) -> Group:
    blocks: list[Block] = [
        Facts(tuple(Fact(each.label, evidence_value(each)) for each in one.evidence), FactsLook.EVIDENCE)
    ]
    if one.fix.change:
        blocks.append(Code(one.fix.change))
    notes = (*([one.price] if one.price else []), *one.caveats)
    blocks += [Prose(note, Tone.QUIET) for note in notes]
    return Group(f"{number}. {one.fix.summary} ({one.rule.id})", tuple(blocks), detail=Detail.COMMENT)
