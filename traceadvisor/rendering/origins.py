"""Places in the code in words, and origins of time in words and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from traceadvisor.frozen import frozen
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import LineEdit
from traceadvisor.model.location import MODULE, CodePlace, Frame, Location
from traceadvisor.model.origins import OriginRow, Origins, OtherOrigins, StackRow
from traceadvisor.model.report import Recording
from traceadvisor.rendering.document.blocks import Fold, FoldLook, Mark, Span
from traceadvisor.rendering.document.table import Cell, Layout, Table, cells, sorted_by, titled
from traceadvisor.rendering.units import count, duration, percent
from traceadvisor.rendering.words import CATEGORY
from traceadvisor.text.cleaning import clipped, clipped_inside

OTHER = "All others"
LEAST_SHARE, LEAST_ROW = 0.005, 0.001
"""Smallest shares of the step of a category and of a row on the page; the JSON report has all."""

OPEN_ROWS = 8
LONGEST_NAME = 160
"""Characters of an operator, module or place in a table."""

OF_FINDING = " of this finding's time"
"""The whole of which an origin is a share."""

LONGEST_PHRASE = 160
"""Characters of a name inside a sentence."""

INSTALLED = re.compile(r"^.*[/\\](?:site-packages|dist-packages)[/\\]|^.*[/\\]lib[/\\]python\d[\d.]*[/\\]")
"""The folder of an installation, which tells nothing about a library's file."""


def location_words(location: Location) -> str:
    """``train.py:41``; ``train.py:41 (function train)`` if only the function is known; ``train.py`` outside of one."""
    where = f"{location.file}:{location.line}"
    if not location.is_line and location.function == MODULE:
        where = f"{location.file} ({'line not known' if location.samples is None else 'several lines'})"
    elif not location.is_line and location.function is not None:
        where = f"{where} (function {location.function})"
    return f"backward of {where}" if location.is_backward else where


def frame_words(frame: Frame) -> str:
    """``torch/nn/functional.py:2300 (linear)``, without the folder of the installation; ``sleep`` if written in C."""
    if frame.file is None:
        return frame.function
    line = "" if frame.line is None else f":{frame.line}"
    return f"{INSTALLED.sub('', frame.file)}{line} ({frame.function})"


def edit_words(edit: LineEdit, *, with_arguments: bool) -> Iterator[str | Span]:
    """Words after the line to edit: ``, which constructs the DataLoader``, or also ``: set num_workers=4 there``."""
    yield f", where {edit.through} constructs the " if edit.through else ", which constructs the "
    yield Span(edit.name, Mark.CODE)
    if not edit.is_recorded:
        yield " (found in the file, not recorded)"
    if with_arguments and edit.keywords:
        yield ": set "
        yield Span(", ".join(f"{name}={value!r}" for name, value in edit.keywords.items()), Mark.CODE)
        by = (
            f" if {edit.through} lets you pass {'it' if len(edit.keywords) == 1 else 'them'}"
            if edit.through
            else " there"
        )
        yield from (" in its ", Span(edit.takes, Mark.CODE)) if edit.takes else (by,)
        if edit.unchanged:
            yield f" ({edit.unchanged})"


def largest_first(recording: Recording) -> list[tuple[Category, Origins]]:
    """The categories that take a noticeable share of the step, with their origins."""
    least_ns = LEAST_SHARE * sum(origins.total_ns for origins in recording.origins.values())
    noticeable = (item for item in recording.origins.items() if item[1].total_ns > least_ns)
    return sorted(noticeable, key=lambda item: -item[1].total_ns)


@frozen
class OriginPart:
    """A part of some time; those of one view sum to the whole."""

    view: str
    path: tuple[str, ...]
    """Names, outermost first; empty where one is not known."""

    cell: Cell
    row: OriginRow | StackRow | OtherOrigins


LEVELS = {
    "operator": ("Operator",),
    "module": ("Module",),
    "line": ("Line of your code", "Line inside it", "Function that takes the time"),
}
"""Nouns for the names of a path, for each view."""


def origin_parts(origins: Origins) -> Iterator[OriginPart]:
    """The same time by operator, and by module and by line if these were recorded."""
    for view, table in (("operator", origins.operators), ("module", origins.modules)):
        if table and (view == "operator" or any(row.name is not None for row in table.rows)):
            for row in table.rows:
                outside = f"outside {view}s"
                cell = Cell(outside) if row.name is None else _code(row.name)
                yield OriginPart(view, (row.name or outside,), cell, row)
            yield from _others(view, table.other)
    if origins.stacks:
        for stack in origins.stacks.rows:
            yield OriginPart("line", _path(stack), place_cell(stack), stack)
        yield from _others("line", origins.stacks.other)


def _others(view: str, other: OtherOrigins) -> Iterator[OriginPart]:
    if other.total_ns:
        yield OriginPart(view, (OTHER,), Cell(OTHER), other)


def _path(place: StackRow) -> tuple[str, ...]:
    owner = _owner_words(place)
    if place.line is None or place.until:
        return user_words(place) or owner or _NO_FRAME, "", owner if place.line else ""
    return location_words(place.line), location_words(place.inner) if place.inner else "", owner


def origins_table(recording: Recording) -> Table:
    """The parts of all categories, the largest first."""
    columns = titled("Origin", "Category", "By", "Count per step", "Time per step", "Share", words=("Category", "By"))
    parts = [(CATEGORY[category], part) for category, one in largest_first(recording) for part in origin_parts(one)]
    parts.sort(key=lambda item: -item[1].row.total_ns)
    whole_ns = sum(one.total_ns for one in recording.origins.values())
    steps = max((one.step_count for one in recording.origins.values()), default=1)
    rows = [
        (part.cell, *cells(name, part.view), *_figures(part.row, whole_ns, steps))
        for name, part in parts
        if part.row.total_ns >= LEAST_ROW * whole_ns
    ]
    return Table("Origins of the step's time", columns, tuple(rows), OPEN_ROWS, Layout.STACKED, is_sortable=True)


def finding_fold(origins: Origins | None) -> Fold | None:
    """The origins of the time of a finding; None if it claims none."""
    if origins is None:
        return None
    named = next((row for row in origins.operators.rows if row.name is not None), None)
    mostly = "" if named is None else f": {_with_share(named.name or '', named, origins)}"
    columns = titled("Origin", "By", "Count per step", "Time per step", "Share", words=("By",))
    figures = (origins.total_ns, origins.step_count)
    parts = sorted(origin_parts(origins), key=lambda part: -part.row.total_ns)
    rows = ((part.cell, Cell(part.view), *_figures(part.row, *figures)) for part in parts)
    table = Table("Origins of this time", columns, tuple(rows), layout=Layout.STACKED, is_sortable=True)
    return Fold(f"Where this time comes from{mostly}", (table,), look=FoldLook.ORIGIN)


def origin_phrase(origins: Origins | None, *, is_placed: bool) -> str | None:
    """The operator and the place with the most time; None if neither is known.

    Python between operators is named by its place alone, if that is known. ``is_placed``: whether the finding names
    one.
    """
    if origins is None or not origins.total_ns:
        return None
    operator = next((row for row in origins.operators.rows if row.name is not None), None)
    stack = next((row for row in origins.stacks.rows if row.line or row.owner), None) if origins.stacks else None
    is_said = (stack is not None or is_placed) and operator is not None and operator.is_python
    parts: list[tuple[str, OriginRow | StackRow]] = [(place_words(stack), stack)] if stack else []
    if operator and operator.name and not is_said:
        parts.insert(0, (operator.name, operator))
    parts.sort(key=lambda part: -part[1].total_ns)
    wholes = (OF_FINDING, "")  # said once
    return "; ".join(_with_share(*part, origins, whole) for part, whole in zip(parts, wholes, strict=False)) or None


def place_words(place: CodePlace) -> str:
    """``train.py:41 > model.py:12, in torch/nn/functional.py:2300 (linear)``, or ``between train.py:12 and ...``."""
    return ", in ".join(part for part in (user_words(place), _owner_words(place)) if part) or _NO_FRAME


_NO_FRAME = "no Python frame recorded"


def user_words(place: CodePlace) -> str:
    """The user's lines of a place; empty if no user code runs."""
    if place.line and place.until:
        return f"between {location_words(place.line)} and {location_words(place.until)}"
    return " > ".join(location_words(line) for line in (place.line, place.inner) if line)


def _owner_words(place: CodePlace) -> str:
    return frame_words(place.owner) if place.owner else ""


def place_cell(place: CodePlace, without_user: str | None = None) -> Cell:
    """A place in a table.

    ``without_user``: the remark beside a library's frame that no user code called.
    """
    users, owner = user_words(place), _owner_words(place)
    if users and owner:
        return _code(users, remark=f"in {clipped_inside(owner, LONGEST_NAME)}")
    if users or owner:
        return _code(users or owner, remark=None if users else without_user)
    return Cell(without_user or _NO_FRAME)


def _with_share(name: str, row: OriginRow | StackRow, origins: Origins, whole: str = "") -> str:
    return f"{clipped_inside(name, LONGEST_PHRASE)} ({percent(row.total_ns / origins.total_ns)}{whole})"


def _figures(row: OriginRow | StackRow | OtherOrigins, whole_ns: int, steps: int) -> tuple[Cell, ...]:
    return (
        sorted_by(count(row.count / steps), row.count),
        sorted_by(duration(row.total_ns / steps), row.total_ns),
        sorted_by(percent(row.total_ns / whole_ns), row.total_ns),
    )


def _code(text: str, remark: str | None = None) -> Cell:
    return Cell(clipped(text, LONGEST_NAME), code=True, remark=remark)
