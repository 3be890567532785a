"""Explains the difference of two steps exactly: by category, then by operator, kernel, module and line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from traceadvisor.comparing.places import Checkout, Moves, aligned, checkout_of, key_of
from traceadvisor.model.breakdown import Category
from traceadvisor.model.explanation import (
    CategoryChange,
    LineChange,
    LinesChange,
    OriginChange,
    OtherChange,
    RowChange,
    StepExplanation,
    TableChange,
)
from traceadvisor.model.location import CodePlace
from traceadvisor.model.origins import Origins, OriginTable, StackTable
from traceadvisor.model.report import Recording

K = TypeVar("K")
"""The name of a row: an operator, a module, a kernel, or a place in the code."""

_RowsOf = Callable[[Origins], tuple[OriginTable | StackTable, list[tuple[K, int]]] | None]
"""A table of some origins, with the key and the time of each row; None where it was not recorded."""

Captures = Sequence[Sequence[Recording]]
"""Recordings of one rank: those of each capture."""

ROUNDING_SHARE = 1e-6
"""The rest that rounding leaves of a table that lists everything."""

LEAST_CHANGE_SHARE = 0.001
"""Origins of a category are compared from this change on, as a share of the longer step."""


def explain(base: Captures, head: Captures) -> StepExplanation | None:
    """The difference of the typical recorded step; each side is the mean of its captures. None without steps.

    A category that a side could not measure counts as 0, as it does in the sum of its step. The step is the sum of its
    categories, so that nothing is lost to rounding in reports that were read back.
    """
    sides = [_steady(side) for side in (base, head)]
    if not all(sides):
        return None
    moves = Moves(*(checkout_of(side[0][0]) for side in sides))
    parts = [_mean_parts(side) for side in sides]
    steps = [sum(ns or 0.0 for ns in side.values()) for side in parts]
    categories = tuple(
        CategoryChange(one, before, after, (after or 0.0) - (before or 0.0))
        for one in Category
        if one in parts[0] or one in parts[1]
        for before, after in ((parts[0].get(one), parts[1].get(one)),)
    )
    least_ns = LEAST_CHANGE_SHARE * max(steps)
    changed = [row.category for row in categories if abs(row.delta_ns) > least_ns]
    totals = [{category: side.get(category) or 0.0 for category in Category} for side in parts]
    return StepExplanation(
        base_step_ns=steps[0],
        head_step_ns=steps[1],
        delta_ns=steps[1] - steps[0],
        categories=categories,
        whole=_origins(sides, totals, tuple(Category), moves),
        by_category={category: _origins(sides, totals, (category,), moves) for category in changed},
        kernels=_kernels(sides),
        sampled_lines=_sampled(sides, moves),
    )


def _steady(side: Captures) -> list[list[Recording]]:
    """The recordings with a breakdown, by capture."""
    kept = [[one for one in capture if one.breakdown is not None] for capture in side]
    return [capture for capture in kept if capture]


def _mean_parts(side: Captures) -> dict[Category, float | None]:
    """Time per category, the mean of the captures; None where none measured it."""
    mean: dict[Category, float | None] = {}
    for capture in side:
        for recording in capture:
            if recording.breakdown is not None:
                for category, ns in recording.breakdown.parts_ns.items():
                    weighted = None if ns is None else ns / len(capture) / len(side)
                    mean[category] = _sum(mean.get(category), weighted)
    return mean


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other


def _known(
    sides: Sequence[Captures], table_of: Callable[[Recording], _Listed[K] | None]
) -> list[list[_Listed[K]]] | None:
    """The tables of the recordings of each side; None where a side has none."""
    recordings = ([recording for capture in side for recording in capture] for side in sides)
    known = [[table for one in side if (table := table_of(one)) is not None] for side in recordings]
    return known if all(known) else None


def _origins(
    sides: Sequence[Captures], totals: Sequence[Mapping[Category, float]], categories: Sequence[Category], moves: Moves
) -> OriginChange:
    """The tables of some categories together. Modules and lines need both sides to have recorded them."""
    whole = [sum(side[category] for category in categories) for side in totals]

    def listed(rows_of: _RowsOf[K], *, needs_stacks: bool = False) -> tuple[_Listed[K], _Listed[K]] | None:
        """A table of both sides; None where a side has none."""
        known = _known(sides, lambda one: _listed(one, categories, rows_of, needs_stacks=needs_stacks))
        if known is None:
            return None
        base, head = (replace(_mean_of(side), total_ns=total_ns) for side, total_ns in zip(known, whole, strict=True))
        return base, head

    operators, modules, lines = listed(_operators), listed(_modules), listed(_places, needs_stacks=True)
    return OriginChange(
        _table_change(*operators) if operators else None,
        _table_change(*modules) if modules else None,
        _lines_change(*lines, moves) if lines else None,
    )


def _operators(origins: Origins) -> tuple[OriginTable, list[tuple[str | None, int]]]:
    return origins.operators, [(row.name, row.total_ns) for row in origins.operators.rows]


def _modules(origins: Origins) -> tuple[OriginTable, list[tuple[str | None, int]]] | None:
    table = origins.modules
    return (table, [(row.name, row.total_ns) for row in table.rows]) if table else None


def _places(origins: Origins) -> tuple[StackTable, list[tuple[CodePlace, int]]] | None:
    if origins.stacks is None:
        return None
    rows = origins.stacks.rows
    places = [CodePlace(row.line, row.until, row.inner, row.owner) for row in rows]
    return origins.stacks, [(place, row.total_ns) for place, row in zip(places, rows, strict=True)]


def _listed(
    recording: Recording, categories: Sequence[Category], rows_of: _RowsOf[K], *, needs_stacks: bool
) -> _Listed[K] | None:
    """The rows of some categories of a recording, per step; None if no category has such a table."""
    rows: defaultdict[K, float] = defaultdict(float)
    found, hidden_ns, total_ns = False, 0.0, 0.0
    for category in categories:
        origins = recording.origins.get(category)
        if origins is None or (listed := rows_of(origins)) is None:
            continue
        table, times_ns = listed
        found = True
        total_ns += origins.total_ns / origins.step_count
        hidden_ns += _most_hidden(table) / origins.step_count
        for key, ns in times_ns:
            rows[key] += ns / origins.step_count
    is_recorded = any(one.stacks is not None or not needs_stacks for one in recording.origins.values())
    is_empty = not any(category in recording.origins for category in categories)
    return _Listed(total_ns, dict(rows), hidden_ns) if found or (is_empty and is_recorded) else None


def _most_hidden(table: OriginTable | StackTable) -> int:
    """The longest time that a row may take that the table leaves out."""
    if not table.other.total_ns:
        return 0
    return min((table.other.total_ns, *(row.total_ns for row in table.rows)))


def _kernels(sides: Sequence[Captures]) -> TableChange | None:
    """Kernels by name. Their times are summed, overlaps included; None where a side lists none."""
    known = _known(sides, _kernel_table)
    return _table_change(*map(_mean_of, known)) if known else None


def _kernel_table(recording: Recording) -> _Listed[str | None] | None:
    rows: defaultdict[str | None, float] = defaultdict(float)
    for row in recording.kernels:
        rows[row.name] += row.total_ns_per_step
    first = next((row for row in recording.kernels if row.share_of_kernel_time > 0), None)
    if first is None:
        return None
    listed_ns = sum(rows.values())
    total_ns = max(first.total_ns_per_step / first.share_of_kernel_time, listed_ns)
    rest_ns = total_ns - listed_ns
    return _Listed(total_ns, dict(rows), min(rest_ns, *rows.values()) if rest_ns > ROUNDING_SHARE * total_ns else 0.0)


def _sampled(sides: Sequence[Captures], moves: Moves) -> LinesChange | None:
    """Lines of the training thread in undisturbed steps; None where a side was not sampled, or has no such steps."""
    known = _known(sides, _line_table)
    if known is None:
        return None
    base, head = map(_mean_of, _with_one_path(known, moves.checkouts))
    return _lines_change(base, head, moves)


def _with_one_path(
    listed: Sequence[Sequence[_Listed[CodePlace]]], checkouts: Sequence[Checkout | None]
) -> list[list[_Listed[CodePlace]]]:
    """The tables in which a line has the same path of calls everywhere.

    A recording that spends nearly all of its steps in one call lists the lines inside it without the line of the call.
    Then these lines stand alone in all recordings.
    """
    tables = [(table, checkout) for side, checkout in zip(listed, checkouts, strict=True) for table in side]
    alone = {key_of(place, checkout) for table, checkout in tables for place in table.rows if not place.inner}

    def place_in(place: CodePlace, checkout: Checkout | None) -> CodePlace:
        short = CodePlace(place.inner, None, None, place.owner)
        return short if place.inner and key_of(short, checkout) in alone else place

    def table_in(table: _Listed[CodePlace], checkout: Checkout | None) -> _Listed[CodePlace]:
        rows, squares = defaultdict[CodePlace, float](float), defaultdict[CodePlace, float](float)
        for place, ns in table.rows.items():
            rows[place_in(place, checkout)] += ns
            squares[place_in(place, checkout)] += (table.errors_ns or {}).get(place, 0.0) ** 2
        errors = {place: square**0.5 for place, square in squares.items()}
        return replace(table, rows=dict(rows), errors_ns=None if table.errors_ns is None else errors)

    return [[table_in(table, of) for table in side] for side, of in zip(listed, checkouts, strict=True)]


def _line_table(recording: Recording) -> _Listed[CodePlace] | None:
    """The share of each line in the training steps of the run, as a part of its undisturbed step."""
    lines, step_ns = recording.run_lines, recording.undisturbed_median_step_ns
    if lines is None or step_ns is None or not lines.whole.step_ns:
        return None
    rows: defaultdict[CodePlace, float] = defaultdict(float)
    errors: defaultdict[CodePlace, float] = defaultdict(float)
    for row in lines.rows:
        ns = row.time.step_ns / lines.whole.step_ns * step_ns
        place = CodePlace(row.line, None, row.inner, row.owner)
        rows[place] += ns
        errors[place] += ns * (row.share_high - row.share_low) / 2 / row.share if row.share else 0.0
    hidden_ns = min(lines.other.step_ns, *(row.time.step_ns for row in lines.rows)) if lines.rows else 0
    return _Listed(step_ns, dict(rows), hidden_ns / lines.whole.step_ns * step_ns, dict(errors))


_MOST_ROWS = 12
"""Rows of a table of differences; the others change less."""


@dataclass(slots=True)
class _Listed(Generic[K]):
    """One side of a table, per step: the rows that it lists, and the sum with those that it leaves out."""

    total_ns: float
    rows: Mapping[K, float]
    hidden_ns: float
    """The longest time that a row may take that is not listed; 0 where all are."""

    errors_ns: Mapping[K, float] | None = None
    """Half the width of the interval of each; None for times that are no estimates."""


def _table_change(base: _Listed[str | None], head: _Listed[str | None]) -> TableChange:
    """The difference of two tables. A row that a side does not list counts as 0 there, and says what may be hidden."""
    names = dict.fromkeys((*base.rows, *head.rows))
    changes = [
        RowChange(
            name,
            base.rows.get(name),
            head.rows.get(name),
            head.rows.get(name, 0.0) - base.rows.get(name, 0.0),
            _hidden(name in base.rows, base, name in head.rows, head),
        )
        for name in names
    ]
    shown = sorted(changes, key=lambda row: -abs(row.delta_ns))[:_MOST_ROWS]
    return TableChange(tuple(shown), _other(base.total_ns, head.total_ns, shown))


def _lines_change(base: _Listed[CodePlace], head: _Listed[CodePlace], moves: Moves) -> LinesChange:
    """The same for places in the code, which are aligned first."""
    changes = []
    for pair in aligned(base.rows, head.rows, moves):
        one, other = pair.base, pair.head
        before, after = None if one is None else base.rows[one], None if other is None else head.rows[other]
        hidden_ns = _hidden(one is not None, base, other is not None, head)
        error_ns, delta_ns = _error(one, base, other, head), (after or 0.0) - (before or 0.0)
        changes.append(LineChange(one, other, before, after, delta_ns, hidden_ns, error_ns, pair.may_have_moved))
    shown = sorted(changes, key=lambda row: -abs(row.delta_ns))[:_MOST_ROWS]
    return LinesChange(tuple(shown), _other(base.total_ns, head.total_ns, shown))


def _mean_of(tables: Sequence[_Listed[K]]) -> _Listed[K]:
    rows: defaultdict[K, float] = defaultdict(float)
    squares: defaultdict[K, float] = defaultdict(float)
    for table in tables:
        for key, ns in table.rows.items():
            rows[key] += ns / len(tables)
            squares[key] += ((table.errors_ns or {}).get(key, 0.0) / len(tables)) ** 2
    errors = {key: square**0.5 for key, square in squares.items()}
    return _Listed(
        sum(table.total_ns for table in tables) / len(tables),
        dict(rows),
        max(table.hidden_ns for table in tables),
        errors if any(table.errors_ns is not None for table in tables) else None,
    )


def _hidden(in_base: bool, base: _Listed[K], in_head: bool, head: _Listed[K]) -> float:  # noqa: FBT001  # per side
    return max(0.0 if in_base else base.hidden_ns, 0.0 if in_head else head.hidden_ns)


def _error(
    one: CodePlace | None, base: _Listed[CodePlace], other: CodePlace | None, head: _Listed[CodePlace]
) -> float | None:
    if base.errors_ns is None or head.errors_ns is None:
        return None
    before = 0.0 if one is None else base.errors_ns.get(one, 0.0)
    after = 0.0 if other is None else head.errors_ns.get(other, 0.0)
    return float((before**2 + after**2) ** 0.5)


def _other(base_ns: float, head_ns: float, shown: Sequence[RowChange | LineChange]) -> OtherChange:
    before = base_ns - sum(row.base_ns or 0.0 for row in shown)
    after = head_ns - sum(row.head_ns or 0.0 for row in shown)
    return OtherChange(before, after, after - before)
