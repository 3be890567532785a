"""An experiment as plain text for a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.model.experiment import SCHEMA, ExperimentResult
from traceadvisor.rendering.experiment.view import ExperimentView, experiment_view
from traceadvisor.rendering.formats import MARKER
from traceadvisor.rendering.markdown.render import escaped, fenced
from traceadvisor.rendering.table import Cell, Table

WIDEST = 40
"""Columns of a terminal for one column of a table; a longer text goes on in its row."""


def summary(result: ExperimentResult) -> list[str]:
    """Lines for a terminal."""
    view = experiment_view(result)
    lines = [view.headline, view.scope, *([view.problem] if view.problem else [])]
    if view.lines:
        lines += ["", "To paste:", *(f"  {line}" for line in view.lines)]
    if view.ledger:
        lines += ["", "Predicted and measured step time, as a share of the step as it is:", *_plain(view.ledger)]
    for section in view.sections:
        lines += ["", section.title, *([section.base] if section.base else []), *section.sentences]
        lines += list(_plain(section.table))
    rest = [*view.notes, *(f"Not measured: {one}" for one in view.unavailable), *view.side_effects]
    return [*lines, "", *rest]


def _plain(table: Table) -> Iterator[str]:
    """A table with aligned columns."""
    rows = [[column.title for column in table.columns], *([_one_line(cell) for cell in row] for row in table.rows)]
    widths = [min(max(len(row[place]) for row in rows), WIDEST) for place in range(len(table.columns))]
    for row in rows:
        aligned = (
            text.rjust(width) if column.numeric else text.ljust(width)
            for text, width, column in zip(row, widths, table.columns, strict=True)
        )
        yield f"  {'  '.join(aligned)}".rstrip()


def _one_line(cell: Cell) -> str:
    return f"{cell.text} ({cell.remark})" if cell.remark and cell.text else cell.text


def render(result: ExperimentResult) -> bytes:
    """As Markdown, UTF-8."""
    return "\n".join(_markdown(experiment_view(result))).encode() + b"\n"


def _markdown(view: ExperimentView) -> Iterator[str]:
    yield f"<!-- {MARKER} {SCHEMA} -->"
    yield f"### {escaped(view.headline)}"
    yield ""
    yield str(escaped(view.scope))
    if view.problem:
        yield f"\n{escaped(view.problem)}"
    if view.lines:
        yield f"\n{fenced(chr(10).join(view.lines))}"
    if view.ledger:
        yield "\n#### Predicted and measured step time\n"
        yield from _table(view.ledger)
    for section in view.sections:
        yield f"\n#### {escaped(section.title)}\n"
        for sentence in (*([section.base] if section.base else []), *section.sentences):
            yield f"{escaped(sentence)}  "
        yield ""
        yield from _table(section.table)
    yield ""
    for line in (*view.reading, *view.notes, *(f"Not measured: {one}" for one in view.unavailable), *view.side_effects):
        yield f"- {escaped(line)}"


def _table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(column.title for column in table.columns)} |"
    yield f"| {' | '.join('---:' if column.numeric else '---' for column in table.columns)} |"
    for row in table.rows:
        yield f"| {' | '.join(_cell(cell) for cell in row)} |"


def _cell(cell: Cell) -> str:
    text = str(escaped(cell.text))
    return f"{text}<br>{escaped(cell.remark)}" if cell.remark else text
