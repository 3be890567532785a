"""Differences of two tables: the rows that changed most, and all others exactly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from traceadvisor.comparing.places import aligned
from traceadvisor.model.explanation import (
    LineChange,
    LinesChange,
    OtherChange,
    RowChange,
    TableChange,
)
from traceadvisor.model.location import CodePlace

MOST_ROWS = 12
"""Rows of a table of differences; the others change less."""


@dataclass(slots=True)
class Listed:
    """One side of a table, per step: the rows that it lists, and the sum with those that it leaves out."""

    total_ns: float
    rows: Mapping[str | None, float] = field(default_factory=dict)
    hidden_ns: float = 0.0
    """The longest time that a row may take that is not listed; 0 where all are."""


@dataclass(slots=True)
class ListedPlaces:
    """One side of a table of places, per step."""

    total_ns: float
    rows: Mapping[CodePlace, float] = field(default_factory=dict)
    hidden_ns: float = 0.0
    errors_ns: Mapping[CodePlace, float] | None = None
    """Half the width of the interval of each; None for times that are no estimates."""


def table_change(base: Listed, head: Listed) -> TableChange:
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
    shown = sorted(changes, key=lambda row: -abs(row.delta_ns))[:MOST_ROWS]
    return TableChange(tuple(shown), _other(base.total_ns, head.total_ns, shown))


def lines_change(base: ListedPlaces, head: ListedPlaces, base_root: str | None, head_root: str | None) -> LinesChange:
    """The same for places in the code, which are aligned first."""
    changes = []
    for one, other in aligned(base.rows, head.rows, base_root, head_root):
        before, after = None if one is None else base.rows[one], None if other is None else head.rows[other]
        hidden_ns = _hidden(one is not None, base, other is not None, head)
        error_ns = _error(one, base, other, head)
        changes.append(LineChange(one, other, before, after, (after or 0.0) - (before or 0.0), hidden_ns, error_ns))
    shown = sorted(changes, key=lambda row: -abs(row.delta_ns))[:MOST_ROWS]
    return LinesChange(tuple(shown), _other(base.total_ns, head.total_ns, shown))


def mean_of(tables: Sequence[Listed]) -> Listed:
    """The mean of some captures' tables."""
    rows: defaultdict[str | None, float] = defaultdict(float)
    for table in tables:
        for name, ns in table.rows.items():
            rows[name] += ns / len(tables)
    return Listed(_mean(table.total_ns for table in tables), dict(rows), max(table.hidden_ns for table in tables))


def mean_of_places(tables: Sequence[ListedPlaces]) -> ListedPlaces:
    """The mean of some captures' tables of places."""
    rows: defaultdict[CodePlace, float] = defaultdict(float)
    errors: defaultdict[CodePlace, float] = defaultdict(float)
    for table in tables:
        for place, ns in table.rows.items():
            rows[place] += ns / len(tables)
            errors[place] += ((table.errors_ns or {}).get(place, 0.0) / len(tables)) ** 2
    known = {place: square**0.5 for place, square in errors.items()}
    has_errors = any(table.errors_ns is not None for table in tables)
    return ListedPlaces(
        _mean(table.total_ns for table in tables),
        dict(rows),
        max(table.hidden_ns for table in tables),
        known if has_errors else None,
    )


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def _hidden(in_base: bool, base: Listed | ListedPlaces, in_head: bool, head: Listed | ListedPlaces) -> float:  # noqa: FBT001  # per side
    return max(0.0 if in_base else base.hidden_ns, 0.0 if in_head else head.hidden_ns)


def _error(one: CodePlace | None, base: ListedPlaces, other: CodePlace | None, head: ListedPlaces) -> float | None:
    if base.errors_ns is None or head.errors_ns is None:
        return None
    before = 0.0 if one is None else base.errors_ns.get(one, 0.0)
    after = 0.0 if other is None else head.errors_ns.get(other, 0.0)
    return float((before**2 + after**2) ** 0.5)


def _other(base_ns: float, head_ns: float, shown: Sequence[RowChange | LineChange]) -> OtherChange:
    before = base_ns - sum(row.base_ns or 0.0 for row in shown)
    after = head_ns - sum(row.head_ns or 0.0 for row in shown)
    return OtherChange(before, after, after - before)
