"""A comparison for a terminal, as plain data that the command line prints."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.model.comparison import ComparedRun, Comparison
from traceadvisor.model.verdict import Verdict
from traceadvisor.rendering.comparison.sentences import (
    cause_sentence,
    certainty_sentences,
    deciding_run,
    finding_sentence,
    headline,
    prediction_sentence,
)
from traceadvisor.rendering.comparison.tables import KIND, noted_findings, runs_table, short_table
from traceadvisor.rendering.summary import Piece, Style, SummaryLine
from traceadvisor.rendering.table import Table
from traceadvisor.rendering.units import number_of
from traceadvisor.results.redaction import shortened
from traceadvisor.text.cleaning import clipped, one_line

MOST_ROWS = 8
TOP_FINDINGS = 3
MOST_LINES = 8
LONGEST_TEXT = 300
LONGEST_CELL = 40

_STYLES = {Verdict.FASTER: Style.GAIN, Verdict.SLOWER: Style.WARNING}


def comparison_summary(comparison: Comparison) -> tuple[SummaryLine, ...]:
    """The verdict, what it rests on, the step by category, findings, predictions and what differs."""
    comparison = shortened(comparison, LONGEST_TEXT)
    run = deciding_run(comparison)
    several = len(comparison.runs) > 1
    table = runs_table(comparison, MOST_ROWS) if several else short_table(run, MOST_ROWS) if run else None
    blocks = (
        [_line(Piece(headline(comparison), _STYLES.get(comparison.verdict, Style.STRONG)))],
        list(_certainty(run)),
        list(_rows(table)) if table else [],
        list(_cause(run)),
        list(_findings(run)),
        list(_differences(run)),
        list(_notes(comparison)),
    )
    lines: list[SummaryLine] = []
    for block in blocks:
        lines += [SummaryLine(), *block] if lines and block else block
    return tuple(lines)


def _line(*pieces: Piece) -> SummaryLine:
    flat = (Piece(one_line(piece.text), piece.style) for piece in pieces)
    spaced = (piece if place == 0 else Piece(f" {piece.text}", piece.style) for place, piece in enumerate(flat))
    return SummaryLine(tuple(spaced), hanging=2)


def _certainty(run: ComparedRun | None) -> Iterator[SummaryLine]:
    for caution in run.cautions if run else ():
        yield _line(Piece(caution, Style.WARNING))
    if run is not None and run.change is not None:
        yield from (_line(Piece(sentence, Style.QUIET)) for sentence in certainty_sentences(run.change))


def _rows(table: Table) -> Iterator[SummaryLine]:
    """A table in columns; figures are aligned at their right."""
    texts = [[column.title for column in table.columns]]
    texts += [[clipped(one_line(cell.text), LONGEST_CELL) for cell in row] for row in table.rows]
    widths = [max(len(row[place]) for row in texts) for place in range(len(table.columns))]
    for number, row in enumerate(texts):
        cells = [
            text.rjust(width) if column.numeric else text.ljust(width)
            for text, width, column in zip(row, widths, table.columns, strict=True)
        ]
        style = Style.PLAIN if number else Style.QUIET
        yield SummaryLine((Piece("  ".join(cells).rstrip(), style),), unbroken=True)


def _cause(run: ComparedRun | None) -> Iterator[SummaryLine]:
    sentence = cause_sentence(run) if run else None
    if sentence:
        yield _line(Piece(sentence, Style.STRONG))


def _findings(run: ComparedRun | None) -> Iterator[SummaryLine]:
    noted = noted_findings(run) if run else []
    yield from (_line(Piece(finding_sentence(one))) for one in noted[:TOP_FINDINGS])
    if len(noted) > TOP_FINDINGS:
        yield _line(Piece(f"{number_of(len(noted) - TOP_FINDINGS, 'more finding')} in the comparison", Style.QUIET))
    yield from (_line(Piece(prediction_sentence(one))) for one in (run.predictions[:MOST_LINES] if run else ()))


def _differences(run: ComparedRun | None) -> Iterator[SummaryLine]:
    differs = run.differences if run else ()
    for one in differs[:MOST_LINES]:
        yield _line(Piece(f"{KIND[one.kind]} differs: {one.name}: {one.base} in BASE, {one.head} in HEAD", Style.QUIET))
    if len(differs) > MOST_LINES:
        yield _line(Piece(f"{number_of(len(differs) - MOST_LINES, 'more difference')} in the comparison", Style.QUIET))


def _notes(comparison: Comparison) -> Iterator[SummaryLine]:
    lonely = [f"{one.side.value.upper()} only: {one.recording_id}: {one.reason}" for one in comparison.unpaired]
    for text in (*lonely, *comparison.notes)[:MOST_LINES]:
        yield _line(Piece("Note:", Style.WARNING), Piece(text))
    more = len(lonely) + len(comparison.notes) - MOST_LINES
    if more > 0:
        yield _line(Piece(f"{number_of(more, 'more note')} in the comparison", Style.QUIET))
