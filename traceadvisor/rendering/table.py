"""Tables as the templates read them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from traceadvisor.rendering.units import NOT_MEASURED


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and whether figures stand below it."""

    title: str
    numeric: bool = True


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure or text."""

    text: str
    href: str | None = None
    """A place in the same page, ``#...``."""

    bar: str | None = None
    """Length of a bar drawn below the figure, ``12.5%``."""

    code: bool = False
    remark: str | None = None
    """A second, quieter line."""

    @property
    def missing(self) -> bool:
        """Whether it stands for something that was not measured."""
        return self.text == NOT_MEASURED


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings; rows after the first ``open_rows`` are folded away."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    open_rows: int | None = None

    @property
    def leading(self) -> tuple[tuple[Cell, ...], ...]:
        """The rows in the open."""
        return self.rows[: self.open_rows]

    @property
    def folded(self) -> tuple[tuple[Cell, ...], ...]:
        """The rest."""
        return () if self.open_rows is None else self.rows[self.open_rows :]

    @property
    def folded_title(self) -> str:
        """What the fold says."""
        return f"{len(self.folded)} more"


def measured_columns(table: Table) -> Table:
    """The table without columns in which nothing was measured."""
    if not table.rows:
        return table
    kept = [place for place, _ in enumerate(table.columns) if not all(row[place].missing for row in table.rows)]
    return replace(
        table,
        columns=tuple(table.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
    )


def cells(*texts: str) -> tuple[Cell, ...]:
    """A row of plain texts."""
    return tuple(map(Cell, texts))
