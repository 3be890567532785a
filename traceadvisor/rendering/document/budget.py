"""Trims a document to the depth of a format and to a number of bytes, and says what was left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar, assert_never, cast

from traceadvisor.frozen import frozen
from traceadvisor.rendering.charts.drawing import Chart
from traceadvisor.rendering.document.blocks import (
    Block,
    Card,
    Cards,
    Code,
    Columns,
    Document,
    EventsLink,
    Fact,
    Facts,
    Figure,
    Figures,
    Fold,
    Group,
    Items,
    Prose,
    RangeBar,
    Section,
    Span,
    plain,
)
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Table, within_depth
from traceadvisor.rendering.units import number_of
from traceadvisor.text.cleaning import clipped, clipped_inside

T = TypeVar("T")


@frozen
class Room:
    """The size of the parts of a document."""

    rows: int
    """Rows per table, and items per list."""

    extra: int
    """Rows of the parts that are the first to leave; with 0, they are only named."""

    parts: int
    """Parts of what a card folds, the most important first."""

    characters: int
    """Characters per text. A sentence may have twice as many."""

    cards: int
    """Cards of a list."""

    details: bool = True
    """Whether sections of details are shown. Whole findings are worth more than the first row of each table."""


ROOMS = (
    Room(40, 40, 9, 400, 40),
    Room(20, 20, 9, 300, 20),
    Room(16, 12, 9, 240, 16),
    Room(12, 8, 6, 240, 12),
    Room(10, 4, 6, 200, 10),
    Room(10, 0, 6, 200, 10),
    Room(8, 0, 4, 200, 8),
    Room(8, 0, 4, 200, 8, details=False),
    Room(8, 0, 3, 160, 6, details=False),
    Room(6, 0, 2, 160, 4, details=False),
    Room(4, 0, 1, 120, 3, details=False),
    Room(3, 0, 1, 90, 3, details=False),
    Room(2, 0, 0, 70, 3, details=False),
    Room(1, 0, 0, 50, 3, details=False),
)
"""Sizes to try, the largest first."""

LEAST_SENTENCE = 160
"""Characters that a sentence keeps in any room."""


def fitted(document: Document, depth: Detail, write: Callable[[Document], bytes]) -> bytes:
    """The document in the largest size whose bytes fit; the headline alone, where none does."""
    found, low, high = None, 0, len(ROOMS)
    while low < high:
        middle = (low + high) // 2
        content = write(trimmed(document, depth, ROOMS[middle]))
        if len(content) <= document.most_bytes:
            found, high = content, middle
        else:
            low = middle + 1
    return found if found is not None else write(_last_form(document))


def _last_form(document: Document) -> Document:
    headline = _whole_sentences(document.headline, 200)
    last = (Prose(document.last_form or _rest(document.noun)),)
    return replace(document, headline=headline, before=(), top=last, sections=(), footer=())


def _whole_sentences(text: str, longest: int) -> str:
    """The sentences that fit; where the first one does not, its beginning without an open parenthesis."""
    if len(text) <= longest:
        return text
    end = text.rfind(". ", 0, longest)
    if end > 0:
        return text[: end + 1]
    cut = clipped(text, longest)
    return cut if cut.count("(") == cut.count(")") else f"{cut[: cut.rindex('(')].rstrip()}…"


def trimmed(document: Document, depth: Detail, room: Room) -> Document:
    """The document as deep as a format goes, and as large as the room."""
    cut = _Trimming(document.noun, depth, room)
    sections = (replace(one, blocks=cut.section(one)) for one in document.sections if one.detail <= depth)
    shown = tuple(section for section in sections if section.blocks)
    if cut.left_out:
        names = ", ".join(cut.left_out)
        shown = _with_last(shown, Prose(f"Not shown here: {names}. {_rest(document.noun)}"))
    return replace(
        document,
        headline=_whole_sentences(document.headline, max(2 * room.characters, LEAST_SENTENCE)),
        before=cut.blocks(document.before),
        top=cut.blocks(document.top),
        sections=shown,
        footer=tuple(one for one in document.footer if one.detail <= depth),
    )


def _with_last(sections: tuple[Section, ...], block: Block) -> tuple[Section, ...]:
    if not sections:
        return (Section("Details", (block,), "details"),)
    *first, last = sections
    return (*first, replace(last, blocks=(*last.blocks, block)))


def _rest(noun: str) -> str:
    return f"The full {noun} has the rest."


class _Trimming:
    """Trims the parts of one document."""

    def __init__(self, noun: str, depth: Detail, room: Room) -> None:
        self._noun, self._depth, self._room = noun, depth, room
        self.left_out: list[str] = []
        """Titles of the parts without any room."""

    def blocks(self, blocks: Iterable[Block], rows: int | None = None) -> tuple[Block, ...]:
        """The parts that are shown; ``rows`` is the room for each, if it is smaller than usual."""
        return tuple(self._blocks(blocks, self._room.rows if rows is None else rows))

    def section(self, section: Section) -> tuple[Block, ...]:
        """The parts of a section that are shown; none of details without room for them."""
        if self._room.details or not section.is_details:
            return self.blocks(section.blocks)
        folds = (one for one in section.blocks if isinstance(one, Fold) and one.detail <= self._depth)
        self.left_out += [plain(fold.title) for fold in folds] or [section.title]
        return ()

    def _blocks(self, blocks: Iterable[Block], rows: int) -> Iterator[Block]:
        for block in blocks:
            if block.detail > self._depth:
                continue
            if block.detail is Detail.EXTRA:
                if self._room.extra:
                    yield from self._block(block, min(rows, self._room.extra))
                elif isinstance(block, Fold):
                    self.left_out.append(plain(block.title) + (f" ({block.remark})" if block.remark else ""))
                continue
            yield from self._block(block, rows)

    def _block(self, block: Block, rows: int) -> Iterator[Block]:  # noqa: C901, PLR0912  # one case per kind
        match block:
            case Prose():
                yield replace(block, words=self.sentence(block.words))
            case Items():
                yield replace(block, items=tuple(map(self.sentence, block.items[:rows])))
                yield from self._more(len(block.items) - rows, block.noun)
            case Figures():
                yield replace(block, items=tuple(map(self._figure, block.items)))
            case Facts():
                yield replace(block, items=tuple(map(self._fact, block.items[:rows])))
                yield from self._more(len(block.items) - rows, "line")
            case Code():
                if len(block.text) + len(block.was or "") <= 5 * self._room.characters:
                    yield block
                elif block.too_long:
                    yield Prose(block.too_long)
            case Table():
                yield from self._table(block, rows)
            case Chart():
                yield replace(block, data=replace(block.data, rows=block.data.rows[:rows]))
                if self._depth > Detail.SUMMARY:  # a terminal draws bars in the place of the table
                    yield from self._more(len(block.data.rows) - rows, block.data.noun)
            case Fold() | Group():
                inside = self.blocks(block.blocks, rows)
                if inside:
                    yield replace(block, blocks=inside)
            case Columns():
                yield replace(block, side=self.blocks(block.side, rows), main=self.blocks(block.main, rows))
            case Cards():
                yield from self._cards(block)
            case RangeBar() | EventsLink():
                yield block
            case _:
                assert_never(block)

    def _table(self, table: Table, rows: int) -> Iterator[Block]:
        shown = within_depth(table, self._depth)
        cut = tuple(tuple(map(self._cell, row)) for row in shown.rows[:rows])
        yield replace(shown, rows=cut)
        yield from self._more(len(table.rows) + table.left_out - len(cut), table.noun)

    def _cards(self, block: Cards) -> Iterator[Block]:
        shown = tuple(map(self._card, block.cards[: self._room.cards]))
        yield replace(block, cards=shown)
        yield from self._more(len(block.cards) - len(shown), block.noun)

    def _card(self, card: Card) -> Card:
        folds = (block for block in self.blocks(card.blocks) if isinstance(block, Fold))
        cut = (replace(fold, blocks=tuple(_flat(fold.blocks)[: self._room.parts])) for fold in folds)
        return replace(
            card,
            title=clipped(card.title, self._room.characters),
            about=None if card.about is None else clipped(card.about, self._room.characters),
            side=self.blocks(card.side),
            main=self.blocks(card.main),
            blocks=tuple(fold for fold in cut if fold.blocks),
        )

    def _more(self, more: int, noun: str) -> Iterator[Prose]:
        if more > 0:
            yield Prose(f"And {number_of(more, f'more {noun}')} in the full {self._noun}.", detail=Detail.SUMMARY)

    def sentence(self, words: T) -> T:
        """A sentence of twice the length of other texts; a styled one has that length in each of its spans."""
        longest = max(2 * self._room.characters, LEAST_SENTENCE)
        return _mapped(words, lambda text: clipped(text, longest))

    def _cell(self, cell: Cell) -> Cell:
        shorten = clipped_inside if cell.code else clipped
        text = shorten(cell.text, self._room.characters)
        remark = None if cell.remark is None else clipped(cell.remark, self._room.characters)
        return replace(cell, text=text, remark=remark)

    def _figure(self, figure: Figure) -> Figure:
        remark = None if figure.remark is None else clipped(figure.remark, self._room.characters)
        return replace(figure, remark=remark)

    def _fact(self, fact: Fact) -> Fact:
        return replace(fact, label=clipped(fact.label, self._room.characters), value=self.sentence(fact.value))


def _flat(blocks: Sequence[Block]) -> list[Block]:
    """The parts without columns around them."""
    return [one for block in blocks for one in ((*block.main, *block.side) if isinstance(block, Columns) else (block,))]


def _mapped(words: T, change: Callable[[str], str]) -> T:
    if isinstance(words, str):
        return cast("T", change(words))
    if isinstance(words, tuple):
        return cast("T", tuple(_mapped(word, change) for word in words))
    return cast("T", replace(words, text=change(words.text))) if isinstance(words, Span) else words
