"""A comparison as a pull request comment: one sentence, a short table, three findings, and the rest folded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from traceadvisor.frozen import frozen
from traceadvisor.model.comparison import ComparedRun, Comparison
from traceadvisor.rendering.comparison.sentences import (
    cause_sentence,
    certainty_sentences,
    deciding_run,
    explanation_of,
    finding_sentence,
    headline,
    prediction_sentence,
    verdict_sentence,
)
from traceadvisor.rendering.comparison.tables import (
    category_table,
    cause_tables,
    differences_table,
    findings_table,
    noted_findings,
    predictions_table,
    ranks_table,
    runs_table,
    short_table,
)
from traceadvisor.rendering.formats import COMPARISON_MARKER
from traceadvisor.rendering.markdown.render import environment, escaped
from traceadvisor.rendering.table import Cell, Table
from traceadvisor.rendering.units import number_of
from traceadvisor.results.redaction import shortened
from traceadvisor.text.cleaning import clipped

MOST_ROWS = 6
"""Rows of the table above the findings."""

TOP_FINDINGS = 3

BYTES_OF_ONE, BYTES_PER_RUN, MOST_BYTES = 6_000, 1_500, 60_000
"""Largest comment on one run, what each further run adds, and the largest of all: forges refuse 65,536 characters."""


@frozen
class Room:
    """Limits on the size of the comment."""

    rows: int
    """Rows per folded table."""

    characters: int
    """Characters per text."""

    runs: int
    """Runs with tables of their own."""


ROOMS = (
    Room(12, 300, 40),
    Room(8, 240, 30),
    Room(6, 160, 20),
    Room(5, 110, 12),
    Room(4, 80, 8),
    Room(3, 70, 4),
    Room(2, 60, 2),
    Room(1, 50, 1),
    Room(0, 50, 1),
)
"""Sizes to try in turn."""


@frozen
class Fold:
    """A folded table or list; ``cut`` says how much is left out, if anything."""

    title: str
    table: Table | None = None
    items: tuple[str, ...] = ()
    cut: str | None = None


@frozen
class CommentView:
    """All content of the comment."""

    headline: str
    cautions: tuple[str, ...]
    """Different devices first."""

    table: Table | None
    table_cut: str | None
    cause: str | None
    findings: tuple[str, ...]
    findings_cut: str | None
    predictions: tuple[str, ...]
    certainty: tuple[str, ...]
    folds: tuple[Fold, ...]
    tool_version: str


def render(comparison: Comparison) -> bytes:
    """Render the comment as UTF-8, no longer than :func:`most_bytes`; it begins with its hidden marker."""
    most = most_bytes(len(comparison.runs))
    for room in ROOMS:
        content = _text(comment_view(shortened(comparison, 4 * room.characters), room)).encode()
        if len(content) <= most:
            return content
    sentence = escaped(clipped(headline(shortened(comparison, 100)), 400))
    return f"<!-- {COMPARISON_MARKER} -->\n### {sentence}\n\nThe full comparison has the rest.\n".encode()


def most_bytes(runs: int) -> int:
    """The size of the largest comment on so many runs."""
    return min(BYTES_OF_ONE + BYTES_PER_RUN * (max(runs, 1) - 1), MOST_BYTES)


def _text(view: CommentView) -> str:
    return environment().get_template("comparison.md.j2").render(view=view, marker=COMPARISON_MARKER)


def comment_view(comparison: Comparison, room: Room) -> CommentView:
    """The content of the comment, cut to the given size."""
    run = deciding_run(comparison)
    longest = max(room.characters, 160)
    noted = noted_findings(run) if run else []
    several = len(comparison.runs) > 1
    table = runs_table(comparison, MOST_ROWS) if several else short_table(run, MOST_ROWS) if run else None
    return CommentView(
        headline=clipped(headline(comparison), 2 * longest),
        cautions=tuple(clipped(text, longest) for text in (run.cautions if run else ())),
        table=_cut(table, MOST_ROWS, room.characters) if table else None,
        table_cut=_more(len(comparison.runs) - MOST_ROWS, "run") if several else None,
        cause=_cause(run, longest),
        findings=tuple(clipped(finding_sentence(one), longest) for one in noted[:TOP_FINDINGS]),
        findings_cut=_more(len(noted) - TOP_FINDINGS, "finding"),
        predictions=tuple(clipped(prediction_sentence(one), longest) for one in (run.predictions if run else ())[:2]),
        certainty=tuple(certainty_sentences(run.change)) if run and run.change else (),
        folds=tuple(_folds(comparison, run, room)),
        tool_version=comparison.tool_version,
    )


def _cause(run: ComparedRun | None, longest: int) -> str | None:
    sentence = cause_sentence(run) if run else None
    return None if sentence is None else clipped(sentence, 2 * longest)


def _folds(comparison: Comparison, decides: ComparedRun | None, room: Room) -> Iterator[Fold]:
    if decides is not None:
        yield from (_fold(table, room) for table in _tables(decides, several=len(comparison.runs) > 1))
    others = [run for run in comparison.runs if run is not decides]
    for run in others[: room.runs]:
        title = clipped(f"{run.name}: {verdict_sentence(run)}", 2 * room.characters)
        yield replace(_fold(short_table(run, MOST_ROWS), room), title=title)
    if comparison.unpaired:
        items = [f"{one.side.value.upper()}: {one.recording_id}: {one.reason}" for one in comparison.unpaired]
        yield _listed("Without a partner", items, room)
    if comparison.notes:
        yield _listed("Notes", comparison.notes, room)


def _tables(run: ComparedRun, *, several: bool) -> Iterator[Table]:
    explained = explanation_of(run)
    if explained is not None:
        if several:
            yield category_table(explained)
        yield from cause_tables(explained)
    known = (ranks_table(run), predictions_table(run), differences_table(run))
    yield from (table for table in known if table is not None)
    if run.findings:
        yield findings_table(run.findings)


def _listed(title: str, items: tuple[str, ...] | list[str], room: Room) -> Fold:
    shown = tuple(clipped(text, room.characters) for text in items[: room.rows])
    return Fold(f"{title} ({len(items)})", items=shown, cut=_more(len(items) - len(shown), "line"))


def _fold(table: Table, room: Room) -> Fold:
    """The table with its first rows, and with the last one, which holds the rest of a sum."""
    cut = _cut(table, room.rows, room.characters)
    return Fold(table.caption, cut, cut=_more(len(table.rows) - len(cut.rows), "row"))


def _cut(table: Table, rows: int, characters: int) -> Table:
    def text(cell: Cell) -> str:
        return clipped(f"{cell.text} ({cell.remark})" if cell.remark else cell.text, characters)

    shown = tuple(tuple(Cell(text(cell)) for cell in row) for row in table.rows[:rows])
    return replace(table, rows=shown)


def _more(things: int, one: str) -> str | None:
    return f"And {number_of(things, f'more {one}')} in the full comparison." if things > 0 else None
