"""The summary of a document as lines of a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from traceadvisor.rendering.charts.drawing import Chart, LegendEntry
from traceadvisor.rendering.document.blocks import (
    Block,
    Card,
    Cards,
    Code,
    Columns,
    Document,
    EventsLink,
    Facts,
    Figures,
    Fold,
    FoldLook,
    Group,
    Items,
    Mark,
    Prose,
    RangeBar,
    Span,
    Tone,
    Words,
)
from traceadvisor.rendering.document.budget import Room, trimmed
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Column, Table
from traceadvisor.rendering.writers.code import fitted_code
from traceadvisor.rendering.writers.lines import Line, Piece, Style, width_of
from traceadvisor.text.cleaning import clipped, one_line

ROOM = Room(rows=12, extra=0, parts=0, characters=300, cards=3)

INDENT = "   "
"""Before the lines of a card, as wide as its number."""

WIDEST_CELL = 40
"""Columns of a first cell, such as a kernel; a longer one is cut. Another longer cell makes each row a sentence."""

FEWEST_COLUMNS = 40
"""A narrower terminal wraps tables by itself."""

TONES = {
    Tone.NOTICE: Style.WARNING,
    Tone.ACTION: Style.STRONG,
    Tone.STRONG: Style.STRONG,
    Tone.NAME: Style.STRONG,
    Tone.VERDICT: Style.STRONG,
    Tone.QUIET: Style.QUIET,
    Tone.CONTEXT: Style.QUIET,
    Tone.SCOPE: Style.QUIET,
    Tone.GAIN: Style.QUIET,
    Tone.PLACE: Style.QUIET,
}
MARKS = {Mark.STRONG: Style.STRONG, Mark.CODE: Style.CODE, Mark.QUIET: Style.QUIET}
SIGNS = {"-": Style.QUIET, "+": Style.CODE}
CAUTIONS = {FoldLook.CAUTION: Style.WARNING, FoldLook.DAMAGE: Style.WARNING}


def lines(document: Document, columns: int = 80) -> tuple[Line, ...]:
    """The summary.

    ``columns``: width into which code is fitted; other lines are wrapped afterwards.
    """
    cut = trimmed(document, Detail.SUMMARY, ROOM)
    writer = _Writer(columns)
    writer.blocks(cut.before)
    writer.paragraph([_line(Piece(cut.headline, Style.STRONG))])
    writer.blocks(cut.top, follow=True)
    for section in cut.sections:
        writer.paragraph([_line(Piece(section.title, Style.STRONG))])
        writer.blocks(section.blocks, follow=True)
    return tuple(writer.lines)


class _Writer:
    """Collects lines, with an empty one between paragraphs."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self.lines: list[Line] = []

    def paragraph(self, lines: Iterable[Line], *, follows: bool = False) -> None:
        """Add lines, after an empty line unless they follow directly."""
        added = list(lines)
        if added:
            self.lines += [*([Line()] if self.lines and not follows else []), *added]

    def blocks(self, blocks: Iterable[Block], *, follow: bool = False) -> None:
        """Add parts; sentences follow each other directly, and a first part its title if ``follow``."""
        was_sentence = False
        for block in blocks:
            is_sentence = isinstance(block, Prose | Items)
            self.paragraph(self._block(block), follows=follow or (is_sentence and was_sentence))
            follow, was_sentence = False, is_sentence

    def _block(self, block: Block) -> Iterator[Line]:  # noqa: C901, PLR0912  # one case per kind
        match block:
            case Prose():
                yield _line(*_pieces(block.words, TONES.get(block.tone, Style.PLAIN)), hanging=2)
            case Items():
                yield from (_line(Piece("- "), *_pieces(item), hanging=2) for item in block.items)
            case Figures():
                yield _figures(block)
            case Facts():
                for fact in block.items:
                    yield _line(Piece(f"{fact.label}: ", Style.QUIET), *_pieces(fact.value), hanging=2)
            case Code():
                yield from self._code(block)
            case Table():
                yield from self._table(block)
            case Chart():
                yield from _bars(block, max(self._columns, FEWEST_COLUMNS))
            case Fold():
                yield from self._fold(block)
            case Group():
                yield _line(Piece(block.title, Style.STRONG))
                yield from self._all(block.blocks)
            case Columns():
                yield from self._all((*block.side, *block.main))
            case Cards():
                yield from (line for card in block.cards for line in self._card(card))
            case RangeBar() | EventsLink():
                pass
            case _:
                assert_never(block)

    def _all(self, blocks: Iterable[Block]) -> Iterator[Line]:
        return (line for block in blocks for line in self._block(block))

    def _fold(self, fold: Fold) -> Iterator[Line]:
        style = CAUTIONS.get(fold.look, Style.STRONG)
        if fold.lead is None:
            yield _line(*_pieces(fold.title, style))
        for block in fold.blocks:
            if fold.lead and isinstance(block, Items):
                lead = Piece(f"{fold.lead}: ", style)
                yield from (_line(lead, *_pieces(item), hanging=2) for item in block.items)
            else:
                yield from self._block(block)

    def _code(self, block: Code) -> Iterator[Line]:
        if block.was is not None:  # the lines around the change are in the file
            for line in block.changed_lines:
                yield Line((Piece(f"  {line[0]} {line[1:].expandtabs(4)}", SIGNS[line[0]]),), unbroken=True)
            return
        for line in fitted_code(block.text, self._columns - len(INDENT)):
            if line.strip():
                yield Line((Piece(f"  {line}", Style.CODE),), unbroken=True)

    def _table(self, table: Table) -> Iterator[Line]:
        """A table in columns, figures aligned at their right; where these do not fit whole, a sentence for each row."""
        if table.is_named:
            yield _line(Piece(table.caption, Style.STRONG))
        titles = [column.title.replace("\u00ad", "") for column in table.columns]
        texts = [titles, *([_cell(cell) for cell in row] for row in table.rows)]
        widths = [max(width_of(row[place]) for row in texts) for place in range(len(titles))]
        is_cut = any(_cell(cell) != one_line(_whole_cell(cell)) for row in table.rows for cell in row[1:])
        if is_cut or sum(widths) + 2 * len(widths) > max(self._columns, FEWEST_COLUMNS):
            yield from (_record(titles, row) for row in table.rows)
            return
        for number, row in enumerate(texts):
            aligned = (_aligned(*each) for each in zip(row, widths, table.columns, strict=True))
            style = Style.PLAIN if number else Style.QUIET
            yield Line((Piece(f"  {'  '.join(aligned)}".rstrip(), style),), unbroken=True)

    def _card(self, card: Card) -> Iterator[Line]:
        about = Piece(f" ({card.about})" if card.about else "", Style.QUIET)
        yield _line(Piece(f"{card.rank}. "), Piece(card.title, Style.STRONG), about, hanging=len(INDENT))
        effect = _line(Piece(card.effect, Style.GAIN), Piece(f", {card.certainty}", Style.QUIET), hanging=2)
        for line in (effect, *self._all((*card.side, *card.main, *card.blocks))):
            yield Line((Piece(INDENT), *line.pieces), line.hanging + len(INDENT), line.unbroken)


def _line(*pieces: Piece, hanging: int = 0) -> Line:
    return Line(tuple(Piece(_flat(piece.text), piece.style) for piece in pieces if piece.text), hanging)


def _flat(text: str) -> str:
    """The text on one line; spaces at both ends are kept."""
    inner = one_line(text)
    return f"{' ' * (len(text) - len(text.lstrip(' ')))}{inner}{' ' * text[-1:].isspace()}" if inner else text


def _pieces(words: Words, style: Style = Style.PLAIN) -> Iterator[Piece]:
    for span in (words,) if isinstance(words, str) else words:
        if isinstance(span, Span):
            text = f"{span.text}: " if span.mark is Mark.LEAD else span.text
            yield Piece(text, MARKS.get(span.mark, style))
        else:
            yield Piece(span, style)


def _figures(block: Figures) -> Line:
    pieces = [Piece("")]
    for place, figure in enumerate(block.items):
        pieces += [Piece(f"{', ' if place else ''}{figure.label} "), Piece(figure.value, Style.STRONG)]
        pieces += [Piece(f" ({figure.remark})", Style.QUIET)] if figure.remark else []
    return _line(*pieces, hanging=2)


def _aligned(text: str, width: int, column: Column) -> str:
    room = " " * (width - width_of(text))
    return f"{room}{text}" if column.numeric else f"{text}{room}"


def _cell(cell: Cell) -> str:
    return clipped(one_line(_whole_cell(cell)), WIDEST_CELL)


def _record(titles: Sequence[str], row: Sequence[Cell]) -> Line:
    """A row as a sentence: its first cell, then the others with the titles of their columns."""
    first, *others = map(_whole_cell, row)
    rest = "; ".join(f"{title}: {text}" for title, text in zip(titles[1:], others, strict=True) if text)
    return _line(Piece(f"  {first}: ", Style.STRONG), Piece(rest), hanging=4)


def _whole_cell(cell: Cell) -> str:
    return f"{cell.text} ({cell.remark})" if cell.remark and cell.text else cell.text or cell.remark or ""


LONGEST_BAR, MOST_BARS = 30, 5
BETWEEN = 5
"""Columns around a bar."""


def _bars(chart: Chart, columns: int) -> Iterator[Line]:
    """The parts of a chart as bars of text; those of a curve have no length."""
    shown = chart.text_bars or [entry for entry in chart.legend if entry.figure][:MOST_BARS]
    if not shown:
        return
    yield _line(Piece(chart.title, Style.QUIET))
    width = max(width_of(entry.label) for entry in shown)
    figures = max((width_of(entry.figure) for entry in shown if entry.share), default=0)
    longest = min(LONGEST_BAR, columns - width - figures - BETWEEN)
    for entry in shown:
        yield Line(
            (Piece(f"  {entry.label}{' ' * (width - width_of(entry.label))}  "), *_bar(entry, longest)), unbroken=True
        )


def _bar(entry: LegendEntry, longest: int) -> Iterator[Piece]:
    if entry.share is not None and longest > 0:
        yield Piece("█" * max(round(entry.share * longest), 1) + " ", Style.GAIN)
    yield Piece(one_line(entry.figure))
