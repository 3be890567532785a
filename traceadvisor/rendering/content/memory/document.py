"""Memory snapshots as a report of their own, and as a part of a report about traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from traceadvisor.frozen import frozen
from traceadvisor.model.location import Location
from traceadvisor.model.memory_figures import (
    ClassBytes,
    DeviceMemoryFigures,
    LargeBlock,
    LineBytes,
    MemoryClass,
    SnapshotFigures,
)
from traceadvisor.model.report import SCHEMA, Report
from traceadvisor.rendering.charts.memory_layers import memory_chart
from traceadvisor.rendering.content.memory.advice import (
    advice_blocks,
    first_blocks,
    growth_blocks,
    out_of_memory_headline,
)
from traceadvisor.rendering.content.memory.words import (
    ABOUT,
    CLASS,
    EVIDENCE,
    NO_HISTORY,
    NO_STACKS,
    PASS,
    place_cell,
    place_words,
)
from traceadvisor.rendering.document.blocks import (
    Block,
    Document,
    Fact,
    Facts,
    FactsLook,
    Figure,
    Figures,
    Fold,
    FoldLook,
    Group,
    Prose,
    Section,
    Tone,
)
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Column, Layout, Table, by_column, titled
from traceadvisor.rendering.origins import location_words
from traceadvisor.rendering.units import NOT_MEASURED, count, duration, number_of, percent, size, whole_percent
from traceadvisor.rendering.words import listed

EXTRA, SUMMARY = Detail.EXTRA, Detail.SUMMARY
OPEN_LINES = 12
WORTH_NAMING_SHARE = 0.1
"""Smaller classes are not in the headline."""

LEAST_LINE_SHARE = 0.05
"""A line with less is not named first: most of the memory is not from any recorded line."""

MOST_BYTES = 12_000
"""Bytes of the longest comment, as for ten recordings; a longer one is not read."""

DEFAULTS = {"max_split_size": -1, "pinned_num_register_threads": 1}
"""Settings of the allocator that are not shown with these values."""

MOST_DRAWN = 6
"""Snapshots with a chart and tables; the comparison and the JSON report have all."""

_HOW = (
    "Requested bytes are exact: the events are undone backwards, from the blocks in use at the end. "
    "Reserved bytes include what the allocator rounds up, keeps for reuse, or cannot use. Classes come from call "
    "stacks, from when memory is freed, and from sizes; without evidence, memory stays unknown."
)


@frozen
class _Shown:
    """One device of one snapshot."""

    snapshot: SnapshotFigures
    device: DeviceMemoryFigures
    name: str
    anchor: str


def memory_document(report: Report) -> Document:
    """The document on snapshots alone."""
    shown = _shown(report)
    largest = max(shown, key=lambda one: (one.device.out_of_memory is not None, one.device.peak_bytes), default=None)
    title = report.memory[0].path.name if len(report.memory) == 1 else number_of(len(report.memory), "memory snapshot")
    details = (*_others(shown, largest), *_about(report))
    return Document(
        noun="report",
        title=title,
        window_title=f"{title} · TraceAdvisor",
        marker=SCHEMA,
        headline=memory_headline(largest, several=len(shown) > 1),
        top=tuple(_top(report, largest)),
        sections=(
            *(() if largest is None else _main_sections(largest, report.memory)),
            Section("Details", details, "details", is_details=True),
        ),
        footer=(
            Prose(f"Made by TraceAdvisor {report.tool_version}.", detail=Detail.COMMENT),
            Prose("This page is self-contained: it loads nothing, and everything on it can be read without scripts."),
        ),
        tool_version=report.tool_version,
        most_bytes=MOST_BYTES,
        last_form=f"{number_of(len(report.memory), 'memory snapshot')}. The full report has the rest.",
    )


def _main_sections(largest: _Shown, others: Sequence[SnapshotFigures]) -> Iterator[Section]:
    if advice := largest.snapshot.advice_on(largest.device.device):
        yield Section("What would lower the peak", tuple(advice_blocks(advice)), "advice")
    if growth := next((one.growth for one in (largest.snapshot, *others) if one.growth), None):
        yield Section("What would fit", tuple(growth_blocks(growth)), "fits")
    yield Section("What fills the peak", tuple(_tables(largest)), "peak")


def memory_folds(report: Report) -> Iterator[Fold]:
    """The snapshots as parts of a report about traces."""
    shown = _shown(report)
    if len(shown) > 1:
        blocks = (_comparison(shown),)
        yield Fold(
            "Memory snapshots compared", blocks, number_of(len(shown), "snapshot"), "snapshots", FoldLook.SECTION
        )
    yield from (_fold(one) for one in shown[:MOST_DRAWN])


def memory_headline(largest: _Shown | None, *, several: bool) -> str:
    """The peak, and the classes that fill most of it."""
    if largest is None:
        return "The snapshots hold no memory in use."
    peak = largest.device.peak_bytes
    in_use = (one for one in largest.device.classes if one.kind is not MemoryClass.OVERHEAD)
    parts = [one for one in in_use if one.requested_bytes >= WORTH_NAMING_SHARE * peak][:4]
    named = ", ".join(f"{whole_percent(one.requested_bytes / peak)} {CLASS[one.kind].lower()}" for one in parts)
    if ran_out := largest.device.out_of_memory:
        sentence = out_of_memory_headline(ran_out, largest.device, named)
        return f"{largest.name}: {sentence}" if several else sentence
    where = f"{largest.name}: memory" if several else "Memory"
    return f"{where} peaks at {size(peak)}{f': {named}' if named else ''}."


def _shown(report: Report) -> list[_Shown]:
    """Each device of each snapshot; their names differ."""
    names = [one.path.name for one in report.memory]
    rows: list[_Shown] = []
    for snapshot in report.memory:
        name = snapshot.path.name if names.count(snapshot.path.name) == 1 else str(snapshot.path)
        for device in snapshot.devices:
            number = len(rows) + 1
            full = f"{name}, GPU {device.device}" if len(snapshot.devices) > 1 else name
            rows.append(_Shown(snapshot, device, full, f"snapshot-{number}"))
    return rows


def _top(report: Report, largest: _Shown | None) -> Iterator[Block]:
    if largest is None:
        return
    if identity := " · ".join(_identity(largest)):
        yield Prose(identity, Tone.IDENTITY, SUMMARY)
    yield from (Prose(note, Tone.NOTICE, SUMMARY) for note in _notes(report, largest))
    yield Figures(_figures(largest.device), SUMMARY)
    if advice := largest.snapshot.advice_on(largest.device.device):
        yield from first_blocks(advice, largest.device.out_of_memory)
    yield from _largest_line(largest.device)
    if chart := memory_chart(largest.device, CLASS, f"{largest.anchor}-chart"):
        yield replace(chart, detail=SUMMARY)


def _largest_line(device: DeviceMemoryFigures) -> Iterator[Block]:
    """The user's line with the most memory at the peak, whoever calls it."""
    of_line: dict[Location, list[LineBytes]] = {}
    for one in device.lines:
        if one.place and one.place.line:
            of_line.setdefault(one.place.line, []).append(one)
    rows = max(of_line.values(), key=lambda rows: sum(one.requested_bytes for one in rows), default=[])
    total = sum(one.requested_bytes for one in rows)
    if not rows or total < LEAST_LINE_SHARE * device.peak_bytes:
        return
    callers = {location_words(one.place.callers[0]) for one in rows if one.place and one.place.callers}
    called = f", called from {listed(sorted(callers), 2)}" if callers else ""
    share = f"{size(total)}, {percent(total / device.peak_bytes)} of the peak"
    yield Prose(f"The line with the most memory: {place_words(rows[0].place)}{called} ({share}).", Tone.ACTION, SUMMARY)


def _identity(shown: _Shown) -> Iterator[str]:
    if len(shown.snapshot.devices) > 1:
        yield f"GPU {shown.device.device} of {len(shown.snapshot.devices)}"
    configured = (shown.snapshot.settings or {}).get("PYTORCH_CUDA_ALLOC_CONF")
    if configured:
        yield f"PYTORCH_CUDA_ALLOC_CONF={configured}"


def _notes(report: Report, shown: _Shown) -> Iterator[str]:
    if not shown.snapshot.events:
        yield NO_HISTORY
    elif not shown.snapshot.has_stacks:
        yield NO_STACKS
    if shown.snapshot.host_events:
        yield f"Not read: {number_of(shown.snapshot.host_events, 'event')} of the CPU's pinned memory."
    yield from _unmatched(shown.device)
    yield from (row.note.message for row in report.health_notes if row.note.degrades)


def _unmatched(device: DeviceMemoryFigures) -> Iterator[str]:
    if device.unmatched:
        yield (
            f"{number_of(device.unmatched, 'block')} and the recorded allocations do not agree. "
            "Levels over time may be wrong by their size."
        )


def _figures(device: DeviceMemoryFigures) -> tuple[Figure, ...]:
    at = None if device.peak_ns is None else f"{duration(device.peak_ns)} after the first event"
    if device.peak_ns is None and device.instants > 1:
        at = f"after event {count(device.peak_instant)} of {count(device.instants - 1)}"
    if device.peak_pass:
        at = f"{at}, in the {PASS[device.peak_pass]}" if at else f"in the {PASS[device.peak_pass]}"
    return (
        Figure("Peak in use", size(device.peak_bytes), at),
        Figure(
            "Reserved at the peak", size(device.reserved_at_peak_bytes), f"at most {size(device.peak_reserved_bytes)}"
        ),
        Figure("Before the recording", size(device.before_bytes)),
        Figure("In use at the end", size(device.final_bytes)),
        *((_capacity(device, device.capacity_bytes),) if device.capacity_bytes else ()),
    )


def _capacity(device: DeviceMemoryFigures, capacity: int) -> Figure:
    share = f"{whole_percent(device.peak_reserved_bytes / capacity)} reserved at most"
    return Figure("Memory of the GPU", size(capacity), f"{device.name}, {share}" if device.name else share)


def _tables(shown: _Shown) -> Iterator[Block]:
    device = shown.device
    yield _classes(device)
    lines = _lines(device)
    yield Group(lines.caption, (Prose(_WHOSE, Tone.QUIET), lines), detail=Detail.COMMENT)
    blocks = _blocks(shown)
    yield Group(blocks.caption, (blocks,))


_WHOSE = (
    "Memory at the peak by the innermost line of your code that asked for it, and the library function below it. "
    "Memory of the backward pass has no Python stack, so its rows name the node of the backward pass."
)


def _classes(device: DeviceMemoryFigures) -> Table:
    columns = titled("Class", "At the peak", "Share of the peak", "Allocations")
    rows = tuple(
        (Cell(CLASS[one.kind], remark=_evidence(one)), Cell(size(one.requested_bytes)), *_shares(one, device))
        for one in device.classes
    )
    return Table("What fills the peak", columns, rows, layout=Layout.STACKED, detail=Detail.COMMENT)


def _shares(one: ClassBytes, device: DeviceMemoryFigures) -> tuple[Cell, Cell]:
    if one.kind is MemoryClass.OVERHEAD:
        return Cell(f"not part of the {size(device.peak_bytes)}"), Cell("-")
    weights = next((other.allocations for other in device.classes if other.kind is MemoryClass.PARAMETERS), 0)
    is_whole = one.kind is MemoryClass.OPTIMIZER_STATE and weights > 1 and not one.allocations % weights
    each = f"{one.allocations // weights} for each parameter" if is_whole else None
    return Cell(percent(one.requested_bytes / device.peak_bytes)), Cell(count(one.allocations), remark=each)


def _evidence(one: ClassBytes) -> str:
    if one.kind is MemoryClass.OVERHEAD:
        return "reserved, but not in use by tensors"
    parts = sorted(one.evidence.items(), key=lambda item: -item[1])
    if len(parts) == 1:
        return EVIDENCE[parts[0][0]]
    return "; ".join(f"{EVIDENCE[kind]} ({size(held)})" for kind, held in parts)


def _lines(device: DeviceMemoryFigures) -> Table:
    columns: Mapping[str, Callable[[LineBytes], Cell]] = {
        "Line": lambda one: place_cell(one.place),
        "Class": lambda one: Cell(CLASS[one.kind]),
        "At the peak": lambda one: Cell(size(one.requested_bytes), value=str(one.requested_bytes)),
        "Share": lambda one: Cell(percent(one.requested_bytes / device.peak_bytes), value=str(one.requested_bytes)),
        "Allocations": lambda one: Cell(count(one.allocations)),
        "Operator": lambda one: Cell(one.place.operator, code=True) if one.place and one.place.operator else Cell("-"),
    }
    parts = by_column(columns, device.lines, ("Class", "Operator"))
    table = Table("Whose memory it is", *parts, OPEN_LINES, Layout.STACKED, is_sortable=True)
    return replace(table, detail=Detail.COMMENT, noun="line")


def _blocks(shown: _Shown) -> Table:
    def when(time_ns: int | None, otherwise: str) -> Cell:
        if time_ns is None:
            return Cell(otherwise if shown.snapshot.has_times else NOT_MEASURED)
        return Cell(duration(time_ns))

    columns: Mapping[str, Callable[[LargeBlock], Cell]] = {
        "Line": lambda one: place_cell(one.place),
        "Class": lambda one: Cell(CLASS[one.kind]),
        "Requested": lambda one: Cell(
            (f"{count(one.allocations)} x " if one.allocations > 1 else "") + size(one.requested_bytes)
        ),
        "First allocated": lambda one: when(one.allocated_ns, "before the recording"),
        "Last freed": lambda one: when(one.freed_ns, "in use at the end"),
    }
    parts = by_column(columns, shown.device.blocks, ("Class",))
    return Table("Largest blocks at the peak", *parts, layout=Layout.STACKED)


def _comparison(shown: Sequence[_Shown]) -> Table:
    kinds = [kind for kind in MemoryClass if any(_held(one, kind) for one in shown)]
    columns = (*titled("Snapshot", "Peak in use"), *(Column(CLASS[kind], detail=Detail.COMMENT) for kind in kinds))
    rows = tuple(
        (Cell(one.name), Cell(size(one.device.peak_bytes)), *(Cell(size(_held(one, kind))) for kind in kinds))
        for one in shown
    )
    return Table(
        "Snapshots compared", columns, rows, layout=Layout.WIDE, is_named=True, detail=SUMMARY, noun="snapshot"
    )


def _held(shown: _Shown, kind: MemoryClass) -> int:
    return sum(one.requested_bytes for one in shown.device.classes if one.kind is kind)


def _fold(shown: _Shown) -> Fold:
    headline = memory_headline(shown, several=False)
    blocks = tuple(_device_blocks(shown))
    return Fold(f"Memory snapshot {shown.name}", blocks, headline, shown.anchor, FoldLook.SECTION, Detail.COMMENT)


def recording_blocks(memory: SnapshotFigures, anchor: str) -> Iterator[Block]:
    """The memory of a recording's device, as a snapshot shows it."""
    for device in memory.devices:
        shown = _Shown(memory, device, "", anchor)
        yield Prose(memory_headline(shown, several=False), Tone.STRONG)
        yield from map(Prose, _unmatched(device))
        yield from _device_blocks(shown)


def _device_blocks(shown: _Shown) -> Iterator[Block]:
    yield Figures(_figures(shown.device))
    if chart := memory_chart(shown.device, CLASS, f"{shown.anchor}-chart"):
        yield chart
    if advice := shown.snapshot.advice_on(shown.device.device):
        yield Group("What would lower the peak", tuple(advice_blocks(advice)))
    if growth := shown.snapshot.growth:
        yield Group("What would fit", tuple(growth_blocks(growth)))
    yield from _tables(shown)


def _others(shown: Sequence[_Shown], largest: _Shown | None) -> Iterator[Block]:
    if len(shown) > 1:
        yield _comparison(shown)
    rest = [one for one in shown if one is not largest]
    yield from map(_fold, rest[: MOST_DRAWN - 1])
    if len(rest) >= MOST_DRAWN:
        yield Prose(f"{number_of(len(rest) - MOST_DRAWN + 1, 'more snapshot')}: see the JSON report.", Tone.NOT_DRAWN)


def _about(report: Report) -> Iterator[Block]:
    facts = [Fact("Path", str(path)) for path in report.source.paths]
    facts += [Fact("Allocator events", count(one.events)) for one in report.memory]
    settings = {key: value for one in report.memory for key, value in (one.settings or {}).items()}
    facts += [
        Fact(key, str(value)) for key, value in settings.items() if value not in ("", False, None, DEFAULTS.get(key))
    ]
    notes = [row.note.message for row in report.health_notes]
    devices = [device for one in report.memory for device in one.devices]
    kinds = {one.kind for device in devices for one in device.classes}
    kinds.update(kind for device in devices if device.over_time for kind in device.over_time.requested_bytes)
    terms = tuple(Fact(CLASS[kind], ABOUT[kind]) for kind in MemoryClass if kind in kinds)
    blocks: list[Block] = [Prose(_HOW, detail=EXTRA), Facts(terms, FactsLook.DEFINITIONS, EXTRA), Facts(tuple(facts))]
    blocks += [Prose(note, Tone.QUIET) for note in notes]
    yield Fold("How these figures are made", tuple(blocks), None, "method", FoldLook.SECTION, EXTRA)
