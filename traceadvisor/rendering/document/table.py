"""Tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TypeVar

from traceadvisor.frozen import frozen, replace
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.units import NOT_MEASURED, duration, number_of

T = TypeVar("T")


@frozen
class Column:
    """A column title; numeric columns are right-aligned."""

    title: str
    numeric: bool = True
    detail: Detail = Detail.SUMMARY
    """Formats with less room leave the column out."""


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
    """Lines that unfold below the text."""

    value: str | None = None
    """Sort key: a number, or ``""`` if it was not measured; None for its text."""

    @property
    def missing(self) -> bool:
        """Whether the value was not measured."""
        return self.text == NOT_MEASURED


class Layout(Enum):
    """How wide the columns of a table are."""

    PROSE = "prose"
    NARROW = "narrow"
    WIDE = "wide"
    STACKED = "wide stacked"
    """Wide, and on a narrow screen each row is a block with a line for each cell."""

    DATA = "data"
    COMPARISON = "comparison"
    ARMS = "comparison stacked"
    REASONS = "reasons"
    BY_RECORDING = "prose by-recording"


@frozen
class Table:
    """Columns and rows. With ``open_rows``, those after are folded; otherwise the data of a chart are folded whole."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    open_rows: int | None = None
    layout: Layout = Layout.PROSE
    is_sortable: bool = False
    is_named: bool = False
    """Whether the caption stands above the table, because no title does."""

    detail: Detail = Detail.PAGE
    noun: str = "row"
    """The noun for a row where some are left out."""

    left_out: int = 0
    """Rows that only the JSON has."""

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
        return number_of(len(self.folded), f"more {self.noun}")

    @property
    def folded_note(self) -> str:
        """The sentence in the place of the folded part on paper."""
        return f"{self.folded_title} in the HTML report."

    @property
    def continued(self) -> str:
        """The caption of the folded part."""
        return f"{self.caption}, continued"


def titled(*titles: str, words: Sequence[str] = ()) -> tuple[Column, ...]:
    """Columns by their titles: the first one and those in ``words`` hold words, the others figures."""
    return tuple(Column(title, numeric=place > 0 and title not in words) for place, title in enumerate(titles))


def by_column(
    columns: Mapping[str, Callable[[T], Cell]], rows: Iterable[T], words: Sequence[str] = ()
) -> tuple[tuple[Column, ...], tuple[tuple[Cell, ...], ...]]:
    """Columns and rows of a table, by what makes the cell of each column; ``words`` as :func:`titled` takes them."""
    return titled(*columns, words=words), tuple(tuple(cell(row) for cell in columns.values()) for row in rows)


def with_columns(table: Table, places: Sequence[int]) -> Table:
    """The table with some of its columns."""
    return replace(
        table,
        columns=tuple(table.columns[place] for place in places),
        rows=tuple(tuple(row[place] for place in places) for row in table.rows),
    )


def within_depth(table: Table, depth: Detail) -> Table:
    """The table without columns for which a format has no room."""
    return with_columns(table, [place for place, column in enumerate(table.columns) if column.detail <= depth])


def measured_columns(table: Table) -> Table:
    """The table without columns that contain only unmeasured values."""
    if not table.rows:
        return table
    kept = [place for place, _ in enumerate(table.columns) if not all(row[place].missing for row in table.rows)]
    return with_columns(table, kept)


def cells(*texts: str) -> tuple[Cell, ...]:
    """A row of plain text cells."""
    return tuple(map(Cell, texts))


def sorted_by(text: str, value: float | None) -> Cell:
    """A figure that the reader can sort by."""
    return Cell(text, value=sort_key(value))


def timed(ns: float | None) -> Cell:
    """A time that the reader can sort by."""
    return sorted_by(duration(ns), ns)


def sort_key(value: float | None) -> str:
    """The value for sorting, in few digits; empty if it was not measured."""
    return "" if value is None else f"{value:.4g}"
