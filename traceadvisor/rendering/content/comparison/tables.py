"""The tables of a comparison, which every format shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from traceadvisor.model.comparison import (
    ComparedMemory,
    ComparedRun,
    Comparison,
    Difference,
    DifferenceKind,
    Differing,
    FindingChange,
    FindingState,
    FindingStatus,
    StepChange,
)
from traceadvisor.model.explanation import LineChange, LinesChange, RowChange, StepExplanation, TableChange
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.rendering.content.comparison.sentences import (
    LONGEST_VALUE,
    MOST_NAMED,
    STATUS,
    changed_sentence,
    line_words,
    missing_words,
    named_differences,
    named_values,
    signed,
    signed_percent,
    smaller_words,
    why_lost,
)
from traceadvisor.rendering.content.memory.words import CLASS
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Column, Layout, Table, cells, titled
from traceadvisor.rendering.origins import OTHER, location_words
from traceadvisor.rendering.savings import Whole, with_share
from traceadvisor.rendering.units import NOT_MEASURED, duration, number_of, size
from traceadvisor.rendering.words import CATEGORY, SEVERITY, VERDICT_CERTAINTY
from traceadvisor.text.cleaning import clipped

LONGEST_NAME = 160
"""Characters of an operator, kernel, module or place in a table."""

OPEN_ROWS = 8
"""Rows shown unfolded."""

LEAST_OTHER_SHARE = 0.0005
"""Times have three digits or more: a smaller share of the longest one changes none of them."""

HIDDEN_SHARE = 0.1
"""From this share of a row's difference on, what a side may hide among its other rows is mentioned."""

KIND = {one: one.value.capitalize() for one in DifferenceKind} | {DifferenceKind.DEVICE: "GPU"}


def _columns(first: str) -> tuple[Column, ...]:
    return titled(first, "BASE", "HEAD", "Change")


def _row(name: str, base_ns: float | None, head_ns: float | None, delta_ns: float) -> tuple[Cell, ...]:
    return cells(name, duration(base_ns), duration(head_ns), signed(delta_ns))


def _other(table: TableChange | LinesChange) -> Iterator[tuple[Cell, ...]]:
    """The row for all others; none for a rest of rounding, below the digits of the other rows."""
    other = table.other
    shown_ns = max((ns or 0.0 for row in table.rows for ns in (row.base_ns, row.head_ns)), default=0.0)
    if max(map(abs, (other.base_ns, other.head_ns, other.delta_ns))) >= LEAST_OTHER_SHARE * shown_ns:
        yield _row(OTHER, other.base_ns, other.head_ns, other.delta_ns)


def category_table(explained: StepExplanation) -> Table:
    """All categories, with the step as the sum."""
    rows = [
        _row(CATEGORY[row.category], row.base_ns, row.head_ns, row.delta_ns)
        for row in explained.categories
        if row.base_ns or row.head_ns
    ]
    step = _row("Step", explained.base_step_ns, explained.head_step_ns, explained.delta_ns)
    title, detail = "Typical recorded step by category", Detail.SUMMARY
    return Table(title, _columns("Category"), (*rows, step), is_named=True, layout=Layout.NARROW, detail=detail)


def _named(table: Table) -> Table:
    """The table below its caption."""
    return replace(table, open_rows=OPEN_ROWS, is_named=True)


def cause_tables(explained: StepExplanation) -> Iterator[Table]:
    """By line, operator, module and kernel, as far as something changed."""
    whole = explained.whole
    by_line = (
        ("Undisturbed step by line, from samples of the Python stack", explained.sampled_lines),
        ("Recorded step by line", whole.lines),
    )
    by_name = (
        ("Recorded step by operator", "Operator", whole.operators, "outside operators"),
        ("Recorded step by module", "Module", whole.modules, "outside modules"),
        ("Kernel time by kernel", "Kernel", explained.kernels, ""),
    )
    yield from (lines_table(title, table) for title, table in by_line if table and _changes(table))
    yield from (
        names_table(title, column, table, out) for title, column, table, out in by_name if table and _changes(table)
    )


def _changes(table: TableChange | LinesChange) -> bool:
    """Whether a row with a name changed."""
    return any(row.delta_ns for row in table.rows if not (isinstance(row, RowChange) and row.name is None))


def names_table(title: str, column: str, table: TableChange, outside: str) -> Table:
    """Operators, modules or kernels."""
    rows = [
        (Cell(outside) if row.name is None else Cell(clipped(row.name, LONGEST_NAME), code=True), *_times(row))
        for row in table.rows
        if row.delta_ns
    ]
    return _named(Table(title, _columns(column), (*rows, *_other(table)), detail=Detail.COMMENT))


def lines_table(title: str, table: LinesChange) -> Table:
    """Places in the code."""
    rows = [(Cell(line_words(row), code=True), *_times(row)) for row in table.rows if row.delta_ns]
    return _named(Table(title, _columns("Line"), (*rows, *_other(table)), detail=Detail.COMMENT))


def _times(row: RowChange | LineChange) -> tuple[Cell, ...]:
    hidden = row.hidden_ns > HIDDEN_SHARE * abs(row.delta_ns)
    remark = f"up to {duration(row.hidden_ns)} may be in {OTHER.lower()}" if hidden else None
    absent = "not listed" if hidden else "none"
    if isinstance(row, LineChange):
        absent = "none" if row.is_only_in_one else missing_words(row)
        remark = remark if row.error_ns is None else f"± {duration(row.error_ns)}"
    return (
        Cell(absent if row.base_ns is None else duration(row.base_ns)),
        Cell(absent if row.head_ns is None else duration(row.head_ns)),
        Cell(signed(row.delta_ns), remark=remark),
    )


def runs_table(comparison: Comparison) -> Table:
    """One row per run."""
    columns = (*_columns("Run"), Column("Verdict", numeric=False))
    rows = tuple(
        cells(run.name, *(_change(run.change) if run.change else (NOT_MEASURED,) * 4)) for run in comparison.runs
    )
    title, detail = "Runs compared", Detail.SUMMARY
    return Table(title, columns, rows, OPEN_ROWS, Layout.COMPARISON, detail=detail, noun="run")


def _change(change: StepChange) -> tuple[str, str, str, str]:
    """The step of both sides, the change, and the verdict."""
    verdict = f"{change.verdict.value}, {VERDICT_CERTAINTY[change.certainty]}"
    return duration(change.base_ns), duration(change.head_ns), signed_percent(change.change_share), verdict


def ranks_table(run: ComparedRun) -> Table | None:
    """The recorded step of each rank; None for a single one."""
    if len(run.ranks) < 2:
        return None
    rows = tuple(
        _row(rank.name, rank.explanation.base_step_ns, rank.explanation.head_step_ns, rank.explanation.delta_ns)
        for rank in run.ranks
        if rank.explanation
    )
    title, detail = "Recorded step of each rank", Detail.COMMENT
    return _named(Table(title, _columns("Rank"), rows, layout=Layout.NARROW, detail=detail, noun="rank"))


def differences_table(run: ComparedRun) -> Table | None:
    """Devices, versions and settings that differ, without those that a sentence names; None if there are no others."""
    named = named_differences(run)[:MOST_NAMED]
    named = named or [one for one in run.differences if one.what is Differing.COMMAND and changed_sentence(run)]
    others = [one for one in run.differences if one not in named or len(one.base + one.head) > 2 * LONGEST_VALUE]
    if not others:
        return None
    columns = titled("Name", "Kind", "BASE", "HEAD", words=("Kind", "BASE", "HEAD"))
    rows = tuple(cells(named_values(one)[0], KIND[one.kind], *_sides(one)) for one in others)
    title = "Other settings, versions and devices that differ"
    return _named(Table(title, columns, rows, layout=Layout.STACKED, detail=Detail.SUMMARY, noun="difference"))


def _sides(one: Difference) -> tuple[str, str]:
    """The values of both sides."""
    if one.kind is not DifferenceKind.EDIT:
        return named_values(one)[1:]
    return f"{number_of(int(one.base), 'line')} removed", f"{number_of(int(one.head), 'line')} added"


NOTED = (
    FindingStatus.NEW,
    FindingStatus.GONE,
    FindingStatus.HIDDEN,
    FindingStatus.LOST,
    FindingStatus.CHANGED,
)


def is_noted(change: FindingChange) -> bool:
    """Whether a finding changed; a part of another one that only one side has, without a sign of a change, did not."""
    states = [one for one in (change.base, change.head) if one]
    is_unchanged_part = change.sign is None and len(states) == 1 and states[0].part_of is not None
    return (change.status in NOTED or change.is_fixed) and not is_unchanged_part


def findings_table(run: ComparedRun, changes: Sequence[FindingChange], detail: Detail) -> Table:
    """The status of some findings of a run."""
    words, places = ("Status", "BASE (% of its step)", "HEAD (% of its step)"), [_where(change) for change in changes]
    where = (Column("Where", numeric=False, detail=Detail.COMMENT),) if any(places) else ()
    rows = tuple(
        (
            Cell(f"{change.rule.title} ({change.rule.id})"),
            Cell(_status(change), remark=change.reason or why_lost(change, run)),
            *(Cell(_state(change, state)) for state in (change.base, change.head)),
            *(Cell(place, code=bool(place)) for _ in where),
        )
        for change, place in zip(changes, places, strict=True)
    )
    columns = (*titled("Finding", *words, words=words), *where)
    return Table("Findings", columns, rows, layout=Layout.STACKED, detail=detail, noun="finding")


def _status(change: FindingChange) -> str:
    words = smaller_words(change)
    return f"{words[:1].upper()}{words[1:]}" if change.is_smaller else STATUS[change.status]


def _state(change: FindingChange, state: FindingState | None) -> str:
    if state is None:
        return "unknown" if change.status is FindingStatus.UNKNOWN else "none"
    severity = f"{SEVERITY[state.severity]}: " if state.severity else f"Part of {state.part_of}: "
    whole = Whole(state.of_run, of_inference=state.of_inference)
    return f"{severity}{with_share(state.saving, state.saving_share, whole=whole)}"


def _where(change: FindingChange) -> str:
    state = change.head or change.base
    places = change.places_added or (state.locations if state else ())
    more = len(places) - 1
    others = f" and {number_of(more, 'more place')}" if more > 0 else ""
    return f"{location_words(places[0])}{others}" if places else ""


def memory_table(memory: ComparedMemory) -> Table:
    """The peak of each side, and the classes of it."""
    held = [{one.kind: one.requested_bytes for one in side.classes} for side in (memory.base, memory.head)]
    rows = (
        _memory_row("Peak in use", memory.base.peak_bytes, memory.head.peak_bytes),
        *(
            _memory_row(CLASS[kind], *(side.get(kind, 0) for side in held))
            for kind in MemoryClass
            if any(kind in side for side in held)
        ),
    )
    columns = titled(f"At the peak, {memory.name}", "BASE", "HEAD", "Change")
    return Table("GPU memory at the peak", columns, rows, is_named=True, detail=Detail.SUMMARY, noun="class")


def _memory_row(name: str, base: int, head: int) -> tuple[Cell, ...]:
    change = f"{'+' if head > base else '-'}{size(abs(head - base))}" if head != base else "none"
    return cells(name, size(base), size(head), change)
