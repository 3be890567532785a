"""Origins of time, in words and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from traceadvisor.model.location import MODULE, CodePlace, Frame, Location
from traceadvisor.model.origins import OriginRow, Origins, OtherOrigins, StackRow
from traceadvisor.model.report import Recording
from traceadvisor.rendering.charts.palette import PAINTS
from traceadvisor.rendering.document.blocks import Fold, FoldLook
from traceadvisor.rendering.document.table import Cell, Column, Table
from traceadvisor.rendering.units import count, duration, percent
from traceadvisor.rendering.words import CATEGORY
from traceadvisor.text.cleaning import clipped, clipped_inside

OTHER = "All others"
LEAST_SHARE = 0.005
"""Smallest share of the step of a category on the page; the JSON report has all."""

LONGEST_NAME = 160
"""Characters of an operator, module or place in a table."""

LONGEST_PHRASE = 160
"""Characters of a name inside a sentence."""

_INSTALLED = re.compile(r"^.*[/\\](?:site-packages|dist-packages)[/\\]|^.*[/\\]lib[/\\]python\d[\d.]*[/\\]")
"""The folder of an installation, which tells nothing about a library's file."""


def location_words(location: Location) -> str:
    """``train.py:41``, or ``train.py:41 (train)`` if only the function is known; ``train.py`` outside of functions."""
    where = f"{location.file}:{location.line}"
    if not location.is_line and location.function == MODULE:
        where = f"{location.file} (line not known: train longer)"
    elif not location.is_line and location.function is not None:
        where = f"{where} ({location.function})"
    return f"backward of {where}" if location.is_backward else where


def frame_words(frame: Frame) -> str:
    """``torch/nn/functional.py:2300 (linear)``, without the folder of the installation; ``sleep`` if written in C."""
    if frame.file is None:
        return frame.function
    return f"{_INSTALLED.sub('', frame.file)}:{frame.line} ({frame.function})"


def category_folds(recording: Recording) -> Iterator[Fold]:
    """One part for each category that takes a noticeable share of the step, largest first."""
    whole_ns = sum(origins.total_ns for origins in recording.origins.values())
    largest_first = sorted(recording.origins.items(), key=lambda item: -item[1].total_ns)
    for category, origins in largest_first:
        if origins.total_ns < LEAST_SHARE * whole_ns:
            return
        of_step = f"{CATEGORY[category]}: {duration(origins.total_ns / origins.step_count)} per step"
        title = _with_main(of_step, origins)
        yield Fold(title, tuple(_tables(origins)), look=FoldLook.ORIGIN, paint=PAINTS[category])


def finding_fold(origins: Origins | None) -> Fold | None:
    """The origins of the time of a finding; None if it claims none."""
    if origins is None:
        return None
    title = _with_main("Where this time comes from", origins, sign=": ")
    return Fold(title, tuple(_tables(origins)), look=FoldLook.ORIGIN)


def origin_phrase(origins: Origins | None) -> str | None:
    """The operator and the place with the most time; None if neither is known."""
    if origins is None or not origins.total_ns:
        return None
    operator = next((row for row in origins.operators.rows if row.name is not None), None)
    stack = next((row for row in origins.stacks.rows if row.line or row.owner), None) if origins.stacks else None
    parts = [_with_share(operator.name, operator, origins)] if operator and operator.name else []
    parts += [_with_share(place_words(stack), stack, origins)] if stack else []
    return "; ".join(parts) or None


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

    Args:
        place: the place.
        without_user: the remark beside a library's frame that no user code called.
    """
    users, owner = user_words(place), _owner_words(place)
    if users and owner:
        return _code(users, remark=f"in {clipped_inside(owner, LONGEST_NAME)}")
    if users or owner:
        return _code(users or owner, remark=None if users else without_user)
    return Cell(without_user or _NO_FRAME)


def _with_main(title: str, origins: Origins, sign: str = ", mostly ") -> str:
    named = next((row for row in origins.operators.rows if row.name is not None), None)
    return title if named is None else f"{title}{sign}{_with_share(named.name or '', named, origins)}"


def _with_share(name: str, row: OriginRow | StackRow, origins: Origins) -> str:
    return f"{clipped_inside(name, LONGEST_PHRASE)} ({percent(row.total_ns / origins.total_ns)})"


def _tables(origins: Origins) -> Iterator[Table]:
    yield _table("Operator", origins, map(_operator, origins.operators.rows), origins.operators.other)
    if origins.modules and any(row.name is not None for row in origins.modules.rows):
        yield _table("Module", origins, map(_module, origins.modules.rows), origins.modules.other)
    if stacks := origins.stacks:
        yield _table("Python stack", origins, ((place_cell(row), row) for row in stacks.rows), stacks.other)


def _table(
    title: str, origins: Origins, rows: Iterable[tuple[Cell, OriginRow | StackRow]], other: OtherOrigins
) -> Table:
    columns = (Column(title, numeric=False), Column("Count per step"), Column("Time per step"), Column("Share"))
    listed: list[tuple[Cell, OriginRow | StackRow | OtherOrigins]] = [*rows]
    if other.total_ns:
        listed.append((Cell(OTHER), other))
    return Table(f"Origin by {title.lower()}", columns, tuple((cell, *_figures(row, origins)) for cell, row in listed))


def _figures(row: OriginRow | StackRow | OtherOrigins, origins: Origins) -> tuple[Cell, ...]:
    share = row.total_ns / origins.total_ns
    return (
        Cell(count(row.count / origins.step_count)),
        Cell(duration(row.total_ns / origins.step_count)),
        Cell(percent(share)),
    )


def _operator(row: OriginRow) -> tuple[Cell, OriginRow]:
    return (Cell("outside operators") if row.name is None else _code(row.name)), row


def _module(row: OriginRow) -> tuple[Cell, OriginRow]:
    return (Cell("outside modules") if row.name is None else _code(row.name)), row


def _code(text: str, remark: str | None = None) -> Cell:
    return Cell(clipped(text, LONGEST_NAME), code=True, remark=remark)
