"""Tables as the templates show them."""

from __future__ import annotations

from dataclasses import replace

from traceadvisor.frozen import frozen
from traceadvisor.rendering.units import NOT_MEASURED


@frozen
class Column:
    """A column title; numeric columns are right-aligned."""

    title: str
    numeric: bool = True


@frozen
class More:
    """Lines that unfold below the text of a cell."""

    title: str
    lines: tuple[str, ...]


@frozen
class Cell:
    """One table cell."""

    text: str
    href: str | None = None
    """A link within the page, ``#...``."""

    bar: str | None = None
    """Length of a bar below the figure, ``12.5%``."""

    code: bool = False
    remark: str | None = None
    """A second line, in smaller grey text."""

    depth: int = 0
    """How far the text is indented, in a tree."""

    more: More | None = None
    """What unfolds below the text."""

    value: str | None = None
    """What a table is sorted by: a number, or ``""`` if it was not measured; None for its text."""

    @property
    def missing(self) -> bool:
        """Whether the value was not measured."""
        return self.text == NOT_MEASURED


@frozen
class Table:
    """Columns and rows; rows after the first ``open_rows`` are folded."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    open_rows: int | None = None

    @property
    def leading(self) -> tuple[tuple[Cell, ...], ...]:
        """The rows shown unfolded."""
        return self.rows[: self.open_rows]

    @property
    def folded(self) -> tuple[tuple[Cell, ...], ...]:
        """The folded rows."""
        return () if self.open_rows is None else self.rows[self.open_rows :]

    @property
    def folded_title(self) -> str:
        """The label of the folded part."""
        return f"{len(self.folded)} more"


def measured_columns(table: Table) -> Table:
    """The table without columns that contain only unmeasured values."""
    if not table.rows:
        return table
    kept = [place for place, _ in enumerate(table.columns) if not all(row[place].missing for row in table.rows)]
    return replace(
        table,
        columns=tuple(table.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
    )


def cells(*texts: str) -> tuple[Cell, ...]:
    """A row of plain text cells."""
    return tuple(map(Cell, texts))
